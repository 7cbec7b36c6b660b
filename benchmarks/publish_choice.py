"""Write the tables of docs/choose.md from committed results.

    python benchmarks/publish_choice.py

The prose of the page stays; what is between its markers is made anew, by the rules in `choice_rules.py`.
"""

import json
import re
from typing import Any

from choice_rules import (
    HOLDS,
    SLOWER,
    Standing,
    beats_control,
    control_of,
    growth,
    lengths,
    listed,
    refusing,
    standing_of,
)
from publish_demo import RESULTS, ROOT, put

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.numbers import significant, with_spread
from wordorder.comparison.report.verdict import ranked
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.summary import repeats
from wordorder.encodings import CATALOG

PAGE = ROOT / "docs" / "choose.md"

SITUATIONS: tuple[tuple[str, str, float], ...] = (
    ("an encoder, masked LM", "masked-letters-late", 1),
    ("an encoder that reads longer texts later", "masked-letters", 16),
    ("a decoder, causal LM", "causal-letters", 1),
    ("a decoder that reads longer texts later", "causal-letters", 16),
    ("a short-text classifier", "questions", 1),
    ("a classifier by relative position, longer texts", "n-back", 1),
    ("a classifier without attention, by word order", "order", 1),
    ("sequence to sequence, longer outputs than in training", "commands", 1),
)
"""What is trained, the task, and how many times longer the texts are than in training."""

TASKS: dict[str, tuple[str, str, str]] = {
    "masked-letters-late": ("Masked letters, 6,000 steps", "demo-long", "results.md"),
    "masked-letters": ("Masked letters, equal parameters", "compare-mlm", "comparisons.md"),
    "masked-words": ("Masked words", "pretraining", "results.md"),
    "causal-letters": ("Causal letters", "compare-clm", "comparisons.md"),
    "questions": ("Questions by kind", "compare-classification", "comparisons.md"),
    "n-back": ("The word four before the last", "n-back", ""),
    "order": ("Order of two words", "order-binding", "complex-order.md"),
    "commands": ("Commands longer than in training", "compare-translation", "comparisons.md"),
}
"""Marker -> title, the results file, and the page that has the whole table, if one has."""

WITHOUT: dict[str, tuple[str, str]] = {
    "compare-memory": ("Memory, letters", "comparisons.md"),
    "memory-wikitext": ("Memory, words", "language-models.md"),
    "compare-documents": ("Memory, long reviews", "comparisons.md"),
    "century": ("Dating a speech", "results.md"),
    "pretraining": ("Masked words", "results.md"),
    "translation": ("Translation", "translation.md"),
}
"""Results files that may give no recommendation -> title and page."""


def results_of(name: str) -> Results:
    """Read the results of one committed comparison."""
    return read_results(RESULTS / f"{name}.json")


def time_of(encoding: str, network: str = "encoder") -> float | None:
    """Return the median time of a training step over that without positions, where it was measured."""
    networks: dict[str, dict[str, Any]] = json.loads((RESULTS / "encodings.json").read_text("utf-8"))["networks"]
    row = networks[network].get(encoding)
    return None if row is None else row["ratio"]


def times_of(results: Results) -> dict[str, float]:
    """Return the times of a training step by model, where they were measured."""
    network = "decoder" if results.recipe.model.as_json().get("network") == "decoder" else "encoder"
    found = {arm.name: time_of(str(arm.encoding), network) for arm in results.arms}
    return {name: time for name, time in found.items() if time is not None}


def distance(found: Standing, model: str) -> str:
    """Say how much worse than the best a model is, and whether significantly."""
    if model == found.best:
        return "best"
    far = found.distance(model)
    shown = f"+{far:.{0 if far >= 1 else 1}%}" if found.perplexity else f"−{100 * far:.1f} points"
    return shown if found.significant[model] else f"{shown} (n.s.)"


def task_table(results: Results) -> str:
    """Write a row for each model, best first: score, distance from the best, longer texts, time of a step."""
    quality, found = quality_of(results), standing_of(results)
    assert found is not None
    (xs, means), times = lengths(results), times_of(results)
    encodings = {arm.name: str(arm.encoding) for arm in results.arms}
    head = ["Model", f"{results.split} {quality.name}", "vs best"]
    head += [f"{xs[-1] / xs[0]:.0f}× the length"] if xs else []
    head += ["training time"]
    lines = ["| " + " | ".join(head) + " |", "| :--- |" + " ---: |" * (len(head) - 1)]
    for entry in ranked(results):
        name = entry.arm
        cells = [name if encodings[name] == name else f"{name} (`{encodings[name]}`)"]
        cells += [with_spread(entry.columns.get(quality.key), quality.digits, results.statistic)]
        cells += [distance(found, name)]
        far = means.get(name, [None])[-1]
        cells += ["cannot read" if name in refusing(results) else significant(far, 3) if far else ""] if xs else []
        cells += [f"{times[name]:.2f}×" if name in times else ""]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def size_of(results: Results) -> str:
    """Say at which size, for how long and on how many seeds it was measured."""
    model, training = results.recipe.model.as_json(), results.recipe.training.as_json()
    of, count = repeats(results)
    total = [arm.parameters["total"] for arm in results.arms]
    steps = f"{training['max_steps']:,} steps" if training.get("max_steps", -1) > 0 else ""
    parts = [
        f"{model.get('num_hidden_layers', 1)} layers of width {model['hidden_size']}" if "hidden_size" in model else "",
        f"{min(total):,} to {max(total):,} parameters" if min(total) < max(total) else f"{total[0]:,} parameters",
        steps or f"{training['num_train_epochs']:g} epochs",
        f"{count} {of}{'s' * (count > 1)}",
        "learning rate tuned for each model" if results.planned.rates else "",
        f"data {str(results.recipe.data.source).split('/')[0]}",
    ]
    return f"{', '.join(part for part in parts if part).capitalize()}."


