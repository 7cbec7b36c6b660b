"""Attention with a bias that is constant beyond a distance: torch's fused kernels for far keys, tiles for near ones.

With a table that is one number from distance w on (T5, TUPE-R) one softmax is the merge of up to three, by their
normalisers, as look-ahead memory merges them::

    left     keys j <= i - w: causal attention of queries w .. over keys 0 .., without a bias; plus the table's number
    right    keys j >= i + w: the same of the rows in reverse
    near     |j - i| < w: a band of diagonals with the table, in tiles

    lse = log(exp(lse_near) + exp(lse_left + first) + exp(lse_right + last)),  o = sum of exp(lse_part - lse) o_part

A bias of low rank is more channels of the heads, [q, a / scale] . [k, c], in the far parts; without a table there is no
near part. Padding cuts the far parts to the keys that are tokens.

Backward each part gets the merged output and normaliser, less its own constant: its weights exp(s - lse) and
rowsum(do o) are then those of the whole softmax, and the gradients of the parts add up (as in ring attention, Liu et
al. 2023, https://arxiv.org/abs/2310.01889). So do those of the constants, which need no scores::

    d first = sum of exp(lse_left + first - lse) (do . o_left - D),  D = rowsum(do o) - dlse
            = sum of v . dv_left - sum of exp(lse_left + first - lse) D

and one of them is what the others leave: the gradients of a row's scores sum to dlse.
"""

# torch's operators and autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.far_and_near import KERNEL
from wordorder.attention.backends.far_and_near.regions import Prepared, Region
from wordorder.attention.backends.tiles import InTiles, Tiles
from wordorder.attention.backends.tiles.bias import Kind, LowRankTiles, ToeplitzTiles, as_tiles
from wordorder.attention.backends.tiles.passes import Backward, Inputs, TileOptions, forward
from wordorder.ops import Bias, LowRankBias, RelativeBias, RelativeKeyBias
from wordorder.ops.bias import SumBias
from wordorder.ops.execution import no_autocast

_KERNEL: Any = getattr(torch.ops.aten, KERNEL)
_KERNEL_BACKWARD: Any = getattr(torch.ops.aten, f"{KERNEL}_backward")


