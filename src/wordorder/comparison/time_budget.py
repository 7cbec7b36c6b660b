"""Equal time: find numbers of steps that take every arm as long as the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.errors import BadInput, UnfairComparison

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.training import CompareConfig

COUNTED = ("warmup_steps", "eval_steps", "save_steps")
"""Names of [training] that count steps; values below 1 are shares of all steps and stay as they are."""


def fit_steps(
    arms: tuple[Arm, ...],
    compare: CompareConfig,
    *,
    pipeline: Pipeline,
    folder: Path,
    tolerance: float,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[tuple[Arm, ...], dict[str, dict[str, Any]]]:
    """Give every arm the number of steps that it can do in the time of the baseline's steps.

    Timed are training steps, as `timing.measure_steps` does it; starting, evaluating and saving are left out. The
    schedule keeps its shape: warm-up, evaluations and saves come after the same shares of the steps.

    Args:
        arms: resolved.
        compare: says which arm is the baseline.
        pipeline: trains for the measurement.
        folder: of the comparison; keeps the times, so that a comparison that goes on keeps its steps.
        tolerance: largest relative difference.
        say: told that measuring takes a while.

    Returns:
        The arms, and for each what the results file says of it.

    Raises:
        BadInput: something of [training] is counted in steps that cannot be shared out.
        UnfairComparison: so few steps that one of them is more than the tolerance.
    """
    faults = [fault for arm in arms for fault in _step_faults(arm)]
    if faults:
        raise BadInput(faults)
    from wordorder.comparison.timing import measure_steps

    times = measure_steps(arms, pipeline=pipeline, folder=folder, config=compare, say=say)
    reference = next(arm for arm in arms if arm.name == compare.reference)
    given = int(reference.recipe.training.get("max_steps", -1))
    steps = given if given > 0 else times[reference.name].total_steps
    target = steps * times[reference.name].seconds_per_step
    entries: dict[str, dict[str, Any]] = {}
    adapted: list[Arm] = []
    for arm in arms:
        own = max(1, round(target / times[arm.name].seconds_per_step)) if arm is not reference else steps
        changes = _changes(arm.recipe.training, steps, own) if own != given else {}
        adapted.append(replace(arm, recipe=arm.recipe.with_overrides(changes)) if changes else arm)
        entries[arm.name] = {
            "value": own * times[arm.name].seconds_per_step,
            "target": target,
            "unit": "seconds",
            "steps": own,
            "changed": {"training.max_steps": [steps, own]} if own != steps else {},
        }
    _check(entries, compare, tolerance)
    return tuple(adapted), entries


def _step_faults(arm: Arm) -> list[str]:
    """Return a fault for each option of an arm that counts steps and cannot be rescaled to another number of them."""
    training, faults = arm.recipe.training, list[str]()
    kwargs: Any = training.get("lr_scheduler_kwargs") or {}
    counted = [f"lr_scheduler_kwargs.{name}" for name in kwargs if "step" in str(name)]
    counted += [name for name in ("keep_steps", "eval_delay") if training.get(name)]
    for name in counted:
        faults.append(
            f'compare.arms {arm.name!r}: training.{name} is counted in steps, and compare.match = "time" gives each '
            "arm a number of steps of its own; leave it out"
        )
    return faults


def _changes(training: Mapping[str, Any], steps: int, own: int) -> dict[str, Any]:
    """Return the number of steps, and the options that count steps in proportion to it."""
    counted = {name: int(training[name]) for name in COUNTED if (training.get(name) or 0) >= 1}
    changes = {name: max(1, round(value * own / steps)) for name, value in counted.items()}
    saved, evaluated = counted.get("save_steps", 0), counted.get("eval_steps", 0)
    if saved and evaluated and saved % evaluated == 0:
        # transformers wants a checkpoint to fall on an evaluation where the best one is kept
        changes["save_steps"] = saved // evaluated * changes["eval_steps"]
    return {f"training.{name}": value for name, value in {"max_steps": own, **changes}.items()}


def _check(entries: Mapping[str, Mapping[str, Any]], compare: CompareConfig, tolerance: float) -> None:
    values = {name: own["value"] for name, own in entries.items()}
    if max(values.values()) <= (1 + tolerance) * min(values.values()):
        return
    raise UnfairComparison(
        [
            f'compare.match = "time": arms must agree within {tolerance:.0%}, and one step is more than that for some:',
            *(f"{name}: {own['steps']:,} steps, {own['value']:.4g} s" for name, own in entries.items()),
            "raise training.max_steps",
        ]
    )
