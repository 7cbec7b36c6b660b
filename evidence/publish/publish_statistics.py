"""Put the numbers of seeds that tests need, and what the simulations measured, into docs/statistics.md.

    OMP_NUM_THREADS=1 python evidence/false_positives.py --json evidence/results/false_positives.json
    OMP_NUM_THREADS=1 python evidence/false_positives_trained.py \\
        --json evidence/results/false_positives_trained.json
    OMP_NUM_THREADS=1 python evidence/aggregates.py --json evidence/results/aggregates.json
    python evidence/publish/publish_statistics.py

The seeds come from the package's own rule. A test holds the page to it and to the committed JSON.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

from blocks import put
from publish_demo import RESULTS, ROOT

from wordorder.comparison.statistics.seeds import seeds_without_floor

PAGE = ROOT / "docs" / "statistics.md"
LEVELS = (0.05, 0.01)
BROKEN = ("skewed alone",)
"""Kinds of noise in which a difference and its negative are not equally likely, which the tests assume."""


def tables() -> dict[str, str]:
    """Name of a block of the page -> its table."""
    simulated = json.loads((RESULTS / "false_positives.json").read_text(encoding="utf-8"))
    trained = json.loads((RESULTS / "false_positives_trained.json").read_text(encoding="utf-8"))
    aggregates = json.loads((RESULTS / "aggregates.json").read_text(encoding="utf-8"))
    return {
        "seeds-needed": seeds_table(),
        "power": power_table(simulated),
        "simulations": simulations_table(simulated, trained, aggregates),
    }


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table; all columns but the first are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def seeds_table() -> str:
    """By number of models, level and family."""
    head = ["models", *(f"all pairs, {100 * level:.3g}%" for level in LEVELS)]
    head += [f"against a baseline, {100 * level:.3g}%" for level in LEVELS]
    rows: list[list[str]] = []
    for models in (2, 4, 8, 14):
        families = math.comb(models, 2), models - 1
        rows.append([str(models), *(str(seeds_without_floor(m, level)) for m in families for level in LEVELS)])
    return table(head, rows)


def power_table(record: dict[str, Any]) -> str:
    """By number of models and seeds: how often a difference of two standard deviations is found."""
    found = {(row["arms"], row["seeds"]): row["claimed"] for row in record["power"] if row["means"] == "spaced"}
    several = sorted({seeds for _, seeds in found})
    rows = [
        [str(models), *(f"{found[models, seeds]:.0%}" for seeds in several)]
        for models in sorted({models for models, _ in found})
    ]
    return table(["models", *(f"{seeds} seeds" for seeds in several)], rows)


def simulations_table(record: dict[str, Any], trained: dict[str, Any], aggregates: dict[str, Any]) -> str:
    """Share of false positives of each test."""
    few = [row for row in record["false_claims"] if row["seeds"] < 5]
    more = [row for row in record["false_claims"] if row["seeds"] >= 5]
    (looks,) = record["looks"]
    rows = [
        ["Seeds, 3 or 4", *shares(few, "claimed")],
        ["Seeds, 5 to 8", *shares(more, "claimed")],
        ["Equivalence", *shares(record["same"], "claimed")],
        ["Lost runs", *shares(record["lost"], "used")],
        ["Folds", *shares(record["folds"], "claimed")],
        ["These models on new texts", *shares(record["texts"], "new_texts")],
        ["Retrained and on new texts", *shares(record["texts"], "both")],
        ["Several tasks: these tasks", *shares(aggregates["claims"], "false on these")],
        ["Several tasks: other tasks", *shares(aggregates["claims"], "false on others")],
        ["Pairs of trained twins", f"{trained['called_different']} of {len(trained['pairs'])}", ""],
        ["*Not used:* Welch and Holm, 3 or 4 seeds", *shares(few, "before")],
        [f"*Avoid:* {looks['first']} to {looks['last']} seeds until significant", f"{looks['claimed']:.1%}", ""],
    ]
    return table(["method", "error, lowest to highest", "assumption broken"], rows)


def shares(rows: Iterable[dict[str, Any]], kind: str) -> list[str]:
    """The range where the assumptions of the tests hold, and the largest share where they do not."""
    found = [(row.get("noise") in BROKEN, row[kind]) for row in rows]
    held, broken = ([share for is_broken, share in found if is_broken == which] for which in (False, True))
    return [f"{min(held):.1%} to {max(held):.1%}", f"{max(broken):.1%}" if broken else ""]


def main() -> None:
    """Write the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in tables().items():
        text = put(text, name, content)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