class Operands(NamedTuple):
    """The tensors of a call, or their gradients in at least float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    ends: Tensor | None
    """(H, X), see `Prepared`."""
    a: Tensor | None
    """Factors of low rank, of queries (1 or B, H, T, R) and of keys (1 or B, H, S, R)."""
    c: Tensor | None
    left_a: Tensor | None
    """The same of what terms by content are on the left, where each is one number for a query or for a key."""
    left_c: Tensor | None
    right_a: Tensor | None
    right_c: Tensor | None
    near: tuple[Tensor, ...] = ()
    """Terms by content in the band, as tiles take them."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> "Operands":
        """Return those of `flat`."""
        return cls(*cast("tuple[Any, ...]", tensors[:10]), near=cast("tuple[Tensor, ...]", tuple(tensors[10:])))

    def flat(self) -> tuple[Tensor | None, ...]:
        """Return all tensors in a row."""
        return *self[:10], *self.near

    def of_heads(self, heads: slice) -> "Operands":
        """Return those of some heads, without the band's; all but the table have heads on the second axis."""
        ends = None if self.ends is None else self.ends[heads]
        factors = [None if x is None else x[:, heads] for x in self.flat()[4:10]]
        return Operands.of([self.q[:, heads], self.k[:, heads], self.v[:, heads], ends, *factors])

    def factors(self, side: int) -> list[tuple[Tensor, Tensor]]:
        """Return the terms of low rank of the regions on a side, of queries and of keys."""
        pairs = (self.a, self.c), (self.right_a, self.right_c) if side else (self.left_a, self.left_c)
        return [(a, c) for a, c in pairs if a is not None and c is not None]

    def widened(self, scale: float, side: int, spare: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values with one number of channels: those of the factors, then zeros.

        ``spare``: at least so many zeros behind the values.
        """
        q, k, v = self.q, self.k, self.v
        if factors := self.factors(side):
            batch = q.shape[0]
            q = torch.cat((q, *((a / scale).to(q.dtype).expand(batch, -1, -1, -1) for a, _ in factors)), dim=-1)
            k = torch.cat((k, *(c.to(k.dtype).expand(batch, -1, -1, -1) for _, c in factors)), dim=-1)
        channels = max(q.shape[-1], v.shape[-1] + spare)
        return _widened(q, channels), _widened(k, channels), _widened(v, channels)

    def constant(self, region: Region) -> Tensor | float:
        """Return the table's number in a region, (H, 1)."""
        return 0.0 if self.ends is None else self.ends[:, -region.side, None]


def _widened(x: Tensor, channels: int) -> Tensor:
    """Return rows with zeros behind them, of channels side by side: the kernel reads no other stride."""
    if x.shape[-1] < channels:
        return F.pad(x, (0, channels - x.shape[-1]))
    return x if x.stride(-1) == 1 else x.contiguous()


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    prepared: Prepared | InTiles,
    added: Bias | None,
    *,
    scale: float,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E), and the log-sum-exp (B, H, T) where wanted, in at least float32."""
    wide, (batch, heads, queries, _), keys = (
        torch.promote_types(q_BHTD.dtype, torch.float32),
        q_BHTD.shape,
        k_BHSD.shape[2],
    )
    if isinstance(prepared, InTiles):
        in_tiles = Tiles(keep=False).attend
        return in_tiles(q_BHTD, k_BHSD, v_BHSE, prepared, added, scale=scale, dropout=0.0, return_lse=return_lse)
    by_content = () if added is None else added.parts()
    factors = (*prepared.factors, *(part for part in by_content if isinstance(part, LowRankBias)))
    relative = [part.to(wide) for part in by_content if isinstance(part, RelativeBias | RelativeKeyBias)]
    ends_HX = None if prepared.ends is None else prepared.ends.to(wide)
    centre_BH1E = _centre(v_BHSE) if v_BHSE.dtype.itemsize == 2 else None
    if centre_BH1E is not None:
        v_BHSE = v_BHSE - centre_BH1E
    left, right = (_beyond(relative, side) if side in prepared.sides else () for side in (0, 1))
    band = [part.between(prepared.edges[0] + 1, prepared.edges[1]) for part in relative]
    kinds, near = as_tiles(SumBias(band), batch=batch, heads=heads, queries=queries, keys=keys) if band else ([], [])
    tensors = Operands(
        *(q_BHTD, k_BHSD, v_BHSE, ends_HX),
        *_side_by_side([factor.tensors for factor in factors], heads, wide),
        *_side_by_side(left, heads, wide),
        *_side_by_side(right, heads, wide),
        near=tuple(near),
    )
    output, lse = _Attention.apply(prepared, kinds, scale, return_lse, centre_BH1E, *tensors.flat())
    return output, lse if return_lse else None


def _beyond(relative: Sequence[RelativeBias | RelativeKeyBias], side: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield factors of queries and of keys of terms beyond an edge: the number of each query or key, and a 1."""
    for part in relative:
        exchanged = isinstance(part, RelativeKeyBias)
        number = part.exchanged.constant(1 - side) if exchanged else part.constant(side)
        if number is not None:
            one = number.new_ones(1, 1, 1, 1)
            ones = one.expand(1, 1, part.queries if exchanged else part.keys, 1)
            yield (ones, number[..., None]) if exchanged else (number[..., None], ones)


def _centre(v_BHSE: Tensor) -> Tensor:
    """Return what all values have in common, where it is much: subtracted from them, it takes part in no gradient.

    In 16 bits the kernel rounds rowsum(do o), of which a score's gradient is the difference to do v.
    """
    std_BH1E, mean_BH1E = torch.std_mean(v_BHSE.detach().float(), dim=2, keepdim=True, correction=0)
    return mean_BH1E.masked_fill_(mean_BH1E.abs() < 2 * std_BH1E, 0).to(v_BHSE.dtype)