def task_block(name: str) -> str:
    """Write the table and the size of one task."""
    _, file, page = TASKS[name]
    results = results_of(file)
    more = f" [Full results]({page})." if page else ""
    return f"{task_table(results)}\n\n{size_of(results)}{more}"


def because(results: Results, found: Standing, times: float) -> str:
    """Say what the best model reached, and how far it is from the control."""
    quality, control = quality_of(results), control_of(results)
    steps = max(row.steps for row in results.rows if row.steps)
    of, count = repeats(results)
    if found.perplexity:
        score = f"perplexity {significant(found.means[found.best], 3)}"
        than = 1 - found.means[found.best] / found.means[control] if control in found.means else None
        gap = f", {than:.0%} below `{control}`" if than is not None else ""
    else:
        score = f"{quality.name} {found.means[found.best]:.1%}"
        gap = f", `{control}` {found.means[control]:.1%}" if control in found.means else ""
    length = f" at {times:g}× the length" if times != 1 else ""
    return f"{score}{length}{gap} ({steps:,} steps, {count} {of}s)"


def beware(results: Results, found: Standing, times: float) -> str:
    """List what a recommended model cannot do, or costs."""
    named = (found.best, *found.beside)
    encodings = {arm.name: str(arm.encoding) for arm in results.arms}
    bounded = [name for name in named if encodings[name] in CATALOG and CATALOG[encodings[name]].bounded]
    said = [f"{listed(bounded)}: no texts beyond `max_positions`"] if bounded else []
    if times == 1:
        grows = [f"`{name}` {ratio:.1f}×" for name, ratio in growth(results).items() if name in named and ratio > HOLDS]
        xs, _ = lengths(results)
        said += [f"perplexity at {xs[-1] / xs[0]:.0f}× the length: {', '.join(grows)}"] if grows else []
    slow = [f"`{name}` +{t - 1:.0%}" for name, t in times_of(results).items() if name in named and t > 1 + SLOWER]
    said += [f"training time: {', '.join(slow)}"] if slow else []
    return "; ".join(said)


def decision_table() -> str:
    """Write what to take for each situation, then what has no recommendation."""
    lines = ["| You train | Take | Because | Beware |", "| :--- | :--- | :--- | :--- |"]
    for situation, task, times in SITUATIONS:
        title, file, _ = TASKS[task]
        results = results_of(file)
        found = standing_of(results, times)
        assert found is not None, f"{file}: fewer than three seeds"
        anchor = re.sub(r"[^a-z0-9-]", "", title.lower().replace(" ", "-"))
        take, why, care = listed((found.best, *found.beside), "or"), because(results, found, times), ""
        if beats_control(results, found):
            care = beware(results, found, times)
        else:
            take = "the cheapest"
            why = f"no model is significantly better than `{control_of(results)}`: {why}"
        lines.append(f"| [{situation}](#{anchor}) | {take} | {why} | {care} |")
    return "\n".join([*lines, "", "No recommendation:", "", *map(without_recommendation, WITHOUT)])


def without_recommendation(file: str) -> str:
    """Say why a results file gives no recommendation."""
    title, page = WITHOUT[file]
    results = results_of(file)
    found, (of, count) = standing_of(results), repeats(results)
    if found is None:
        why = f"{count} {of}{'s' * (count > 1)} per model, too few to test"
    else:
        assert not beats_control(results, found), f"{file} has a recommendation now; give it a row"
        why = f"no model is significantly better than `{control_of(results)}`"
    return f"- [{title}]({page}): {why}."


def blocks() -> dict[str, str]:
    """Return what is between each pair of markers."""
    return {"decision": decision_table(), **{name: task_block(name) for name in TASKS}}


def page_of(text: str) -> str:
    """Return the page with every block as the files have it."""
    known = blocks()
    for name in re.findall(r"<!-- ([a-z-]+)-table -->", text):
        text = put(text, name, known[name])
    return text


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
