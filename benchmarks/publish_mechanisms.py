"""Put what the catalogue and the committed results say of each mechanism into its page: nothing there is typed by hand.

    python benchmarks/publish_mechanisms.py

writes, in every page of docs/ that has such markers, the tables between

    <!-- facts: NAME NAME ... -->    <!-- /facts -->       place, parameters, cost, where defined, options
    <!-- measured: NAME ... -->      <!-- /measured -->    every comparison that has an arm with one of these encodings

A test holds the pages to the code and to `benchmarks/results/`.
"""

import json
import re
from pathlib import Path
from typing import Any

import torch

from wordorder.comparison.numbers import with_spread
from wordorder.comparison.quality import quality_of
from wordorder.encodings import CATALOG, build_encoding, names_of, options_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
NO_BREAK = "\N{NO-BREAK SPACE}"
USES = ("encoder", "decoder", "cross-attention", "segment-recurrence", "look-ahead")
COMPARISONS = {
    "compare-mlm": (
        "masked letters, equal parameters",
        "comparisons.md#masked-letters-equal-parameters-recipescompare_mlmtoml",
    ),
    "compare-clm": ("causal letters, equal FLOPs", "comparisons.md#causal-letters-equal-flops-recipescompare_clmtoml"),
    "compare-classification": (
        "questions by kind, equal parameters",
        "comparisons.md#questions-by-kind-equal-parameters-recipescompare_classificationtoml",
    ),
    "compare-memory": (
        "memories, equal history and FLOPs",
        "comparisons.md#memories-at-equal-history-and-equal-flops-recipescompare_memorytoml",
    ),
}
"""Results file -> what it compares, and where docs/comparisons.md discusses it."""


def facts(names: list[str], prefix: str = "") -> str:
    """A table with one column an encoding, how to read it, and the reasons of what is refused."""
    rows: dict[str, list[str]] = {}
    reasons: list[str] = []
    steps = json.loads((RESULTS / "encodings.json").read_text(encoding="utf-8"))["networks"]
    for name in names:
        encoding = CATALOG[name]
        cells = {"acts on": encoding.place, "parameters, BERT-Base": _parameters(name)}
        for network, measured in steps.items():
            ratio = f"{measured[name]['ratio']:.2f}" if name in measured else "not measured"
            cells[f"training step, {network}, none = 1"] = "refused" if network in encoding.refused_in else ratio
        for use in USES:
            refused = encoding.refused_in.get(use)
            cells[use] = "refused" if refused else "yes"
            if refused:
                reasons.append(f"- `{name}`, {use}: {refused}.")
        cells["longest text"] = "its table" if encoding.bounded else "any"
        cells["options"] = (
            ", ".join(f"`{key}` = {_plain(value)}" for key, value in options_of(encoding).items()) or "none"
        )
        for row, cell in cells.items():
            rows.setdefault(row, []).append(cell)
    head = ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "| --- |" + " --- |" * len(names)]
    table = "\n".join([*head, *(f"| {row} | {' | '.join(cells)} |" for row, cells in rows.items())])
    legend = (
        "Parameters at the sizes of BERT-Base: 12 layers, width 768, 12 heads, 512 positions. A training step on one"
        f" CPU thread, as a ratio to the same network without encoding ([how]({prefix}performance.md)). Every argument"
        f" is in the [reference]({prefix}reference/encodings.md)."
    )
    refused = "\n\nRefused, and why:\n\n" + "\n".join(reasons) if reasons else ""
    return f"{table}\n\n{legend}{refused}"


def measured(names: list[str], prefix: str) -> str:
    """One row for every arm of a comparison that has one of these encodings."""
    lines = ["| comparison | arm | score | against the baseline | best arm |", "| --- | --- | ---: | --- | --- |"]
    for file, (title, address) in COMPARISONS.items():
        results = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        metric = results["metric"]
        summary = {entry["arm"]: entry[metric] for entry in results["summary"]}
        sign = -1 if quality_of(results).higher_is_better else 1
        best = min(summary, key=lambda arm: sign * summary[arm]["mean"])
        outcome = {
            found["arm"]: found["outcome"]
            for found in results["comparisons"]
            if found["against"] == results["baseline"]
        }
        for arm in results["arms"]:
            if _wanted(file, arm, names):
                said = "the baseline" if arm["name"] == results["baseline"] else _said(outcome[arm["name"]], results)
                ends = with_spread(summary[best]).replace(" ", NO_BREAK)
                score = f"{metric} {with_spread(summary[arm['name']]).replace(' ', NO_BREAK)}"
                last = "this one" if arm["name"] == best else f"{best}, {ends}"
                lines.append(f"| [{title}]({prefix}{address}) | {arm['name']} | {score} | {said} | {last} |")
    if len(lines) == 2:
        return "No comparison of this repository has an arm with it yet."
    return "\n".join([*lines, *longer_texts(names, prefix)])


