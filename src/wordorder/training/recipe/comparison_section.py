"""The section [compare]: arms, seeds, folds, and how they are compared."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from wordorder.errors import BadInput
from wordorder.files import MOST_ARMS, MOST_FOLDS, MOST_RUNS, MOST_SEED, MOST_WORKERS
from wordorder.hints import MOST_HINTS
from wordorder.section import Section, Several, unknown_choice, unknown_name, value_fault

SECTIONS = ("data", "task", "tokenizer", "model", "training", "compare")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmConfig:
    """One arm of a comparison: a name and what it changes in the recipe."""

    name: str
    """Name of the arm in the table, and of its folder: letters, digits, `.`, `_`, `+`, `-`."""
    overrides: Mapping[str, Any]
    """Dotted name -> value, within [model] and [training] only, so that all arms share data and batches."""


Seed = Annotated[int, Ge(0), Le(MOST_SEED)]


def _different(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("a list that holds no value twice")
    return values


def _counted(value: object, info: ValidationInfo) -> object:
    if type(value) is not int:
        return value
    name, most = info.field_name, MOST_FOLDS if info.field_name == "folds" else MOST_RUNS
    if not 1 <= value <= most:
        raise BadInput(f"compare.{name}: must be at least 1 and at most {most:,}, or a list of {name}, got {value}")
    return tuple(range(value))


def _listed(seeds: object) -> object:
    return (seeds,) if type(seeds) is int else seeds


Rates = Annotated[Several[Annotated[int | float, Gt(0)]], AfterValidator(_different)]
_INTEGERS = WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]})

_ARMS: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "model": {"type": "object"}, "training": {"type": "object"}},
        "patternProperties": {r"^(model|training)\.": {}},
        "additionalProperties": False,
    },
}


class CompareConfig(Section):
    """The section [compare]: arms, seeds, folds, and how they are compared."""

    section: ClassVar[str] = "compare"

    title: str = ""
    """Title of the report; empty: the recipe's name."""
    notes: str = ""
    """Text below the report's title: what is compared, and why."""
    seeds: Annotated[Several[Seed], BeforeValidator(_counted), MinLen(1), AfterValidator(_different), _INTEGERS] = (
        0,
        1,
        2,
    )
    """Seeds that each arm is trained on, once each; a number n means 0 to n - 1. They decide the weights, the order
    of the batches and the training masks. With `folds` and no seeds, the only seed is 0: the spread is then that over
    the folds."""
    folds: Annotated[
        Several[Annotated[int, Ge(0)]], BeforeValidator(_counted), AfterValidator(_different), _INTEGERS
    ] = ()
    """Folds of `data.folds` that each arm is trained on, once with each seed; a number n means 0 to n - 1. A fold
    decides the data alone, so that all arms of one fold see the same texts. Empty: the one split of [data]."""
    match: Literal["none", "parameters", "flops"] = "none"
    """Budget that is equal for all arms, besides the data: "parameters" or "flops" (per token, forward and backward);
    widths are sized so that arms agree. "none": arms keep the widths that they are given."""
    history: Literal["segment", "equal"] = "segment"
    """Segments of running text that arms with a memory read: "segment", the same segments as arms without one, and so
    more history; "equal": shorter segments, so that segment and memory together are as long as a segment of the
    others."""
    baseline: str = ""
    """The arm that the others are sized after and compared with; empty means the first."""
    probes: Mapping[str, Mapping[str, Any]] = {}
    """Name -> options of each probe, which measures every trained model besides its loss; see
    `wordorder.comparison.probes`, which checks both."""
    confidence: Annotated[float, Gt(0.5), Lt(1)] = 0.95
    """Confidence of the intervals that are reported; arms are called better or worse at the level 1 - confidence."""
    equivalence: Annotated[float, Gt(0), Lt(1)] = 0.01
    """Difference up to which arms are called the same: 0.01 is 1% of a perplexity, or 0.01 of an accuracy (of BLEU 1
    point)."""
    workers: Annotated[int, Ge(1), Le(MOST_WORKERS)] = 1
    """Number of runs at the same time, each with one thread; 1 uses all threads for one run. training.threads, if set,
    decides the threads instead."""
    tune: Rates = ()
    """Learning rates tried for every arm, by validation loss, before the seeds; empty keeps the recipe's. With folds
    they are tried on the first one."""
    tune_encoding: Rates = ()
    """Values of training.encoding_learning_rate tried for every arm with each rate of `tune`; an arm whose encoding has
    no parameters is tried without. Empty keeps the recipe's."""
    tune_seed: Annotated[Several[Seed], BeforeValidator(_listed), MinLen(1), AfterValidator(_different), _INTEGERS] = (
        100,
    )
    """Seed of the trials of `tune`, or several: all rates are tried on the first, on each further one the better half
    of those that are left. None of them may be one of `seeds`, whose runs count."""
    tune_extend: Annotated[int, Ge(0), Le(8)] = 0
    """How often the next value beyond an edge is tried where the best rate of an arm, or that of its encoding, is the
    lowest or highest of its list."""
    grid: Rates = ()
    """Learning rates that every arm is trained with on every seed. The table has the median over the seeds at the rate
    where it is best on validation, as TUPE's paper. Empty trains each arm with one rate and reports the mean."""
    arms: Annotated[Several[ArmConfig], WithJsonSchema(_ARMS)] = ()
    """The arms, in the order of the table."""

    @property
    def reference(self) -> str:
        """The name of the baseline arm, or of the first arm where `baseline` is empty."""
        return self.baseline or self.arms[0].name

    @property
    def runs(self) -> int:
        """The number of trainings, without the trials of `tune`."""
        return math.prod(max(1, len(part)) for part in (self.arms, self.seeds, self.folds, self.grid))

    def faults(self) -> list[str]:
        faults: list[str] = []
        if self.tune and self.grid:
            faults.append("compare.grid: chooses the learning rates, as compare.tune does; drop one of the two")
        for name in ("tune_encoding", "tune_extend"):
            if getattr(self, name) and not self.tune:
                faults.append(f"compare.{name}: is only for compare.tune; set it too, or leave {name} out")
        if both := sorted({*self.tune_seed} & {*self.seeds}) if self.tune else []:
            faults.append(
                f"compare.tune_seed: {', '.join(map(str, both))} is one of compare.seeds, whose runs count; rates that "
                "were chosen on it would suit it better than other seeds; take another, such as 100"
            )
        names = [arm.name for arm in self.arms]
        if self.baseline not in ("", *names):
            faults.append(unknown_choice("compare.baseline", self.baseline, names))
        if self.runs > MOST_RUNS:
            faults.append(
                f"[compare]: its arms, seeds, folds and grid make {self.runs:,} trainings, more than the {MOST_RUNS:,} "
                "that are taken; divide it"
            )
        return faults


