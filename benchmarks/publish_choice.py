"""Write the tables and the advice of docs/choose.md from committed results.

    python benchmarks/publish_choice.py

The prose of the page stays; what stands between its markers is made anew. The rules of the advice are in
`choice_rules.py` and, in words, on the page; a test holds the page to the files.
"""

import json
import re
from pathlib import Path
from typing import Any

from choice_rules import MARGIN, advice, dearer, lengths, listed, refusing, tested
from publish_demo import RESULTS, ROOT, put

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.differences import in_short, unit_of
from wordorder.comparison.report.numbers import grouped, significant, with_spread
from wordorder.comparison.report.table import encoding_parameters, matched
from wordorder.comparison.report.verdict import ranked
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.significance import between
from wordorder.comparison.statistics.summary import baseline_of, repeats

PAGE = ROOT / "docs" / "choose.md"

TASKS: dict[str, tuple[str, str, str]] = {
    "masked-letters": ("Masked letters", "compare-mlm", "comparisons.md"),
    "masked-letters-survey": ("Masked letters, positions on embeddings too", "demo", "results.md"),
    "masked-letters-late": ("Masked letters, trained for longer", "demo-long", "results.md"),
    "masked-words": ("Masked words", "pretraining", "results.md"),
    "causal-letters": ("Causal letters", "compare-clm", "comparisons.md"),
    "questions": ("Questions by kind", "compare-classification", "comparisons.md"),
    "dating": ("Dating a speech", "century", "results.md"),
    "memory-letters": ("Memories at equal history", "compare-memory", "comparisons.md"),
    "memory-words": ("Memories on top of equal segments", "memory-wikitext", "language-models.md"),
    "documents": ("Long texts piece by piece", "compare-documents", "comparisons.md"),
    "translation": ("Translation", "translation", "translation.md"),
    "commands": ("Commands longer than in training", "compare-translation", "comparisons.md"),
}
"""Marker -> title, the results file, and the page that has the whole table."""


def results_of(name: str) -> Results:
    """The results of one committed comparison."""
    return read_results(RESULTS / f"{name}.json")


def steps_by_network() -> dict[str, dict[str, Any]]:
    """Ratios of the time of a training step to that of one without positions, by network and encoding."""
    return json.loads((RESULTS / "encodings.json").read_text(encoding="utf-8"))["networks"]


def task_table(results: Results) -> str:
    """A row for each arm, best first: quality, claim, longer texts, parameters, time."""
    quality, statistic, baseline = quality_of(results), results.statistic, str(baseline_of(results))
    found, arms = tested(results).comparisons, {arm.name: arm for arm in results.arms}
    xs, means = lengths(results)
    head = ["Model", f"{results.split} {quality.name}", f"difference from {baseline}"]
    head += [f"at {', '.join(f'×{x / xs[0]:.0f}' for x in xs[1:])} the length"] if xs else []
    times = times_of(results)
    head += ["parameters for word order", *(["time of a training step"] if times else [])]
    lines = ["| " + " | ".join(head) + " |", "| :--- |" + " ---: |" * (len(head) - 1)]
    unit = unit_of(results.having(comparisons=found))
    for entry in ranked(results):
        name = entry.arm
        encoding = str(arms[name].encoding)
        cells = [name if encoding == name else f"{name} (`{encoding}`)"]
        cells += [with_spread(entry.columns.get(quality.key), quality.digits, statistic)]
        pair = between(found, name, baseline)
        cells.append("baseline" if name == baseline else in_short(pair, unit) if pair else "not tested")
        longer = [significant(mean, 3) for mean in means.get(name, [])[1:] if mean is not None]
        cells += ["refused" if name in refusing(results) else ", ".join(longer)] if xs else []
        cells += [grouped(encoding_parameters(arms[name])), *([times[name]] if times else [])]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def time_of(encoding: str, network: str = "encoder") -> str:
    """Ratio of a training step to one without positions, where it was measured."""
    row = steps_by_network()[network].get(encoding)
    if row is None:
        return ""
    low, high = row["ratio_quartiles"]
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"


def times_of(results: Results) -> dict[str, str]:
    """By arm; none for a comparison of memories, which cost something else than encodings do."""
    model = results.recipe.model.as_json()
    memories = {arm.overrides.get("model.memory", model.get("memory", "none")) for arm in results.arms}
    if memories != {"none"}:
        return {}
    network = "encoder" if model.get("network", "encoder") != "decoder" else "decoder"
    return {arm.name: time_of(str(arm.encoding), network) for arm in results.arms}


def size_of(results: Results) -> str:
    """At which size, for how long, on how many seeds: what the numbers are about."""
    model, training = results.recipe.model.as_json(), results.recipe.training.as_json()
    of, count = repeats(results)
    what = (
        f"{model.get('num_hidden_layers', 1)} layers of width {model['hidden_size']}" if "hidden_size" in model else ""
    )
    total = [arm.parameters["total"] for arm in results.arms]
    sizes = f"{min(total):,} to {max(total):,} parameters" if min(total) < max(total) else f"{total[0]:,} parameters"
    steps = f"{training['max_steps']:,} steps" if training.get("max_steps", -1) > 0 else ""
    epochs = f"{training['num_train_epochs']:g} epochs" if not steps and training.get("num_train_epochs") else ""
    rates = "its best of several learning rates each" if results.planned.rates else "fixed learning rates"
    parts = [what, sizes, steps or epochs, f"{count} {of}{'s' * (count > 1)}", rates]
    where = str(results.recipe.data.source).split("/")[0]
    return f"Measured with {', '.join(part for part in parts if part)}; data {where}. {matched(results)}".strip()


def task_block(name: str) -> str:
    """Table and size of one task."""
    _, file, page = TASKS[name]
    results = results_of(file)
    return f"{task_table(results)}\n\n{size_of(results)} [The whole table]({page})."


def in_short_list() -> str:
    """The advice of every task, and what time says."""
    lines = [
        f"- **[{title}](#{title.lower().replace(',', '').replace(' ', '-')}).** {' '.join(advice(results_of(file)))}"
        for title, file, _ in TASKS.values()
    ]
    for network, rows in steps_by_network().items():
        slower, level = dearer(rows)
        longer = [f"{name} ({100 * share:.2g}%)" for name, share in sorted(slower.items(), key=lambda pair: -pair[1])]
        lines.append(
            f"- **Time, {network}s.** A step of training is longer than without positions by more than {MARGIN:.0%} "
            f"with {listed(longer)}; by less, or not, with {listed(level)}."
        )
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """Marker -> what stands there."""
    return {"advice": in_short_list(), **{name: task_block(name) for name in TASKS}}


def page_of(text: str) -> str:
    """The page with every block as the files have it."""
    known = blocks()
    for name in re.findall(r"<!-- ([a-z-]+)-table -->", text):
        text = put(text, name, known[name])
    return text


if __name__ == "__main__":
    Path(PAGE).write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
