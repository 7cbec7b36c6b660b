"""Advice on labels and settings that are valid but probably not intended, or hard to train with."""

from collections.abc import Iterator, Mapping

from typing import Any

from wordorder.data import PreparedData
from wordorder.data.examples.datasets import LabelledExamples
from wordorder.launch import process_count
from wordorder.tasks import TASKS
from wordorder.training.recipe.recipe import Recipe

_SMALL, _LARGE = 0.05, 5.0  # limits for mean and standard deviation of labels
FEW = 20
"""Examples of a split below which its scores are called mostly chance."""
_MANY = 20  # classes that are whole numbers


def few_examples(counts: Mapping[str, int]) -> str | None:
    """Return advice where validation or test have so few examples, by split, that their scores are mostly chance."""
    few = {name: n for name, n in counts.items() if name in ("validation", "test") and 0 < n < FEW}
    if not few:
        return None
    said = " and ".join(f"the {name} split has {n:,} example{'' if n == 1 else 's'}" for name, n in few.items())
    options = " and ".join(f"data.{name}_fraction" for name in few)
    return f"{said}, fewer than {FEW}: scores on so few are mostly chance; give more text, or raise {options}"


def examples_in(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of examples of validation and test in the statistics of prepared data."""
    held_out = {name: statistics.get(name, {}).get("segments") for name in ("validation", "test")}
    return {name: count for name, count in held_out.items() if count is not None}


def advice_on(recipe: Recipe, prepared: PreparedData, examples: int) -> Iterator[str]:
    """Yield advice on a run whose processes read so many examples in an epoch, and on the reading of its data."""
    advice = [_scale_advice(recipe, prepared), _numbers_advice(recipe, prepared), _sharding_advice(recipe)]
    yield from filter(None, [*advice, _accumulation_advice(recipe, examples)])
    yield from prepared.log.lines()


def _scale_advice(recipe: Recipe, prepared: PreparedData) -> str | None:
    """Return advice where labels are far from the outputs of a new head, which are near 0 and change by small steps."""
    if TASKS[recipe.data.task].labels != "number" or not isinstance(prepared.train, LabelledExamples):
        return None
    labels = prepared.train.labels
    mean, spread = float(labels.mean()), float(labels.std())
    if abs(mean) <= _LARGE and _SMALL <= spread <= _LARGE:
        return None
    largest = float(f"{recipe.data.label_scale * float(abs(labels).max()):.2g}")
    return (
        f"the labels to learn have mean {mean:.4g} and standard deviation {spread:.4g}: far from 1 they are learned "
        f"slowly or not at all; divide them by --set data.label_scale={largest:g} or so (predictions are multiplied "
        "by it again), and take out a large mean"
    )


def _sharding_advice(recipe: Recipe) -> str | None:
    """Return advice where `training.fsdp` asks to shard weights but the run has only one process."""
    if not recipe.training.get("fsdp") or process_count() > 1:
        return None
    return (
        "training.fsdp shares weights out over the processes of a run, and this run has one; start it with "
        "torchrun --nproc-per-node N -m wordorder train ..."
    )


def _accumulation_advice(recipe: Recipe, examples: int) -> str | None:
    """Return advice where a step accumulates more batches than an epoch has; it then accumulates those alone."""
    pieces = int(recipe.training.get("gradient_accumulation_steps", 1))
    batches = -(-examples // (int(recipe.training["per_device_train_batch_size"]) * process_count()))
    if pieces <= max(batches, 1):
        return None
    return (
        f"training.gradient_accumulation_steps = {pieces} is more than the {batches} batches of an epoch: each step"
        f" accumulates those alone; set it to {batches} or fewer"
    )


def _numbers_advice(recipe: Recipe, prepared: PreparedData) -> str | None:
    """Return advice where the classes look like numbers that a regression should learn."""
    try:
        values = [float(name) for name in prepared.label_names]
    except ValueError:
        return None
    if not values or (len(values) <= _MANY and all(value.is_integer() for value in values)):
        return None
    return (
        f"the {len(values)} classes of data.label_column {recipe.data.label_column!r} are all numbers, and each is "
        "learned as a class of its own; data.task=regression learns numbers as such"
    )
