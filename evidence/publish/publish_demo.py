"""Put the demo's measured results into the README and the docs: nothing in those tables is typed by hand.

    wordorder compare demo
    python evidence/publish/publish_demo.py runs/demo

writes `evidence/results/demo.json` (results.json without what names folders and a host), the table in README.md and
docs/results.md between their markers, and the figures that docs/results.md shows. A test holds README.md and the docs
to the committed JSON. With a committed file in place of a folder the pages are written anew from it:

    python evidence/publish/publish_demo.py evidence/results/demo.json        # table and figures again, from the JSON
    python evidence/publish/publish_demo.py benchmarks/results/encodings.json   # speed, as `make bench` measured it

`evidence/train.py` lists the other comparisons, and trains and publishes them.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocks import put
from choice_rules import growth, lengths
from speed_tables import speed_table

from wordorder.comparison import markdown_table
from wordorder.comparison.report.differences import with_spread
from wordorder.comparison.report.figures import write_figures
from wordorder.comparison.report.table import columns, escaped
from wordorder.comparison.report.table import lines as models_best_first
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import ArmResult, Results, Summary, parse_results, read_results
from wordorder.comparison.statistics.curves import FINISHED_UNKNOWN, finished
from wordorder.comparison.statistics.summary import quality_of, repeats

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "evidence" / "results"
SPEED = ROOT / "benchmarks" / "results"
DOCS = (
    "results.md",
    "comparisons.md",
    "complex-order.md",
    "translation.md",
    "performance.md",
)
PAGES = (ROOT / "README.md", *(ROOT / "docs" / name for name in DOCS))

LONGER = "longer texts"
"""Column that `short_table` adds: the perplexity on the longest texts of the probe over that at the training length."""
SHOWN = {
    "masked_lm": ("quality", "outcome", "flops_per_token", LONGER),
    "causal_lm": ("quality", LONGER),
    "compare_translation": ("quality", "outcome", "bleu"),
    "compare_documents": ("quality", "outcome", "flops_per_token"),
    "memory_brackets": ("quality", "outcome", "flops_per_token", "learning_rate"),
    "memory_instruction": ("quality", "outcome", "learning_rate"),
    "memory_letters": ("quality", "outcome", "learning_rate"),
    "parametrisation": ("quality", "outcome", "learning_rate"),
    "order_binding": ("quality", "outcome", "parameters"),
    "translation": ("quality", "perplexity", "parameters"),
}
"""Name of a recipe -> keys of the columns that its page shows; of other recipes all are shown."""

RECORDED = {"compare_mlm": "masked_lm", "compare_clm": "causal_lm"}
"""Name in committed results -> name of the recipe today, where they differ."""


def table_of(results: dict[str, Any]) -> str:
    """The table as the pages hold it; of a comparison that has no short one, with the machine it was measured on."""
    if "machine" in results:  # of a benchmark
        return speed_table(results)
    found = parse_results(results)
    if found.name == "demo_long":
        return late_table(read_results(RESULTS / "demo-early.json"), found)
    recipe = RECORDED.get(found.name, found.name)
    if recipe in SHOWN:
        return short_table(found, SHOWN[recipe])
    machine = found.environment
    where = f"Measured on {machine['processors']} cores ({machine['device']}), torch {machine['packages']['torch']}."
    return f"{markdown_table(found).strip()}\n\n{where}"


def short_table(results: Results, keys: Sequence[str]) -> str:
    """Write the models, best first, with the columns of these keys; a p-value alone says whether it is significant.

    Args:
        results: of a comparison.
        keys: of the columns, `LONGER` among them.

    Raises:
        KeyError: the comparison has no such column.
    """
    known = {column.key: column for column in columns(results)}
    xs, _ = lengths(results)
    grown = growth(results) if xs else {}

    def title(key: str) -> str:
        if key == LONGER:
            return f"At {xs[-1] / xs[0]:.0f} times the length"
        return escaped(known[key].title[:1].upper() + known[key].title[1:])

    def cell(key: str, entry: Summary, arm: ArmResult) -> str:
        if key != LONGER:
            return re.sub(r"not significant \((p = [^)]*)\)", r"\1", escaped(known[key].text(entry, arm)))
        return f"{grown[arm.name]:.2f}" if arm.name in grown else "beyond its table"

    rows = [["Model", *map(title, keys)]]
    rows += [[arm.name, *(cell(key, entry, arm) for key in keys)] for entry, arm in models_best_first(results)]
    rows.insert(1, [":---", *["---:"] * (len(rows[0]) - 1)])
    of, count = repeats(results)
    steps = sorted({row.steps for row in results.rows if row.steps})
    trained = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{table}\n\nMean of {count} {of}{'s' * (count > 1)} after {trained} steps."


BAG_OF_LETTERS = 0.95
"""Share of the loss without positions from which on an arm is marked: it has learned little more than that."""


def late_table(early: Results, late: Results) -> str:
    """The models after a short and a long training, best of the long one first, with marks for unfinished curves."""
    quality = quality_of(late)
    ends = [f"after {results.rows[0].steps:,} steps" for results in (early, late)]
    rates = [{arm.name: f"{arm.learning_rate:g}" for arm in results.arms} for results in (early, late)]
    lines = [
        f"| Model | {late.split} {quality.name} {ends[0]} | learning rate | {ends[1]} | learning rate |",
        "| :--- | ---: | ---: | ---: | ---: |",
    ]
    for entry in ranked(late):
        scores = [score_with_marks(results, entry.arm) for results in (early, late)]
        lines.append(f"| {entry.arm} | {scores[0]} | {rates[0][entry.arm]} | {scores[1]} | {rates[1][entry.arm]} |")
    seeds = len({row.seed for row in late.rows})
    shown, notes = "".join(lines), [f"Mean ± standard deviation over {seeds} seeds; lower is better."]
    if "†" in shown:
        notes.append("† On the plateau of a bag of letters: the loss is at most 5% below that without positions.")
    if "‡" in shown:
        notes.append(
            "‡ Unfinished: less than a pass over the text, or the loss still falls by 2% per tenth of the steps."
        )
    judged = verdict(late)
    found = f"After {late.rows[0].steps:,} steps: {' '.join(judged.headline)}"
    return "\n".join([*lines, "", " ".join(notes), "", found])


def score_with_marks(results: Results, arm: str) -> str:
    """The headline score of an arm, with a dagger on the plateau and a double one where the curves still fall."""
    quality, columns = quality_of(results), {entry.arm: entry.columns for entry in results.summary}
    losses = [float(columns[name]["loss"].mean or 0.0) for name in (arm, "none")]
    score = with_spread(columns[arm].get(quality.key), quality.digits, results.statistic)
    marks = "†" * (losses[0] >= BAG_OF_LETTERS * losses[1]) + "‡" * (finished(results, arm).state != FINISHED_UNKNOWN)
    return f"{score} {marks}".strip()


def publish(name: str, results: dict[str, Any]) -> None:
    """Write the table into every page that has its markers."""
    for page in PAGES:
        page.write_text(put(page.read_text(encoding="utf-8"), name, table_of(results)), encoding="utf-8")


def publish_figures(name: str, results: dict[str, Any]) -> None:
    """Draw the figures of a comparison that pages show."""
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    with tempfile.TemporaryDirectory() as folder:
        for figure in write_figures(parse_results(results), Path(folder)):
            published = f"{name}_{figure.name}"
            if figure.suffix == ".png" and f"figures/{published}" in shown:
                shutil.copyfile(figure, ROOT / "docs" / "figures" / published)


def main() -> None:
    """Read a comparison's folder, write the JSON, the pages and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of a finished comparison, or a JSON file of a benchmark")
    parser.add_argument("--name", default="demo", help="of the JSON file, the markers and the figures")
    arguments = parser.parse_args()
    if arguments.folder.is_file():
        arguments.name = arguments.folder.stem
        results = json.loads(arguments.folder.read_text(encoding="utf-8"))
        publish(arguments.name, results)
        if "machine" not in results:  # a comparison, no benchmark of speed
            publish_figures(arguments.name, results)
        return
    results = json.loads((arguments.folder / "results.json").read_text(encoding="utf-8"))
    if not results["complete"]:
        raise SystemExit(f"{arguments.folder} holds an unfinished comparison")
    for name in ("command", "platform"):  # they name folders and a host of one machine
        results["environment"].pop(name, None)
    results["recipe"]["training"].pop("output_dir", None)
    RESULTS.mkdir(parents=True, exist_ok=True)
    results.get("written", {}).get("training", {}).pop("output_dir", None)
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    (RESULTS / f"{arguments.name}.json").write_text(text, encoding="utf-8")
    publish(arguments.name, results)
    figures = ROOT / "docs" / "figures"
    figures.mkdir(exist_ok=True)
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for figure in sorted((arguments.folder / "figures").glob("*.png")):
        published = f"{arguments.name}_{figure.name}"
        if f"figures/{published}" in shown:
            shutil.copyfile(figure, figures / published)


if __name__ == "__main__":
    main()
