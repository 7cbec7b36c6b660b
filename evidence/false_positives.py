"""How often the comparison's statistics claim a difference that is not there, and how often one that is.

Sets of scores are drawn, arms by seeds, and judged by what `wordorder compare` uses; the first sets of each kind go
through `compare_arms` itself as results files, and both must agree. No network is trained (false_positives_trained.py
does that). One thread, some five minutes:

    OMP_NUM_THREADS=1 python evidence/false_positives.py --json evidence/results/false_positives.json

Sections: ``level``: the share of sets in which any arm is called different from one that it is equal to, by kind of
noise. ``power``: the share in which the best arm is claimed to be ahead of the others. ``coverage``: how often an
interval holds the true difference, by method. ``lost``: false claims where runs diverge. ``looks``: false claims where
seeds are added one at a time until one appears.

``welch``: the same two for Welch's test with Holm's correction, from three seeds on, and for equivalence (a false claim
is that arms are the same whose difference is the margin). ``texts``: the same for the tests on new texts, by kind of
noise of the units, with seed effects, unit effects of each arm and their interaction; besides the ways that were not
taken, a t test of units and the bootstrap of seeds and units.

Kinds of noise: in ``normal``, ``skewed`` (exponential to the power 1.5), ``heavy-tailed`` (Student's t, 2 degrees),
``rounded`` (normal, rounded to halves: ties) and ``shared`` (half of the variance is the seed's) all arms vary alike.
In ``one noisy`` the first arm varies ten times as much; in ``twins`` the first two arms are one network; in ``pairs``
and ``halves`` arms are equal two by two, or half by half, and far apart else. In ``one skewed`` the first arm's noise
is skewed and the others' a third of it and normal: means are equal, but a difference and its negative are not equally
likely, which the test assumes.
"""

import argparse
import json
import platform
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy import stats

from wordorder import __version__
from wordorder.comparison.results_file import parse_results
from wordorder.comparison.statistics.claims import Estimate, on_new_texts, retrained_on_new_texts, welch
from wordorder.comparison.statistics.exact_tests import closed_p, holm, seeds_needed, share_of_level
from wordorder.comparison.statistics.intervals import paired_mean
from wordorder.comparison.statistics.significance import compare_arms

LEVEL = 0.05
SECTIONS = ["level", "power", "coverage", "lost", "looks", "welch", "texts"]
CHECKED = 10
"""Sets of each kind that are judged by `compare_arms` too."""
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def one_noisy(chance: np.random.Generator, seeds: int, arms: int) -> np.ndarray:
    """The first arm varies ten times as much."""
    return chance.normal(size=(seeds, arms)) * np.where(np.arange(arms) == 0, 10.0, 1.0)


def one_skewed(chance: np.random.Generator, seeds: int, arms: int) -> np.ndarray:
    """The first arm is skewed, with the mean of the others."""
    scores = chance.normal(size=(seeds, arms)) / 3
    scores[:, 0] = chance.exponential(size=seeds) - 1
    return scores


def twins(chance: np.random.Generator, seeds: int, arms: int) -> np.ndarray:
    """The first two arms have the same scores."""
    scores = chance.normal(size=(seeds, arms))
    scores[:, 1] = scores[:, 0]
    return scores


