"""What an encoding adds to the score of each pair of positions, whatever the words are."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wordorder.encodings import CATALOG, TUPE, Composition, OnScores
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
    """The learned position-to-position terms of a model with TUPE.

    Args:
        model: anything that contains an encoder of this package.
        length: N; token 0 is [CLS].

    Returns:
        float32 (H, N, N) on the CPU, in units of logits: "absolute" for TUPE-A; "absolute", "relative" and "sum" for
        TUPE-R, the sum as the model uses it, [CLS] reset included. Empty for encodings without such a term.

    Raises:
        ValueError: length is not positive, or is beyond the model's table.
    """
    composition = _composition(model, length)
    for part in () if composition is None else composition.parts.values():
        if isinstance(part, TUPE):
            return _maps_of(part, length)
    return {}


def score_maps(model: nn.Module, length: int) -> dict[str, ScoreMap]:
    """Every term that a model adds to its scores whatever the tokens say, and their sum.

    Args:
        model: anything that contains an encoder of this package.
        length: N.

    Returns:
        "absolute" for TUPE-A; "absolute", "relative", "sum" for TUPE-R (see `position_correlation`); "relative" for T5
        and ALiBi. Where several encodings add to the scores, each map has the encoding's name before it ("tupe-a
        absolute", "t5 relative") and "sum" is the sum of all. Empty for encodings that add nothing content-free.

    Raises:
        ValueError: length is not positive, or is beyond the model's table.
    """
    composition = _composition(model, length)
    if composition is None:
        return {}
    adding = {name_of(part): part for part in composition.parts.values() if isinstance(part, OnScores)}
    resets = any(isinstance(part, TUPE) and part.cls == "position-0" for part in adding.values())
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
    """The name of an encoding in the catalogue."""
    return next((name for name, known in CATALOG.items() if type(encoding) is known), type(encoding).__name__)


def _maps_of(part: OnScores, length: int) -> dict[str, Tensor]:
    """The maps of one encoding, its whole term last; (H, N, N) each."""
    where = Contiguous(length)
    with torch.no_grad():
        maps = part.maps(where) if isinstance(part, TUPE) else {"relative": part(where, where).dense()}
    return {name: values[0].float().cpu() for name, values in maps.items()}


def _composition(model: nn.Module, length: int) -> Composition | None:
    if length <= 0:
        raise ValueError(f"length must be positive, got {length}")
    return next((module for module in model.modules() if isinstance(module, Composition)), None)
