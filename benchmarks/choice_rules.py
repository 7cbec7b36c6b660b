"""The rules by which docs/choose.md makes sentences of advice from results files; the page states them in words.

Only what a results file says is used: means and spreads, the corrected outcomes of its own tests, its probe of longer
texts. The same file gives the same sentences.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.verdict import ranked
from wordorder.comparison.report.view import probe_panels
from wordorder.comparison.results_file import Comparison, Results
from wordorder.comparison.statistics.significance import Conclusions, between, compare_arms
from wordorder.comparison.statistics.summary import SEEDS_FOR_A_SPREAD, baseline_of, repeats, spread

MARGIN = 0.02
"""Times of a step that differ by no more than this share are called equal."""


def tested(results: Results) -> Conclusions:
    """Comparisons and significance of a file, computed where an older file has none."""
    if results.comparisons:
        return Conclusions(comparisons=results.comparisons, significance=results.significance)
    return compare_arms(results)


def outcome_of(comparisons: Sequence[Comparison], arm: str, other: str) -> str | None:
    """Outcome of two arms seen from the first; None where they were not compared."""
    found = between(comparisons, arm, other)
    return None if found is None else found.outcome


def advice(results: Results) -> list[str]:
    """Sentences on quality, then on longer texts."""
    return [sentence for sentence in (*quality_sentences(results), *length_sentences(results)) if sentence]


def quality_sentences(results: Results) -> list[str]:
    """Rules 1 to 4, and 7, of the page."""
    no_control = without_control(results)
    if no_control:
        return no_control
    order = [entry.arm for entry in ranked(results)]
    best, others, baseline = order[0], order[1:], str(baseline_of(results))
    quality = quality_of(results)
    place = f"{'highest' if quality.higher_is_better else 'lowest'} {results.split} {quality.name}{after(results)}"
    found = tested(results)
    needed, (of, count) = found.significance.seeds_needed, repeats(results)
    if needed is None or count < needed:
        near, apart = overlapping(results, best, others)
        if count < SEEDS_FOR_A_SPREAD:
            return [f"No advice: {count} {of}{'s' * (count > 1)} per model, too few to tell a difference from chance."]
        if not apart:
            return [f"No advice: {count} {of}s (a test needs {needed}), and the ranges of all models overlap."]
        enough = f"; a test needs {needed}" if needed is not None else ""
        return [
            f"**{best}** has the {place} (pilot, not tested: {count} {of}{'s' * (count > 1)}{enough}).",
            f"Within its range: {listed(near)}." if near else "",
            f"Outside it: {listed(apart)}." if apart and near else "",
        ]
    outcome = {other: outcome_of(found.comparisons, best, other) for other in others}
    beaten = [other for other in others if outcome[other] == "better"]
    level = [other for other in others if outcome[other] in ("not distinguishable", "identical")]
    lost = [other for other in others if outcome[other] == "no claim"]
    unknown = [other for other in others if outcome[other] is None]
    said = [f"**{best}** has the {place}."]
    if best != baseline and outcome.get(baseline) != "better":
        return [*said, *nothing_claimed(results, baseline, [best, *level, *lost, *unknown])]
    said.append(f"Significantly better than {listed(beaten)}." if beaten else "")
    said.append(f"Not significantly different from it: {listed(level)}." if level else "")
    said.append(f"Not significant against {listed(lost)}: runs were lost." if lost else "")
    said.append(f"Not tested against it: {listed(unknown)}." if unknown else "")
    return [*said, cheapest(results, [best, *level, *lost])]


def after(results: Results) -> str:
    """How long the models were trained, in words: what is best early need not be best later."""
    steps = sorted({row.steps for row in results.rows if row.steps})
    if not steps:
        return ""
    return f" after {steps[0]:,} steps" if len(steps) == 1 else f" after {steps[0]:,} to {steps[-1]:,} steps"


def nothing_claimed(results: Results, baseline: str, arms: Sequence[str]) -> list[str]:
    """What is known where not even the best model is significantly better than the baseline."""
    named = "no positions at all" if baseline == "none" else baseline
    return [f"Nothing is significantly better than {named}.", cheapest(results, [baseline, *arms])]


def without_control(results: Results) -> list[str]:
    """Rule 7: what is said of memories where none of them is significantly better than reading without one."""
    usual, baseline = results.recipe.model.as_json().get("memory", "none"), str(baseline_of(results))
    memory = {arm.name: arm.overrides.get("model.memory", usual) for arm in results.arms}
    with_memory = [name for name, kind in memory.items() if kind != "none"]
    if not with_memory or memory[baseline] != "none":
        return []
    found = tested(results).comparisons
    if any(outcome_of(found, name, baseline) == "better" for name in with_memory):
        return []
    worse = [name for name in with_memory if outcome_of(found, name, baseline) == "worse"]
    total = {arm.name: int(arm.parameters["total"]) for arm in results.arms}
    least, most = (end(total[name] for name in with_memory) for end in (min, max))
    return [
        "No advice which memory to take: no model with a memory is significantly better than the one without "
        f"({baseline}), so the experiment has no positive control.",
        f"Significantly worse than it: {listed(worse)}." if worse else "",
        f"It has {total[baseline]:,} parameters, those with a memory {least:,} to {most:,}: the set-up decides."
        if total[baseline] > 1.01 * most
        else "",
    ]


def overlapping(results: Results, best: str, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arms whose range (mean plus and minus one standard deviation) meets that of the best, and the rest."""
    metric, statistic = quality_of(results).key, results.statistic
    ranges = {entry.arm: spread(entry.columns[metric], statistic) for entry in results.summary}
    mine = ranges[best]
    if mine is None:  # one or two seeds: nothing is known about any range
        return [], list(others)
    meets = {name: own is not None and own[0] <= mine[1] and mine[0] <= own[1] for name, own in ranges.items()}
    return [name for name in others if meets[name]], [name for name in others if not meets[name]]


