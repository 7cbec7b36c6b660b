"""Choose the part of a comparison that fits into a limit of time, and report what is left out.

Never steps: they would change the answer. Whole seeds are left out first, from the end, so that all arms keep the same
ones; where not even one seed of all arms fits, arms are, from the end, and the baseline never. Learning rates that are
tried, folds and probes belong to every run that stays, so none of them is left out.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.comparison.devices import devices_of, placements
from wordorder.comparison.grid import grid_runs
from wordorder.comparison.runs import runs_of
from wordorder.comparison.timing import measure_steps, seconds_spent
from wordorder.durable import write_json
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.comparison.pipeline import Pipeline
    from wordorder.comparison.timing import StepTime
    from wordorder.training import CompareConfig, Recipe

PLAN = "plan.json"

MARGIN = 1.1
"""Factor on all estimates: maps and figures were not measured, and no machine is the same twice."""

ROUNDING = 1e-6
"""Seconds by which a sum of measured times may be off."""

_LENGTH = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_budget(text: str) -> float:
    """Return the seconds of a limit such as 90s, 30m, 2h or 1h30m.

    Raises:
        BadInput: it is written in another way, or is 0.
    """
    found = _LENGTH.fullmatch(text)
    hours, minutes, seconds = (int(number or 0) for number in found.groups()) if found else (0, 0, 0)
    total = 3600 * hours + 60 * minutes + seconds
    if not total:
        raise BadInput(f"--budget: {text!r} is no length of time; write it as 90s, 30m, 2h or 1h30m")
    return float(total)


def spelled(seconds: float) -> str:
    """Return a limit, rounded up, in the form that `parse_budget` reads."""
    seconds = ceil(seconds - ROUNDING)
    if seconds <= 90:
        return f"{seconds}s"
    hours, minutes = divmod(ceil(seconds / 60), 60)
    return f"{hours}h" * (hours > 0) + f"{minutes}m" * (minutes > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All trainings that a comparison would run, and the seconds that its parts take."""

    seconds: Mapping[str, float]
    """Arm's name -> seconds of one of its trainings, from the call to the saved model; in the order of the table."""
    seeds: tuple[int, ...]
    runs_per_seed: int = 1
    """Number of runs of an arm for each seed: its folds, times the rates of a grid."""
    trials: int = 0
    """Number of learning rates that are tried for each arm beforehand."""
    baseline: str = ""
    """The arm that is never left out; empty: the first."""
    workers: int = 1
    """Number of trainings at the same time."""
    opening: float = 0.0
    """Seconds until the processes that train have started."""
    preparation: float = 0.0
    """Seconds to prepare the data of one seed, or fold, in a process that has not done it before."""
    preparations_per_seed: int = 1
    spent: float = 0.0
    """Seconds that measuring took."""

    def estimate(self, arms: Sequence[str], seeds: Sequence[int]) -> float:
        """Return the seconds for these arms and seeds: trials first, then all runs in their order."""
        own = [self.seconds[arm] for arm in arms]
        tried = makespan([seconds for seconds in own for _ in range(self.trials)], self.workers)
        trained = makespan(own * (self.runs_per_seed * len(seeds)), self.workers)
        prepared = self.preparation * (self.preparations_per_seed * len(seeds) + (self.trials > 0))
        return self.spent + MARGIN * (self.opening + prepared + tried + trained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arms and seeds that are trained within a limit of time."""

    budget: float
    """Limit of time, in seconds."""
    estimate: float
    """Seconds for all that is trained, with those of measuring and of finished runs."""
    work: Work
    arms: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """True if nothing is left out."""
        return len(self.arms) == len(self.work.seconds) and len(self.seeds) == len(self.work.seeds)

    def left_out(self) -> list[str]:
        """Return a sentence for each part that is left out, and one with the budget that would train all."""
        if self.whole:
            return []
        work, found = self.work, list[str]()
        arms = [arm for arm in work.seconds if arm not in self.arms]
        seeds = [seed for seed in work.seeds if seed not in self.seeds]
        if seeds:
            runs = len(seeds) * work.runs_per_seed
            extra = work.estimate(self.arms, work.seeds) - self.estimate
            of = "every arm" if not arms else "the arms that stay"
            found.append(
                f"Not trained: seed{'s' * (len(seeds) > 1)} {listed(seeds)} of {of} ({runs * len(self.arms)} runs, "
                f"about {spelled(extra)})."
            )
        everything = work.estimate(tuple(work.seconds), work.seeds)
        if arms:
            runs = len(work.seeds) * work.runs_per_seed + work.trials
            extra = everything - work.estimate(self.arms, work.seeds)
            found.append(
                f"Not trained: arm{'s' * (len(arms) > 1)} {listed(arms)} with all seeds ({runs * len(arms)} runs, "
                f"about {spelled(extra)})."
            )
        return [*found, f"All of it takes about {spelled(everything)}; the same command with that budget goes on."]

    def as_dict(self) -> dict[str, Any]:
        """Return the content of plan.json, which is also "plan" in results.json."""
        work = self.work
        return {
            "budget_seconds": self.budget,
            "estimated_seconds": round(self.estimate, 1),
            "measuring_seconds": round(work.spent, 1),
            "seeds": list(self.seeds),
            "arms": list(self.arms),
            "left_out": self.left_out(),
            "workers": work.workers,
            "runs": [
                {
                    "arm": arm,
                    "seconds_per_run": round(seconds, 2),
                    "runs": len(self.seeds) * work.runs_per_seed if arm in self.arms else 0,
                    "trials": work.trials if arm in self.arms else 0,
                }
                for arm, seconds in work.seconds.items()
            ],
        }

    def within(self, recipe: Recipe, arms: Sequence[Arm]) -> tuple[Recipe, tuple[Arm, ...]]:
        """Return the recipe with the planned arms and seeds only, and its arms: it repeats the results as they are."""
        if self.whole:
            return recipe, tuple(arms)
        entries = [entry for entry in recipe.raw["compare"]["arms"] if entry["name"] in self.arms]
        smaller = recipe.with_overrides({"compare.seeds": list(self.seeds), "compare.arms": entries})
        return smaller, tuple(arm for arm in arms if arm.name in self.arms)


def choose(work: Work, budget: float, finished: Collection[tuple[str, int]] = ()) -> Plan:
    """Return the largest plan that fits.

    Args:
        work: all that there is to do.
        budget: seconds.
        finished: arms with seeds of which all runs are finished; they stay whatever the budget is.

    Raises:
        BadInput: not even one seed of the baseline fits.
    """
    arms = list(work.seconds)

    def plan(arms: Sequence[str], seeds: Sequence[int]) -> Plan | None:
        estimate = work.estimate(arms, seeds)
        done = all((arm, seed) in finished for arm in arms for seed in seeds)
        if estimate > budget + ROUNDING and not done:
            return None
        return Plan(budget=budget, estimate=estimate, work=work, arms=tuple(arms), seeds=tuple(seeds))

    for count in range(len(work.seeds), 0, -1):
        found = plan(arms, work.seeds[:count])
        if found:
            return found
    baseline = work.baseline or arms[0]
    for arm in [arm for arm in reversed(arms) if arm != baseline]:
        arms.remove(arm)
        found = plan(arms, work.seeds[:1])
        if found:
            return found
    needed = work.estimate([baseline], work.seeds[:1])
    tried = f" with the {work.trials} learning rates that are tried for it" if work.trials else ""
    raise BadInput(
        f"--budget: one seed of the baseline {baseline!r}{tried} takes about {spelled(needed)}, more than "
        f"{spelled(budget)}; give at least that, or {spelled(work.estimate(list(work.seconds), work.seeds))} for all "
        "arms and seeds, or lower training.max_steps for all arms"
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return the seconds until the last of some trainings ends, if each free worker takes the next one."""
    free = [0.0] * max(1, workers)
    for taken in seconds:
        heapq.heapreplace(free, free[0] + taken)
    return max(free)


def seconds_of_run(recipe: Recipe, time: StepTime) -> float:
    """Return the seconds of one training of an arm, without preparing the data."""
    steps = recipe.training.get("max_steps", -1)
    steps = steps if steps > 0 else time.total_steps
    evaluating = time.seconds_per_evaluation * evaluations(recipe, steps)
    return time.seconds_to_start + steps * time.seconds_per_step * time.wall + evaluating + time.seconds_to_finish


def evaluations(recipe: Recipe, steps: int) -> int:
    """Return the number of evaluations of a training of so many steps before its end."""
    strategy = recipe.training.get("eval_strategy", "no")
    if strategy == "epoch":
        return ceil(recipe.training.get("num_train_epochs", 1))
    if strategy == "no":
        return 0
    every = float(recipe.training.get("eval_steps") or recipe.training.get("logging_steps") or 500)
    return steps // max(1, ceil(steps * every) if every < 1 else int(every))


def make_plan(
    arms: Sequence[Arm],
    recipe: Recipe,
    budget: float,
    *,
    pipeline: Pipeline,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> Plan:
    """Measure the arms, choose what fits, and write it into plan.json.

    Args:
        arms: resolved, and sized where the recipe asks for it.
        recipe: with [compare].
        budget: seconds.
        pipeline: what trains.
        folder: of the comparison.
        say: told that measuring takes a while.

    Raises:
        BadInput: the baseline alone does not fit.
        RunFailed: an arm cannot be trained.
    """
    config = recipe.compare
    assert config is not None  # resolve_arms refused it
    times = measure_steps(arms, pipeline=pipeline, folder=folder, config=config, say=say)
    work = _work(arms, config, times, folder, len(placements(devices_of(recipe), workers=config.workers, runs=10**6)))
    plan = choose(work, budget, _finished(arms, config, folder))
    write_json(folder / PLAN, plan.as_dict())
    return plan


def _work(
    arms: Sequence[Arm], config: CompareConfig, times: Mapping[str, StepTime], folder: Path, workers: int
) -> Work:
    folds = max(1, len(config.folds))
    return Work(
        seconds={arm.name: seconds_of_run(arm.recipe, times[arm.name]) for arm in arms},
        seeds=config.seeds,
        runs_per_seed=folds * max(1, len(config.grid)),
        trials=len(config.tune),
        baseline=config.reference,
        workers=max(1, workers),
        opening=max(time.seconds_to_open for time in times.values()),
        preparation=max(time.seconds_to_prepare for time in times.values()),
        preparations_per_seed=folds,
        spent=seconds_spent(folder),
    )


def _finished(arms: Sequence[Arm], config: CompareConfig, folder: Path) -> set[tuple[str, int]]:
    runs = grid_runs(arms, config, folder) or runs_of(arms, config, folder)
    open_runs = {(run.arm, run.seed) for run in runs if not run.finished()}
    return {(run.arm, run.seed) for run in runs} - open_runs


def listed(names: Sequence[object]) -> str:
    """Return names as a list in words: a, b and c."""
    words = [str(name) for name in names]
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
