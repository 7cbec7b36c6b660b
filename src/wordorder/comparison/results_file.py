"""The types of results.json, and how a file is read.

Every key has a strict type, and an unknown one is refused, but for the recipe's own. A key with a default may be left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from annotated_types import Gt, Lt
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    Strict,
    ValidationError,
    field_validator,
)
from pydantic_core import CoreSchema, ErrorDetails

from wordorder.comparison.statistics.seeds import REVERSED
from wordorder.errors import BadInput
from wordorder.files import one_line, read_json

SCHEMA = 1
"""Version of the format, `schema` in the file."""

_T = TypeVar("_T")
Several = Annotated[tuple[_T, ...], Strict(False)]
"""A list of the file; a tuple here."""


class _Called:
    """Says what a union of types is called in a fault, instead of one fault for each of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        union = handler(source)
        assert union["type"] == "union"
        union["custom_error_type"], union["custom_error_message"] = "union", f"Input should be {self.name}"
        return union


Number = Annotated[int | float, _Called("a number")]
"""A number as the file has it: an integer stays one."""
Table = Mapping[str, JsonValue]
"""An object whose keys are not fixed."""
Point = Annotated[tuple[Number, Number | None], Strict(False)]
"""(step, validation loss) of a curve."""


class Saved(BaseModel):
    """An object of the file. It writes the keys that it was given."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    def content(self) -> dict[str, Any]:
        """Return the values by key; a key that was not given is not there."""
        return {_KEYS.get(name, name): value for name, value in self if name in self.model_fields_set}

    def having(self, **changes: object) -> Self:
        """Return a copy with other values."""
        return type(self).model_validate({**self.content(), **changes})

    def as_json(self) -> dict[str, Any]:
        """Return what `json.dumps` writes into the file."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class WithScores(Saved):
    """An object with scores under the names of their metrics, beside the keys that it always has."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | None] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    @cached_property
    def numbers(self) -> dict[str, int | float]:
        """The keys that hold a number."""
        return {
            key: value
            for key, value in self.content().items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    def score(self, metric: str) -> int | float | None:
        """Return one number; None if there is none of this name."""
        return self.numbers.get(metric)


class Row(WithScores):
    """One finished run: its scores on the reported split, what it cost, and its curve."""

    arm: str
    seed: int
    fold: int | None = None
    status: str = "finished"
    parameters: Number | None = None
    flops_per_token: Number | None = None
    validation_loss: Number | None = None
    learning_rate: Number | None = None
    encoding_learning_rate: Number | None = None
    steps: int | None = None
    train_seconds: Number | None = None
    batches: Mapping[str, str] | None = None
    """Step -> digest of the batches up to it."""
    curve: Several[Point] = ()
    model: str = ""
    """Folder of the trained model, from the folder of results.json."""


class ArmResult(Saved):
    """One arm: what it is, and what all of its runs share."""

    name: str
    encoding: JsonValue = None
    overrides: Table = {}
    learning_rate: Number | None = None
    encoding_learning_rate: Number | None = None
    """Multiple of it that the encoding's parameters have; None: the recipe says none."""
    parameters: Mapping[str, Number] | None = None
    """Parameters by part, and their "total"; None until a run has finished."""
    encoding_parameters: Mapping[str, Number] = {}
    flops_per_token: Number | None = None

    @property
    def total_parameters(self) -> int | float | None:
        """All parameters; None until a run has finished."""
        return self.parameters["total"] if self.parameters else None


class Aggregate(Saved):
    """Mean, spread, median and range of a number over the runs of an arm."""

    mean: Number | None
    std: Number | None = None
    n: int
    median: Number | None = None
    low: Number | None = None
    high: Number | None = None


