"""Findings of `wordorder inspect` on an encoder, typed, and as JSON can hold them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from wordorder.durable import finite
from wordorder.errors import BadInput
from wordorder.inspection.maps import (
    DistanceProfile,
    ScoreMap,
    ToeplitzShare,
    distance_profile,
    first_module,
    layers_note,
    low_rank_share,
    score_maps,
    toeplitz_share,
)
from wordorder.inspection.words import WordPositionCorrelations, no_correlations_because, word_position_correlations
from wordorder.networks import Encoder, EncoderLayer

SHORTEST, LONGEST = 4, 1024
"""Positions of a map. With fewer, every map is a matter of distance alone; one takes 8 bytes per head and pair, several
times over."""


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
        return self.toeplitz.share >= 1 - 1e-9


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
    encoder = first_module(model, Encoder)
    if encoder is None:
        raise BadInput(f"{type(model).__name__} has no encoder of this package, so there is nothing to inspect")
    check_range(length)
    layer = encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    head_dim = layer.attention.head_dim
    maps, reason = score_maps(model, length), no_correlations_because(encoder)
    broken = [name for name, own in maps.items() if not own.counted_HNN.isfinite().all()]
    if broken:
        raise BadInput(
            f"the model's maps hold NaN or infinity ({', '.join(broken)}): take a checkpoint that is not broken"
        )
    correlations = None if reason else word_position_correlations(model, length, words=words)
    if correlations and "word-position" in correlations.terms:
        maps = {"position-position": correlations.position_position, **maps}
    found: dict[str, MapFindings] = {}
    for name, own in maps.items():
        values, skip = own.values_HNN, own.skip_first
        profile, share = distance_profile(values, skip_first=skip), toeplitz_share(values, skip_first=skip)
        found[name] = MapFindings(own, profile, share, low_rank_share(values, head_dim, skip_first=skip))
    notes = (*layers_note(model), *_notes(found, correlations, reason))
    return Inspection(length, head_dim, found, correlations, notes)


def check_range(length: int) -> None:
    """Refuse lengths for which no map is made."""
    if not SHORTEST <= length <= LONGEST:
        raise BadInput(f"length must lie in {SHORTEST} .. {LONGEST}, the positions of a map, got {length}")


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
    correlations = inspection.correlations
    resetting = [found.map for found in inspection.maps.values() if found.map.skip_first]
    found = {
        "length": inspection.length,
        "head_dim": inspection.head_dim,
        "notes": list(inspection.notes),
        "answers": inspection.answers(),
        "correlations": correlations
        and {
            "words": correlations.words,
            "explained": correlations.explained,
            "panel_word_ids": floats(correlations.word_ids),
            "terms": {
                name: {
                    "spread": term.spread,
                    "spread_by_head": floats(term.spread_H),
                    "mean_by_head": floats(term.mean_H),
                    "std_by_head": floats(term.std_H),
                }
                for name, term in correlations.terms.items()
            },
        },
        "maps": {
            name: {
                "cls_left_out": found.map.skip_first,
                "toeplitz_share": found.toeplitz.share,
                "chance": found.toeplitz.chance,
                "toeplitz_share_by_head": floats(found.toeplitz.share_H),
                "plain_toeplitz_share_by_head": floats(found.toeplitz.plain_share_H),
                "rms_by_head": floats(found.toeplitz.rms_H),
                "low_rank_share_by_head": floats(found.low_rank_H),
                "profile": {
                    "distance": floats(found.profile.distances_W),
                    "count": floats(found.profile.count_W),
                    "mean_by_head": floats(found.profile.mean_HW),
                    "spread_by_head": floats(found.profile.spread_HW),
                },
            }
            for name, found in inspection.maps.items()
        },
        "cls": _cls_numbers(resetting[-1]) if resetting else None,
    }
    return finite(found)


def _cls_numbers(values: ScoreMap) -> dict[str, object]:
    """Return the reset of [CLS] per head, and how far it is above what a query gives to all other keys on average."""
    maps_HNN = values.values_HNN.double()
    others_HN = maps_HNN[:, 1:, 1:].mean(-1)
    return {
        "from_cls_by_head": floats(maps_HNN[:, 0].mean(-1)),
        "to_cls_by_head": floats(maps_HNN[:, 1:, 0].mean(-1)),
        "to_cls_above_others_by_head": floats((maps_HNN[:, 1:, 0] - others_HN).mean(-1)),
    }


def floats(values: Tensor) -> list[float]:
    """Return the numbers of a row as floats, the type that torch leaves open."""
    return cast("Any", values).tolist()
