"""Measure seconds of a step, of starting and of an evaluation of every arm: in turns, by the training itself.

Arms take turns (A B C, A B C, ...) and the median over the rounds counts, so that a machine that is slower for a while
is so for all of them. What is timed is `wordorder.training.run`, in as many processes as train later, on the batches of
the first seed. The folders of these short trainings are removed; the times stay in timing.json, so that a comparison
that goes on has the plan, and the steps, that it had.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from wordorder.comparison.devices import devices_of
from wordorder.comparison.lap import Lap
from wordorder.comparison.runs import Run
from wordorder.comparison.workers import rehearse, team_for
from wordorder.durable import write_json
from wordorder.errors import RunFailed
from wordorder.limits import read_json

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.training import CompareConfig, Recipe

TIMING = "timing.json"
ROUNDS = 3
"""Number of times that each arm is timed; the median of three is not moved by one disturbed round."""
SECONDS_OF_STEPS = 0.5
"""Minimum seconds of the steps of a round, for the fastest arm: short times are inexact and vary by chance."""
FEWEST_STEPS, MOST_STEPS = 5, 50

NO_EFFECT_ON_SPEED = frozenset(
    "seed max_steps learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps weight_decay adam_beta1 "
    "adam_beta2 adam_epsilon eval_steps eval_delay save_steps save_total_limit keep_steps load_best_model_at_end "
    "output_dir run_name project report_to logging_steps logging_strategy logging_first_step log_level".split()
)
"""Names of [training] that change neither the time of a step nor that of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The times of an arm."""

    seconds_per_step: float
    """Seconds of a training step, after a warm-up; by the clock that `clock` names."""
    seconds_to_start: float
    """Seconds from the call to the first step, without preparing the data; by the wall clock, as all that waits for a
    disk."""
    seconds_per_evaluation: float
    """Seconds of an evaluation on the validation split during training, with the checkpoint that is saved then; by the
    wall clock."""
    seconds_to_finish: float = 0.0
    """Seconds after the last evaluation: the final scores, and saving the model; by the wall clock."""
    wall: float = 1.0
    """Seconds by the wall clock for a second of `seconds_per_step`, of all arms together; above 1 if other programs use
    the core."""
    total_steps: int = 0
    """Number of steps of the training, as the trainer counted them from num_train_epochs."""
    seconds_to_prepare: float = 0.0
    """Seconds to prepare the data of one seed in a process that has not done it before."""
    seconds_to_open: float = 0.0
    """Seconds that a worker process takes once: to start, and to load what the first training needs."""
    clock: str = "wall"
    """Clock of the steps: "process", the CPU time of one thread, or "wall"; see `step_clock`."""


def measure_steps(
    arms: Sequence[Arm],
    *,
    pipeline: Pipeline,
    folder: Path,
    config: CompareConfig | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, StepTime]:
    """Measure every arm, or read its earlier measurement on this machine.

    Args:
        arms: resolved; whatever does not change the speed, such as the rate and the number of steps, may change later.
        pipeline: its `prepare` and `lap` are called.
        folder: of the comparison; gets timing.json.
        config: says how many trainings there are at the same time, and which probes follow each; None: one, and none.
        say: told, once, that this takes a while.

    Returns:
        Arm's name -> its times.

    Raises:
        RunFailed: an arm cannot be trained; nothing is kept.
        Stopped: a signal asked to stop; nothing is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine, path = _machine(arms[0].recipe, config.workers if config else 1), folder / TIMING
    before = _read(path)
    known: dict[str, Any] = before.get("arms", {}) if before.get("machine") == machine else {}
    names = {arm.name: _settings(arm.recipe, config) for arm in arms}
    missing = [arm for arm in arms if known.get(arm.name, {}).get("settings") != names[arm.name]]
    if missing:
        say(f"measuring how long the arms take: {1 + ROUNDS} short trainings of each, in turns")
        begun = time.monotonic()
        found = _summaries(_measure(missing, pipeline, folder, config))
        kept = {name: known[name] for name in names if name in known}
        known = kept | {name: {"settings": names[name], **asdict(own)} for name, own in found.items()}
        earlier = before.get("took_seconds", 0.0) if len(missing) < len(arms) else 0.0
        took = round(earlier + time.monotonic() - begun, 3)
        write_json(path, {"machine": machine, "took_seconds": took, "arms": known})
    return {name: _as_time(known[name]) for name in names}


def seconds_spent(folder: Path) -> float:
    """Return the seconds that measuring took, 0 if nothing was measured."""
    return float(_read(folder / TIMING).get("took_seconds", 0.0))


