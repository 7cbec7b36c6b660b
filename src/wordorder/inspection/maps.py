"""Maps of what an encoding adds to the score of each pair of positions, and what distance alone decides of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from wordorder.encodings import CATALOG, TUPE, Composition, OnScores
from wordorder.inspection.toeplitz import toeplitz_split
from wordorder.networks.stack import Stack
from wordorder.ops import Contiguous

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class ScoreMap:
    """Numbers added to (or part of) the scores of each head, query position by key position.

    Args:
        values_HNN: in units of logits, float32 on the CPU.
        skip_first: whether the model resets row and column 0, [CLS], to numbers that no position or distance decided;
            profiles and shares leave them out, of all maps of the model, so that they are over the same pairs.
    """

    values_HNN: Tensor
    skip_first: bool = False

    @property
    def counted_HNN(self) -> Tensor:
        """The map without [CLS], which the model may reset to anything."""
        first = int(self.skip_first)
        return self.values_HNN[:, first:, first:]


def position_correlation(model: nn.Module, length: int) -> dict[str, Tensor]:
    """Return the learned position-to-position terms of a model with TUPE.

    Args:
        model: anything that contains an encoder of this package.
        length: N; token 0 is [CLS].

    Returns:
        float32 (H, N, N) on the CPU, in units of logits: "absolute" for TUPE-A; "absolute", "relative" and "sum" for
        TUPE-R, the sum as the model uses it, [CLS] reset included. Empty for encodings without such a term. Where only
        some layers have it, the names say which, counted from 1: "absolute (layers 1, 3)".

    Raises:
        ValueError: length is not positive, or is beyond the model's table.
    """
    return {
        f"{name}{where}": values
        for where, parts in _adding(model, length)
        for part in parts
        if isinstance(part, TUPE)
        for name, values in _maps_of(part, length).items()
    }


def score_maps(model: nn.Module, length: int, *, layer: int | None = None) -> dict[str, ScoreMap]:
    """Return every term that a model adds to its scores whatever the tokens say, and their sum.

    Args:
        model: anything that contains an encoder of this package.
        length: N.
        layer: what this layer (from 0) adds; None = what any does.

    Returns:
        "absolute" for TUPE-A; "absolute", "relative", "sum" for TUPE-R (see `position_correlation`); "relative" for T5
        and ALiBi. Where several encodings add to the scores, each map has the encoding's name before it ("tupe-a
        absolute", "t5 relative") and "sum" is the sum of all. Empty for encodings that add nothing content-free. Where
        only some layers add a map, its name says which, counted from 1: "absolute (layer 4)".

    Raises:
        ValueError: length is not positive, or is beyond the model's table; the model has no such layer.
    """
    found: dict[str, ScoreMap] = {}
    for where, parts in _adding(model, length, layer):
        resets = any(part.first_position_apart for part in parts)
        maps: dict[str, Tensor] = {}
        total = torch.zeros(())
        for part in parts:
            own = _maps_of(part, length)
            total = total + list(own.values())[-1]
            maps |= own if len(parts) == 1 else {f"{name_of(part)} {key}": own[key] for key in own if key != "sum"}
        if len(parts) > 1:
            maps["sum"] = total
        found |= {f"{name}{where}": ScoreMap(values, resets) for name, values in maps.items()}
    return found


def _maps_of(part: OnScores, length: int) -> dict[str, Tensor]:
    """Return the maps of one encoding, its whole term last; (H, N, N) each."""
    with torch.no_grad():
        return {name: values[0].float().cpu() for name, values in part.maps(Contiguous(length)).items()}


def _adding(model: nn.Module, length: int, layer: int | None = None) -> list[tuple[str, tuple[OnScores, ...]]]:
    """Return the encodings that add to the scores together, with their layers in words ("" for all layers)."""
    if length <= 0:
        raise ValueError(f"length must be positive, got {length}")
    stack = first_module(model, Stack)
    if layer is not None and stack is not None and not 0 <= layer < len(stack.layers):
        raise ValueError(f"layer must lie between 0 and {len(stack.layers) - 1}, got {layer}")
    composition = first_module(model, Composition)
    if composition is None:
        return []
    indices = [layer or 0]
    if layer is None and composition.kind_of_layer:
        indices = range(len(composition.kind_of_layer))
    layers_with: dict[tuple[OnScores, ...], list[int]] = {}
    for index in indices:
        parts = tuple(part for part in composition.parts_of(index) if isinstance(part, OnScores))
        layers_with.setdefault(parts, []).append(index)
    return [
        ("" if len(layers) == len(indices) else f" ({_in_words(layers)})", parts)
        for parts, layers in layers_with.items()
        if parts
    ]


def layers_note(model: nn.Module) -> list[str]:
    """Return one sentence on which layers have which encodings if they differ by layer, else nothing."""
    composition = first_module(model, Composition)
    if composition is None or not composition.kind_of_layer:
        return []
    layers_of: dict[str, list[int]] = {}
    for layer in range(len(composition.kind_of_layer)):
        window = composition.kind_of(layer).window
        name = "+".join(map(name_of, composition.parts_of(layer))) + (f"@{window}" if window else "")
        layers_of.setdefault(name, []).append(layer)
    kinds = "; ".join(f"{name} in {_in_words(layers)}" for name, layers in layers_of.items())
    return [f"The encoding differs by layer: {kinds}."]


def _in_words(layers: Sequence[int]) -> str:
    """Name layers, given from 0, as people count them from 1, neighbours joined: "layers 1-3, 5"."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    named = [f"{run[0] + 1}" if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs]
    return f"layer{'s' * (len(layers) > 1)} {', '.join(named)}"


def name_of(encoding: nn.Module) -> str:
    return next((name for name, known in CATALOG.items() if type(encoding) is known), type(encoding).__name__)


def first_module(model: nn.Module, kind: type[M]) -> M | None:
    return next((module for module in model.modules() if isinstance(module, kind)), None)


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
            constants of a row, and they would show as spread); see `toeplitz_split`. The level of the profile then
            means nothing, only its shape does: it has mean 0 over all entries.

    Raises:
        ValueError: values are not square matrices of finite real numbers.
    """
    maps_HNN, mask_NN = _maps_and_mask(values, skip_first)
    split = toeplitz_split(maps_HNN, mask_TS=mask_NN, up_to_row_constants=up_to_row_constants)
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
    maps_HNN, mask_NN = _maps_and_mask(values, skip_first)
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


def _maps_and_mask(values: Tensor, skip_first: bool) -> tuple[Tensor, Tensor]:
    if values.dim() not in (2, 3) or values.shape[-1] != values.shape[-2]:
        raise ValueError(f"values must be (heads, N, N) or (N, N), got {tuple(values.shape)}")
    mask_NN = torch.ones(values.shape[-2:], dtype=torch.bool, device=values.device)
    if skip_first:
        mask_NN[0] = mask_NN[:, 0] = False
    return values if values.dim() == 3 else values[None], mask_NN