NOISE: dict[str, Draw] = {
    "normal": lambda chance, seeds, arms: chance.normal(size=(seeds, arms)),
    "skewed": lambda chance, seeds, arms: chance.exponential(size=(seeds, arms)) ** 1.5,
    "heavy-tailed": lambda chance, seeds, arms: chance.standard_t(2, size=(seeds, arms)),
    "rounded": lambda chance, seeds, arms: np.round(2 * chance.normal(size=(seeds, arms))) / 2,
    "shared": lambda chance, seeds, arms: chance.normal(size=(seeds, 1)) + chance.normal(size=(seeds, arms)),
    "one noisy": one_noisy,
    "twins": twins,
    "pairs": lambda chance, seeds, arms: chance.normal(size=(seeds, arms)) + 10 * (np.arange(arms) // 2),
    "halves": lambda chance, seeds, arms: (
        chance.normal(size=(seeds, arms)) + 10 * (np.arange(arms) // max(1, arms // 2))
    ),
    "one skewed": one_skewed,
}
GROUPS: dict[str, Callable[[int, int], int]] = {
    "pairs": lambda arm, arms: arm // 2,
    "halves": lambda arm, arms: arm // max(1, arms // 2),
}
"""Kind -> which group of equal arms an arm belongs to; all arms are equal in the other kinds."""


def sign_flip_p(differences: np.ndarray) -> np.ndarray:
    """Two-sided p-values of the exact sign-flip test, one per column."""
    seeds = len(differences)
    signs = 1.0 - 2.0 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)
    sums = np.abs(signs @ differences)
    return (sums >= sums[0] - 1e-9 * np.abs(differences).sum(axis=0)).mean(axis=0)


def results_of(scores: np.ndarray) -> dict[str, Any]:
    """A results file with these scores, seeds by arms, as accuracies; NaN is a run that diverged."""
    rows = [
        {"arm": str(arm), "seed": seed, "accuracy": None if np.isnan(value) else float(value), "curve": []}
        for seed, own in enumerate(scores)
        for arm, value in enumerate(own)
    ]
    seeds, arms = scores.shape
    return {
        "name": "simulated",
        "task": "classification",
        "metric": "accuracy",
        "rows": rows,
        "arms": [{"name": str(arm)} for arm in range(arms)],
        "planned": {"arms": arms, "seeds": list(range(seeds)), "runs": len(rows)},
        "recipe": {"compare": {}},
    }


def claims(scores: np.ndarray, method: str) -> set[tuple[int, int]]:
    """The pairs of arms that are called different: by "closed" testing, "holm" or against the "baseline", arm 0."""
    arms = scores.shape[1]
    pairs = [pair for pair in combinations(range(arms), 2) if method != "baseline" or 0 in pair]
    p_values = sign_flip_p(np.stack([scores[:, one] - scores[:, other] for one, other in pairs], axis=1)).tolist()
    if method == "holm" or len(pairs) == 1:
        return {pair for pair, p in zip(pairs, holm(p_values), strict=True) if p <= LEVEL}
    if min(p_values) > LEVEL * share_of_level(arms, baseline=method == "baseline"):
        return set()
    named = {(str(one), str(other)): p for (one, other), p in zip(pairs, p_values, strict=True)}
    by_seed = {str(arm): dict(enumerate(own)) for arm, own in enumerate(scores.T.tolist())}
    found = closed_p(named, by_seed, baseline="0" if method == "baseline" else None)
    return {(int(one), int(other)) for (one, other), p in found.items() if p <= LEVEL}


def check_against_compare_arms(scores: np.ndarray) -> None:
    """Stop where a results file with these scores is judged otherwise."""
    found = compare_arms(parse_results(results_of(scores))).comparisons
    told = {tuple(sorted((int(e.arm), int(e.against)))) for e in found if e.outcome in ("better", "worse")}
    assert told == claims(scores, "closed"), (told, claims(scores, "closed"))


def attained_level(seeds: int, level: float = LEVEL) -> float:
    """The probability of a false claim for two arms without ties: the last multiple of 2 / 2^seeds up to the level."""
    return 2 * int(level * 2**seeds / 2 + 1e-9) / 2**seeds


def band(rate: float, sets: int) -> tuple[float, float]:
    """Between what shares 99% of the repetitions of this simulation lie."""
    low, high = stats.binom.interval(0.99, sets, rate)
    return float(low) / sets, float(high) / sets


def level_rows(sets: int, seeds_tried: list[int]) -> list[dict[str, Any]]:
    """False claims."""
    rows: list[dict[str, Any]] = []
    for number, (kind, draw) in enumerate(NOISE.items()):
        for arms in (2, 4, 8):
            for seeds in seeds_tried:
                chance = np.random.default_rng([number, arms, seeds])
                found = {"closed": 0, "holm": 0, "baseline": 0}
                group = GROUPS.get(kind, lambda arm, arms: 0)
                for repetition in range(sets):
                    scores = draw(chance, seeds, arms)
                    if repetition < CHECKED and kind != "twins":  # whose outcome is "identical"
                        check_against_compare_arms(scores)
                    for method in found:
                        wrong = [
                            pair for pair in claims(scores, method) if group(pair[0], arms) == group(pair[1], arms)
                        ]
                        found[method] += bool(wrong)
                shares = {method: count / sets for method, count in found.items()}
                rows.append({"noise": kind, "arms": arms, "seeds": seeds, "sets": sets, **shares})
        print(
            kind, [(r["arms"], r["seeds"], r["closed"], r["baseline"]) for r in rows if r["noise"] == kind], flush=True
        )
    return rows


def power_rows(sets: int, seeds_tried: list[int]) -> list[dict[str, Any]]:
    """Right claims: the best arm against all others, which stand one below the other or all at the same place.

    Noise is normal with standard deviation 1, so that a paired difference has sqrt(2).
    """
    rows: list[dict[str, Any]] = []
    for arms, seeds in [(arms, seeds) for arms in (2, 4, 8) for seeds in seeds_tried]:
        for effect in (1.0, 2.0):
            for way, means in (("spaced", -np.arange(arms)), ("one ahead", -np.minimum(np.arange(arms), 1))):
                chance, found = (
                    np.random.default_rng([arms, seeds, int(effect)]),
                    {"closed": 0, "holm": 0, "baseline": 0},
                )
                for _ in range(sets):
                    scores = chance.normal(size=(seeds, arms)) + effect * means
                    for method in found:
                        found[method] += (0, 1) in claims(scores, method)
                shares = {method: count / sets for method, count in found.items()}
                rows.append({"arms": arms, "seeds": seeds, "effect": effect, "means": way, "sets": sets, **shares})
    return rows


def coverage_rows(sets: int) -> list[dict[str, Any]]:
    """How often 95% intervals of the mean paired difference hold its true value, 0, and their mean width."""
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(("normal", "skewed", "heavy-tailed", "one skewed")):
        for seeds in (3, 5, 6, 8, 10, 20):
            chance = np.random.default_rng([number, seeds])
            inside = dict.fromkeys(("used", "t", "BCa"), 0)
            width = dict.fromkeys(inside, 0.0)
            for _ in range(sets):
                drawn = NOISE[kind](chance, seeds, 2)
                for method, (low, high) in intervals(drawn[:, 0] - drawn[:, 1]).items():
                    inside[method] += low <= 0 <= high
                    width[method] += (high - low) / sets
            rows.append(
                {"noise": kind, "seeds": seeds, "sets": sets}
                | {method: {"coverage": inside[method] / sets, "width": round(width[method], 3)} for method in inside}
            )
        print(kind, [(r["seeds"], *(r[m]["coverage"] for m in inside)) for r in rows if r["noise"] == kind], flush=True)
    return rows


def intervals(differences: np.ndarray) -> dict[str, tuple[float, float]]:
    """The interval that is used, and those that could be."""
    seeds, used = len(differences), paired_mean(differences.tolist(), 0.95)
    assert used.low is not None
    assert used.high is not None
    t = stats.t.interval(0.95, seeds - 1, loc=differences.mean(), scale=stats.sem(differences))
    found = {"used": (used.low, used.high), "t": (float(t[0]), float(t[1]))}
    drawn = stats.bootstrap((differences,), np.mean, method="BCa", n_resamples=999, rng=0).confidence_interval
    return {**found, "BCa": (float(drawn.low), float(drawn.high))}


def lost_rows(sets: int, seeds_tried: list[int]) -> list[dict[str, Any]]:
    """False claims where runs are lost, which `compare_arms` ranks last, and were they left out.

    In ``any`` a run of equal arms is lost with probability 1/4, whatever its score. In ``bad runs of one arm`` those
    of the first arm are lost whose score is in the lowest third; a false claim is that this arm is better.
    """
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(("any", "bad runs of one arm")):
        for arms, seeds in [(arms, seeds) for arms in (2, 4) for seeds in seeds_tried]:
            chance, found = np.random.default_rng([number, arms, seeds]), {"used": 0, "without": 0}
            for _ in range(sets):
                scores = chance.normal(size=(seeds, arms))
                gone = chance.random((seeds, arms)) < 0.25 if kind == "any" else scores < stats.norm.ppf(1 / 3)
                gone[:, 1:] &= kind == "any"
                scores[gone] = np.nan
                results = results_of(scores)
                kept = {**results, "rows": [row for row in results["rows"] if row["accuracy"] is not None]}
                for method, own in (("used", results), ("without", kept)):
                    found[method] += any(
                        kind == "any" or "0" == (e.arm if e.outcome == "better" else e.against)
                        for e in compare_arms(parse_results(own)).comparisons
                        if e.outcome in ("better", "worse")
                    )
            shares = {method: count / sets for method, count in found.items()}
            rows.append({"lost": kind, "arms": arms, "seeds": seeds, "sets": sets, **shares})
            print(rows[-1], flush=True)
    return rows


def look_rows(sets: int) -> list[dict[str, Any]]:
    """False claims of two equal arms where seeds are added one at a time from the first number until p <= 0.05."""
    rows: list[dict[str, Any]] = []
    chance, first, last = np.random.default_rng(0), 6, 12
    claimed = np.zeros(sets, dtype=bool)
    for part in np.array_split(np.arange(sets), -(-sets // 500)):  # all sign flips of all sets would not fit in memory
        differences = chance.normal(size=(last, len(part)))
        for n in range(first, last + 1):
            claimed[part] |= sign_flip_p(differences[:n]) <= LEVEL
    rows.append({"first": first, "last": last, "sets": sets, "claimed": float(claimed.mean())})
    print(rows[-1], flush=True)
    return rows


def welch_claims(scores: np.ndarray) -> tuple[set[tuple[int, int]], dict[tuple[int, int], Estimate]]:
    """The pairs of arms that Welch's test with Holm's correction calls different, and all estimates."""
    pairs = combinations(range(scores.shape[1]), 2)
    found = {(i, j): one for i, j in pairs if (one := welch(scores[:, i].tolist(), scores[:, j].tolist())) is not None}
    adjusted = holm([one.p for one in found.values()])
    return {pair for pair, p in zip(found, adjusted, strict=True) if p <= LEVEL}, found


def check_welch_against_compare_arms(scores: np.ndarray) -> None:
    """Stop where a results file with these scores is judged otherwise."""
    found = [e for e in compare_arms(parse_results(results_of(scores))).comparisons if e.retrained is not None]
    told = {tuple(sorted((int(e.arm), int(e.against)))) for e in found if e.retrained.outcome in ("better", "worse")}
    assert told == welch_claims(scores)[0], (told, welch_claims(scores)[0])


def welch_rows(sets: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """False claims of Welch's test by kind of noise, and right ones: the best of arms that are evenly spaced."""
    level: list[dict[str, Any]] = []
    power: list[dict[str, Any]] = []
    for arms, seeds in [(arms, seeds) for arms in (2, 4, 8) for seeds in (3, 5, 8)]:
        for number, (kind, draw) in enumerate(NOISE.items()):
            group = GROUPS.get(kind, lambda arm, arms: 0)
            chance, wrong, same = np.random.default_rng([number, arms, seeds]), 0, 0
            for repetition in range(sets):
                scores = draw(chance, seeds, arms)
                if repetition < CHECKED and kind != "twins":
                    check_welch_against_compare_arms(scores)
                claimed, found = welch_claims(scores)
                wrong += any(group(i, arms) == group(j, arms) for i, j in claimed)
                # were the truth the margin itself, "the same" would be false: the scale of the noise is its own
                same += arms == 2 and (0, 1) in found and _moved(found[0, 1], 2.0).p_same(2.0) <= LEVEL
            row = {"noise": kind, "arms": arms, "seeds": seeds, "sets": sets, "claimed": wrong / sets}
            level.append(row | ({"same": same / sets} if arms == 2 else {}))
        for effect in (1.0, 2.0, 4.0):
            chance, right = np.random.default_rng([arms, seeds, int(effect)]), 0
            for _ in range(sets):
                right += (0, 1) in welch_claims(chance.normal(size=(seeds, arms)) - effect * np.arange(arms))[0]
            power.append({"arms": arms, "seeds": seeds, "effect": effect, "sets": sets, "claimed": right / sets})
        print(arms, seeds, [(r["noise"], r["claimed"]) for r in level[-len(NOISE) :]], flush=True)
    return level, power


def _moved(found: Estimate, by: float) -> Estimate:
    return Estimate(difference=found.difference + by, error=found.error, degrees=found.degrees)


UNIT_NOISE: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda chance, shape: chance.normal(size=shape),
    "heavy-tailed": lambda chance, shape: chance.standard_t(2.5, size=shape) / 2.2,
    "skewed": lambda chance, shape: (chance.exponential(size=shape) ** 1.5 - 1.3293) / 2.4,
}
"""Kind -> noise of mean 0 and standard deviation about 1; of "skewed" only the first arm's units are."""
ALONE = "skewed alone"
"""Kind in which only the first arm's units vary, skewed: nothing makes a difference and its negative alike."""


def text_rows(sets: int) -> list[dict[str, Any]]:
    """False and right claims of the tests on new texts, two arms, by noise, seeds, units and whether sizes differ.

    The score of an arm's seed on a unit is a seed's effect, sd 0.3, plus the arm's effect on the unit, sd 1, plus
    noise, sd 1; for the models as they were trained the seeds' effects are not luck but part of the models, and
    left out. Sizes that differ are log-normal with sigma 1. Power: for new texts a difference of about 3.5 standard
    errors of equal units, for both a difference of 1.5.
    """
    rows: list[dict[str, Any]] = []
    designs = [(3, 20), (3, 500), (5, 100), (8, 500)]
    for number, (kind, draw) in enumerate({**UNIT_NOISE, ALONE: UNIT_NOISE["skewed"]}.items()):
        for seeds, units, differ in [(seeds, units, differ) for seeds, units in designs for differ in (False, True)]:
            chance = np.random.default_rng([number, seeds, units, differ])
            found = dict.fromkeys(("new_texts", "both", "t", "bootstrap", "new_texts_power", "both_power"), 0)
            for _ in range(sets):
                sizes = chance.lognormal(0, 1, size=units) if differ else np.ones(units)
                kinds = [draw, draw if kind not in ("skewed", ALONE) else UNIT_NOISE["normal"]]
                of_units = [own(chance, (1, units)) for own in kinds]
                noise = [draw(chance, (seeds, units)) for _ in range(2)]
                if kind == ALONE:
                    of_units[1], noise = np.zeros((1, units)), [np.zeros((seeds, units))] * 2
                of_seeds = [0.3 * chance.normal(size=(seeds, 1)) for _ in range(2)]
                one, other = ((own + here) * sizes for own, here in zip(of_units, noise, strict=True))
                found["new_texts"] += flips(one, other, sizes) <= LEVEL
                ahead = one + 4 * sizes / np.sqrt(units / 2)
                found["new_texts_power"] += flips(ahead, other, sizes) <= LEVEL
                found["t"] += t_of_units(one, other, sizes) <= LEVEL
                one, other = one + of_seeds[0] * sizes, other + of_seeds[1] * sizes
                estimate = retrained_on_new_texts(one, other, sizes)
                found["both"] += estimate is not None and estimate.p <= LEVEL
                estimate = retrained_on_new_texts(one + 1.5 * sizes, other, sizes)
                found["both_power"] += estimate is not None and estimate.p <= LEVEL
                low, high = bootstrap_of_both(one, other, sizes, chance)
                found["bootstrap"] += not low <= 0 <= high
            shares = {method: count / sets for method, count in found.items()}
            rows.append({"noise": kind, "seeds": seeds, "units": units, "sizes_differ": differ, "sets": sets, **shares})
            print(rows[-1], flush=True)
    return rows


def flips(one: np.ndarray, other: np.ndarray, sizes: np.ndarray) -> float:
    """The p-value of two arms' models on new texts."""
    return on_new_texts({"one": one, "other": other}, sizes, [("one", "other")], 0.95, flips=999)["one", "other"].p


def t_of_units(one: np.ndarray, other: np.ndarray, sizes: np.ndarray) -> float:
    """The p-value of the ratio of sums by its linear error and Student's t: the way that was not taken."""
    by_unit = one.mean(axis=0) - other.mean(axis=0)
    difference = by_unit.sum() / sizes.sum()
    residual = by_unit - difference * sizes
    error = np.sqrt(len(sizes) / (len(sizes) - 1) * (residual @ residual)) / sizes.sum()
    return float(2 * stats.t.sf(abs(difference) / error, len(sizes) - 1))


def bootstrap_of_both(
    one: np.ndarray, other: np.ndarray, sizes: np.ndarray, chance: np.random.Generator
) -> tuple[float, float]:
    """The 95% interval of the bootstrap of seeds and units (Sellam et al. 2022): the way that was not taken."""
    (seeds, units), draws = one.shape, 199
    of_units = chance.multinomial(units, np.full(units, 1 / units), size=draws)
    of_seeds = chance.multinomial(seeds, np.full(seeds, 1 / seeds), size=(2, draws)) / seeds
    sums = [((own @ own_scores) * of_units).sum(axis=1) for own, own_scores in zip(of_seeds, (one, other), strict=True)]
    low, high = np.quantile((sums[0] - sums[1]) / (of_units @ sizes), [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Simulate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 6, 8, 10])
    parser.add_argument("--sections", nargs="+", default=SECTIONS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    record: dict[str, Any] = {}
    if asked.json and asked.json.exists():
        record = json.loads(asked.json.read_text())
    record |= {
        "level": LEVEL,
        "attained": {str(seeds): attained_level(seeds) for seeds in asked.seeds},
        "seeds_needed": {str(arms): seeds_needed(LEVEL, share=share_of_level(arms)) for arms in range(2, 13)},
        "versions": {"wordorder": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "python": platform.python_version(),
    }
    if "level" in asked.sections:
        record["band"] = band(LEVEL, asked.sets)
        record["false_claims"] = level_rows(asked.sets, asked.seeds)
    if "power" in asked.sections:
        record["power"] = power_rows(max(1, asked.sets // 5), [seeds for seeds in asked.seeds if seeds > 3])
    if "coverage" in asked.sections:
        record["coverage"] = coverage_rows(asked.sets)
    if "lost" in asked.sections:
        record["lost"] = lost_rows(max(1, 2 * asked.sets // 5), [8, 10, 12])
    if "looks" in asked.sections:
        record["looks"] = look_rows(10 * asked.sets)
    if "welch" in asked.sections:
        record["welch"], record["welch_power"] = welch_rows(asked.sets)
    if "texts" in asked.sections:
        record["texts"] = text_rows(asked.sets)
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