class Summary(Saved):
    """One arm over its runs: a column for each number of the rows."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Aggregate] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    arm: str

    @property
    def columns(self) -> Mapping[str, Aggregate]:
        """The columns by name."""
        return self.__pydantic_extra__


class Trial(WithScores):
    """Learning rates that an arm tried with one seed, with its validation scores."""

    arm: str
    learning_rate: Number
    encoding_learning_rate: Number | None = None
    seed: int = 0
    status: str = "finished"
    reason: str | None = None


class GridEntry(Saved):
    """One learning rate of a grid: the validation metric of each seed and their median."""

    arm: str
    learning_rate: Number
    chosen: bool = False
    failed: int = 0
    seeds: Mapping[str, Number] = {}
    median: Number | None = None
    low: Number | None = None
    high: Number | None = None


class Failure(Saved):
    """One run that failed, and why."""

    arm: str
    seed: int
    fold: int | None = None
    status: str = "failed"
    stage: str = "seeds"
    """Part of the comparison: "tuning", "grid", or "seeds" for a run that counts."""
    learning_rate: Number | None = None
    encoding_learning_rate: Number | None = None
    reason: str = ""


class Tested(Saved):
    """The test of a difference of two arms, which is positive where the first is better."""

    difference: Number | None = None
    low: Number | None = None
    high: Number | None = None
    p: Number | None = None
    p_adjusted: Number | None = None
    outcome: str
    lost: str | None = None
    """Why nothing is claimed: the arm that is ahead lost more runs."""

    def reversed(self) -> Self:
        """Return the test as seen from the other arm."""
        difference, low, high = (None if end is None else 0.0 - end for end in (self.difference, self.high, self.low))
        outcome = REVERSED.get(self.outcome, self.outcome)
        return self.having(difference=difference, low=low, high=high, outcome=outcome)


class Claim(Tested):
    """The test of one kind of claim about two arms."""

    method: str
    measure: str
    seeds: int
    """Number of seeds of the arm that has fewer."""
    unit: str | None = None
    """Unit of the texts that were tested over: "document", "example" or "segment"; None: over seeds alone."""
    units: int | None = None


class Comparison(Tested):
    """The test of two arms over their seeds or folds, with other claims about them."""

    arm: str
    against: str
    scale: str = "difference"
    n: int | None = None
    """Number of runs of the arm that has fewer, or of the folds that both have."""
    test: str | None = None
    margin: Number | None = None
    """Difference up to which two arms are called the same."""
    p_same: Number | None = None
    """p-value of a difference of the margin or more, corrected for the number of pairs."""
    why: str | None = None
    """Why the difference is not significant, where that is not for the runs of these two arms."""
    new_texts: Claim | None = None
    """These trained models, on new texts."""
    retrained_new_texts: Claim | None = None
    """Retrained, and on new texts."""


class Significance(Saved):
    """How the differences were tested, and what that says."""

    test: str | None = None
    correction: str | None = None
    family: str | None = None
    level: Number | None = None
    seeds: int | None = None
    seeds_needed: int | None = None
    sentence: str | None = None


class StepsToLoss(Saved):
    """How early an arm has the lowest validation loss of the baseline."""

    arm: str
    baseline: str
    target: Number | None = None
    baseline_steps: Number | None = None
    steps: Number | None = None
    low: Number | None = None
    high: Number | None = None
    share: Number | None = None
    n: int | None = None
    reached: int | None = None
    resolution: Number | None = None


class Look(Saved):
    """One look at the results: the runs, the family and the level at which differences were tested."""

    date: str
    runs: Mapping[str, int]
    seeds: Mapping[str, Several[Annotated[int | Annotated[tuple[int, int], Strict(False)], _Called("a seed")]]]
    """Arm -> seeds of its runs; (fold, seed) where there are folds."""
    baseline: str | None
    confidence: Number
    equivalence: Number
    metric: str
    statistic: str


class ProbeRow(Saved):
    """One number that a probe measured of one run, and what the probe tells beside it."""

    model_config = ConfigDict(extra="allow")

    arm: str
    seed: int
    fold: int | None = None
    x: Annotated[int | float | str, _Called("a number or a word")]
    value: Number | None = None
    group: str | None = None


class Skipped(Saved):
    """An arm that a probe could not measure, and why."""

    arm: str
    reason: str


class ProbeResult(Saved):
    """The measurements of a probe in all runs, and how they are drawn; see `wordorder.comparison.probes.probe.Axes`."""

    title: str
    x: str
    x_kind: str
    value: str
    higher_is_better: bool | None
    log: bool | None = None
    meaning: str = ""
    options: Table = {}
    rows: Several[ProbeRow]
    skipped: Several[Skipped] = ()
    notes: Several[str] = ()


class ArmBudget(Saved):
    """An arm's amount of the matched quantity, the amount that it should have, and the sizes changed for it."""

    value: Number | None = None
    target: Number | None = None
    unit: str = ""
    changed: Mapping[str, Annotated[tuple[Number, Number], Strict(False)]] = {}
    """Recipe key -> (before, after)."""


class History(Saved):
    """Tokens that an arm can look back on in one layer."""

    segment: int = 0
    memory: int = 0
    history: int = 0


class MatchedBudget(Saved):
    """The quantity that is equal in all arms, and the changes made for it."""

    match: str = "none"
    tolerance: Number = 0
    history: str | None = None
    reference: str | None = None
    arms: Mapping[str, ArmBudget] = {}
    histories: Mapping[str, History] = {}
    sentence: str = ""


