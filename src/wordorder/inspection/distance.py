"""The share of a map of positions that depends on distance alone."""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from wordorder.ops.toeplitz import toeplitz_split


@dataclass(frozen=True)
class DistanceProfile:
    """Mean and spread of each diagonal of a map.

    Args:
        distances_W: key position minus query position, from -(N-1) to N-1; those that no entry has are left out.
        mean_HW: mean of the diagonal, logits.
        spread_HW: standard deviation along the diagonal, logits: 0 where the term depends on distance alone.
        count_W: entries on the diagonal; means of few entries at far distances say little.
    """

    distances_W: Tensor
    mean_HW: Tensor
    spread_HW: Tensor
    count_W: Tensor


@dataclass(frozen=True)
class ToeplitzShare:
    """The share of what softmax sees of a map that depends on distance alone.

    Args:
        share_H: per head, the energy (sum of squares) of the best Toeplitz part over that of the map, each up to one
            constant per row, 0 to 1; NaN for a map without energy.
        plain_share_H: the same without the constants: the mean of each diagonal against the rest, as they stand.
        rms_H: how large the map is to softmax: root mean square with each row's mean taken off, logits.
        share: energies summed over heads before dividing, so that a head counts by how much it does; *the* number.
        chance: what `share` would be for random numbers in place of the map: 2 / N, with N positions that count.
    """

    share_H: Tensor
    plain_share_H: Tensor
    rms_H: Tensor
    share: float
    chance: float


def distance_profile(values: Tensor, *, skip_first: bool = False, up_to_row_constants: bool = True) -> DistanceProfile:
    """Return mean and spread of each diagonal of a map, that is, of each signed distance, per head.

    Args:
        values: (H, N, N) or (N, N), logits.
        skip_first: leave out row and column 0, where TUPE has the reset of [CLS].
        up_to_row_constants: first take the constants off the rows that leave it closest to Toeplitz (softmax cancels
            constants of a row, and they would show as spread); see `wordorder.ops.toeplitz.toeplitz_split`. The level
            of the profile then means nothing, only its shape does: it has mean 0 over all entries.

    Raises:
        ValueError: values are not square matrices of finite real numbers.
    """
    split = toeplitz_split(
        _stack(values), mask_TS=_counted(values, skip_first), up_to_row_constants=up_to_row_constants
    )
    length, seen_W = values.shape[-1], split.count_W > 0
    distance_W = torch.arange(1 - length, length, device=values.device)
    return DistanceProfile(
        distance_W[seen_W], split.table_HW[:, seen_W], split.spread_HW[:, seen_W], split.count_W[seen_W]
    )


def toeplitz_share(values: Tensor, *, skip_first: bool = False) -> ToeplitzShare:
    """Split a map into its best Toeplitz part and the rest, and give the part's share of the energy.

    The question is TUPE's own (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 3.3): are an absolute and a
    relative term redundant? A relative term is a Toeplitz matrix, so what the absolute term has of one is what a
    relative term could have said in its place; the rest only an absolute term can say. A share of 1 means that the
    absolute term is a relative one in disguise, a share near ``chance`` that the two have nothing in common.

    The number is taken up to one constant per row, because softmax cancels those: without that, a constant that the
    model never feels (TUPE's projections have biases that add some) would count as structure.

    Args:
        values: (H, N, N) or (N, N), logits.
        skip_first: leave out row and column 0, where TUPE has the reset of [CLS].

    Raises:
        ValueError: values are not square matrices of finite real numbers.
    """
    maps_HNN, mask_NN = _stack(values), _counted(values, skip_first)
    seen = toeplitz_split(maps_HNN, mask_TS=mask_NN, up_to_row_constants=True)
    plain = toeplitz_split(maps_HNN, mask_TS=mask_NN)
    energy_H = seen.part_energy_H + seen.rest_energy_H
    # a map of row constants only has energy at the level of rounding; a share of that is no share
    nothing_H = energy_H <= 1e-12 * maps_HNN.double().masked_fill(~mask_NN, 0).square().sum((-1, -2))
    part_H, energy_H = seen.part_energy_H.masked_fill(nothing_H, 0), energy_H.masked_fill(nothing_H, 0)
    counted = values.shape[-1] - skip_first
    return ToeplitzShare(
        share_H=part_H / energy_H,
        plain_share_H=plain.share_H,
        rms_H=(energy_H / max(1, int(mask_NN.sum()))).sqrt(),
        share=float(part_H.sum() / energy_H.sum()),
        chance=2 / counted if counted > 1 else math.nan,
    )


def low_rank_share(values: Tensor, rank: int, *, skip_first: bool = False) -> Tensor:
    """Return the share of a map that a correlation of absolute positions with ``rank`` channels could hold.

    It is the counterpart of `toeplitz_share`.

    The share of energy, rows centred, of the best approximation of that rank (Eckart and Young 1936: the largest
    singular values). Proposition 1 of TUPE promises all of a relative term to 2N channels; a head has far fewer.

    Args:
        values: (H, N, N) or (N, N), logits.
        rank: channels of a head; positive.
        skip_first: leave out row and column 0, where TUPE has the reset of [CLS].

    Returns:
        float64 (H,), 0 to 1; NaN for a map without energy.

    Raises:
        ValueError: rank is not positive, or values are not square matrices.
    """
    if rank <= 0:
        raise ValueError(f"rank must be positive, got {rank}")
    maps_HNN = _stack(values)[:, int(skip_first) :, int(skip_first) :].double()
    centred_HNN = maps_HNN - maps_HNN.mean(-1, keepdim=True)
    singular_HX: Tensor = cast("Any", torch.linalg).svdvals(centred_HNN)  # torch leaves its type open
    energy_HX = singular_HX.square()
    energy_HX = energy_HX.masked_fill(energy_HX <= 1e-12 * maps_HNN.square().sum((-1, -2))[:, None], 0)
    return energy_HX[:, :rank].sum(-1) / energy_HX.sum(-1)


def _stack(values: Tensor) -> Tensor:
    """Return a map as (H, N, N), whether or not it has an axis of heads."""
    if values.dim() not in (2, 3) or values.shape[-1] != values.shape[-2]:
        raise ValueError(f"values must be (heads, N, N) or (N, N), got {tuple(values.shape)}")
    return values if values.dim() == 3 else values[None]


def _counted(values: Tensor, skip_first: bool) -> Tensor:
    mask_NN = torch.ones(values.shape[-2:], dtype=torch.bool, device=values.device)
    if skip_first:
        mask_NN[0] = mask_NN[:, 0] = False
    return mask_NN
