"""Attention with terms that are constant beyond a distance: torch's fused kernels for far keys, a band of near ones.

With a table that is one number from distance w on (T5, TUPE-R) one softmax is the merge of up to three, by their
normalisers, as look-ahead memory merges them::

    left     keys j <= i - w: causal attention of queries w .. over keys 0 .., without a bias; plus the table's number
    right    keys j >= i + w: the same of the rows in reverse
    near     |j - i| < w: a band of diagonals with the table, in tiles (CPU) or blocks of products (GPU)

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
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.attention.backends.far_and_near.kernels import Kernel, Settings, kernel_of
from wordorder.attention.backends.far_and_near.near import near_of
from wordorder.attention.backends.far_and_near.operands import Operands, widened_to
from wordorder.attention.backends.far_and_near.regions import Prepared
from wordorder.attention.backends.tiles import InTiles, Tiles
from wordorder.attention.backends.tiles.bias import Kind, as_tiles
from wordorder.ops import Bias, LowRankBias, RelativeBias, RelativeKeyBias
from wordorder.ops.bias import SumBias
from wordorder.ops.execution import no_autocast


def attend(
    q_BHTD: Tensor,
    k_BHSD: Tensor,
    v_BHSE: Tensor,
    prepared: Prepared | InTiles,
    added: Bias | None,
    *,
    scale: float,
    dropout: float,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the output (B, H, T, E), and the log-sum-exp (B, H, T) where wanted, in at least float32."""
    if isinstance(prepared, InTiles):
        in_tiles = Tiles(keep=False).attend
        return in_tiles(q_BHTD, k_BHSD, v_BHSE, prepared, added, scale=scale, dropout=dropout, return_lse=return_lse)
    wide = torch.promote_types(q_BHTD.dtype, torch.float32)
    (batch, heads, queries, _), keys = q_BHTD.shape, k_BHSD.shape[2]
    by_content = () if added is None else added.parts()
    factors = (*prepared.factors, *(part for part in by_content if isinstance(part, LowRankBias)))
    relative = [part.to(wide) for part in by_content if isinstance(part, RelativeBias | RelativeKeyBias)]
    if unknown := [part for part in by_content if not isinstance(part, LowRankBias) and part.edges is None]:
        raise TypeError(f"a term by content promised edges, and gave a {type(unknown[0]).__name__} that has none")
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
    output, lse = _Attention.apply(prepared, kinds, scale, dropout, return_lse, centre_BH1E, *tensors.flat())
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
        dropout: float,
        return_lse: bool,
        centre: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        operands = Operands.of(tensors)
        left: list[Tensor] = []
        ctx.near, ctx.far = near_of(prepared, kinds, dropout), Far(prepared, scale, dropout, operands.q)
        with no_autocast(operands.q.device):
            output, lse = ctx.near.forward(operands, scale)
            ctx.groups = _groups(operands.q)
            for heads in ctx.groups:
                left += ctx.far.add(operands.of_heads(heads), output[:, heads], lse[:, heads])
            result = output
            if centre is not None:  # a row that sees nothing stays 0
                result = (output + centre).masked_fill_((lse == -torch.inf)[..., None], 0)
            result = result.to(operands.v.dtype)
        ctx.sides, ctx.scale, ctx.count = prepared.sides, scale, len(tensors)
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
        saved = ctx.saved_tensors  # once: checkpointing computes the layer again for it
        operands, (output, lse, *left) = Operands.of(saved[: ctx.count]), saved[ctx.count :]
        do, dlse = grad_outputs
        do = torch.zeros_like(output, dtype=operands.q.dtype) if do is None else do
        with no_autocast(output.device):
            delta = (do.to(lse.dtype) * output).sum(-1)
            if dlse is not None:
                delta -= dlse
            totals = ctx.near.gradients(operands, ctx.scale, lse, delta, do)
            of_left, lse_of_left, drawn = lse.new_zeros(lse.shape[1]), iter(left), iter(ctx.far.drawn)
            for heads in ctx.groups:
                of_left[heads] = ctx.far.add_gradients(
                    operands.of_heads(heads),
                    output[:, heads],
                    lse[:, heads],
                    delta[:, heads],
                    do[:, heads],
                    lse_of_left,
                    drawn,
                    totals.of_heads(heads),
                    with_lse=dlse is not None,
                )
            if totals.ends is not None:
                # the gradients of a row's scores sum to dlse: one constant has what the others leave
                rest = -totals.ends.sum(-1)
                if dlse is not None:
                    rest += dlse.masked_fill(lse == -torch.inf, 0).sum((0, 2))
                if 1 in ctx.sides:
                    totals.ends[:, -1], rest = rest - of_left, of_left
                if 0 in ctx.sides:
                    totals.ends[:, 0] = rest
        q, k, v, *others = totals.flat()
        return *[None] * 6, *(cast("Tensor", x).to(operands.q.dtype) for x in (q, k, v)), *others


