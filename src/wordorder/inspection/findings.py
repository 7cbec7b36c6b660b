"""Findings of `wordorder inspect` on an encoder, typed, and as JSON can hold them."""

import math
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.files import finite
from wordorder.inspection.maps import (
    DistanceProfile,
    ScoreMap,
    ToeplitzShare,
    distance_profile,
    first_module,
    layers_note,
    name_of,
    score_maps,
    toeplitz_share,
)
from wordorder.networks import Encoder

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
    """

    map: ScoreMap
    profile: DistanceProfile
    toeplitz: ToeplitzShare

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
        maps: "absolute", "relative", "sum" as in `score_maps`.
        notes: what is not there and why, one sentence each.
    """

    length: int
    head_dim: int
    maps: dict[str, MapFindings]
    notes: tuple[str, ...]

    def answers(self) -> list[str]:
        """Answer for each map, in a sentence, whether it could have been a relative term."""
        return [
            f"{name}: {found.toeplitz.share:.1%} of what softmax sees of it depends on distance alone,"
            f" {1 - found.toeplitz.share:.1%} does not (random numbers: {found.toeplitz.chance:.1%})"
            for name, found in self.maps.items()
            if not found.by_distance_alone and not math.isnan(found.toeplitz.share)
        ]


def inspect_model(model: nn.Module, length: int) -> Inspection:
    """Measure what a trained encoder has learned about positions.

    Args:
        model: anything that contains an encoder of this package; only its weights are read, no text is run.
        length: positions, N.

    Raises:
        BadInput: the model has no encoder of this package, or length is not in 4 .. 1024.
        ValueError: length is beyond the model's table.
    """
    encoder = first_module(model, Encoder)
    if encoder is None:
        raise BadInput(f"{type(model).__name__} has no encoder of this package, so there is nothing to inspect")
    check_range(length)
    maps = score_maps(model, length)
    broken = [name for name, own in maps.items() if not own.counted_HNN.isfinite().all()]
    if broken:
        raise BadInput(
            f"the model's maps hold NaN or infinity ({', '.join(broken)}): take a checkpoint that is not broken"
        )
    found: dict[str, MapFindings] = {}
    for name, own in maps.items():
        values, skip = own.values_HNN, own.skip_first
        profile, share = distance_profile(values, skip_first=skip), toeplitz_share(values, skip_first=skip)
        found[name] = MapFindings(own, profile, share)
    return Inspection(length, encoder.head_dim, found, (*layers_note(model), *_notes(found, encoder)))


def check_range(length: int) -> None:
    if not SHORTEST <= length <= LONGEST:
        raise BadInput(f"length must lie in {SHORTEST} .. {LONGEST}, the positions of a map, got {length}")


def _notes(maps: dict[str, MapFindings], encoder: Encoder) -> list[str]:
    if not maps:
        names = [name_of(part) for part in (*encoder.encoding.parts_of(0), encoder.embedding)]
        encoding = "+".join(name for name in names if name in CATALOG)
        return [f"There is nothing to draw: encoding {encoding!r} adds no number to the scores by positions alone."]
    notes: list[str] = []
    relative = [name for name, found in maps.items() if found.by_distance_alone]
    if relative:
        notes.append(f"Depends on distance alone at this length, share 1: {', '.join(relative)}.")
    if any(found.map.skip_first for found in maps.values()):
        notes.append(
            "Profiles and shares leave out row and column 0, [CLS], where the reset puts numbers of its own; the maps"
            " show them."
        )
    return notes


def numbers(inspection: Inspection) -> dict[str, Any]:
    """Return all numbers but the maps themselves, for JSON: NaN is null."""
    resetting = [found.map for found in inspection.maps.values() if found.map.skip_first]
    found = {
        "length": inspection.length,
        "head_dim": inspection.head_dim,
        "notes": list(inspection.notes),
        "answers": inspection.answers(),
        "maps": {
            name: {
                "cls_left_out": found.map.skip_first,
                "toeplitz_share": found.toeplitz.share,
                "chance": found.toeplitz.chance,
                "toeplitz_share_by_head": floats(found.toeplitz.share_H),
                "plain_toeplitz_share_by_head": floats(found.toeplitz.plain_share_H),
                "rms_by_head": floats(found.toeplitz.rms_H),
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
