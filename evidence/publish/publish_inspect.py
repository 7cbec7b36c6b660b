"""Put what the parts of the maps are worth in models of `demo_long` after 550 steps into docs/inspect.md.

    python evidence/train.py demo-early
    for arm in tupe-a tupe-r; do for seed in 0 1 2; do
        wordorder inspect runs/demo-early/$arm/seed-$seed/model
    done; done
    python evidence/publish/publish_inspect.py runs/demo-early/tupe-[ar]/seed-*

writes `evidence/results/inspect.json` (the shares and losses without the profiles, which make it large) and the
table between its markers. A test holds the page to the committed JSON.
"""

import argparse
import json
import math
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from blocks import put
from publish_demo import RESULTS, ROOT

PAGE = ROOT / "docs" / "inspect.md"


def found_in(run: Path) -> dict[str, Any]:
    """What the table shows of one run, which is scored four times, and what it was found with."""
    from parts import worth_of_parts

    from wordorder.inference import evaluate_model_dir

    worth = worth_of_parts(partial(evaluate_model_dir, run / "model", "sotu"))
    numbers = json.loads((run / "inspect" / "numbers.json").read_text(encoding="utf-8"))
    shares = {
        name: {"share": part["toeplitz_share"], "by_head": part["toeplitz_share_by_head"]}
        for name, part in numbers["maps"].items()
    }
    return {
        "arm": run.parent.name,
        "seed": int(run.name.removeprefix("seed-")),
        "length": numbers["length"],
        "toeplitz_share": shares,
        "loss": {part: scores["loss"] for part, scores in worth.items()},
        "versions": numbers["versions"],
    }


def table_of(results: dict[str, Any]) -> str:
    """One row a model: mean and sample standard deviation over its seeds."""
    lines = [
        "| encoding | Toeplitz share, absolute part | of the sum | perplexity | distance only | rest only | neither |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in dict.fromkeys(row["arm"] for row in results["inspections"]):
        rows = [row for row in results["inspections"] if row["arm"] == name]
        shares = [[row["toeplitz_share"].get(part, {}).get("share") for row in rows] for part in ("absolute", "sum")]
        parts = [[math.exp(row["loss"][part]) for row in rows] for part in ("whole", "toeplitz", "rest", "nothing")]
        cells = [f"`{name}`", *(_mean(values) for values in (*shares, *parts))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{mean(known):.2f} ± {stdev(known):.2f}" if known else "–"


def main() -> None:
    """Read the runs' inspections, write the JSON and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs that were inspected")
    results = {"inspections": [found_in(run) for run in parser.parse_args().runs]}
    (RESULTS / "inspect.json").write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), "inspect", table_of(results)), encoding="utf-8")


if __name__ == "__main__":
    main()
