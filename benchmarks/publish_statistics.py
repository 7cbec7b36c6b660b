"""Put the numbers of seeds that claims need, and what the simulations measured, into docs/statistics.md.

    OMP_NUM_THREADS=1 python benchmarks/false_positives.py --json benchmarks/results/false_positives.json
    OMP_NUM_THREADS=1 python benchmarks/false_positives_trained.py \\
        --json benchmarks/results/false_positives_trained.json
    OMP_NUM_THREADS=1 python benchmarks/aggregates.py --json benchmarks/results/aggregates.json
    python benchmarks/publish_statistics.py

The seeds come from the package's own rule. A test holds the page to it and to the committed JSON.
"""

import json
from typing import Any

from false_positives import band
from publish_demo import RESULTS, ROOT, put

from wordorder.comparison.statistics.exact_tests import MOST_ARMS_OF_CLOSED_TESTING, seeds_needed, share_of_level

PAGE = ROOT / "docs" / "statistics.md"
LEVELS = (0.10, 0.05, 0.01)


def tables() -> dict[str, str]:
    """Name of a block of the page -> its table."""
    simulated = json.loads((RESULTS / "false_positives.json").read_text(encoding="utf-8"))
    trained = json.loads((RESULTS / "false_positives_trained.json").read_text(encoding="utf-8"))
    aggregates = json.loads((RESULTS / "aggregates.json").read_text(encoding="utf-8"))
    return {
        "seeds-needed": seeds_table(),
        "false-claims": false_claims_table(simulated),
        "power": power_table(simulated),
        "coverage": coverage_table(simulated),
        "trained-pairs": trained_table(trained),
        "lost-runs": lost_table(simulated),
        "looks": looks_table(simulated),
        "aggregate-coverage": aggregate_coverage_table(aggregates),
        "aggregate-claims": aggregate_claims_table(aggregates),
        "welch": welch_table(simulated),
        "welch-power": welch_power_table(simulated),
        "texts": texts_table(simulated),
    }


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table; all columns but the first are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def seeds_table() -> str:
    """By number of arms and level."""
    head = ["arms", *(f"all pairs, {100 * level:.3g}%" for level in LEVELS)]
    head += [f"against a baseline, {100 * level:.3g}%" for level in LEVELS]
    head.append("all pairs with Holm's method, 5%")
    rows: list[list[str]] = []
    for arms in (2, 3, 4, 5, 6, 7, 8, 10, MOST_ARMS_OF_CLOSED_TESTING):
        pairs = arms * (arms - 1) // 2
        needed = [seeds_needed(level, share=share_of_level(arms)) for level in LEVELS]
        needed += [seeds_needed(level, share=share_of_level(arms, baseline=True)) for level in LEVELS]
        needed.append(seeds_needed(0.05, share=1 / pairs))
        rows.append([str(arms), *map(str, needed)])
    return table(head, rows)


def false_claims_table(record: dict[str, Any]) -> str:
    """By kind of noise; a column for each number of arms and seeds that can make a claim."""
    rows = [row for row in record["false_claims"] if row["seeds"] > 3]
    columns = [(arms, seeds) for arms, seeds in dict.fromkeys((row["arms"], row["seeds"]) for row in rows)]
    found = {(row["noise"], row["arms"], row["seeds"]): row for row in rows}
    head = ["noise", *(f"{arms} arms, {seeds} seeds" for arms, seeds in columns)]

    def cell(row: dict[str, Any]) -> str:
        return f"{row['closed']:.1%}" if row["arms"] == 2 else f"{row['closed']:.1%} ({row['baseline']:.1%})"

    lines = [
        [noise, *(cell(found[noise, arms, seeds]) for arms, seeds in columns)]
        for noise in dict.fromkeys(row["noise"] for row in rows)
    ]
    low, high = record["band"]
    note = (
        f"{rows[0]['sets']:,} sets each; of a true 5%, 99% of such shares lie within {low:.1%} and {high:.1%}. "
        "The attained level of the test of two arms is "
        + ", ".join(f"{share:.1%} with {seeds}" for seeds, share in record["attained"].items())
        + " seeds. In parentheses: arms against a baseline."
    )
    return f"{table(head, lines)}\n\n{note}"


def power_table(record: dict[str, Any]) -> str:
    """By arms and seeds, of arms spaced evenly."""
    found = {(row["arms"], row["seeds"], row["effect"]): row for row in record["power"] if row["means"] == "spaced"}
    effects = sorted({effect for _, _, effect in found})
    head = ["arms, seeds"]
    head += [f"{way}, {effect:g} sd" for effect in effects for way in ("all pairs", "Holm", "baseline")]
    rows = [
        [f"{arms}, {seeds}"]
        + [f"{found[arms, seeds, effect][way]:.0%}" for effect in effects for way in ("closed", "holm", "baseline")]
        for arms, seeds in dict.fromkeys((arms, seeds) for arms, seeds, _ in found)
    ]
    return f"{table(head, rows)}\n\n{record['power'][0]['sets']} sets each."


def coverage_table(record: dict[str, Any]) -> str:
    """By noise and seeds."""
    head = ["noise, seeds", "used", "Student's t", "bootstrap (BCa)"]
    rows = [
        [f"{row['noise']}, {row['seeds']}", *(f"{row[method]['coverage']:.1%}" for method in ("used", "t", "BCa"))]
        for row in record["coverage"]
    ]
    return f"{table(head, rows)}\n\n{record['coverage'][0]['sets']:,} sets each."


