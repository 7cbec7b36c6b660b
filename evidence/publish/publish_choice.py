"""Write the tables of docs/choose.md from committed results.

    python evidence/publish/publish_choice.py

The prose of the page stays; what is between its markers is made anew, by the rules in `choice_rules.py`.
"""

import json
from collections import Counter
from typing import Any

from blocks import put
from choice_rules import (
    HOLDS,
    SLOWER,
    Standing,
    beats_control,
    control_of,
    differ_in_memory,
    growth,
    is_solved,
    lengths,
    listed,
    standing_of,
)
from publish_demo import RESULTS, ROOT, SPEED

from wordorder.comparison.report.differences import significant
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.summary import quality_of, repeats
from wordorder.encodings import CATALOG

PAGE = ROOT / "docs" / "choose.md"

TUNED = "comparisons.md#several-tasks-tuned-for-every-model"
SITUATIONS: tuple[tuple[str, str, float, str], ...] = (
    ("an encoder, masked characters", "decision/masked_letters_64", 1, TUNED),
    ("masked characters, width 128 instead of 64", "decision/masked_letters_128", 1, TUNED),
    ("masked characters, trained longer", "demo-long", 1, "results.md#masked-letters"),
    (
        "masked characters, tested on longer texts",
        "compare-mlm",
        16,
        "comparisons.md#masked-letters-equal-parameters",
    ),
    ("a decoder, next character", "decision/causal_letters_64", 1, TUNED),
    ("next character, width 128 instead of 64", "decision/causal_letters_128", 1, TUNED),
    (
        "next character, tested on longer texts",
        "compare-clm",
        16,
        "comparisons.md#causal-letters-equal-flops",
    ),
    ("a classifier of questions (TREC)", "decision/questions_64", 1, TUNED),
    (
        "questions, equal parameters",
        "compare-classification",
        1,
        "comparisons.md#questions-whose-words-are-shuffled",
    ),
    ("a classifier of the word four before the last, longer texts", "decision/n_back_64", 1, TUNED),
    ("the word four before the last, width 128", "decision/n_back_128", 1, TUNED),
    ("a sum of embeddings that must tell word orders apart", "order-binding", 1, "complex-order.md#measured-results"),
    ("a decoder that closes brackets of earlier segments", "memory-brackets", 1, "comparisons.md#memories"),
    ("a decoder that answers about earlier segments", "memory-instruction", 1, "comparisons.md#memories"),
    ("a decoder, next character, in short segments", "memory-letters", 1, "comparisons.md#memories"),
)
"""Training situation, results file, length of its texts relative to training, and its section."""

WITHOUT: dict[str, tuple[str, str]] = {
    "decision/questions_128": ("Questions (TREC), twice as wide", TUNED),
    "decision/even_pairs_64": ("Even pairs, longer texts", "comparisons.md"),
    "decision/reverse_64": ("A decoder that writes longer strings backwards", "comparisons.md"),
    "compare-translation": ("Sequence to sequence, longer outputs", "comparisons.md"),
    "compare-memory": ("At equal FLOPs, 128 characters at once (no memory) or 64 beside a memory of 64", "memory.md"),
    "memory-wikitext": ("Memory, words", "language-models.md"),
    "compare-documents": ("Memory, long reviews", "comparisons.md"),
    "translation": ("Translation", "translation.md"),
}
"""Results files that may give no recommendation -> title and page."""


def results_of(name: str) -> Results:
    """Read the results of one committed comparison."""
    return read_results(RESULTS / f"{name}.json")


def time_of(encoding: str, network: str = "encoder") -> float | None:
    """Return the median time of a training step over that without positions, where it was measured."""
    networks: dict[str, dict[str, Any]] = json.loads((SPEED / "encodings.json").read_text("utf-8"))["networks"]
    row = networks[network].get(encoding)
    return None if row is None else row["ratio"]


def times_of(results: Results) -> dict[str, float]:
    """Return the times of a training step by model, where they were measured."""
    network = "decoder" if results.recipe.model.get("network") == "decoder" else "encoder"
    if differ_in_memory(results):  # their times are not those of the encoding
        return {}
    found = {arm.name: time_of(str(arm.encoding), network) for arm in results.arms}
    return {name: time for name, time in found.items() if time is not None}


def score_of(standing: Standing, name: str) -> str:
    """Write the mean score of a model; empty where the comparison has no such model."""
    if name not in standing.means:
        return ""
    return significant(standing.means[name], 3) if standing.perplexity else f"{standing.means[name]:.1%}"


def training_of(results: Results) -> str:
    """Say for how many steps the models were trained, how often, and in how many trials their rates were found."""
    of, count = repeats(results)
    by_model = Counter(trial.arm for trial in results.tuning).values()
    trials = " to ".join(map(str, sorted({min(by_model), max(by_model)}))) if by_model else "no"
    steps = max(row.steps for row in results.rows if row.steps)
    return f"{steps:,} steps, {count} {of}s, {trials} trials of rates"


