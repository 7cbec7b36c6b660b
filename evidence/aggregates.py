"""How often the intervals of evidence/decide.py hold the truth, and how often it claims a difference.

Scores are drawn, tasks by arms by runs, and aggregated. No network is trained. One thread, some ten
minutes:

    OMP_NUM_THREADS=1 python evidence/aggregates.py --json evidence/results/aggregates.json

``coverage``: arms differ by the task (standard deviation 0.7, in units of the noise); how often the 95% interval holds
the true mean rank of the first of four arms, with n - 1 of n runs drawn (``used``) and with n (``all``, the paper's
practice). Over seeds the tasks are the same in every set; over tasks they are drawn anew. ``claims``: the share of sets
in which any arm is called different from an equal one, on these tasks (all arms equal on all tasks) and on other tasks
(arms far apart on each task, equal over all tasks), and the share in which the first of them is claimed to be better
than the second where it is ahead by 1 or 2 standard deviations of the noise on every task.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from wordorder import __version__

sys.path.append(str(Path(__file__).resolve().parents[1] / "evidence"))

import decide
from decide import Aggregated, aggregate, ranks

LEVEL = 0.05
SPREAD = 0.7
NOISE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda chance, size: chance.normal(size=size),
    "skewed": lambda chance, size: 1 - chance.exponential(size=size),
}
Scores = list[list[np.ndarray]]


def drawn(chance: np.random.Generator, levels: np.ndarray, runs: int, noise: str = "normal") -> Scores:
    """Scores of all arms on all tasks, whose levels (tasks, arms) are given."""
    return [[level + NOISE[noise](chance, (runs,)) for level in own] for own in levels]


@contextmanager
def drawing_all() -> Iterator[None]:
    """Let the bootstrap draw n of n, as the paper does."""
    usual = decide._drawn
    decide._drawn = lambda count, chance: (
        chance.multinomial(count, np.full(count, 1 / count), size=decide.REPLICATES) / count
    )
    try:
        yield
    finally:
        decide._drawn = usual


def true_rank(chance: np.random.Generator, levels: np.ndarray, noise: str) -> float:
    """The mean rank of the first arm, from many runs; of many tasks a few runs of each are enough."""
    runs = max(2, 2_000 // len(levels))
    return float(np.mean([ranks(own)[0] for own in drawn(chance, levels, runs, noise)]))


def aggregated(tasks: list[Scores]) -> Aggregated:
    """Return the aggregates of tasks whose scores are on one scale."""
    return aggregate(tasks, tasks, [str(arm) for arm in range(len(tasks[0]))])


def coverage_row(chance: np.random.Generator, noise: str, tasks: int, runs: int, sets: int) -> dict[str, Any]:
    """Share of intervals of the first arm's mean rank that hold the truth."""
    levels, centre = chance.normal(0, SPREAD, (tasks, 4)), np.array([0.5, 0, 0, 0])
    here = true_rank(chance, levels, noise)
    anywhere = true_rank(chance, centre + chance.normal(0, SPREAD, (3_000, 4)), noise)
    row: dict[str, Any] = {"noise": noise, "tasks": tasks, "runs": runs, "sets": sets}
    hits = dict.fromkeys(("seeds, used", "seeds, all", "tasks, used", "tasks, all"), 0)
    for _ in range(sets):
        same = drawn(chance, levels, runs, noise)
        new = drawn(chance, centre + chance.normal(0, SPREAD, (tasks, 4)), runs, noise)
        for kind in ("used", "all"):
            if kind == "all":
                with drawing_all():
                    found, other = aggregated(same), aggregated(new)
            else:
                found, other = aggregated(same), aggregated(new)
            for name, interval, truth in (
                (f"seeds, {kind}", found.mean_rank[0].over_seeds, here),
                (f"tasks, {kind}", other.mean_rank[0].over_tasks, anywhere),
            ):
                assert interval is not None
                hits[name] += interval[0] <= truth <= interval[1]
    return row | {name: count / sets for name, count in hits.items()}


def claims_row(chance: np.random.Generator, tasks: int, runs: int, arms: int, sets: int) -> dict[str, Any]:
    """Share of sets with a false claim, and with the claim that the first arm is better than the second."""
    row: dict[str, Any] = {"tasks": tasks, "runs": runs, "arms": arms, "sets": sets}
    counts = dict.fromkeys(("false on these", "false on others", "1 sd", "2 sd"), 0)
    for _ in range(sets):
        equal = drawn(chance, np.zeros((tasks, arms)), runs)
        apart = drawn(chance, chance.normal(0, 3, (tasks, arms)), runs)
        equal_pairs, apart_pairs = aggregated(equal).improvement, aggregated(apart).improvement
        counts["false on these"] += any(pair.p_on_these <= LEVEL for pair in equal_pairs)
        counts["false on others"] += any(pair.p_on_others <= LEVEL for pair in apart_pairs)
        for ahead in (1, 2):
            better = [[own + ahead * (arm == 0) for arm, own in enumerate(one)] for one in equal]
            counts[f"{ahead} sd"] += aggregated(better).improvement[0].p_on_these <= LEVEL
    return row | {name: count / sets for name, count in counts.items()}


def main() -> None:
    """Simulate and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sets", type=int, default=150)
    asked = parser.parse_args()
    chance = np.random.default_rng(0)
    record: dict[str, Any] = {
        "versions": {"wordorder": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "python": platform.python_version(),
        "level": LEVEL,
        "spread": SPREAD,
    }
    decide.REPLICATES, decide.PERMUTATIONS = 1000, 9
    record["coverage"] = [
        coverage_row(chance, noise, tasks, runs, asked.sets)
        for noise in NOISE
        for tasks, runs in ((3, 3), (6, 3), (6, 5))
    ]
    decide.REPLICATES, decide.PERMUTATIONS = 2, 1999
    record["claims"] = [
        claims_row(chance, tasks, runs, arms, asked.sets)
        for arms, tasks, runs in ((4, 3, 3), (4, 6, 5), (8, 6, 3), (8, 6, 5))
    ]
    text = json.dumps(record, indent=1)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
