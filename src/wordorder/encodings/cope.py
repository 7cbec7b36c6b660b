"""Contextual position encoding (CoPE): positions that count only the tokens that matter to the query."""

# torch's autograd functions are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ContentTerm, OnScoresByContent, check_positive
from wordorder.ops import Arbitrary, Mask, Positions
from wordorder.ops.execution import no_autocast, transformed


class CoPE(OnScoresByContent):
    """Count, backwards from each query, the keys that it gates, and add its product with a vector of the count.

    Golovneva et al. 2024, "Contextual position encoding: learning to count what's important",
    https://arxiv.org/abs/2405.18719, Eq. 2 to 5 and the listing in its appendix. Over the keys that i sees::

        gate[h, i, j] = sigmoid(scale * q_i^h . k_j^h)
        p[h, i, j]    = min(sum of gate[h, i, m] over m = j .. i, max_position)
        e[p]          = (p - floor p) e[ceil p] + (1 - (p - floor p)) e[floor p]
        term[h, i, j] = q_i^h . e[p[h, i, j]]

    As in the listing and unlike Eq. 2 and 5: gates are of the *scaled* scores, the term is not scaled, and hidden keys
    (padding, later tokens, other packed texts) have gate 0. One table of positions per layer, shared by its heads.

    Differs from the listing: the table is drawn like every other matrix of the network (there it starts at 0); at a p
    that is a whole number the derivative by p is that from the right (there it is 0). The paper's variants with keys
    of their own for gates, or gates of values, are not here. Where encodings act together, gates are computed from
    queries and keys before any rotation and without the other terms of the scores.

    The counts need every pair's gate: time and memory of B H T S numbers, several times over, whatever the backend.

    Args:
        head_dim: channels per head, D; positive.
        layers: number of tables; positive.
        max_position: the largest count p_max, from which on all counts are alike; positive. The table has one row
            more (the listing's ``npos_max``). The paper takes 64 for texts of 1,024 tokens.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S) in at least float32, undefined at hidden pairs.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "positions that follow content"
    paper = "Golovneva et al. 2024, https://arxiv.org/abs/2405.18719"
    refused_in: ClassVar[Mapping[str, str]] = {
        "encoder": "it counts from a key up to the query, so that only keys before the query have a count; the paper"
        " defines none for keys to the right. Take 'shaw', 'deberta' or 'transformer-xl'",
        "cross-attention": "it counts the keys between a key and the query, and a query of another text has no position"
        " among the keys",
        "right": "slots of such a memory attend to keys to their right, which have no count; take"
        " memory='segment-recurrence'",
    }

    def __init__(self, head_dim: int, *, layers: int, max_position: int = 64) -> None:
        super().__init__()
        check_positive(head_dim=head_dim, layers=layers, max_position=max_position)
        self.max_position = max_position
        self.tables = nn.ModuleList(nn.Embedding(max_position + 1, head_dim) for _ in range(layers))

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters())

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "CoPEScores":
        """Return the term with the order in which keys are counted: by position where positions are arbitrary."""
        del query, dtype
        rank_BS = None
        if isinstance(key, Arbitrary):
            rank_BS = key.index_BT(device).argsort(dim=-1, stable=True)
        return CoPEScores(self, rank_BS, 0)


@dataclass(frozen=True)
class CoPEScores(ContentTerm):
    """The term of CoPE in one forward pass and one layer."""

    encoding: CoPE
    rank_BS: Tensor | None
    """Indices of the keys from the lowest position to the highest, (1 or B, S); None = as they come."""
    index: int

    def layer(self, index: int) -> "CoPEScores":
        return replace(self, index=index)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None) -> Tensor:
        rows_P = torch.arange(self.encoding.max_position + 1, device=q_BHTD.device)
        table_PD = self.encoding.tables[self.index](rows_P)
        if self.rank_BS is None:
            return interpolated_by_count(q_BHTD, k_BHSD, table_PD, scale, visible)
        rank_BHS = self.rank_BS[:, None].expand(*k_BHSD.shape[:2], -1)
        ordered_BHSD = k_BHSD.gather(2, rank_BHS[..., None].expand_as(k_BHSD))
        shape = (*q_BHTD.shape[:3], k_BHSD.shape[2])
        seen = visible.dense(q_BHTD.device) if isinstance(visible, Mask) else visible
        if seen is not None:
            seen = seen.expand(shape).gather(-1, rank_BHS[:, :, None].expand(shape))
        term_BHTS = interpolated_by_count(q_BHTD, ordered_BHSD, table_PD, scale, seen)
        return term_BHTS.gather(-1, rank_BHS.argsort(-1)[:, :, None].expand(shape))


CPU_BLOCK = 131_072
"""Pairs of a block: half a MiB of float32, so that some of them fit into the second-level cache of one core."""
GPU_BLOCK = 2**25
"""Pairs of a block on a GPU: few kernel launches in bounded memory."""
BAND_ROWS = 64
"""Rows of a block where the mask is a band of diagonals: the fewer rows, the less is computed outside the band."""


def interpolated_by_count(
    q_BHTD: Tensor, k_BHSD: Tensor, table_PD: Tensor, scale: float, visible: Mask | Tensor | None
) -> Tensor:
    """Return ``q_i . e[p_ij]``, ``p_ij`` being the clipped sum of ``sigmoid(scale q_i . k_m)`` over visible m >= j.

    Keys come in the order in which they are counted. Counts are clipped to P - 1, and e, the table (P, D), is linear
    between its rows. The result (B, H, T, S) is in at least float32, undefined where a pair is not visible.
    """
    if torch.compiler.is_compiling() or transformed():
        return written_out(q_BHTD, k_BHSD, table_PD, scale, visible)
    return _ByCount.apply(q_BHTD, k_BHSD, table_PD, scale, visible)


def written_out(
    q_BHTD: Tensor, k_BHSD: Tensor, table_PD: Tensor, scale: float, visible: Mask | Tensor | None
) -> Tensor:
    """Compute `interpolated_by_count` in torch's own operations, for tracers and derivatives of any order."""
    wide = torch.promote_types(q_BHTD.dtype, torch.float32)
    with no_autocast(q_BHTD.device):
        q, k, table = q_BHTD.to(wide), k_BHSD.to(wide), table_PD.to(wide)
        gate_BHTS = ((scale * q) @ k.transpose(-1, -2)).sigmoid()
        seen = visible.dense(q.device) if isinstance(visible, Mask) else visible
        if seen is not None:
            gate_BHTS = gate_BHTS.masked_fill(~seen, 0)
        count_BHTS = gate_BHTS.flip(-1).cumsum(-1).flip(-1).clamp(max=len(table) - 1)
        below_BHTS = count_BHTS.detach().floor()
        by_row_BHTP, row_BHTS = q @ table.T, _row(below_BHTS)
        low_BHTS = by_row_BHTP.gather(-1, row_BHTS)
        step_BHTS = _steps(by_row_BHTP).gather(-1, row_BHTS)
        return low_BHTS + (count_BHTS - below_BHTS) * step_BHTS