def unit_of(results: Results, standing: Standing) -> str:
    """Name what `score_of` writes."""
    return "perplexity" if standing.perplexity else quality_of(results).name


def flops_beside_control(results: Results) -> dict[str, float]:
    """Return by model its FLOPs per token over those of the control."""
    flops = {arm.name: float(arm.flops_per_token) for arm in results.arms}
    return {name: number / flops[control_of(results)] for name, number in flops.items()}


def beware(results: Results, found: Standing, times: float) -> str:
    """List what a recommended model cannot do, or costs."""
    named = named_in(results, found)
    encodings = {arm.name: str(arm.encoding) for arm in results.arms}
    bounded = [name for name in named if encodings[name] in CATALOG and CATALOG[encodings[name]].bounded]
    said = [f"{listed(bounded)}: no texts beyond `max_positions`"] if bounded else []
    if times == 1:
        grows = [f"`{name}` {ratio:.1f}×" for name, ratio in growth(results).items() if name in named and ratio > HOLDS]
        xs, _ = lengths(results)
        said += [f"perplexity at {xs[-1] / xs[0]:.0f}× the length: {', '.join(grows)}"] if grows else []
    rates = {arm.name: arm.encoding_learning_rate or 1 for arm in results.arms}
    own = [f"`{name}` {rates[name]:g}×" for name in named if rates[name] != 1]
    said += [f"`encoding_learning_rate` used: {', '.join(own)}"] if own else []
    slow = [f"`{name}` +{t - 1:.0%}" for name, t in times_of(results).items() if name in named and t > 1 + SLOWER]
    said += [f"training time on a CPU: {', '.join(slow)}"] if slow else []
    if differ_in_memory(results):
        times_control = flops_beside_control(results)
        dear = [f"`{memory_of(results, name)}` {times_control[name]:.1f}×" for name in named]
        said.append(f"FLOPs beside `{control_of(results)}`: {', '.join(dear)}")
    return "; ".join(said)


def decision_table() -> str:
    """Write what to take for each situation, then what has no recommendation."""
    lines = ["| You train | Take | Score | With `rope` | Without | Training | Beware |"]
    lines.append("| :--- | :--- | ---: | ---: | ---: | :--- | :--- |")
    for situation, file, times, section in SITUATIONS:
        results = results_of(file)
        found = standing_of(results, times)
        assert found is not None, f"{file}: fewer than three seeds"
        assert beats_control(results, found), f"{file}: no model beats {control_of(results)}; it goes to WITHOUT"
        unit = unit_of(results, found)
        if times != 1:
            unit += f" at {lengths(results)[0][-1]:,.0f} characters"
        rope = "" if differ_in_memory(results) else score_of(found, "rope")
        first = named_in(results, found)[0]
        scores = [f"{unit} {score_of(found, first)}", rope, score_of(found, control_of(results))]
        cells = [f"[{situation}]({section})", taken(results, found), *scores]
        lines.append(f"| {' | '.join([*cells, training_of(results), beware(results, found, times)])} |")
    return "\n".join([*lines, "", "No recommendation:", "", *map(without_recommendation, WITHOUT)])


def named_in(results: Results, found: Standing) -> list[str]:
    """List the models to recommend, best first; memories by their FLOPs, which differ most."""
    names = [found.best, *found.beside]
    return sorted(names, key=flops_beside_control(results).__getitem__) if differ_in_memory(results) else names


def memory_of(results: Results, name: str) -> str:
    """Return a model's setting of `model.memory`."""
    return next(str(arm.overrides.get("model.memory")) for arm in results.arms if arm.name == name)


def taken(results: Results, found: Standing) -> str:
    """Name what to take: encodings, or the setting where all models have one encoding and memories differ."""
    names = named_in(results, found)
    if differ_in_memory(results):
        names = [f'memory="{memory_of(results, name)}"' for name in names]
    return listed(names, "or")


def without_recommendation(file: str) -> str:
    """Say why a results file gives no recommendation."""
    title, page = WITHOUT[file]
    results = results_of(file)
    found, (of, count) = standing_of(results), repeats(results)
    if found is None:
        why = f"{count} {of}{'s' * (count > 1)} per model, too few to test"
    elif not is_solved(found):
        why = f"`{found.best}` is best, but right in only {found.means[found.best]:.1%}"
    else:
        assert not beats_control(results, found), f"{file} has a recommendation now; give it a row"
        control = control_of(results)
        worse = [name for name, sure in found.significant.items() if sure and found.best == control]
        why = f"no model is significantly better than `{control}`"
        why += f", and {listed(worse)} {'are' if len(worse) > 1 else 'is'} significantly worse" if worse else ""
    return f"- [{title}]({page}): {why}."


def page_of(text: str) -> str:
    """Return the page with its table as the files have it."""
    return put(text, "decision", decision_table())


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