def _side_by_side(
    factors: Iterable[Sequence[Tensor]], heads: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return factors of queries and of keys, the pairs side by side; None = there are none."""
    sides = [*zip(*factors, strict=True)]
    if not sides:
        return None, None
    rows = [max(factor.shape[0] for factor in side) for side in sides]
    of_queries, of_keys = (
        torch.cat([factor.expand(count, heads, -1, -1).to(dtype) for factor in side], dim=-1)
        for count, side in zip(rows, sides, strict=True)
    )
    return of_queries, of_keys


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        prepared: Prepared,
        kinds: list[Kind],
        scale: float,
        return_lse: bool,
        centre: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        operands = Operands.of(tensors)
        left: list[Tensor] = []
        with no_autocast(operands.q.device):
            output, lse = _near(prepared, kinds, operands, scale)
            ctx.groups = _groups(operands.q)
            for heads in ctx.groups:
                left += _add_far(prepared, operands.of_heads(heads), scale, output[:, heads], lse[:, heads])
            result = output
            if centre is not None:  # a row that sees nothing stays 0
                result = (output + centre).masked_fill_((lse == -torch.inf)[..., None], 0)
            result = result.to(operands.v.dtype)
        ctx.prepared, ctx.kinds, ctx.scale, ctx.count = prepared, kinds, scale, len(tensors)
        ctx.save_for_backward(*tensors, output, lse, *left)
        if not return_lse:
            ctx.mark_non_differentiable(lse)
        return result, lse

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "far-and-near gives no second derivatives (create_graph=True); take backend='reference', or "
                "set WORDORDER_BACKEND=reference"
            )
        prepared, scale = cast("Prepared", ctx.prepared), ctx.scale
        saved = ctx.saved_tensors  # once: checkpointing computes the layer again for it
        operands, (output, lse, *left) = Operands.of(saved[: ctx.count]), saved[ctx.count :]
        do, dlse = grad_outputs
        do = torch.zeros_like(output, dtype=operands.q.dtype) if do is None else do
        with no_autocast(output.device):
            delta = (do.to(lse.dtype) * output).sum(-1)
            if dlse is not None:
                delta -= dlse
            totals = _gradients_of_near(prepared, ctx.kinds, operands, scale, lse, delta, do)
            of_left, lse_of_left = lse.new_zeros(lse.shape[1]), iter(left)
            for heads in ctx.groups:
                of_left[heads] = _add_gradients_of_far(
                    prepared,
                    operands.of_heads(heads),
                    scale,
                    output[:, heads],
                    lse[:, heads],
                    delta[:, heads],
                    do[:, heads],
                    lse_of_left,
                    totals.of_heads(heads),
                    with_lse=dlse is not None,
                )
            if totals.ends is not None:
                # the gradients of a row's scores sum to dlse: one constant has what the others leave
                rest = -totals.ends.sum(-1)
                if dlse is not None:
                    rest += dlse.masked_fill(lse == -torch.inf, 0).sum((0, 2))
                if 1 in prepared.sides:
                    totals.ends[:, -1], rest = rest - of_left, of_left
                if 0 in prepared.sides:
                    totals.ends[:, 0] = rest
        q, k, v, *others = totals.flat()
        return *[None] * 5, *(cast("Tensor", x).to(operands.q.dtype) for x in (q, k, v)), *others


def _groups(q_BHTD: Tensor) -> list[slice]:
    """Return heads by as many as threads can work on: what is copied for the kernel is of these alone."""
    batch, heads = q_BHTD.shape[:2]
    count = max(1, torch.get_num_threads() // max(batch, 1))
    return [slice(first, min(first + count, heads)) for first in range(0, heads, count)]


def _add_far(prepared: Prepared, operands: Operands, scale: float, output: Tensor, lse: Tensor) -> list[Tensor]:
    """Merge the regions into output and log-sum-exp; return the log-sum-exp of those on the left, if both sides are."""
    widened = _by_side(prepared, operands, scale)
    left: list[Tensor] = []
    for region in prepared.regions:
        q, k, v = widened[region.side]
        rows, columns = region.rows, region.columns
        part, part_lse = _KERNEL(
            *(region.in_order(x[at]) for x, at in ((q, rows), (k, columns), (v, columns))),
            is_causal=region.is_triangle,
            scale=scale,
        )
        part, part_lse = region.in_order(part), region.in_order(part_lse) + operands.constant(region)
        merged = torch.logaddexp(lse[rows], part_lse)
        output[rows] *= (lse[rows] - merged).exp_()[..., None]
        output[rows] += (part_lse - merged).exp_()[..., None] * part[..., : output.shape[-1]]
        lse[rows] = merged
        if region.side == 0 and 1 in prepared.sides:
            left.append(part_lse)
    return left


def _by_side(
    prepared: Prepared, operands: Operands, scale: float, spare: int = 0
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return what the kernel reads on the left and on the right: the same, where no term by content differs."""
    if operands.left_a is None and operands.right_a is None:
        return [operands.widened(scale, 0, spare)] * 2
    return [operands.widened(scale, side, spare) for side in (0, 1)]


def _near(prepared: Prepared, kinds: list[Kind], operands: Operands, scale: float) -> tuple[Tensor, Tensor]:
    """Return output (B, H, T, E) and log-sum-exp (B, H, T) of the band, in at least float32; 0 and -inf without one."""
    q, v = operands.q, operands.v
    if prepared.near is None:
        wide = torch.promote_types(q.dtype, torch.float32)
        return q.new_zeros(*q.shape[:3], v.shape[-1], dtype=wide), q.new_full(q.shape[:3], -torch.inf, dtype=wide)
    output, lse_BHT1 = forward(*_for_tiles(prepared, kinds, operands, scale))
    return output, lse_BHT1[..., 0]


def _gradients_of_near(
    prepared: Prepared,
    kinds: list[Kind],
    operands: Operands,
    scale: float,
    lse: Tensor,
    delta: Tensor,
    do: Tensor,
) -> Operands:
    """Return the gradients of the band, given the log-sum-exp of all keys; 0 without one."""
    if prepared.near is None:
        return Operands.of([None if x is None else torch.zeros_like(x, dtype=lse.dtype) for x in operands.flat()])
    options, inputs, tensors = _for_tiles(prepared, kinds, operands, scale)
    near = Backward(
        options,
        inputs,
        tensors,
        kept=None,
        lse=lse.masked_fill(lse == -torch.inf, torch.inf)[..., None],  # hidden rows: exp(-inf - inf) = 0
        delta=delta[..., None],
        grad_output=do,
        wanted=[True] * len(options.kinds),
    )
    gradients = iter(near.run()[3:])
    ends = None if operands.ends is None else cast("Tensor", next(gradients))[0, :, prepared.columns]
    factors = (None, None) if operands.a is None else (next(gradients), next(gradients))
    beyond = [None if x is None else torch.zeros_like(x) for x in operands[6:10]]
    return Operands.of([near.dq, near.dk, near.dv, ends, *factors, *beyond, *gradients])


def _for_tiles(
    prepared: Prepared, kinds: list[Kind], operands: Operands, scale: float
) -> tuple[TileOptions, Inputs, list[Tensor]]:
    """Return the band as tiles take it: options, inputs, and the tensors of its bias."""
    assert prepared.near is not None
    of_bias: list[Kind] = []
    tensors: list[Tensor] = []
    if operands.ends is not None:
        of_bias.append(Kind(ToeplitzTiles, 1))
        # numbers beyond the band are read, and hidden
        before, behind = prepared.columns.start, prepared.near.queries + prepared.near.keys - 1 - prepared.columns.stop
        tensors.append(F.pad(operands.ends, (before, max(behind, 0)))[None])
    if operands.a is not None and operands.c is not None:
        of_bias.append(Kind(LowRankTiles, 2))
        tensors += [operands.a, operands.c]
    options = TileOptions(
        scale=scale,
        kinds=(*of_bias, *kinds),
        tile_mask=prepared.near,
        rows_may_be_fully_masked=True,
        dropout=None,
        keep=False,
        return_lse=True,
    )
    return options, Inputs(operands.q, operands.k, operands.v), [*tensors, *operands.near]


def _add_gradients_of_far(
    prepared: Prepared,
    operands: Operands,
    scale: float,
    output: Tensor,
    lse: Tensor,
    delta: Tensor,
    do: Tensor,
    lse_of_left: Iterator[Tensor],
    totals: Operands,
    *,
    with_lse: bool,
) -> Tensor:
    """Add the gradients of the regions, and return that of the constant on the left, (H,), if there are both sides."""
    widened = _by_side(prepared, operands, scale, spare=int(with_lse))
    channels, values = operands.q.shape[-1], operands.v.shape[-1]
    most = max(v.shape[-1] for _, _, v in widened)
    wide_output, wide_do = _widened(output.to(do.dtype), most), _widened(do, most)
    if with_lse:  # a channel of values that are 0 takes dlse from rowsum(do o)
        wide_output[..., values], wide_do[..., values] = delta - (do.to(delta.dtype) * output).sum(-1), 1
    centre = operands.v.to(lse.dtype).mean(2, keepdim=True)
    of_left = lse.new_zeros(lse.shape[1])
    for region in prepared.regions:
        at_rows, at_columns, (q, k, v) = region.rows, region.columns, widened[region.side]
        all_do, all_output = wide_do[..., : v.shape[-1]], wide_output[..., : v.shape[-1]]
        dq, dk, dv = _KERNEL_BACKWARD(
            *(region.in_order(x[at]) for x, at in ((all_do, at_rows), (q, at_rows), (k, at_columns), (v, at_columns))),
            region.in_order(all_output[at_rows]),
            region.in_order(lse[at_rows] - operands.constant(region)).contiguous(),
            0.0,
            region.is_triangle,
            scale=scale,
        )
        dq, dk, dv = region.in_order(dq), region.in_order(dk), region.in_order(dv[..., :values])
        totals.q[at_rows] += dq[..., :channels]
        totals.k[at_columns] += dk[..., :channels]
        totals.v[at_columns] += dv
        if region.side == 0 and 1 in prepared.sides:
            # what all values have in common cancels; left out, it rounds nothing
            middle = centre[region.examples]
            share, of_middle = (next(lse_of_left) - lse[at_rows]).exp_(), (do[at_rows] * middle).sum(-1)
            of_left += ((operands.v[at_columns] - middle) * dv).sum((0, 2, 3))
            of_left -= (share * (delta[at_rows] - of_middle)).sum((0, 2))
        first = channels
        for da, dc in totals.factors(region.side):
            behind = slice(first, first + da.shape[-1])
            _add_to_factor(da, at_rows, dq[..., behind] / scale)
            _add_to_factor(dc, at_columns, dk[..., behind])
            first = behind.stop
    return of_left


def _add_to_factor(total: Tensor, at: tuple[slice, slice, slice], part: Tensor) -> None:
    """Add the gradient of a factor, which all examples share or not."""
    if total.shape[0] == 1:
        total[:, :, at[2]] += part.sum(0, keepdim=True, dtype=total.dtype)
    else:
        total[at] += part
