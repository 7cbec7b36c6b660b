"""Put the demo's measured results into the README and the docs: nothing in those tables is typed by hand.

    wordorder compare demo
    python benchmarks/publish_demo.py runs/demo

writes `benchmarks/results/demo.json` (results.json without the maps, which make it large), the table in README.md and
docs/results.md between their markers, and the figures that docs/results.md shows. A test holds README.md and the docs
to the committed JSON. The same for other comparisons by name:

    python benchmarks/publish_demo.py runs/demo_long --name demo-long
    python benchmarks/publish_demo.py runs/century --name century
    python benchmarks/publish_demo.py runs/order_binding --name order-binding
    python benchmarks/publish_demo.py runs/complex_order_rates --name complex-order-rates
    python benchmarks/publish_demo.py runs/demo_rates --name rates --trials     # that chose the learning rates
    python benchmarks/publish_demo.py runs/pretraining --name pretraining --baseline bert-a
    python benchmarks/publish_demo.py runs/translation --name translation
    python benchmarks/publish_demo.py benchmarks/results/encodings.json   # speed, as `make bench` measured it
    python benchmarks/publish_demo.py benchmarks/results/attention.json
    python benchmarks/publish_demo.py runs/memory_wikitext --name memory-wikitext
    python benchmarks/publish_demo.py runs/compare_mlm --name compare-mlm   # and the others of docs/comparisons.md
"""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from speed_tables import speed_table

from wordorder.comparison import markdown_table
from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.numbers import with_spread
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import Results, parse_results, read_results
from wordorder.comparison.statistics.plateau import mean_end
from wordorder.comparison.statistics.steps_to_loss import steps_to_loss

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = (
    "results.md",
    "comparisons.md",
    "complex-order.md",
    "classification.md",
    "translation.md",
    "language-models.md",
    "performance.md",
)
PAGES = (ROOT / "README.md", *(ROOT / "docs" / name for name in DOCS))


def table_of(results: dict[str, Any]) -> str:
    """The table as the pages hold it, with the machine it was measured on; of a search for rates, the trials."""
    if "machine" in results:  # of a benchmark
        return speed_table(results)
    found = parse_results(results)
    if not found.rows:
        return trials_of(found)
    if found.name == "demo_long":
        return late_table(read_results(RESULTS / "demo.json"), found)
    machine = found.environment
    where = f"Measured on {machine['processors']} cores ({machine['device']}), torch {machine['packages']['torch']}."
    pace = f"\n\n{pace_table(found, results['pace']['baseline'])}" if "pace" in results else ""
    return f"{markdown_table(found).strip()}{pace}\n\n{where}"


BAG_OF_LETTERS = 0.95
"""Share of the loss without positions from which on an arm is marked: it has learned little more than that."""


def late_table(early: Results, late: Results) -> str:
    """The arms after a short and a long training, the best of the long one first; those not at their end are marked."""
    quality = quality_of(late)
    ends = [f"after {results.rows[0].steps:,} steps" for results in (early, late)]
    rates = {arm.name: arm.learning_rate for arm in late.arms}
    lines = [
        f"| Arm | {late.split} {quality.name} {ends[0]} | {ends[1]} | Learning rate |",
        "| :--- | ---: | ---: | ---: |",
    ]
    for entry in ranked(late):
        cells = [score_with_marks(results, entry.arm) for results in (early, late)]
        lines.append(f"| {entry.arm} | {cells[0]} | {cells[1]} | {rates[entry.arm]:g} |")
    seeds = len({row.seed for row in late.rows})
    shown, notes = "".join(lines), [f"Mean ± sample standard deviation over {seeds} seeds; lower is better."]
    if "†" in shown:
        notes.append("† On the plateau of a bag of letters: the loss is at most 5% below that without positions.")
    if "‡" in shown:
        notes.append("‡ Still falling: by 1% or more of the validation loss over the last tenth of the steps.")
    found = f"After {late.rows[0].steps:,} steps {verdict(late).sentence}"
    return "\n".join([*lines, "", " ".join(notes), "", found])


