"""The rules by which docs/choose.md recommends encodings from results files; the page states them in words.

Only scores of runs are used, so the same file gives the same words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from statistics import fmean

from wordorder.comparison.report.view import probe_panels
from wordorder.comparison.results_file import Results
from wordorder.comparison.statistics.seeds import BETTER, FEWEST_SEEDS, compare_seeds
from wordorder.comparison.statistics.significance import between, compare_arms
from wordorder.comparison.statistics.summary import baseline_of, quality_of

LEVEL = 0.05
"""Level of the tests, after the correction for all pairs."""
NEAR = {"perplexity": 0.1, "share": 0.02}
"""Largest distance from the best of a model that is recommended beside it: a share of a perplexity, or points."""
HOLDS = 1.2
"""Largest growth of the perplexity on longer texts at which an encoding is said to hold."""
LEAST_SCORE = 0.1
"""Score below which no model has solved a task, so that none is recommended."""
SLOWER = 0.05
"""Share by which a training step is longer from which on the page warns."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Models of one comparison beside the best one."""

    best: str
    means: Mapping[str, float]
    """Best first."""
    significant: Mapping[str, bool]
    """Whether the best model is significantly better than each other."""
    above_control: frozenset[str]
    """Models that are significantly better than the control."""
    perplexity: bool

    @property
    def beside(self) -> list[str]:
        """Models to recommend beside the best, at most two, each significantly better than the control."""
        near = NEAR["perplexity" if self.perplexity else "share"]
        # one that is surely worse ends the list: what has a worse mean still, and varies more, is no better choice
        close = takewhile(lambda n: not self.significant[n] and self.distance(n) <= near, list(self.means)[1:])
        return [n for n in close if n in self.above_control][:2]

    def distance(self, model: str) -> float:
        """Return how much worse a model is than the best: a share of the best perplexity, or points of a score."""
        here, best = self.means[model], self.means[self.best]
        return here / best - 1 if self.perplexity else abs(best - here)


def scores_of(results: Results, times: float = 1) -> dict[str, list[float]]:
    """Collect the headline score of every seed by model, or the perplexity on texts of so many times the length.

    Raises:
        ValueError: a run has no finite score.
    """
    found: dict[str, list[float]] = {}
    if times == 1:
        scores = [(row.arm, row.score(quality_of(results).key)) for row in results.rows]
    else:
        rows = [row for row in results.probes["extrapolation"].rows if row.group == "all tokens"]
        first = min(row.x for row in rows)
        scores = [(row.arm, row.value) for row in rows if row.x == times * first]
    for name, score in scores:
        if score is None or not math.isfinite(score):
            raise ValueError(f"{results.name}: a run of {name} has no score, and the page has no rule for lost runs")
        found.setdefault(name, []).append(score)
    return found


def standing_of(results: Results, times: float = 1) -> Standing | None:
    """Compare every model with the best one, on the test split or on longer texts; None with fewer than three seeds.

    A pair that the file's comparison tests has that outcome. All others are tested by `compare_seeds` with the
    correction for all pairs, since which model is best was read from the same scores; perplexities by their logarithms.
    """
    quality, scores = quality_of(results), scores_of(results, times)
    if min(map(len, scores.values())) < FEWEST_SEEDS:
        return None
    perplexity = times != 1 or quality.key == "perplexity"
    means = {name: fmean(own) for name, own in scores.items()}
    order = sorted(means, key=lambda name: means[name], reverse=quality.higher_is_better and not perplexity)
    best, pairs = order[0], list(combinations(order, 2))
    tested = compare_arms(results).comparisons if times == 1 else ()
    outcomes = {pair: entry.outcome for pair in pairs if (entry := between(tested, *pair)) is not None}
    values = {name: [math.log(v) for v in own] if perplexity else own for name, own in scores.items()}
    tests = compare_seeds(values, pairs, level=LEVEL, margin=0.0)
    untold = {pair for pair, test in tests.items() if pair not in outcomes and test.p_adjusted <= LEVEL}
    sure = untold | {pair for pair, outcome in outcomes.items() if outcome == BETTER}
    significant = {name: (best, name) in sure for name in order[1:]}
    above = frozenset(name for name, other in sure if other == control_of(results))
    ordered = {name: means[name] for name in order}
    return Standing(best=best, means=ordered, significant=significant, above_control=above, perplexity=perplexity)


def control_of(results: Results) -> str:
    """Name the model without what is compared: no memory, no positions, or else the baseline."""
    usual, names = results.recipe.model.get("memory", "none"), [arm.name for arm in results.arms]
    memory = {arm.name: arm.overrides.get("model.memory", usual) for arm in results.arms}
    if set(memory.values()) != {"none"}:
        return next((name for name in names if memory[name] == "none"), str(baseline_of(results)))
    return "none" if "none" in names else str(baseline_of(results))


def is_solved(found: Standing) -> bool:
    """Tell whether the best model's score is high enough to recommend it; any perplexity is."""
    return found.perplexity or found.means[found.best] >= LEAST_SCORE


def differ_in_memory(results: Results) -> bool:
    """Tell whether all models have one encoding, so that a row is about memories."""
    return len({arm.encoding for arm in results.arms}) == 1


def beats_control(results: Results, found: Standing) -> bool:
    """Tell whether the best model solves the task, and is significantly better than the control."""
    return is_solved(found) and found.significant.get(control_of(results), False)


def lengths(results: Results) -> tuple[tuple[float, ...], dict[str, list[float | None]]]:
    """Return lengths in tokens, and by model the mean perplexity at each; None where it cannot read that length."""
    probe = results.probes.get("extrapolation")
    if probe is None:
        return (), {}
    order = [arm.name for arm in results.arms]
    panel = next(panel for panel in probe_panels(probe, order) if panel.group == "all tokens")
    found = {
        arm: [next((point.mean for point in points if point.x == x), None) for x in panel.xs]
        for arm, points in panel.points.items()
    }
    return panel.xs, found


def refusing(results: Results) -> list[str]:
    """List the models that cannot read longer texts than they were trained on."""
    probe = results.probes.get("extrapolation")
    return list(dict.fromkeys(entry.arm for entry in probe.skipped)) if probe else []


def growth(results: Results) -> dict[str, float]:
    """Return by model the mean perplexity on the longest texts over that at the length of training."""
    _, means = lengths(results)
    return {arm: own[-1] / own[0] for arm, own in means.items() if own[-1] is not None and own[0]}


def listed(names: Sequence[str], word: str = "and") -> str:
    """Join names in code font: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return f" {word} ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
