"""Put the numbers of seeds that tests need, and what the simulations measured, into docs/statistics.md.

    OMP_NUM_THREADS=1 python evidence/false_positives.py --json evidence/results/false_positives.json
    OMP_NUM_THREADS=1 python evidence/false_positives_trained.py \\
        --json evidence/results/false_positives_trained.json
    OMP_NUM_THREADS=1 python evidence/aggregates.py --json evidence/results/aggregates.json
    python evidence/publish/publish_statistics.py

The seeds come from the package's own rule. A test holds the page to it and to the committed JSON.
"""

import json
from collections.abc import Iterable
from typing import Any

from publish_demo import RESULTS, ROOT, put

from wordorder.comparison.statistics.exact_tests import MOST_ARMS_OF_CLOSED_TESTING, seeds_needed, share_of_level

PAGE = ROOT / "docs" / "statistics.md"
LEVELS = (0.05, 0.01)
BROKEN = ("one skewed", "skewed alone")
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
    for models in (2, 4, 8, MOST_ARMS_OF_CLOSED_TESTING):
        shares = share_of_level(models), share_of_level(models, baseline=True)
        rows.append([str(models), *(str(seeds_needed(level, share=share)) for share in shares for level in LEVELS)])
    return table(head, rows)


def power_table(record: dict[str, Any]) -> str:
    """By number of models: how often Welch's test and the exact one find a difference of two standard deviations."""
    welch = {(row["arms"], row["seeds"]): row["claimed"] for row in record["welch_power"] if row["effect"] == 2}
    exact = {
        (row["arms"], row["seeds"]): (row["closed"], row["baseline"])
        for row in record["power"]
        if row["effect"] == 2 and row["means"] == "spaced"
    }
    few, seeds = sorted({seeds for _, seeds in welch}), 8
    head = ["models", *(f"Welch, {count} seeds" for count in few), f"exact, {seeds} seeds", "same, against a baseline"]
    rows = [
        [str(models), *(f"{share:.0%}" for share in (*(welch[models, count] for count in few), *exact[models, seeds]))]
        for models in sorted({models for models, _ in welch})
    ]
    return table(head, rows)


def simulations_table(record: dict[str, Any], trained: dict[str, Any], aggregates: dict[str, Any]) -> str:
    """Share of false positives of each test, and share of intervals that miss the truth."""
    exact = [row for row in record["false_claims"] if row["seeds"] > 3]
    same = [row for row in record["welch"] if "same" in row]
    covered = [{"noise": row["noise"], "used": 1 - row["used"]["coverage"]} for row in record["coverage"]]
    pairs, (looks,) = trained["pairs"], record["looks"]
    twins = trained["called_different"]["paired"]
    rows = [
        ["Welch's test", *shares(record["welch"], "claimed")],
        ["Equivalence", *shares(same, "same")],
        ["Exact test, all pairs", *shares(exact, "closed")],
        ["Exact test, against a baseline", *shares(exact, "baseline")],
        ["Exact test with lost runs", *shares(record["lost"], "used")],
        ["These models on new texts", *shares(record["texts"], "new_texts")],
        ["Retrained and on new texts", *shares(record["texts"], "both")],
        ["Several tasks: these tasks", *shares(aggregates["claims"], "false on these")],
        ["Several tasks: other tasks", *shares(aggregates["claims"], "false on others")],
        ["Interval of the exact test", *shares(covered, "used")],
        ["Exact test of pairs of trained twins", f"{twins} of {len(pairs)}", ""],
        ["*Not used:* lost runs left out", *shares(record["lost"], "without")],
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