def _steps(by_row_BHTP: Tensor) -> Tensor:
    """Return the difference from each row to the next; 0 for the last."""
    return torch.cat((by_row_BHTP.diff(dim=-1), torch.zeros_like(by_row_BHTP[..., :1])), dim=-1)


def _row(count: Tensor) -> Tensor:
    """Return the row of the table below each count; row 0 where it is NaN, whose fraction makes the term NaN."""
    return count.nan_to_num(0.0).long()


_Block = tuple[slice, slice, slice]
"""The examples and rows of a block, and the range of keys that any of these rows may see."""


def _blocks(q_BHTD: Tensor, keys: int, visible: Mask | Tensor | None) -> Iterator[_Block]:
    """Yield all blocks, without keys that the mask's diagonals hide from all rows."""
    (batch, heads, queries, _), on_cpu = q_BHTD.shape, q_BHTD.device.type == "cpu"
    lowest, highest = (isinstance(visible, Mask) and visible.diagonals) or (None, None)
    pairs = (CPU_BLOCK if on_cpu else GPU_BLOCK) // max(1, heads * keys)
    rows = max(1, min(queries, pairs, BAND_ROWS if on_cpu and highest is not None else queries))
    examples = max(1, min(batch, pairs // rows))
    for example in range(0, batch, examples):
        for row in range(0, queries, rows):
            stop = min(row + rows, queries)
            first = 0 if lowest is None else min(max(0, row + lowest), keys)
            last = keys if highest is None else min(keys, stop + highest)
            yield slice(example, example + examples), slice(row, stop), slice(first, max(first, last))


def _seen(visible: Mask | Tensor | None, block: _Block, device: torch.device) -> Tensor | None:
    """Return the mask of a block, bool (B or 1, H or 1, R or 1, E or 1), keys in their order; None = all visible."""
    if visible is None:
        return None
    if isinstance(visible, Mask):
        seen = visible.tile(block[1], block[2], device)
        return seen if seen is None or len(seen) == 1 else seen[block[0]]
    seen = visible[(None,) * (4 - visible.dim())]
    for axis, part in zip((0, 2, 3), block, strict=True):
        if seen.shape[axis] > 1:
            seen = seen[(slice(None),) * axis + (part,)]
    return seen


class _ByCount(torch.autograd.Function):
    """The term with a backward pass that keeps the counts and computes the gates again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, table: Tensor, scale: float, visible: Mask | Tensor | None) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        keys, last_row = k.shape[2], len(table) - 1
        term = q.new_empty(*q.shape[:3], keys, dtype=wide)
        counts = torch.empty_like(term) if any(ctx.needs_input_grad) else None  # written and read by blocks
        with no_autocast(q.device):
            by_row = q.to(wide) @ table.to(wide).T
            steps, backwards_k = _steps(by_row), k.to(wide).flip(2)
            for block in _blocks(q, keys, visible):
                some, rows, part = block
                term[some, :, rows, : part.start] = 0  # hidden, but no reason for a NaN in what masks are added to
                term[some, :, rows, part.stop :] = 0
                k_BHED = backwards_k[some, :, keys - part.stop : keys - part.start]
                gate_BHRE = ((scale * q[some, :, rows].to(wide)) @ k_BHED.transpose(-1, -2)).sigmoid_()
                seen = _seen(visible, block, q.device)
                if seen is not None:
                    gate_BHRE.mul_(seen.flip(-1))
                count_BHRE = torch.cumsum(gate_BHRE, -1, out=gate_BHRE).clamp_(max=last_row).flip(-1)
                row_BHRE = _row(count_BHRE)
                low_BHRE, step_BHRE = (x[some, :, rows].gather(-1, row_BHRE) for x in (by_row, steps))
                if counts is not None:
                    counts[some, :, rows, part] = count_BHRE
                term[some, :, rows, part] = low_BHRE.addcmul_(count_BHRE.frac_(), step_BHRE)
        ctx.scale, ctx.visible = scale, visible
        ctx.save_for_backward(q, k, table, counts)
        return term

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("cope gives no second derivatives (create_graph=True); torch.func gives them")
        q, k, table, counts = ctx.saved_tensors
        scale: float = ctx.scale
        wide = torch.promote_types(q.dtype, torch.float32)
        with no_autocast(q.device):
            q_wide, k_wide, table_wide = q.to(wide), k.to(wide), table.to(wide)
            steps = _steps(q_wide @ table_wide.T)
            by_row, shares, dq, dk = (torch.zeros_like(x) for x in (steps, steps, q_wide, k_wide))
            for block in _blocks(q, k.shape[2], ctx.visible):
                some, rows, part = block
                up_BHRE, count_BHRE = upstream[0][some, :, rows, part], counts[some, :, rows, part]
                row_BHRE = _row(count_BHRE)
                by_row[some, :, rows].scatter_add_(-1, row_BHRE, up_BHRE)
                shares[some, :, rows].scatter_add_(-1, row_BHRE, count_BHRE.frac().mul_(up_BHRE))
                by_score_BHRE = steps[some, :, rows].gather(-1, row_BHRE).mul_(up_BHRE)
                torch.cumsum(by_score_BHRE, -1, out=by_score_BHRE)  # a key's gate is in the counts of all before it
                q_BHRD, k_BHED = scale * q_wide[some, :, rows], k_wide[some, :, part]
                gate_BHRE = (q_BHRD @ k_BHED.transpose(-1, -2)).sigmoid_()
                by_score_BHRE.mul_(gate_BHRE).mul_(gate_BHRE.neg_().add_(1))
                seen = _seen(ctx.visible, block, q.device)
                if seen is not None:
                    by_score_BHRE.mul_(seen)
                dq[some, :, rows].add_(by_score_BHRE @ k_BHED, alpha=scale)
                dk[some, :, part].add_(by_score_BHRE.transpose(-1, -2) @ q_BHRD)
            by_row[..., :-1] -= shares[..., :-1]  # this share of what fell on a row belongs to the next one
            by_row[..., 1:] += shares[..., :-1]
            dq.add_(by_row @ table_wide)
            d_table = (by_row.transpose(-1, -2) @ q_wide).sum((0, 1))
        return dq.to(q.dtype), dk.to(k.dtype), d_table.to(table.dtype), None, None
