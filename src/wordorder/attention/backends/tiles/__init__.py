"""Exact attention in tiles that fit into the cache, with gradients for the bias and without a (T, S) matrix."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, DenseBias, Mask

if TYPE_CHECKING:
    from wordorder.attention.backends.tiles.tile import TileMask

SMALL = 128 * 128
"""Smallest number of scores per head and example for which tiles pay on a CPU."""
LONGEST_KEPT = 1024
"""Largest number of keys for which keeping the weights is faster than computing them again."""
MOST_KEPT = 256 * 2**20
"""Most bytes of weights that a layer may keep for its backward pass."""
LARGEST_MATRIX = 256 * 2**20
"""Most bytes of bias that may be written out on a CPU; on a GPU that many always may, gradient included."""
NARROW = 2
"""A query's window is narrow where it is at most one part in so many of the keys."""
LONGEST_WRITTEN = 1024
"""Number of keys from which narrow windows are faster in tiles than SDPA with the mask written out: in 0.50 to 0.86 of
its time at 1,024, in 0.20 to 0.61 at 4,096, but in 0.82 to 1.48 at 512. Memory is a tenth."""


class InTiles(NamedTuple):
    """The bias, and the mask as tiles read it."""

    bias: Bias | None
    tile_mask: "TileMask"


class Tiles(Backend):
    """A CPU's attention in tiles: weights kept for the backward pass up to 1,024 keys, else computed again.

    At home where torch's fused kernels cannot train (a learned bias, terms by content, dropout), where a fixed bias is
    too large to write out, where windows leave most of a long text unseen, and where the log-sum-exp is wanted.
    """

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep
        self.name = "kept-tiles" if keep else "recomputed-tiles"

    def refusal(self, call: Call) -> str | None:
        if call.return_weights:
            return "does not return attention weights; take backend='reference' or None"
        # products in float16 overflow, and no CPU is fast at it
        if call.device.type != "cpu" or call.traced or call.transformed or call.dtype == torch.float16:
            return "computes in bfloat16, float32 or float64 on a CPU, outside torch.compile and torch.func; take None"
        return None

    def at_home(self, call: Call) -> bool:
        if call.learns:
            pays = call.return_lse or call.queries * call.keys >= SMALL
        else:
            pays = call.return_lse or (call.matrix_bytes > LARGEST_MATRIX and call.structured) or _is_narrow(call)
        return pays and call.device.type == "cpu" and (not self.keep or _may_be_kept(call))

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> InTiles:
        from wordorder.attention.backends.tiles.tile import TileMask

        tile_mask = TileMask(mask, batch=call.batch, queries=call.queries, keys=call.keys, device=call.device)
        bias = terms.bias
        if self.keep and call.layers > 1 and bias is not None:
            # the weights are kept anyway: one matrix for all layers and examples is built once instead of in every tile
            wide = torch.promote_types(call.dtype, torch.float32)
            bias = DenseBias(bias.written_out(wide), may_hide=bias.may_hide)
        return InTiles(bias, tile_mask)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: InTiles,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        from wordorder.attention.backends.tiles.passes import attend

        biases = [bias for bias in (prepared.bias, added) if bias is not None]
        # the loops over tiles are not for a tracer: a layer that is compiled alone breaks its graph here
        outside: Any = torch.compiler.disable(attend)  # pyright: ignore[reportUnknownMemberType]
        settings = {"scale": scale, "dropout": dropout, "keep": self.keep, "return_lse": return_lse}
        return outside(q_BHTD, k_BHSD, v_BHSE, biases, prepared.tile_mask, **settings)


def _is_narrow(call: Call) -> bool:
    """Tell whether windows leave so much of a long text unseen that tiles beat a mask that is written out."""
    long = call.keys >= LONGEST_WRITTEN and call.queries * call.keys >= LONGEST_WRITTEN**2
    return long and call.span is not None and call.span * NARROW <= call.keys


def _may_be_kept(call: Call) -> bool:
    """Tell whether the weights may be kept for the backward pass."""
    weights = call.batch * call.heads * call.queries * call.keys * call.dtype.itemsize
    # weights kept in 16 bits would cost the gradient of the bias its exactness
    exact = call.dtype.itemsize > 2
    # weights that come of q.k alone are computed again in less time than they take to write and read
    return exact and call.learns and call.keys <= LONGEST_KEPT and weights <= MOST_KEPT
