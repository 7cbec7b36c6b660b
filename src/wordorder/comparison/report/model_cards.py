"""Write the cards of compared models: the place of each among the others, with the spread, and the verdict."""

from dataclasses import replace
from pathlib import Path

from wordorder.comparison.quality import is_marked_optimistic, quality_of
from wordorder.comparison.report.numbers import with_spread
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import Results, Row
from wordorder.comparison.statistics.summary import repeats
from wordorder.models.hub.model_card import CardFacts, code, plain, write_card
from wordorder.training.runs.model_card import run_facts


def write_arm_cards(results: Results, folder: Path) -> None:
    """Write README.md beside every finished model of a comparison, in the place of the card of its run."""
    for row in results.rows:
        model = folder / row.model
        if (model / "config.json").is_file():
            write_card(model, arm_facts(results, row, run_facts(model.parent)))


def arm_facts(results: Results, row: Row, facts: CardFacts) -> CardFacts:
    """Return the facts of a run with its place in the comparison, right after its scores."""
    fold = "" if row.fold is None else f", fold {row.fold}"
    return replace(
        facts,
        title=f"{results.name}: {row.arm}, seed {row.seed}{fold}",
        sections=[("Its place in the comparison", _place(results, row.arm)), *facts.sections],
        untested=[
            *facts.untested,
            "Whether the order of the models is the same with other data, sizes, budgets or learning rates.",
        ],
    )


def _place(results: Results, arm: str) -> str:
    quality, statistic, entries = quality_of(results), results.statistic, ranked(results)
    of, count = repeats(results)
    marked = "optimistic " if is_marked_optimistic(results) else ""
    names = [entry.arm for entry in entries]
    place = f"place {names.index(arm) + 1} of {len(names)}" if arm in names else f"without a {quality.name}"
    around = "± one standard deviation" if statistic == "mean" else "(lowest to highest)"
    lines = [
        f"{code(arm)} has {place}: by the {statistic} of the {marked}{results.split} {plain(quality.name)}"
        f" over {count} {of}{'s' * (count != 1)}, {around} from three {of}s on. The scores above: this {of} alone.",
        "",
        f"| place | model | {plain(quality.name)} |",
        "| --- | --- | --- |",
    ]
    for number, entry in enumerate(entries, 1):
        value = with_spread(entry.columns[quality.key], quality.digits, statistic)
        name = code(entry.arm)
        lines.append(f"| {number} | {f'**{name}**' if entry.arm == arm else name} | {plain(value)} |")
    found = verdict(results)
    beside = [line for part in (*found.headline[1:], *found.method) for line in ("", plain(part))]
    return "\n".join([*lines, "", f"**{plain(found.sentence)}**", *beside]).rstrip()
