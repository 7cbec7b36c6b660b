"""The section [compare]: arms, seeds, folds, and how they are compared."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from wordorder.hints import fits
from wordorder.limits import MOST_ARMS, MOST_FOLDS, MOST_RUNS, MOST_SEED, MOST_WORKERS
from wordorder.training.recipe.checks import table_faults, unknown_choice, unknown_name

SECTIONS = ("data", "tokenizer", "model", "training", "compare")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmConfig:
    """One arm of a comparison: a name and what it changes in the recipe."""

    name: str
    """Name of the arm in the table, and of its folder: letters, digits, `.`, `_`, `+`, `-`."""
    overrides: Mapping[str, Any]
    """Dotted name -> value, within [model] and [training] only, so that all arms share data and batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """The section [compare]: arms, seeds, folds, and how they are compared."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds that each arm is trained on, once each: they decide the weights, the order of the batches and the training
    masks. With `folds` and no seeds, the only seed is 0: the spread is then that over the folds."""
    folds: tuple[int, ...] = ()
    """Folds of `data.folds` that each arm is trained on, once with each seed; a number n means 0 to n - 1. A fold
    decides the data alone, so that all arms of one fold see the same texts. Empty: the one split of [data]."""
    match: str = "none"
    """Budget that is equal for all arms, besides the data: "parameters" or "flops" (per token, forward and backward);
    widths are sized so that arms agree. "none": arms keep the widths that they are given."""
    history: str = "segment"
    """Segments of running text that arms with a memory read: "segment", the same segments as arms without one, and so
    more history; "equal": shorter segments, so that segment and memory together are as long as a segment of the
    others."""
    baseline: str = ""
    """The arm that the others are sized after and compared with; empty means the first."""
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Name -> options of each probe, which measures every trained model besides its loss; see
    `wordorder.comparison.probes`, which checks both."""
    confidence: float = 0.95
    """Confidence of the intervals that are reported; arms are called better or worse at the level 1 - confidence."""
    workers: int = 1
    """Number of runs at the same time, each with one thread; 1 uses all threads for one run. training.threads, if set,
    decides the threads instead."""
    tune: tuple[float, ...] = ()
    """Learning rates tried for every arm, by validation loss, before the seeds; empty keeps the recipe's. With folds
    they are tried on the first one."""
    tune_seed: int = 0
    """Seed of the trials of `tune`."""
    grid: tuple[float, ...] = ()
    """Learning rates that every arm is trained with on every seed. The table has the median over the seeds at the rate
    where it is best on validation, as TUPE's paper. Empty trains each arm with one rate and reports the mean."""
    arms: tuple[ArmConfig, ...] = ()
    """The arms, in the order of the table."""

    @property
    def reference(self) -> str:
        """The name of the baseline arm, or of the first arm where `baseline` is empty."""
        return self.baseline or self.arms[0].name


MATCHES = ("none", "parameters", "flops")
HISTORIES = ("segment", "equal")

REMOVED = {
    "budget": (
        "compare.budget: a limit of time was removed; list fewer compare.seeds and add more later, or stop the "
        "comparison when you like: the same command goes on"
    ),
    "match": (
        'compare.match: "time" was removed; use match = "flops", or write a recipe for each arm with its own '
        "training.max_steps"
    ),
}
"""Names of [compare] that an earlier version took, or took with another value -> what to write instead."""

_COMPARE_HINTS: dict[str, Any] = {
    "seeds": list[int],
    "folds": list[int] | int,
    "match": str,
    "history": str,
    "baseline": str,
    "probes": dict[str, dict[str, Any]],
    "confidence": float,
    "workers": int,
    "tune": list[float],
    "tune_seed": int,
    "grid": list[float],
    "arms": list[dict[str, Any]],
}