class Planned(Saved):
    """Count the arms and runs that there are when all are finished, with which seeds, folds and rates."""

    arms: int
    seeds: Several[int]
    folds: Several[int] = ()
    runs: int
    rates: Several[Number] = ()


class FoldData(Saved):
    """The data of one fold."""

    fold: int
    fingerprint: str
    documents: Mapping[str, int]


class CompareTable(Saved):
    """[compare] of the recipe, of which only a part is read here."""

    model_config = ConfigDict(extra="allow")

    title: str = ""
    notes: str = ""
    baseline: str | None = None
    confidence: Number | None = None
    equivalence: Annotated[float, Gt(0), Lt(1)] | None = None
    workers: int = 1
    arms: Several[Table] = ()


class SavedRecipe(Saved):
    """The recipe that made the results, as it was resolved then."""

    data: Table = {}
    task: Table = {}
    tokenizer: Table = {}
    model: Table = {}
    training: Table = {}
    compare: CompareTable | None = None

    @field_validator("data", "training")
    @classmethod
    def _of_known_type(cls, table: Table) -> Table:
        for key, kind in (("folds", int), ("fold_kind", str), ("threads", int)):
            if not isinstance(table.get(key), kind | None):
                raise ValueError(f"{key} must be of type {kind.__name__}, got {table[key]!r}")
        return table


class Results(Saved):
    """The content of results.json."""

    version: Literal[1] = Field(SCHEMA, alias="schema")
    name: str
    task: str
    metric: str | None = None
    """The headline metric; None: that of the task."""
    split: str = "test"
    protocol: str | None = None
    optimistic: bool = False
    statistic: Literal["mean", "median"] = "mean"
    complete: bool = True
    waiting: int = 0
    """Runs that have not ended."""
    planned: Planned
    recipe: SavedRecipe
    written: Mapping[str, Table] = {}
    """The recipe's sections without the defaults, overrides put in; may be empty."""
    environment: Table = {}
    data: Table = {}
    folds: Several[FoldData] = ()
    arms: Several[ArmResult]
    rows: Several[Row] = ()
    failed: Several[Failure] = ()
    selection: str = "loss"
    """The metric by which learning rates and checkpoints were chosen."""
    tuning: Several[Trial] = ()
    grid: Several[GridEntry] = ()
    summary: Several[Summary] = ()
    probes: Mapping[str, ProbeResult] = {}
    looks: Several[Look] = ()
    """Looks at the results."""
    baseline: str | None = None
    budget: MatchedBudget | None = None
    own_encodings: Mapping[str, Mapping[str, str]] = {}
    own_memories: Mapping[str, Mapping[str, str]] = {}
    notes: Several[str] = ()
    bleu_signature: str | None = None
    comparisons: Several[Comparison] = ()
    significance: Significance = Significance()
    steps_to_loss: Several[StepsToLoss] = ()

    @property
    def compare(self) -> CompareTable:
        """[compare] of the recipe; empty where it has none."""
        return self.recipe.compare or CompareTable()


_KEYS = {"version": "schema"}
"""Attributes whose key has another name: pydantic has a `schema` of its own."""


def read_results(path: Path | str) -> Results:
    """Read a results.json.

    Raises:
        BadInput: it cannot be read, or is no results file; one line per fault.
    """
    try:
        content: object = read_json(Path(path))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {one_line(error)}") from None
    return parse_results(content, name=str(path))


def parse_results(content: object, *, name: str = "results.json") -> Results:
    """Return the results that a parsed JSON value holds."""
    try:
        return Results.model_validate(content)
    except ValidationError as error:
        raise BadInput(faults_of(error, name)) from None


def faults_of(error: ValidationError, name: str) -> list[str]:
    """Return the faults of a value, one line each with its place."""
    return list(dict.fromkeys(f"{name}: {_fault(found)}" for found in error.errors(include_url=False)))


def _fault(found: ErrorDetails) -> str:
    """Return a fault with its place in the file: `rows[3].seed: should be a valid integer, got 'one'`."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).removeprefix(".")
    if found["type"] == "missing":
        return f"{place}: is missing"
    if found["type"] == "extra_forbidden":
        return f"{place}: is no key of a results file"
    if found["type"] == "value_error":
        return f"{place}: {found['msg'].removeprefix('Value error, ')}"
    is_object = found["type"] in ("model_type", "model_attributes_type", "dict_type")
    said = "should be an object" if is_object else found["msg"].removeprefix("Input ")
    return f"{place or 'the file'}: {said[:1].lower()}{said[1:]}, got {one_line(ascii(found['input']), 60)}"
