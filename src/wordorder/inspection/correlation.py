"""Maps of what an encoding adds to the score of each pair of positions, whatever the words are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wordorder.encodings import CATALOG, TUPE, Composition, Hybrid, OnScores
from wordorder.ops import Contiguous


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
    composition = _composition(model, length)
    return {
        f"{name}{where}": values
        for where, parts in _adding(composition)
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
        ValueError: length is not positive, or is beyond the model's table.
    """
    composition = _composition(model, length)
    return {
        f"{name}{where}": found
        for where, parts in _adding(composition, layer)
        for name, found in _maps_together(parts, length).items()
    }


def layers_note(model: nn.Module) -> list[str]:
    """Return one sentence on which layers have which encodings if they differ by layer, else nothing."""
    composition = next((module for module in model.modules() if isinstance(module, Composition)), None)
    if not isinstance(composition, Hybrid):
        return []
    layers_of: dict[str, list[int]] = {}
    for layer in range(len(composition.kind_of_layer)):
        layers_of.setdefault("+".join(map(name_of, composition.parts_of(layer))), []).append(layer)
    kinds = "; ".join(f"{name} in {_in_words(layers)}" for name, layers in layers_of.items())
    return [f"The encoding differs by layer: {kinds}."]


def _adding(composition: Composition | None, layer: int | None = None) -> list[tuple[str, tuple[OnScores, ...]]]:
    """Return the encodings that add to the scores together, with their layers in words ("" for all layers)."""
    if composition is None:
        return []
    if layer is not None or not isinstance(composition, Hybrid):
        return [("", _terms(composition.parts_of(layer or 0)))]
    layers_with: dict[tuple[OnScores, ...], list[int]] = {}
    count = len(composition.kind_of_layer)
    for index in range(count):
        layers_with.setdefault(_terms(composition.parts_of(index)), []).append(index)
    return [
        ("" if len(layers) == count else f" ({_in_words(layers)})", parts)
        for parts, layers in layers_with.items()
        if parts
    ]


def _terms(parts: Sequence[nn.Module]) -> tuple[OnScores, ...]:
    return tuple(part for part in parts if isinstance(part, OnScores))


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


def _maps_together(parts: Sequence[OnScores], length: int) -> dict[str, ScoreMap]:
    """Return the maps of encodings whose terms add up; see `score_maps`."""
    adding = {name_of(part): part for part in parts}
    resets = any(part.first_position_apart for part in adding.values())
    found: dict[str, Tensor] = {}
    total = torch.zeros(())
    for name, part in adding.items():
        maps = _maps_of(part, length)
        total = total + list(maps.values())[-1]
        found |= maps if len(adding) == 1 else {f"{name} {key}": maps[key] for key in maps if key != "sum"}
    if len(adding) > 1:
        found["sum"] = total
    return {name: ScoreMap(values, resets) for name, values in found.items()}


def name_of(encoding: nn.Module) -> str:
    """Return the name of an encoding in the catalogue."""
    return next((name for name, known in CATALOG.items() if type(encoding) is known), type(encoding).__name__)


def _maps_of(part: OnScores, length: int) -> dict[str, Tensor]:
    """Return the maps of one encoding, its whole term last; (H, N, N) each."""
    where = Contiguous(length)
    with torch.no_grad():
        return {name: values[0].float().cpu() for name, values in part.maps(where).items()}


def _composition(model: nn.Module, length: int) -> Composition | None:
    if length <= 0:
        raise ValueError(f"length must be positive, got {length}")
    return next((module for module in model.modules() if isinstance(module, Composition)), None)