def check_compare(table: Mapping[str, Any]) -> tuple[CompareConfig, list[str]]:
    """Check [compare] and the shape of its arms; the overrides of an arm are checked with the recipe.

    Returns:
        The section, which is one with the arms alone if another value is wrong, and the faults.
    """
    entries = table.get("arms", [])
    fault = value_fault("compare.arms", list[dict[str, Any]], entries)
    arms, faults = ((), [fault]) if fault else _arms(entries)
    values: dict[str, Any] = {**table, "arms": arms}
    if table.get("folds"):
        values.setdefault("seeds", (0,))
    if faults:
        values.pop("baseline", None)  # it may be one of the arms that are wrong
    try:
        return CompareConfig(**values), faults
    except BadInput as error:
        return CompareConfig(arms=arms), [*error.faults, *faults]


def _arms(entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[ArmConfig, ...], list[str]]:
    arms: list[ArmConfig] = []
    if len(entries) > MOST_ARMS:
        return (), [f"[compare]: has {len(entries):,} arms, more than the {MOST_ARMS} that are taken; divide it"]
    faults: list[str] = [] if entries else ["[compare]: no arms; write at least one [[compare.arms]] with a name"]
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name")
        if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name):
            faults.append(
                f"compare.arms, number {number}: name must be letters, digits, . _ + -, at most 100 of them, got"
                f" {name!r:.120}"
            )
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
        encoding = overrides.get("model.encoding")
        if isinstance(encoding, str) and re.search("[A-Z_]", encoding):  # torch is not loaded for names as they are
            from wordorder.encodings import canonical_name

            overrides["model.encoding"] = canonical_name(encoding)
        bad = [key for key in overrides if key.partition(".")[0] not in SECTIONS or "." not in key]
        for key in bad:
            hint = len(faults) < MOST_HINTS
            faults.append(f"arm {name!r}: {unknown_name('arm', key.partition('.')[0], SECTIONS, hint=hint)}")
        if not bad:
            arms.append(ArmConfig(name=name, overrides=overrides))
    return tuple(arms), faults