def lost_table(record: dict[str, Any]) -> str:
    """By which runs are lost, arms and seeds: ranked last, and left out."""
    kinds = {"any": "any run, one in four", "bad runs of one arm": "one arm's, where in the lowest third"}
    head = ["lost", "arms, seeds", "used", "lost runs left out"]
    rows = [
        [kinds[row["lost"]], f"{row['arms']}, {row['seeds']}", f"{row['used']:.1%}", f"{row['without']:.1%}"]
        for row in record["lost"]
    ]
    return f"{table(head, rows)}\n\n{record['lost'][0]['sets']:,} sets each."


def looks_table(record: dict[str, Any]) -> str:
    """One sentence."""
    (row,) = record["looks"]
    return (
        f"Of two equal arms, {row['claimed']:.1%} are called different at the 5% level if seeds are added one at a "
        f"time from {row['first']} to {row['last']} until a claim appears ({row['sets']:,} simulated sets)."
    )


def aggregate_coverage_table(record: dict[str, Any]) -> str:
    """How often intervals of mean ranks over tasks hold the truth, by the number of runs that are drawn."""
    kinds = {
        "seeds, used": "over seeds",
        "seeds, all": "over seeds, all drawn",
        "tasks, used": "over tasks",
        "tasks, all": "over tasks, all drawn",
    }
    rows = [
        [f"{row['noise']}: {row['tasks']} tasks, {row['runs']} runs", *(f"{100 * row[kind]:.0f}%" for kind in kinds)]
        for row in record["coverage"]
    ]
    sets = record["coverage"][0]["sets"]
    said = f"Share of 95% intervals that hold the true mean rank of the first of four arms; {sets} simulated sets each:"
    return f"{said}\n\n{table(['noise', *kinds.values()], rows)}"


def aggregate_claims_table(record: dict[str, Any]) -> str:
    """False claims over tasks, and how often a true difference is claimed."""
    rows = [
        [
            f"{row['arms']}, {row['tasks']}, {row['runs']}",
            *(f"{100 * row[kind]:.1f}%" for kind in ("false on these", "false on others")),
            *(f"{100 * row[kind]:.0f}%" for kind in ("1 sd", "2 sd")),
        ]
        for row in record["claims"]
    ]
    sets = record["claims"][0]["sets"]
    said = (
        f"Share of {sets} simulated sets with any false claim, and in which an arm that is ahead by 1 or 2 standard "
        "deviations of the seeds on every task is claimed to be better than one other (on these tasks):"
    )
    head = ["arms, tasks, runs", "false, these tasks", "false, other tasks", "1 sd ahead", "2 sd ahead"]
    return f"{said}\n\n{table(head, rows)}"


def welch_table(record: dict[str, Any]) -> str:
    """By kind of noise; a column for each number of arms and seeds, and for equivalence."""
    rows = record["welch"]
    columns = list(dict.fromkeys((row["arms"], row["seeds"]) for row in rows))
    found = {(row["noise"], row["arms"], row["seeds"]): row for row in rows}
    head = ["noise", *(f"{arms} arms, {seeds} seeds" for arms, seeds in columns)]
    pairs = [(arms, seeds) for arms, seeds in columns if arms == 2]
    head += [f"same: {seeds} seeds" for _, seeds in pairs]
    lines = [
        [noise]
        + [f"{found[noise, arms, seeds]['claimed']:.1%}" for arms, seeds in columns]
        + [f"{found[noise, arms, seeds]['same']:.1%}" for arms, seeds in pairs]
        for noise in dict.fromkeys(row["noise"] for row in rows)
    ]
    return f"{table(head, lines)}\n\n{sets_and_band(rows[0]['sets'])}"


def sets_and_band(sets: int) -> str:
    """How many sets there were, and between which shares those of a true 5% lie."""
    low, high = band(0.05, sets)
    return f"{sets:,} sets each; of a true 5%, 99% of such shares lie within {low:.1%} and {high:.1%}."


def welch_power_table(record: dict[str, Any]) -> str:
    """By arms and seeds, of arms spaced evenly."""
    rows = record["welch_power"]
    effects = sorted({row["effect"] for row in rows})
    found = {(row["arms"], row["seeds"], row["effect"]): row["claimed"] for row in rows}
    lines = [
        [f"{arms}, {seeds}", *(f"{found[arms, seeds, effect]:.0%}" for effect in effects)]
        for arms, seeds in dict.fromkeys((arms, seeds) for arms, seeds, _ in found)
    ]
    return f"{table(['arms, seeds', *(f'{effect:g} sd' for effect in effects)], lines)}\n\n{rows[0]['sets']} sets each."


def texts_table(record: dict[str, Any]) -> str:
    """By noise, seeds, units and whether units differ in size."""
    head = [
        "noise of units",
        "seeds, units",
        "new texts",
        "retrained and new texts",
        "t test of units",
        "bootstrap of both",
    ]
    lines = [
        [
            row["noise"],
            f"{row['seeds']}, {row['units']}{', of unequal sizes' if row['sizes_differ'] else ''}",
            f"{row['new_texts']:.1%} ({row['new_texts_power']:.0%})",
            f"{row['both']:.1%} ({row['both_power']:.0%})",
            f"{row['t']:.1%}",
            f"{row['bootstrap']:.1%}",
        ]
        for row in record["texts"]
    ]
    return f"{table(head, lines)}\n\n{sets_and_band(record['texts'][0]['sets'])}"


def trained_table(record: dict[str, Any]) -> str:
    """One sentence."""
    called, pairs = record["called_different"], len(record["pairs"])
    return (
        f"{pairs} pairs of arms, each one small decoder under two names, {record['seeds']} seeds each, "
        f"{record['steps']} steps: {called['unpaired']} of {pairs} pairs are called different as arms without common "
        f"seeds, {called['paired']} of {pairs} with the seeds numbered alike (torch {record['versions']['torch']})."
    )


def main() -> None:
    """Write the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in tables().items():
        text = put(text, name, content)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