def check_compare(table: Mapping[str, Any]) -> tuple[CompareConfig, list[str]]:
    """Check [compare] and the shape of its arms; the overrides of an arm are checked with the recipe.

    Args:
        table: the section as it was read.

    Returns:
        The config, with defaults in the place of wrong values so that its arms can be checked further, and the faults.
    """
    removed = [name for name in REMOVED if name in table and (name != "match" or table[name] == "time")]
    faults = [REMOVED[name] for name in removed]
    table = {name: value for name, value in table.items() if name not in removed}
    faults += table_faults("compare", table, _COMPARE_HINTS)
    values: dict[str, Any] = {
        name: tuple(cast(Any, value)) if isinstance(value, list) else value
        for name, value in table.items()
        if name in _COMPARE_HINTS and name != "arms" and fits(_COMPARE_HINTS[name], value)
    }
    faults += _fold_faults(values)
    for name in ("seeds", "folds", "tune", "grid"):
        if len(set(values.get(name, ()))) != len(values.get(name, ())):
            faults.append(f"compare.{name}: holds the same value twice: {list(values[name])}")
    if "seeds" in values and (not values["seeds"] or min(values["seeds"]) < 0):
        faults.append(f"compare.seeds: must be at least one integer, none negative, got {list(values['seeds'])}")
    if max(values.get("seeds", ()), default=0) > MOST_SEED:
        faults.append(f"compare.seeds: must be at most {MOST_SEED:,}, got {max(values['seeds'])}")
    for name in ("tune", "grid"):
        if not all(rate > 0 and math.isfinite(rate) for rate in values.get(name, ())):
            faults.append(f"compare.{name}: learning rates must be greater than 0 and finite, got {list(values[name])}")
    if values.get("tune") and values.get("grid"):
        faults.append("compare.grid: chooses the learning rates, as compare.tune does; drop one of the two")
    for name, choices in (("match", MATCHES), ("history", HISTORIES)):
        if values.get(name, choices[0]) not in choices:
            faults.append(unknown_choice(f"compare.{name}", values[name], choices))
    if not 0.5 < values.get("confidence", 0.95) < 1:
        faults.append(f"compare.confidence: must lie between 0.5 and 1, such as 0.95, got {values['confidence']}")
    faults += [
        f"compare.probes: {name!r} must be a table of options, [compare.probes.{name}], got {options!r}"
        for name, options in values.get("probes", {}).items()
        if not isinstance(options, dict)
    ]
    if not 1 <= values.get("workers", 1) <= MOST_WORKERS:
        faults.append(f"compare.workers: must be at least 1 and at most {MOST_WORKERS}, got {values['workers']}")
    if not 0 <= values.get("tune_seed", 0) <= MOST_SEED:
        faults.append(f"compare.tune_seed: must be at least 0 and at most {MOST_SEED:,}, got {values['tune_seed']}")
    entries = table.get("arms", [])
    arms, arm_faults = _arms(entries) if fits(_COMPARE_HINTS["arms"], entries) else ((), [])
    faults += arm_faults
    names = [arm.name for arm in arms]
    if values.get("baseline", "") not in ("", *names) and not arm_faults:
        faults.append(unknown_choice("compare.baseline", values["baseline"], names))
    config = CompareConfig(**({} if faults else values), arms=arms)
    runs = math.prod(max(1, len(part)) for part in (config.arms, config.seeds, config.folds, config.grid))
    if runs > MOST_RUNS:
        faults.append(
            f"[compare]: its arms, seeds, folds and grid make {runs:,} trainings, more than the {MOST_RUNS:,} that are"
            " taken; divide it"
        )
    return config, faults


def _fold_faults(values: dict[str, Any]) -> list[str]:
    """Expand a number of folds, set one seed for folds without seeds, and return the faults."""
    folds = values.get("folds", ())
    if isinstance(folds, int):
        if folds < 1:
            del values["folds"]
            return [f"compare.folds: must be at least 1, or a list of folds, got {folds}"]
        if folds > MOST_FOLDS:
            del values["folds"]
            return [f"compare.folds: must be at most {MOST_FOLDS:,}, got {folds}; each is a training of every arm"]
        values["folds"] = folds = tuple(range(folds))
    if folds:
        values.setdefault("seeds", (0,))
    return [f"compare.folds: folds are counted from 0, got {list(folds)}"] if any(fold < 0 for fold in folds) else []


def _arms(entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[ArmConfig, ...], list[str]]:
    arms: list[ArmConfig] = []
    if len(entries) > MOST_ARMS:
        return (), [f"[compare]: has {len(entries):,} arms, more than the {MOST_ARMS} that are taken; divide it"]
    faults: list[str] = [] if entries else ["[compare]: no arms; write at least one [[compare.arms]] with a name"]
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name")
        if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name):
            faults.append(f"compare.arms, number {number}: name must be letters, digits, . _ + -, got {name!r}")
            continue
        if name in {arm.name for arm in arms}:
            faults.append(f"compare.arms: two arms are named {name!r}")
        overrides: dict[str, Any] = {}
        for key, value in entry.items():
            if key == "name":
                continue
            # "model.encoding" = "rope" and [compare.arms.model] encoding = "rope" say the same.
            if isinstance(value, dict) and key in SECTIONS:
                overrides |= {f"{key}.{inner}": item for inner, item in cast(dict[str, Any], value).items()}
            else:
                overrides[key] = value
        bad = [key for key in overrides if key.partition(".")[0] not in SECTIONS or "." not in key]
        faults += [f"arm {name!r}: {unknown_name('arm', key.partition('.')[0], SECTIONS)}" for key in bad]
        if not bad:
            arms.append(ArmConfig(name=name, overrides=overrides))
    return tuple(arms), faults
