"""Time that an engine adds to a comparison's runs: 200 runs of a second, in processes of this machine and on Ray.

    python benchmarks/engines.py --json benchmarks/results/engines.json

The runs sleep, so two at a time take 100 seconds without any engine. `overhead` is what a run takes beyond that second,
with as many runs at a time; `start` is the time until the first run has begun, which comes once.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timing import machine

from wordorder.comparison import RayCluster
from wordorder.comparison.engines.local import Job, LocalEngine, Outcome
from wordorder.comparison.engines.ray import RayEngine
from wordorder.comparison.pipeline import Pipeline
from wordorder.comparison.runs import Run
from wordorder.training import read_recipe
from wordorder.training.recipe.files import find_recipe

AT_ONCE = 2
RECIPE = find_recipe("demo")


@dataclass(frozen=True, kw_only=True)
class Sleep(Job):
    """A run that only takes time."""

    def __call__(self, run: Run) -> Outcome:
        """Sleep for a second."""
        time.sleep(1.0)
        return Outcome(status="finished", seconds=1.0)


def measure(make: Any, runs: list[Run]) -> dict[str, float]:
    """Time the runs from the making of the engine to the last outcome."""
    began = time.perf_counter()
    engine: LocalEngine | RayEngine = make()
    started: list[float] = []
    try:
        for run in runs:
            engine.submit(run)
        ended = [time.perf_counter() for _ in engine.as_completed(lambda run: started.append(time.perf_counter()))]
    finally:
        engine.cancel()
    assert len(ended) == len(runs)
    # from the first outcome on, when all processes are there
    between = (ended[-1] - ended[0]) / (len(runs) - 1)
    return {
        "total": ended[-1] - began,
        "start": ended[0] - began - 1.0,
        "overhead": AT_ONCE * between - 1.0,
        "end": time.perf_counter() - ended[-1],
    }


def main() -> None:
    """Measure both engines, and write the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    recipe = read_recipe(RECIPE)
    runs = [Run(arm="none", seed=seed, recipe=recipe, folder=Path(f"{seed}")) for seed in range(arguments.runs)]
    job = Sleep(pipeline=Pipeline(), statistics={})
    with tempfile.TemporaryDirectory() as scratch:
        engines = {
            "local": lambda: LocalEngine(job, places=[{}] * AT_ONCE),
            "ray": lambda: RayEngine(job, RayCluster(), folder=Path(scratch), on_gpus=False),
        }
        found = {name: measure(make, runs) for name, make in engines.items()}
    for name, row in found.items():
        print(name, ", ".join(f"{part} {seconds:.3f} s" for part, seconds in row.items()))
    if arguments.json:
        document = {"machine": machine(), "runs": arguments.runs, "at_once": AT_ONCE, "engines": found}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
