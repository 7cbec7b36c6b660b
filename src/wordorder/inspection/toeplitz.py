"""The best part of a matrix that is constant along its diagonals."""

# torch leaves the types of fft and linalg open
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.ops.bias import ToeplitzBias


@dataclass(frozen=True)
class ToeplitzSplit:
    """A matrix per head, split into its best Toeplitz part and the rest, which are orthogonal to each other."""

    table_HW: Tensor
    """The part's number on each diagonal j - i = -(T-1) .. S-1; 0 where no entry counts."""
    count_W: Tensor
    """Entries that count on each diagonal."""
    spread_HW: Tensor
    """Root mean square of the rest along each diagonal; 0 where no entry counts."""
    row_constant_HT: Tensor
    """The constant that was taken off each row before (0 unless asked for, and where no entry of a row counts)."""
    part_HTS: Tensor
    """The Toeplitz part; 0 where an entry does not count. With row constants out, its rows have mean 0."""
    rest_HTS: Tensor
    """The remaining matrix, likewise; every diagonal of it has mean 0, and with row constants out every row too."""

    @property
    def part_energy_H(self) -> Tensor:
        return self.part_HTS.square().sum((-1, -2))

    @property
    def rest_energy_H(self) -> Tensor:
        return self.rest_HTS.square().sum((-1, -2))

    @property
    def share_H(self) -> Tensor:
        """Energy of the part over that of part and rest, 0 to 1; NaN for a matrix without energy."""
        return self.part_energy_H / (self.part_energy_H + self.rest_energy_H)


def toeplitz_split(
    map_HTS: Tensor, *, mask_TS: Tensor | None = None, up_to_row_constants: bool = False
) -> ToeplitzSplit:
    """Split matrices into the Toeplitz matrix nearest in the least-squares sense, and the rest.

    ``up_to_row_constants=False`` minimises ``sum (map[i, j] - b[j - i])^2``: b is the mean of each diagonal.

    ``up_to_row_constants=True`` minimises ``sum (map[i, j] - r[i] - b[j - i])^2`` over b and r. A number that is added
    to a whole row of attention scores does nothing, since softmax cancels it; so scores that differ by such numbers are
    the same scores, and this is the distance between what softmax sees of them. To centre the rows *first* and average
    diagonals *then* would be wrong: a Toeplitz matrix whose rows have been centred is no longer Toeplitz.

    The normal equations with r eliminated are one symmetric system of W = T + S - 1 unknowns, the same for all heads.
    They determine b up to one number; b is given with mean 0 over the entries that count.

    Args:
        map_HTS: floating point; one matrix per head (an axis more or fewer is an error).
        mask_TS: bool, True = the entry counts; None = all do.

    Returns:
        float64, on the map's device.

    Raises:
        ValueError: the map is not a stack of real matrices or not finite where it counts, or the mask has another shape
            or type.
    """
    if map_HTS.dim() != 3 or not map_HTS.is_floating_point():
        raise ValueError(f"map must be real (heads, T, S), got {map_HTS.dtype} {tuple(map_HTS.shape)}")
    shape = map_HTS.shape[-2:]
    mask_TS = torch.ones(shape, dtype=torch.bool, device=map_HTS.device) if mask_TS is None else mask_TS
    if mask_TS.shape != shape or mask_TS.dtype != torch.bool:
        raise ValueError(f"mask must be bool {tuple(shape)}, got {mask_TS.dtype} {tuple(mask_TS.shape)}")
    whole_HTS = map_HTS.double().masked_fill(~mask_TS, 0)
    if not whole_HTS.isfinite().all():
        raise ValueError("map must be finite where it counts, got NaN or infinity; mask such entries out")
    count_W = _diagonal_sums(mask_TS[None].double())[0]
    if up_to_row_constants:
        table_HW, row_HT = _table_and_rows(whole_HTS, mask_TS, count_W)
    else:
        table_HW = _diagonal_sums(whole_HTS) / count_W.clamp(min=1)
        row_HT = whole_HTS.new_zeros(whole_HTS.shape[:2])
    fitted_HTS = ToeplitzBias(table_HW, shape[0]).dense()[0].masked_fill(~mask_TS, 0)
    rest_HTS = (whole_HTS - fitted_HTS - row_HT[..., None]).masked_fill(~mask_TS, 0)
    part_HTS = fitted_HTS
    if up_to_row_constants:
        mean_HT = fitted_HTS.sum(-1) / mask_TS.sum(-1).clamp(min=1)
        part_HTS = (fitted_HTS - mean_HT[..., None]).masked_fill(~mask_TS, 0)
    spread_HW = (_diagonal_sums(rest_HTS.square()) / count_W.clamp(min=1)).sqrt()
    return ToeplitzSplit(table_HW, count_W.long(), spread_HW, row_HT, part_HTS, rest_HTS)


def _table_and_rows(whole_HTS: Tensor, mask_TS: Tensor, count_W: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least-squares b (H, W) and r (H, T) of ``whole[i, j] = b[j - i] + r[i]`` over entries that count."""
    queries, keys = mask_TS.shape
    row_count_T = mask_TS.sum(-1).double().clamp(min=1)
    # row i meets diagonal w where column w - (T-1) + i of its mask is True
    column_TW = (
        torch.arange(1 - queries, keys, device=mask_TS.device) + torch.arange(queries, device=mask_TS.device)[:, None]
    )
    inside_TW = (column_TW >= 0) & (column_TW < keys)
    meets_TW = (mask_TS.gather(1, column_TW.clamp(0, keys - 1)) & inside_TW).double()
    system_WW = torch.diag(count_W) - meets_TW.T @ (meets_TW / row_count_T[:, None])
    row_sum_HT = whole_HTS.sum(-1)
    wanted_HW = _diagonal_sums(whole_HTS) - (row_sum_HT / row_count_T) @ meets_TW
    # b is free by a constant (more where the mask falls apart), so the system is singular; a ridge makes it solvable,
    # and refinement with the system itself takes the ridge's error off again
    ridge = 1e-10 * max(float(count_W.max()), 1.0)
    factor: Tensor = torch.linalg.cholesky(
        system_WW + ridge * torch.eye(len(count_W), dtype=torch.float64, device=mask_TS.device)
    )
    table_WH = torch.zeros_like(wanted_HW.T)
    for _ in range(3):
        table_WH = table_WH + torch.cholesky_solve(wanted_HW.T - system_WW @ table_WH, factor)
    table_HW = table_WH.T
    table_HW = table_HW - (table_HW @ count_W / count_W.sum().clamp(min=1))[:, None]
    row_HT = (row_sum_HT - table_HW @ meets_TW.T) / row_count_T
    return table_HW.masked_fill(count_W == 0, 0), row_HT.masked_fill(~mask_TS.any(-1), 0)


def _diagonal_sums(x_HTS: Tensor) -> Tensor:
    """Return the sums along the diagonals j - i = -(T-1) .. S-1, (H, W)."""
    heads, queries, keys = x_HTS.shape
    column_TS = torch.arange(keys, device=x_HTS.device) - torch.arange(queries, device=x_HTS.device)[:, None]
    sums_HW = x_HTS.new_zeros(heads, queries + keys - 1)
    return sums_HW.index_add(1, (column_TS + queries - 1).flatten(), x_HTS.flatten(1))