def longer_texts(names: list[str], prefix: str) -> list[str]:
    """Lines of a table of perplexities on texts longer than in training, mean over the seeds; none where none did."""
    rows: list[str] = []
    lengths: list[int] = []
    with_table = False
    for file in ("compare-mlm", "compare-clm"):
        results = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        encodings = {arm["name"]: arm["encoding"] for arm in results["arms"]}
        arms = [arm for arm, encoding in encodings.items() if set(names_of(encoding)) & set(names)]
        found = [row for row in results["probes"]["extrapolation"]["rows"] if row["group"] == "all tokens"]
        lengths = lengths or sorted({row["x"] for row in found})
        title, address = COMPARISONS[file]
        for arm in arms:
            values = [[r["value"] for r in found if r["arm"] == arm and r["x"] == x and r["value"]] for x in lengths]
            cells = [f"{sum(of) / len(of):.2f}" if of else "not measured" for of in values]
            if not any(values) and any(CATALOG[name].bounded for name in names_of(encodings[arm])):
                # the probe leaves out arms that cannot read longer texts, the training length included
                summary = next(entry[results["metric"]] for entry in results["summary"] if entry["arm"] == arm)
                cells = [f"{summary['mean']:.2f}", *["longer than its table"] * (len(lengths) - 1)]
                with_table = True
            rows.append(f"| [{title.split(',')[0]}]({prefix}{address}) | {arm} | {' | '.join(cells)} |")
    if not rows:
        return []
    head = f"| perplexity by length of the text | arm | {lengths[0]} (training) | "
    head += " | ".join(f"{length:,}" for length in lengths[1:]) + " |"
    note = ["", "Of an arm with a table the first number is its score above, of all test texts."] if with_table else []
    return ["", head, "| --- | --- |" + " ---: |" * len(lengths), *rows, *note]


def filled(text: str, *, prefix: str = "") -> str:
    """The page with both kinds of tables as code and results have them now.

    Args:
        text: of the page.
        prefix: from the page's folder to docs/, as `up` says.
    """

    def facts_of(found: re.Match[str]) -> str:
        return f"<!-- facts: {found[1]} -->\n\n{facts(found[1].split(), prefix)}\n\n<!-- /facts -->"

    def measured_of(found: re.Match[str]) -> str:
        return f"<!-- measured: {found[1]} -->\n\n{measured(found[1].split(), prefix)}\n\n<!-- /measured -->"

    text = re.sub(r"<!-- facts: ([a-z0-9 -]+) -->.*?<!-- /facts -->", facts_of, text, flags=re.DOTALL)
    return re.sub(r"<!-- measured: ([a-z0-9 -]+) -->.*?<!-- /measured -->", measured_of, text, flags=re.DOTALL)


def up(page: Path) -> str:
    """From a page's folder to docs/: "../" for one folder down."""
    return "../" * (len(page.relative_to(DOCS).parts) - 1)


def _wanted(file: str, arm: dict[str, Any], names: list[str]) -> bool:
    """Whether a page shows this arm: that of memories all arms of their comparison, others those with an encoding."""
    if file == "compare-memory":
        return names == ["memories"]
    return bool(set(names_of(arm["encoding"])) & set(names))


def _parameters(name: str) -> str:
    use = "decoder" if "encoder" in CATALOG[name].refused_in else "encoder"
    with torch.device("meta"):
        built = build_encoding(name, width=768, heads=12, layers=12, max_positions=512, vocabulary=30522, use=use)
    parts = built.cost_parts()
    return f"{sum(parts.values()):,}"


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else f"{value}"


def _said(outcome: str, results: dict[str, Any]) -> str:
    """The outcome in words, with the baseline's name."""
    words = {"too few": "no claim, too few seeds", "no claim": "no claim, runs were lost"}.get(outcome, outcome)
    return f"{words} ({results['baseline']}, {results['significance']['seeds']} seeds)"


def main() -> None:
    """Write all pages that have markers."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = filled(text, prefix=up(page))
        if new != text:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