def cheapest(results: Results, arms: Sequence[str]) -> str:
    """Of models that do not differ significantly, the one with the fewest FLOPs a token, where no width was changed.

    An arm whose layers were made narrower so that all have as many parameters takes fewer FLOPs for that reason alone.
    """
    budget = results.budget
    if budget is not None and (budget.match == "flops" or any(own.changed for own in budget.arms.values())):
        return ""
    flops = {arm.name: arm.flops_per_token for arm in results.arms if arm.name in arms}
    least = min(flops.values())
    found = [name for name, value in flops.items() if value <= 1.01 * least]
    if len(flops) < 2 or len(found) == len(flops):
        return ""
    return (
        f"Of these {listed(found)} {'takes' if len(found) == 1 else 'take'} the fewest FLOPs per token at these sizes."
    )


def lengths(results: Results) -> tuple[tuple[float, ...], dict[str, list[float | None]]]:
    """Lengths in tokens, and by arm the mean of the probe at each; None where an arm's table ends before."""
    probe = results.probes.get("extrapolation")
    if probe is None:
        return (), {}
    order = [entry.arm for entry in ranked(results)]
    panel = next(panel for panel in probe_panels(probe, order) if panel.group == "all tokens")
    found = {
        arm: [next((point.mean for point in points if point.x == x), None) for x in panel.xs]
        for arm, points in panel.points.items()
    }
    return panel.xs, found


def refusing(results: Results) -> list[str]:
    """Arms that cannot read longer texts than they were trained on."""
    probe = results.probes.get("extrapolation")
    return list(dict.fromkeys(entry.arm for entry in probe.skipped)) if probe else []


def growth(results: Results) -> dict[str, tuple[float, float, float]]:
    """By arm the perplexity on the longest texts over that at the length of training: of means, and range of seeds."""
    xs, found = lengths(results)
    rows = [row for row in results.probes["extrapolation"].rows if row.group == "all tokens"]
    value = {(row.arm, row.seed, row.x): row.value for row in rows}
    ratios: dict[str, tuple[float, float, float]] = {}
    for arm, means in found.items():
        seeds = [seed for name, seed, x in value if name == arm and x == xs[-1]]
        own = [value[arm, seed, xs[-1]] / value[arm, seed, xs[0]] for seed in seeds]
        if means[-1] is not None and means[0]:
            ratios[arm] = (means[-1] / means[0], min(own), max(own))
    return ratios


def length_sentences(results: Results) -> list[str]:
    """Rule 5 of the page."""
    xs, _ = lengths(results)
    if not xs:
        return []
    grown = sorted(growth(results).items(), key=lambda pair: pair[1][0])
    each = [f"{arm} {ratio:.2f} ({low:.2f} to {high:.2f})" for arm, (ratio, low, high) in grown]
    no = f"; {listed(refusing(results))} cannot read them" if refusing(results) else ""
    return [
        f"Perplexity on texts of {xs[-1] / xs[0]:.0f} times the length over that at the length of training "
        f"(lowest to highest seed): {', '.join(each)}{no}."
    ]


def dearer(rows: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, float], list[str]]:
    """Rule 6: encodings whose step is longer than without positions by more than the margin, by how much; the rest."""
    slower = {name: row["ratio"] - 1 for name, row in rows.items() if row["ratio"] > 1 + MARGIN}
    return slower, [name for name in rows if name not in slower and name != "none"]


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