def _measure(
    arms: Sequence[Arm], pipeline: Pipeline, folder: Path, config: CompareConfig | None
) -> dict[str, list[Lap]]:
    """Return every arm's laps: the first times start, evaluation and end, the others time steps."""
    for left in folder.glob(".timing-*"):  # by a comparison that was killed while it measured
        shutil.rmtree(left, ignore_errors=True)
    laps: dict[str, list[Lap]] = {arm.name: [] for arm in arms}
    with tempfile.TemporaryDirectory(prefix=".timing-", dir=folder, ignore_cleanup_errors=True) as place:
        devices, workers = devices_of(arms[0].recipe), config.workers if config else 1
        team = team_for(pipeline, {None: {}}, workers=workers, runs=len(arms), devices=devices)

        def take_turns(steps: int | None) -> None:
            runs = [_run(arm, Path(place), config) for arm in arms]
            for run, outcome in team.work(runs, lambda run: None, do=partial(rehearse, steps=steps)):
                if outcome.lap is None:
                    raise RunFailed(
                        f"arm {run.arm!r} cannot be timed: {outcome.reason}; nothing was trained: mend the arm, or "
                        "leave it out"
                    )
                laps[run.arm].append(outcome.lap)

        try:
            take_turns(None)
            take_turns(FEWEST_STEPS)
            fastest = min(own[-1].wall_seconds / own[-1].steps for own in laps.values())
            # the same number for all arms, so that they are timed on the same batches
            steps = max(FEWEST_STEPS, min(MOST_STEPS, ceil(SECONDS_OF_STEPS / max(fastest, 1e-9))))
            if steps > FEWEST_STEPS:
                laps = {name: own[:1] for name, own in laps.items()}
            while min(len(own) for own in laps.values()) <= ROUNDS:
                take_turns(steps)
        finally:
            team.close()
    return laps


def _run(arm: Arm, place: Path, config: CompareConfig | None) -> Run:
    probes = config.probes if config else dict[str, Mapping[str, Any]]()
    seed = int(arm.recipe.training["seed"])
    return Run(arm=arm.name, seed=seed, recipe=arm.recipe, folder=place / arm.name, probes=probes)


def _summaries(laps: Mapping[str, Sequence[Lap]]) -> dict[str, StepTime]:
    timed = [lap for _, *own in laps.values() for lap in own]
    wall = median(lap.wall_seconds / lap.clock_seconds if lap.clock_seconds > 0 else 1.0 for lap in timed)
    found = {name: _summary(around, own, wall) for name, (around, *own) in laps.items()}
    every = [lap for own in laps.values() for lap in own]
    youngest = {pid: min(lap.age for lap in every if lap.process == pid) for pid in {lap.process for lap in every}}
    youngest.pop(os.getpid(), None)  # this process has been opened already
    opening = max(youngest.values(), default=0.0)
    first = max(own[0].start - found[name].seconds_to_start for name, own in laps.items())
    return {name: replace(time, seconds_to_open=opening + max(0.0, first)) for name, time in found.items()}


def _summary(around: Lap, laps: Sequence[Lap], wall: float) -> StepTime:
    start = median(lap.start for lap in laps)
    step = median(lap.clock_seconds / lap.steps for lap in laps)
    evaluation = max(0.0, around.evaluation - step * wall)
    return StepTime(
        seconds_per_step=step,
        seconds_to_start=start,
        seconds_per_evaluation=evaluation,
        # the last step is followed by an evaluation, too
        seconds_to_finish=max(0.0, around.finish - evaluation),
        wall=wall,
        total_steps=laps[0].total_steps,
        seconds_to_prepare=max(lap.prepare for lap in (around, *laps)),
        clock=laps[0].clock,
    )


def _as_time(entry: Mapping[str, Any]) -> StepTime:
    return StepTime(**{field.name: entry[field.name] for field in fields(StepTime) if field.name in entry})


def _settings(recipe: Recipe, config: CompareConfig | None) -> str:
    """Return a digest of everything that decides the time of a run of an arm."""
    tables: dict[str, Any] = {name: dict(table) for name, table in recipe.to_dict().items() if name != "compare"}
    training = tables["training"]
    tables["training"] = {name: value for name, value in training.items() if name not in NO_EFFECT_ON_SPEED}
    tables["probes"] = config.probes if config else {}
    return hashlib.sha256(json.dumps(tables, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _machine(recipe: Recipe, workers: int) -> dict[str, Any]:
    """Return the conditions of the times: under other ones everything is measured anew."""
    import torch

    from wordorder.training.environment import describe_environment

    accelerator = None if recipe.training.get("use_cpu") else torch.accelerator.current_accelerator()
    about = describe_environment(accelerator or torch.device("cpu"), seed=0)
    named = {name: about[name] for name in ("device", "platform", "processors")}
    named |= {"torch": about["packages"].get("torch"), "wordorder": about["packages"].get("wordorder")}
    threads = recipe.training.get("threads") or (1 if workers > 1 else torch.get_num_threads())
    return {**named, "threads": threads, "workers": workers, "devices": len(devices_of(recipe))}


def _read(path: Path) -> dict[str, Any]:
    """Return an earlier timing.json; {} if there is none or it cannot be read: everything is measured anew."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
