"""Put measured classification results beside the paper's into the docs: nothing in those tables is typed by hand.

    wordorder compare evidence/recipes/complex_order_classification.toml
    wordorder compare evidence/recipes/complex_order_sst2.toml
    wordorder compare evidence/recipes/complex_order_mr.toml
    wordorder compare evidence/recipes/complex_order_ablation.toml
    python evidence/publish/publish_classification.py runs/complex_order_*

writes `evidence/results/classification.json` (of each comparison what the tables need, and every row), the tables and
the figure of docs/classification.md between their markers. The paper's numbers are those of
`evidence/results/complex_order_paper.json`. Folders that are not named keep what was published of them. A test holds
the docs to the committed JSON.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocks import put

from wordorder.comparison.report.differences import MISSING
from wordorder.comparison.report.figures import COSTS, draw_costs
from wordorder.comparison.results_file import Results, parse_results
from wordorder.comparison.statistics.summary import repeats

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "evidence" / "results" / "classification.json"
PAPER = ROOT / "evidence" / "results" / "complex_order_paper.json"
PAGE = ROOT / "docs" / "classification.md"
FIGURE = ROOT / "docs" / "figures" / "classification_costs.png"

SETS = {"complex_order_classification": "TREC", "complex_order_sst2": "SST", "complex_order_mr": "MR"}
"""Name of a comparison -> the paper's column."""
ABLATION = "complex_order_ablation"
NAMES = {"SST": "SST-2"}
COLOURS = {
    "none": "#24292e",
    "learned": "#0b6fb8",
    "sinusoidal": "#0a8a6a",
    "complex-vanilla": "#8c6d00",
    "complex-order": "#c8501b",
    "rope": "#a8458f",
    "t5": "#5a4fcf",
    "tupe-r": "#2789b8",
}
MARKERS = {"bag": "o", "convolution": "s", "recurrent": "^", "transformer": "D"}

Published = Mapping[str, Results]
"""Name of a comparison -> what `trimmed` keeps of its results."""


def trimmed(results: dict[str, Any]) -> dict[str, Any]:
    """What the tables and the figure read, and what is needed to repeat it; no folders or curves."""
    for name in ("command", "platform", "earlier_starts"):  # they name folders and a host of one machine
        results["environment"].pop(name, None)
    results["recipe"]["training"].pop("output_dir", None)
    # where the data lay is nobody's business
    results["recipe"]["data"]["source"] = Path(results["recipe"]["data"]["source"]).name
    left_out = ("curve", "model", "tokens_per_second", "peak_memory_bytes")
    results["rows"] = [{k: v for k, v in row.items() if k not in left_out} for row in results["rows"]]
    return {k: v for k, v in results.items() if k not in ("tuning", "grid", "failed")}


def published_of(content: Mapping[str, Any]) -> Published:
    """The results of every comparison that a file with this content publishes."""
    return {name: parse_results(results, name=name) for name, results in content.items()}


def comparison_of(published: Published, paper: Mapping[str, Any]) -> str:
    """The table: a model a line, for each set the measured accuracy and in parentheses the paper's."""
    sets = [name for name in SETS if name in published]
    marks = {name: ", optimistic" if published[name].optimistic else "" for name in sets}
    rows = [
        [model, *(f"{_measured(published[name], model)}{_papers(paper, model, SETS[name])}" for name in sets)]
        for model in dict.fromkeys(arm.name for name in sets for arm in published[name].arms)
    ]
    table = _table(["Model", *(f"{_title(name)}{marks[name]}" for name in sets)], rows)
    said = [f"{_title(name)}: {_about(published[name])}." for name in sets]
    spreads = [entry.columns["accuracy"].std for name in sets for entry in published[name].summary]
    widest = f"Standard deviations are at most {max(filter(None, spreads)):.3f}."
    return "\n\n".join([table, " ".join([f"Test accuracy; in parentheses {paper['source']}.", *said, widest])])