def score_with_marks(results: Results, arm: str) -> str:
    """The headline score of an arm, with a dagger on the plateau and a double one where the curves still fall."""
    quality, columns = quality_of(results), {entry.arm: entry.columns for entry in results.summary}
    losses = [float(columns[name]["loss"].mean or 0.0) for name in (arm, "none")]
    end = mean_end(row.curve for row in results.rows if row.arm == arm)
    score = with_spread(columns[arm].get(quality.key), quality.digits, results.statistic)
    marks = "†" * (losses[0] >= BAG_OF_LETTERS * losses[1]) + "‡" * bool(end and end.still_falling)
    return f"{score} {marks}".strip()


def pace_table(results: Results, baseline: str) -> str:
    """How early each arm reaches the validation loss that the baseline ends with, as `steps_to_loss` defines it."""
    title = f"Steps to {baseline}'s lowest validation loss, median (earliest to latest)"
    lines = [f"| Arm | {title} | Share of its steps | Runs |", "| :--- | ---: | ---: | ---: |"]
    found = steps_to_loss(results.having(baseline=baseline))
    for entry in found:
        ends = (entry.low, entry.steps, entry.high)
        low, steps, high = ("never" if end is None else f"{end:,.0f}" for end in ends)
        share = "" if entry.share is None else f"{entry.share:.0%}"
        lines.append(f"| {entry.arm} | {steps} ({low} to {high}) | {share} | {entry.reached} of {entry.n} |")
    resolution = max(entry.resolution for entry in found)
    return "\n".join([*lines, "", f"Evaluated every {resolution:,.0f} steps; in between the loss is taken as a line."])


def trials_of(results: Results) -> str:
    """Validation loss by arm and learning rate, the chosen rate in bold."""
    rates = sorted({trial.learning_rate for trial in results.tuning})
    lines = ["| Arm | " + " | ".join(f"{rate:g}" for rate in rates) + " |", "| :--- |" + " ---: |" * len(rates)]
    for arm in results.arms:
        losses = {trial.learning_rate: trial.score("loss") for trial in results.tuning if trial.arm == arm.name}
        best = min((loss for loss in losses.values() if loss is not None), default=None)
        cells = ["diverged" if losses[r] is None else f"{losses[r]:.3f}" for r in rates]
        bold = [f"**{cell}**" if losses[r] == best else cell for r, cell in zip(rates, cells, strict=True)]
        lines.append(f"| {arm.name} | " + " | ".join(bold) + " |")
    seed = results.tuning[0].seed
    return "\n".join(lines) + f"\n\nValidation loss in nats per masked token, seed {seed}; the chosen rate is bold."


def put(page: str, name: str, table: str) -> str:
    """The page with the table between its markers."""
    pattern = rf"(<!-- {name}-table -->\n).*?(<!-- /{name}-table -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page, flags=re.DOTALL)


def publish(name: str, results: dict[str, Any]) -> None:
    """Write the table into every page that has its markers."""
    for page in PAGES:
        page.write_text(put(page.read_text(encoding="utf-8"), name, table_of(results)), encoding="utf-8")


def main() -> None:
    """Read a comparison's folder, write the JSON, the pages and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of a finished comparison, or a JSON file of a benchmark")
    parser.add_argument("--name", default="demo", help="of the JSON file, the markers and the figures")
    parser.add_argument("--trials", action="store_true", help="publish the learning rates that were tried alone")
    parser.add_argument("--baseline", help="also say how early every arm reaches this arm's lowest loss")
    arguments = parser.parse_args()
    if arguments.folder.is_file():
        arguments.name = arguments.folder.stem
        publish(arguments.name, json.loads(arguments.folder.read_text(encoding="utf-8")))
        return
    results = json.loads((arguments.folder / "results.json").read_text(encoding="utf-8"))
    if not results["complete"]:
        raise SystemExit(f"{arguments.folder} holds an unfinished comparison")
    results.pop("correlations", None)
    if arguments.trials:  # the runs of a search for rates are not the published ones
        results["arms"] = [{"name": arm["name"]} for arm in results["arms"]]
        results = {key: value for key, value in results.items() if key not in ("rows", "summary", "data")}
    for name in ("command", "platform"):  # they name folders and a host of one machine
        results["environment"].pop(name, None)
    results["recipe"]["training"].pop("output_dir", None)
    if arguments.baseline:
        results["pace"] = {"baseline": arguments.baseline}
    RESULTS.mkdir(parents=True, exist_ok=True)
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
