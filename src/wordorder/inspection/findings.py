"""Findings of `wordorder inspect` on an encoder, typed, and as JSON can hold them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from wordorder.durable import finite
from wordorder.errors import BadInput
from wordorder.inspection.correlation import ScoreMap, layers_note, score_maps
from wordorder.inspection.distance import (
    DistanceProfile,
    ToeplitzShare,
    distance_profile,
    low_rank_share,
    toeplitz_share,
)
from wordorder.inspection.words import (
    CorrelationTerm,
    WordPositionCorrelations,
    no_correlations_because,
    word_position_correlations,
)
from wordorder.networks import Encoder, EncoderLayer

SHORTEST, LONGEST = 4, 1024
"""Positions of a map. With fewer, every map is a matter of distance alone; one takes 8 bytes per head and pair, several
times over."""

_ALL = 1 - 1e-9


@dataclass(frozen=True)
class MapFindings:
    """A map of positions with its profile by distance and the shares of its energy.

    Args:
        map: the numbers, and whether [CLS] was left out of all that follows.
        profile: mean and spread by distance.
        toeplitz: the share that depends on distance alone.
        low_rank_H: per head the share that as many channels as a head has could hold; see `low_rank_share`.
    """

    map: ScoreMap
    profile: DistanceProfile
    toeplitz: ToeplitzShare
    low_rank_H: Tensor

    @property
    def by_distance_alone(self) -> bool:
        """True if it is a relative term, at this length at least (FIRE's up to its L): its share says nothing."""
        return self.toeplitz.share >= _ALL


@dataclass(frozen=True)
class Inspection:
    """Findings on a model.

    Args:
        length: positions, N.
        head_dim: channels of a head.
        maps: "absolute", "relative", "sum" as in `score_maps`; "position-position" where positions meet in the first
            layer's q.k instead (learned, sinusoidal, untied sum).
        correlations: of words and positions; None where there are none.
        notes: what is not there and why, one sentence each.
    """

    length: int
    head_dim: int
    maps: dict[str, MapFindings]
    correlations: WordPositionCorrelations | None
    notes: tuple[str, ...]

    def answers(self) -> list[str]:
        """Answer for each map, in a sentence, whether it could have been a relative term."""
        return [
            f"{name}: {found.toeplitz.share:.1%} of what softmax sees of it depends on distance alone,"
            f" {1 - found.toeplitz.share:.1%} does not (random numbers: {found.toeplitz.chance:.1%})"
            for name, found in self.maps.items()
            if not found.by_distance_alone and not math.isnan(found.toeplitz.share)
        ]


def inspect_model(model: nn.Module, length: int, *, words: Sequence[int] | Tensor | None = None) -> Inspection:
    """Measure what a trained encoder has learned about positions.

    Args:
        model: anything that contains an encoder of this package; only its weights are read, no text is run.
        length: positions, N.
        words: token ids for the correlations; see `word_position_correlations`.

    Raises:
        BadInput: the model has no encoder of this package, or length is not in 4 .. 1024.
        ValueError: length is beyond the model's table, or words are outside the vocabulary.
    """
    encoder = next((module for module in model.modules() if isinstance(module, Encoder)), None)
    if encoder is None:
        raise BadInput(f"{type(model).__name__} has no encoder of this package, so there is nothing to inspect")
    check_range(length)
    layer = encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    head_dim = layer.attention.head_dim
    maps, reason = score_maps(model, length), no_correlations_because(encoder)
    broken = [name for name, own in maps.items() if not _counted(own).isfinite().all()]
    if broken:
        raise BadInput(
            f"the model's maps hold NaN or infinity ({', '.join(broken)}): take a checkpoint that is not broken"
        )
    correlations = None if reason else word_position_correlations(model, length, words=words)
    if correlations and "word-position" in correlations.terms:
        maps = {"position-position": correlations.position_position, **maps}
    found = {name: _findings(values, head_dim) for name, values in maps.items()}
    notes = (*layers_note(model), *_notes(found, correlations, reason))
    return Inspection(length, head_dim, found, correlations, notes)


def check_range(length: int) -> None:
    """Refuse lengths for which no map is made.

    Raises:
        BadInput: names the range.
    """
    if not SHORTEST <= length <= LONGEST:
        raise BadInput(f"length must lie in {SHORTEST} .. {LONGEST}, the positions of a map, got {length}")


def _counted(values: ScoreMap) -> Tensor:
    """Return the map without [CLS], which the model may reset to anything."""
    first = int(values.skip_first)
    return values.values_HNN[:, first:, first:]


def _findings(values: ScoreMap, head_dim: int) -> MapFindings:
    matrices, skip = values.values_HNN, values.skip_first
    return MapFindings(
        values,
        distance_profile(matrices, skip_first=skip),
        toeplitz_share(matrices, skip_first=skip),
        low_rank_share(matrices, head_dim, skip_first=skip),
    )


def _notes(
    maps: dict[str, MapFindings], correlations: WordPositionCorrelations | None, reason: str | None
) -> list[str]:
    if not maps:
        return [f"There is nothing on scores to draw: {reason}."]
    notes: list[str] = []
    if reason:
        notes.append(f"No correlations of words and positions: {reason}.")
    if correlations and "word-position" not in correlations.terms:
        notes.append(
            "The terms word-position and position-word do not exist in this model: positions are not added to words,"
            " but meet at the scores."
        )
    elif correlations and len(maps) > 1:
        notes.append("The position-position term is that of q.k; what the encoding adds to the scores has its own map.")
    relative = [name for name, found in maps.items() if found.by_distance_alone]
    if relative:
        notes.append(f"Depends on distance alone at this length, share 1: {', '.join(relative)}.")
    if any(not found.by_distance_alone for name, found in maps.items() if name != "position-position"):
        notes.append(
            "How large a part is does not say what it is worth: --data (in Python, keep_part) scores the model with one"
            " part alone."
        )
    if any(found.map.skip_first for found in maps.values()):
        notes.append(
            "Profiles and shares leave out row and column 0, [CLS], where the reset puts numbers of its own; the maps"
            " show them."
        )
    return notes


def numbers(inspection: Inspection) -> dict[str, Any]:
    """Return all numbers but the maps and panels themselves, for JSON: NaN is null."""
    resetting = [found.map for found in inspection.maps.values() if found.map.skip_first]
    return {
        "length": inspection.length,
        "head_dim": inspection.head_dim,
        "notes": list(inspection.notes),
        "answers": inspection.answers(),
        "correlations": inspection.correlations and _correlation_numbers(inspection.correlations),
        "maps": {name: _map_numbers(found) for name, found in inspection.maps.items()},
        "cls": _cls_numbers(resetting[-1]) if resetting else None,
    }


def _correlation_numbers(found: WordPositionCorrelations) -> dict[str, object]:
    return {
        "words": found.words,
        "explained": _plain(found.explained),
        "panel_word_ids": _plain(found.word_ids),
        "terms": {name: _term_numbers(term) for name, term in found.terms.items()},
    }


def _term_numbers(term: CorrelationTerm) -> dict[str, object]:
    return {
        "spread": _plain(term.spread),
        "spread_by_head": _plain(term.spread_H),
        "mean_by_head": _plain(term.mean_H),
        "std_by_head": _plain(term.std_H),
    }


def _map_numbers(found: MapFindings) -> dict[str, object]:
    return {
        "cls_left_out": found.map.skip_first,
        "toeplitz_share": _plain(found.toeplitz.share),
        "chance": _plain(found.toeplitz.chance),
        "toeplitz_share_by_head": _plain(found.toeplitz.share_H),
        "plain_toeplitz_share_by_head": _plain(found.toeplitz.plain_share_H),
        "rms_by_head": _plain(found.toeplitz.rms_H),
        "low_rank_share_by_head": _plain(found.low_rank_H),
        "profile": {
            "distance": _plain(found.profile.distances_W),
            "count": _plain(found.profile.count_W),
            "mean_by_head": _plain(found.profile.mean_HW),
            "spread_by_head": _plain(found.profile.spread_HW),
        },
    }


def _cls_numbers(values: ScoreMap) -> dict[str, object]:
    """Return the reset of [CLS] per head, and how far it is above what a query gives to all other keys on average."""
    maps_HNN = values.values_HNN.double()
    others_HN = maps_HNN[:, 1:, 1:].mean(-1)
    return {
        "from_cls_by_head": _plain(maps_HNN[:, 0].mean(-1)),
        "to_cls_by_head": _plain(maps_HNN[:, 1:, 0].mean(-1)),
        "to_cls_above_others_by_head": _plain((maps_HNN[:, 1:, 0] - others_HN).mean(-1)),
    }


def floats(values: Tensor) -> list[float]:
    """Return the numbers of a row as floats, the type that torch leaves open."""
    return cast("Any", values).tolist()


def _plain(value: Tensor | float) -> Any:
    """Convert numbers to what JSON has, null for NaN."""
    return finite(floats(value) if isinstance(value, Tensor) else value)