def ablation_of(published: Published, paper: Mapping[str, Any]) -> str:
    """The ablation: accuracy, and in parentheses the paper's."""
    results, theirs = published[ABLATION], paper["ablation"]
    rows: list[list[str]] = []
    for arm in results.arms:
        _, accuracy = theirs["rows"].get(arm.name, (None, None))
        printed = "" if accuracy is None else f" ({accuracy:.3f})"
        rows.append([arm.name, f"{_measured(results, arm.name)}{printed}"])
    table = _table(["Variant", "Accuracy"], rows)
    return f"{table}\n\nTest accuracy on SST-2: {_about(results)}. In parentheses {theirs['source']}."


def table_of(name: str, published: Published, paper: Mapping[str, Any]) -> str:
    """What stands between the markers of that name; a sentence as long as nothing of it was measured."""
    if name == "ablation":
        return ablation_of(published, paper) if ABLATION in published else "Not measured yet."
    if not any(own in published for own in SETS):
        return "Not measured yet."
    return f"{comparison_of(published, paper)}\n\n![Accuracy against parameters and arithmetic](figures/{FIGURE.name})"


def page_of(text: str, published: Published, paper: Mapping[str, Any]) -> str:
    """The page with its two tables."""
    for name in ("classification", "ablation"):
        text = put(text, name, table_of(name, published, paper))
    return text


def draw(published: Published, path: Path) -> None:
    """Accuracy against parameters and FLOPs: a line of panels for each set, colour by encoding, marker by network."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    sets = [name for name in SETS if name in published]
    figure = Figure(figsize=(9.6, 3.2 * len(sets) + 0.8), layout="constrained")
    for line, name in zip(figure.subplots(len(sets), len(COSTS), squeeze=False, sharey="row"), sets, strict=True):
        draw_costs(published[name], dict(zip(COSTS, line, strict=True)), _style)
        line[0].set_title(_title(name), loc="left", fontsize="medium")
        line[1].set_ylabel("")
    marks = [Line2D([], [], linestyle="none", marker="o", color=colour, label=name) for name, colour in COLOURS.items()]
    marks += [Line2D([], [], linestyle="none", marker=m, color="#57606a", label=name) for name, m in MARKERS.items()]
    figure.legend(handles=marks, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=160)


def _style(arm: str) -> dict[str, Any]:
    network, _, encoding = arm.partition("+")
    return {"color": COLOURS.get(encoding, "#57606a"), "marker": MARKERS.get(network, "x")}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = [":---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def _title(name: str) -> str:
    return NAMES.get(SETS[name], SETS[name])


def _measured(results: Results, arm: str) -> str:
    found = next((entry.columns.get("accuracy") for entry in results.summary if entry.arm == arm), None)
    return MISSING if found is None or found.mean is None else f"{found.mean:.3f}"


def _papers(paper: Mapping[str, Any], arm: str, column: str) -> str:
    row = paper["rows"].get(paper["arms"].get(arm, ""))
    return "" if row is None else f" ({row[paper['columns'].index(column)]:.3f})"


def _about(results: Results) -> str:
    of, count = repeats(results)
    folds = f" of {results.recipe.data.get('folds')} (cross-validation)" if of == "fold" else ""
    done = "" if results.complete else f", {len(results.rows)} of {results.planned.runs} runs"
    return f"mean of {count} {of}s{folds}, protocol {results.protocol}{done}"


def main() -> None:
    """Read folders of comparisons, write the JSON, the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", help="of comparisons; none only writes the page anew")
    arguments = parser.parse_args()
    content: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for folder in arguments.folders:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        if results["name"] not in (*SETS, ABLATION):
            raise SystemExit(f"{folder} holds {results['name']}; known: {', '.join((*SETS, ABLATION))}")
        content[results["name"]] = trimmed(results)
    paper = json.loads(PAPER.read_text(encoding="utf-8"))
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    published = published_of(json.loads(text))
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8"), published, paper), encoding="utf-8")
    if any(name in published for name in SETS):
        draw(published, FIGURE)


if __name__ == "__main__":
    main()