def _groups(q_BHTD: Tensor) -> list[slice]:
    """Return heads by as many as a CPU's threads can work on: what is copied for the kernel is of these alone."""
    batch, heads = q_BHTD.shape[:2]
    count = max(1, torch.get_num_threads() // max(batch, 1)) if q_BHTD.device.type == "cpu" else heads
    return [slice(first, min(first + count, heads)) for first in range(0, heads, max(count, 1))]


class Far:
    """The far parts of a call: regions, each a call of torch's kernel."""

    def __init__(self, prepared: Prepared, scale: float, dropout: float, q: Tensor) -> None:
        self.regions, self.two_sided = prepared.regions, prepared.sides == {0, 1}
        self.scale, self.dropout = scale, dropout
        self.kernel: Kernel = kernel_of(q.device, q.dtype)
        self.drawn: list[Any] = []
        """By region, what the kernel drew for dropout."""

    def add(self, operands: Operands, output: Tensor, lse: Tensor) -> list[Tensor]:
        """Merge the regions into output and log-sum-exp; return the log-sum-exp of those on the left of two sides."""
        widened = self._by_side(operands)
        left: list[Tensor] = []
        for region in self.regions:
            q, k, v = widened[region.side]
            rows, columns = region.rows, region.columns
            part, part_lse, drawn = self.kernel.forward(
                region.in_order(q[rows]),
                region.in_order(k[columns]),
                region.in_order(v[columns]),
                Settings(region.is_triangle, self.scale, self.dropout),
            )
            self.drawn.append(drawn)
            part, part_lse = region.in_order(part), region.in_order(part_lse) + operands.constant(region)
            of_rows, lse_of_rows = output[rows], lse[rows]
            merged = torch.logaddexp(lse_of_rows, part_lse)
            of_rows.mul_(lse_of_rows.sub_(merged).exp_()[..., None])
            of_rows.addcmul_((part_lse - merged).exp_()[..., None], part[..., : output.shape[-1]])
            lse_of_rows.copy_(merged)
            if region.side == 0 and self.two_sided:
                left.append(part_lse)
        return left

    def add_gradients(
        self,
        operands: Operands,
        output: Tensor,
        lse: Tensor,
        delta: Tensor,
        do: Tensor,
        lse_of_left: Iterator[Tensor],
        drawn: Iterator[Any],
        totals: Operands,
        *,
        with_lse: bool,
    ) -> Tensor:
        """Add the gradients of the regions, and return that of the constant on the left of two sides, (H,)."""
        widened = self._by_side(operands, spare=int(with_lse))
        channels, values = operands.q.shape[-1], operands.v.shape[-1]
        most, multiple = max(v.shape[-1] for _, _, v in widened), self.kernel.multiple
        wide_output, wide_do = widened_to(output.to(do.dtype), most, multiple), widened_to(do, most, multiple)
        if with_lse:  # a channel of values that are 0 takes dlse from rowsum(do o)
            wide_output[..., values], wide_do[..., values] = delta - (do.to(delta.dtype) * output).sum(-1), 1
        centre = None
        if self.two_sided and self.dropout == 0:
            # what all values have in common cancels where weights sum to 1; left out, it rounds nothing
            centre = operands.v.to(lse.dtype).mean(2, keepdim=True)
        of_left = lse.new_zeros(lse.shape[1])
        for region in self.regions:
            at_rows, at_columns, (q, k, v) = region.rows, region.columns, widened[region.side]
            dq, dk, dv = self.kernel.backward(
                region.in_order(wide_do[at_rows][..., : v.shape[-1]]),
                region.in_order(q[at_rows]),
                region.in_order(k[at_columns]),
                region.in_order(v[at_columns]),
                region.in_order(wide_output[at_rows][..., : v.shape[-1]]),
                region.in_order(lse[at_rows] - operands.constant(region)).contiguous(),
                next(drawn),
                Settings(region.is_triangle, self.scale, self.dropout),
            )
            dq, dk, dv = region.in_order(dq), region.in_order(dk), region.in_order(dv[..., :values])
            totals.q[at_rows].add_(dq[..., :channels])
            totals.k[at_columns].add_(dk[..., :channels])
            totals.v[at_columns].add_(dv)
            if region.side == 0 and self.two_sided:
                share, of_row, v_left = (
                    (next(lse_of_left) - lse[at_rows]).exp_(),
                    delta[at_rows],
                    operands.v[at_columns],
                )
                if centre is not None:
                    middle = centre[region.examples]
                    v_left, of_row = v_left - middle, of_row - (do[at_rows] * middle).sum(-1)
                of_left += (v_left * dv).sum((0, 2, 3)) - (share * of_row).sum((0, 2))
            first = channels
            for da, dc in totals.factors(region.side):
                behind = slice(first, first + da.shape[-1])
                _add_to_factor(da, at_rows, dq[..., behind] / self.scale)
                _add_to_factor(dc, at_columns, dk[..., behind])
                first = behind.stop
        return of_left

    def _by_side(self, operands: Operands, spare: int = 0) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return what the kernel reads on the left and on the right: the same, where no term by content differs."""
        multiple, sides = self.kernel.multiple, (0, 1)
        if operands.left_a is None and operands.right_a is None:
            return [operands.widened(self.scale, 0, multiple=multiple, spare=spare)] * 2
        return [operands.widened(self.scale, side, multiple=multiple, spare=spare) for side in sides]


def _add_to_factor(total: Tensor, at: tuple[slice, slice, slice], part: Tensor) -> None:
    """Add the gradient of a factor, which all examples share or not."""
    if total.shape[0] == 1:
        total[:, :, at[2]].add_(part.sum(0, keepdim=True, dtype=total.dtype))
    else:
        total[at].add_(part)
