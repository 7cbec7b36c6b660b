"""Attention over long texts on a GPU, with the bias inside torch's FlexAttention, so that no score is written out.

A mask is: `create_block_mask` makes T x S booleans for a moment.

The low-rank part becomes further channels of queries and keys, so that one product gives content and position::

    score[i, j] = [scale q_i, a_i] . [k_j, c_j] + table[j - i + T - 1]

The Toeplitz part is read from its table by a `score_mod`. FlexAttention (Dong et al. 2024,
https://arxiv.org/abs/2412.05496) writes the gradient of the table by atomic additions: one per score, spread over
2 N - 1 distances (not over 32 buckets, where they would collide).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.backend import Backend
from wordorder.attention.backends.triton import compiler_refusal, is_too_large
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, LowRankBias, Mask, Packed, ToeplitzBias

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

CHANNELS = 16
"""Query channels are padded to a multiple of this number, which tensor cores read at once."""


class InBlocks(NamedTuple):
    """The bias, of low-rank and Toeplitz parts, and the mask as FlexAttention takes it."""

    bias: Bias | None
    blocks: "BlockMask | None"


class Flex(Backend):
    """On a GPU, a bias that would be too large written out, of heads that the Triton kernels refuse."""

    name = "flex"

    def refusal(self, call: Call) -> str | None:
        if call.return_lse or call.return_weights or call.dropout or call.content:
            return "gives no log-sum-exp, weights, dropout or terms by content; take backend='reference' or None"
        on_gpu = call.device.type == "cuda"
        if not on_gpu and call.training:  # torch's function has no gradient on a CPU
            return "trains on a CUDA device only; take backend=None"
        if not call.structured:
            return "wants a bias of low-rank and Toeplitz parts; take backend=None"
        if call.traced or call.transformed:
            return "is not traced; take backend=None"
        return compiler_refusal(call) if on_gpu else None

    def at_home(self, call: Call) -> bool:
        return call.device.type == "cuda" and is_too_large(call)

    def compiles(self, call: Call) -> bool:
        return call.device.type == "cuda"

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> InBlocks:
        blocks = block_mask(mask, call.batch, call.heads, call.queries, call.keys, call.device)
        return InBlocks(terms.bias, blocks)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: InBlocks,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        del added, dropout, return_lse  # refused
        q, k, tables = _concatenate(q_BHTD, k_BHSD, prepared.bias, scale)
        queries, score_mod = q.shape[2], None
        if tables:
            table_HW = torch.stack(tables).sum(0) if len(tables) > 1 else tables[0]

            def add_relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                del b
                return score + table_HW[h, j - i + (queries - 1)]

            score_mod = add_relative
        compiled = _flex_attention(q.device.type)
        return compiled(q, k, v_BHSE, score_mod=score_mod, block_mask=prepared.blocks, scale=1.0), None


def block_mask(
    mask: Mask | Tensor | None, batch: int, heads: int, queries: int, keys: int, device: torch.device
) -> "BlockMask | None":
    """Return the mask as FlexAttention takes it: blocks that are hidden as a whole are never computed."""
    from torch.nn.attention.flex_attention import create_block_mask

    if mask is None:
        return None
    sizes = batch, heads if isinstance(mask, Tensor) else None, queries, keys
    return create_block_mask(_mask_mod(mask, batch, heads, queries, keys, device), *sizes, device=str(device))


def _concatenate(
    q_BHTD: Tensor, k_BHSD: Tensor, bias: Bias | None, scale: float
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return queries and keys with the low-rank factors as further channels, and the tables of the Toeplitz parts."""
    queries, keys, tables = [q_BHTD * scale], [k_BHSD], list[Tensor]()
    for part in () if bias is None else bias.parts():
        if isinstance(part, LowRankBias):
            queries.append(part.query_factor_BHTR.to(q_BHTD.dtype).expand(*q_BHTD.shape[:3], -1))
            keys.append(part.key_factor_BHSR.to(k_BHSD.dtype).expand(*k_BHSD.shape[:3], -1))
        elif isinstance(part, ToeplitzBias):
            tables.append(part.table_HW.expand(q_BHTD.shape[1], -1))
        else:
            raise TypeError(f"backend 'flex' has no {type(part).__name__}; take backend=None")
    q, k = torch.cat(queries, -1), torch.cat(keys, -1)
    missing = -q.shape[-1] % CHANNELS
    return F.pad(q, (0, missing)), F.pad(k, (0, missing)), tables


def _mask_mod(
    mask: Mask | Tensor, batch: int, heads: int, queries: int, keys: int, device: torch.device
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a function of (example, head, query, key) that is True for visible keys."""
    if isinstance(mask, Tensor):
        full = mask.expand(batch, heads, queries, keys)
        return lambda b, h, i, j: full[b, h, i, j]
    tokens_BS = None if mask.tokens_BS is None else mask.tokens_BS.to(device).expand(batch, -1)
    sequences = [s.sequence_BT.to(device).expand(batch, -1) for s in (mask.query, mask.key) if isinstance(s, Packed)]
    query_BT, key_BS = (positions.index_BT(device).expand(batch, -1) for positions in (mask.query, mask.key))
    low, high = mask.low, mask.high

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        del h
        visible = j >= 0
        if tokens_BS is not None:
            visible = visible & tokens_BS[b, j]
        if sequences:
            visible = visible & (sequences[0][b, i] == sequences[1][b, j])
        if high is not None:
            visible = visible & (key_BS[b, j] - query_BT[b, i] <= high)
        if low is not None:
            visible = visible & (key_BS[b, j] - query_BT[b, i] >= low)
        return visible

    return seen


@lru_cache(maxsize=2)
def _flex_attention(device: str) -> Callable[..., Any]:
    """Return FlexAttention, compiled on CUDA; on other devices return the plain function, for tests."""
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cuda":
        return flex_attention
    return torch.compile(flex_attention, dynamic=True)  # pyright: ignore[reportUnknownMemberType]
