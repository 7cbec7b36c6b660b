"""How often the comparison's statistics claim a difference that is not there, and how often one that is.

Sets of scores are drawn, arms by seeds, and judged by `compare_seeds`, which `wordorder compare` uses; the first of
each kind go through `compare_arms` itself as results files, and both must agree. No network is trained
(false_positives_trained.py does that). One thread; 300 sets take some six minutes:

    OMP_NUM_THREADS=1 python evidence/false_positives.py --sets 300 --json evidence/results/false_positives.json

Sections: ``level``: the share of sets in which any arm is called different from one that it is equal to, by kind of
noise, the largest over numbers of arms and over all pairs and pairs with a baseline; ``before`` is Welch's test with
Holm's correction. ``power``: the share of the first arm's pairs (``ahead``), of best against second (``spaced``,
``wild``) or of all pairs (``unequal``) that is called different. ``same``: how often two arms are called the same whose
difference is the margin. ``lost``: false claims where runs diverge, a lost run being the worst of all. ``folds``: the
same as ``level`` where arms share folds. ``looks``: false claims where seeds are added one at a time until one appears.
``texts``: false and right claims of the tests on new texts, by kind of noise of the units, with seed effects, unit
effects of each arm and their interaction; besides the ways that were not taken, a t test of units and the bootstrap of
seeds and units.
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
from wordorder.comparison.statistics.claims import on_new_texts, retrained_on_new_texts
from wordorder.comparison.statistics.seeds import SeedTest, compare_folds, compare_seeds
from wordorder.comparison.statistics.significance import compare_arms

LEVEL = 0.05
MARGIN = 1.0
SECTIONS = ["level", "power", "same", "lost", "folds", "looks", "texts"]
SEEDS, ARMS = (3, 4, 5, 6, 8), (2, 4, 8)
CHECKED = 2
"""Sets of each kind that are judged by `compare_arms` too."""
Scores = np.ndarray
Draw = Callable[[np.random.Generator, int, int], Scores]


def bimodal(chance: np.random.Generator, arms: int, seeds: int, share: float = 0.5, gap: float = 8.0) -> Scores:
    """Runs that learn with a probability, or do not."""
    return gap * (chance.random((arms, seeds)) < share) + 0.3 * chance.normal(size=(arms, seeds))


def with_bimodal(chance: np.random.Generator, arms: int, seeds: int, count: int) -> Scores:
    """The first arms learn or do not, the others are tight and far from them; each is equal to those of its kind."""
    scores = 100 + 0.3 * chance.normal(size=(arms, seeds))
    scores[:count] = bimodal(chance, min(count, arms), seeds)
    return scores


def spreads(first: float) -> Draw:
    """Normal runs, the first arm's with another standard deviation."""
    return lambda chance, arms, seeds: chance.normal(size=(arms, seeds)) * np.r_[first, np.ones(arms - 1)][:, None]


def outliers(chance: np.random.Generator, arms: int, seeds: int) -> Scores:
    """Normal runs of which a tenth go ten times as far."""
    return chance.normal(size=(arms, seeds)) * np.where(chance.random((arms, seeds)) < 0.1, 10, 1)


NOISE: dict[str, Draw] = {
    "normal": lambda chance, arms, seeds: chance.normal(size=(arms, seeds)),
    "one arm's sd x5": spreads(5),
    "one arm's sd /5": spreads(1 / 5),
    "sds from 1 to 20": lambda chance, arms, seeds: (
        chance.normal(size=(arms, seeds)) * np.geomspace(1, 20, arms)[:, None]
    ),
    "t with 2 degrees": lambda chance, arms, seeds: chance.standard_t(2, size=(arms, seeds)),
    "lognormal": lambda chance, arms, seeds: chance.lognormal(size=(arms, seeds)),
    "rounded": lambda chance, arms, seeds: np.round(chance.normal(size=(arms, seeds))),
    "shared seeds": lambda chance, arms, seeds: chance.normal(size=seeds) + chance.normal(size=(arms, seeds)),
    "outliers": outliers,
    "bimodal .1": lambda chance, arms, seeds: bimodal(chance, arms, seeds, 0.1),
    "bimodal .3": lambda chance, arms, seeds: bimodal(chance, arms, seeds, 0.3),
    "bimodal .5": bimodal,
    "3 arms bimodal": lambda chance, arms, seeds: with_bimodal(chance, arms, seeds, 3),
    "equal two by two, bimodal": lambda chance, arms, seeds: (
        bimodal(chance, arms, seeds) + 100 * (np.arange(arms) // 2)[:, None]
    ),
}
FOURTEEN = ("normal", "bimodal .5")
"""Kinds of noise that are simulated for 14 arms too."""


def equal(kind: str, one: int, other: int) -> bool:
    """Tell whether two arms have one distribution, or one mean of normal runs."""
    if kind == "3 arms bimodal":
        return (one < 3) == (other < 3)
    return one // 2 == other // 2 if kind.startswith("equal two") else True


def named(scores: Scores) -> dict[str, list[float]]:
    """Arm -> scores of its runs."""
    return {str(arm): values for arm, values in enumerate(scores.tolist())}


def pairs_of(arms: int, *, baseline: bool) -> list[tuple[str, str]]:
    """All pairs, or those with the first arm."""
    return [(str(one), str(other)) for other, one in combinations(range(arms), 2) if not baseline or other == 0]


def judged(scores: Scores, *, baseline: bool = False) -> dict[tuple[str, str], SeedTest]:
    """What the package finds."""
    return compare_seeds(named(scores), pairs_of(len(scores), baseline=baseline), level=LEVEL, margin=MARGIN)


def claims(scores: Scores, *, baseline: bool = False) -> set[tuple[int, int]]:
    """The pairs of arms that are called different."""
    found = judged(scores, baseline=baseline)
    return {(int(one), int(other)) for (one, other), test in found.items() if test.p_adjusted <= LEVEL}


def welch_claims(scores: Scores, *, baseline: bool = False) -> set[tuple[int, int]]:
    """The same by Welch's test with Holm's correction, which was used before."""
    arms, seeds = scores.shape
    mean, part = scores.mean(axis=1), scores.var(axis=1, ddof=1) / seeds
    other, one = np.array([pair for pair in combinations(range(arms), 2) if not baseline or pair[0] == 0]).T
    squared = part[one] + part[other]
    degrees = (seeds - 1) * squared**2 / np.maximum(part[one] ** 2 + part[other] ** 2, 1e-300)
    p = 2 * stats.t.sf(np.abs(mean[one] - mean[other]) / np.sqrt(np.maximum(squared, 1e-300)), degrees)
    p[squared == 0] = 1
    order = np.argsort(p)
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return {(int(one[n]), int(other[n])) for n in order[corrected <= LEVEL]}


def results_of(scores: Scores, **more: Any) -> dict[str, Any]:
    """A results file with these scores, arms by seeds, as accuracies; NaN is a run that diverged."""
    rows = [
        {"arm": str(arm), "seed": seed, "accuracy": None if np.isnan(value) else float(value), "curve": []}
        for arm, values in enumerate(scores)
        for seed, value in enumerate(values)
    ]
    arms, seeds = scores.shape
    return {
        "name": "simulated",
        "task": "classification",
        "metric": "accuracy",
        "rows": rows,
        "arms": [{"name": str(arm)} for arm in range(arms)],
        "planned": {"arms": arms, "seeds": list(range(seeds)), "runs": len(rows)},
        "recipe": {"compare": more},
    }


def claims_of_file(scores: Scores, **more: Any) -> set[tuple[int, int]]:
    """The pairs that a results file with these scores is said to differ in."""
    comparisons = compare_arms(parse_results(results_of(scores, **more))).comparisons
    return {(int(e.arm), int(e.against)) for e in comparisons if e.outcome in ("better", "worse")}


def level_rows(sets: int) -> list[dict[str, Any]]:
    """False claims by kind of noise and number of seeds: the largest share over arms and families, and of 14 arms."""
    rows: list[dict[str, Any]] = []
    for number, (kind, draw) in enumerate(NOISE.items()):
        for seeds in SEEDS:
            shares: dict[int, tuple[float, float]] = {}
            for arms in (*ARMS, 14) if kind in FOURTEEN else ARMS:
                for baseline in (False, True) if 2 < arms < 14 else (False,):
                    chance, wrong = np.random.default_rng([number, arms, seeds, baseline]), np.zeros(2)
                    for repetition in range(sets):
                        scores = draw(chance, arms, seeds)
                        found = claims(scores, baseline=baseline), welch_claims(scores, baseline=baseline)
                        wrong += [any(equal(kind, *pair) for pair in pairs) for pairs in found]
                        if repetition < CHECKED:
                            assert found[0] == claims_of_file(scores, **({"baseline": "0"} if baseline else {}))
                    before, after = (float(count) / sets for count in wrong[::-1])
                    size = 14 if arms == 14 else 0
                    worst = shares.get(size, (0.0, 0.0))
                    shares[size] = max(worst[0], before), max(worst[1], after)
            for size, (before, after) in shares.items():
                name = f"{kind}, 14 arms" if size else kind
                rows.append({"noise": name, "seeds": seeds, "sets": sets, "before": before, "claimed": after})
    return rows


def ahead(chance: np.random.Generator, arms: int, seeds: int) -> Scores:
    """The first arm is 2 standard deviations ahead of all others, with three seeds 4."""
    return chance.normal(size=(arms, seeds)) + (4 if seeds == 3 else 2) * (np.arange(arms) == 0)[:, None]


def spaced(chance: np.random.Generator, arms: int, seeds: int) -> Scores:
    """Each arm is 2 standard deviations ahead of the next."""
    return chance.normal(size=(arms, seeds)) - 2 * np.arange(arms)[:, None]


def unequal(chance: np.random.Generator, arms: int, seeds: int) -> Scores:
    """Spreads are lognormal, means 4 of the median one apart."""
    return chance.normal(size=(arms, seeds)) * chance.lognormal(size=(arms, 1)) - 4 * np.arange(arms)[:, None]


def wild(chance: np.random.Generator, arms: int, seeds: int) -> Scores:
    """Spaced by 4 standard deviations, the last arm's being 20."""
    spread = np.where(np.arange(arms) == arms - 1, 20, 1)[:, None]
    return chance.normal(size=(arms, seeds)) * spread - 4 * np.arange(arms)[:, None]


POWER: tuple[tuple[str, Draw, tuple[int, ...], bool, Callable[[int], set[tuple[int, int]]]], ...] = (
    ("ahead", ahead, (2, 4, 8, 14), False, lambda arms: {(arm, 0) for arm in range(1, arms)}),
    ("ahead, baseline", ahead, (4, 8), True, lambda arms: {(arm, 0) for arm in range(1, arms)}),
    ("spaced", spaced, (2, 4, 8), False, lambda arms: {(1, 0)}),
    ("unequal", unequal, (4, 8), False, lambda arms: {(one, other) for other, one in combinations(range(arms), 2)}),
    ("wild", wild, (4, 8), False, lambda arms: {(1, 0)}),
)
"""Name, scores, numbers of arms, whether a baseline is named, and the pairs that differ and are counted."""


def power_rows(sets: int) -> list[dict[str, Any]]:
    """Right claims by means, number of arms and seeds."""
    rows: list[dict[str, Any]] = []
    for number, (kind, draw, several, baseline, counted) in enumerate(POWER):
        for arms, seeds in [(arms, seeds) for arms in several for seeds in SEEDS]:
            chance, right, pairs = np.random.default_rng([number, arms, seeds]), np.zeros(2), counted(arms)
            for _ in range(sets):
                scores = draw(chance, arms, seeds)
                found = claims(scores, baseline=baseline), welch_claims(scores, baseline=baseline)
                right += [len(of_test & pairs) / len(pairs) for of_test in found]
            row = {"means": kind, "arms": arms, "seeds": seeds, "sets": sets}
            rows.append({**row, "before": float(right[1]) / sets, "claimed": float(right[0]) / sets})
    return rows


def same_rows(sets: int) -> list[dict[str, Any]]:
    """How often two arms are called the same whose difference is the margin, by noise, its size and seeds."""
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(("normal", "one arm's sd /5", "t with 2 degrees", "lognormal", "rounded")):
        for size, seeds in [(size, seeds) for size in (0.2, 0.5, 1.0) for seeds in (3, 5, 8)]:
            chance, wrong = np.random.default_rng([number, seeds, int(10 * size)]), 0
            for _ in range(sets):
                scores = size * NOISE[kind](chance, 2, seeds) + MARGIN * np.arange(2)[:, None]
                test = judged(scores)["1", "0"]
                wrong += test.p_same is not None and test.p_same <= LEVEL
            rows.append({"noise": kind, "size": size, "seeds": seeds, "sets": sets, "claimed": wrong / sets})
    return rows


def lost_rows(sets: int) -> list[dict[str, Any]]:
    """False claims where runs are lost: any run with probability 1/5, or the first arm's if in its worst third.

    Of the latter a false claim is that this arm is better. ``without`` is the share were lost runs left out.
    """
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(("any", "bad runs of one arm")):
        for arms, seeds in [(arms, seeds) for arms in (2, 4) for seeds in (5, 8)]:
            chance, wrong = np.random.default_rng([number, arms, seeds]), np.zeros(2)
            for _ in range(sets):
                scores = chance.normal(size=(arms, seeds))
                gone = chance.random((arms, seeds)) < 0.2 if kind == "any" else scores < stats.norm.ppf(1 / 3)
                gone[1:] &= kind == "any"
                left = {
                    str(arm): values[~lost].tolist()
                    for arm, (values, lost) in enumerate(zip(scores, gone, strict=True))
                }
                scores[gone] = np.nan
                comparisons = compare_arms(parse_results(results_of(scores))).comparisons
                used = [
                    (int(e.arm), int(e.against), e.difference) for e in comparisons if e.outcome in ("better", "worse")
                ]
                tests = compare_seeds(left, pairs_of(arms, baseline=False), level=LEVEL, margin=MARGIN)
                without = [(int(a), int(b), t.difference) for (a, b), t in tests.items() if t.p_adjusted <= LEVEL]
                for way, found in enumerate((used, without)):
                    wrong[way] += any(kind == "any" or (b == 0 and d < 0) for _, b, d in found)
            shares = {name: float(count) / sets for name, count in zip(("used", "without"), wrong, strict=True)}
            rows.append({"lost": kind, "arms": arms, "seeds": seeds, "sets": sets, **shares})
    return rows


def fold_rows(sets: int) -> list[dict[str, Any]]:
    """False claims where arms share folds, whose difficulty varies three times as much as a run."""
    rows: list[dict[str, Any]] = []
    for number, kind in enumerate(("normal", "one arm's sd x5", "lognormal", "outliers", "bimodal .5")):
        for arms, folds in [(arms, folds) for arms in ARMS for folds in (3, 5, 10)]:
            chance, wrong = np.random.default_rng([number, arms, folds]), 0
            for _ in range(sets):
                scores = NOISE[kind](chance, arms, folds) + 3 * chance.normal(size=folds)
                table = {arm: dict(enumerate(values)) for arm, values in named(scores).items()}
                tests = compare_folds(table, pairs_of(arms, baseline=False), level=LEVEL, margin=MARGIN)
                wrong += any(test.p_adjusted <= LEVEL for test in tests.values())
            rows.append({"noise": kind, "arms": arms, "seeds": folds, "sets": sets, "claimed": wrong / sets})
    return rows


def look_rows(sets: int) -> list[dict[str, Any]]:
    """False claims of two equal arms where seeds are added one at a time from three until a difference is claimed."""
    chance, first, last, wrong = np.random.default_rng(0), 3, 9, 0
    for _ in range(sets):
        scores = chance.normal(size=(2, last))
        wrong += any(claims(scores[:, :seeds]) for seeds in range(first, last + 1))
    return [{"first": first, "last": last, "sets": sets, "claimed": wrong / sets}]


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


def printed(title: str, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Print a table in percent, "before > after" by number of seeds; ``names`` make the name of a line."""
    if not rows:
        return
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        shares = [f"{100 * row[key]:.1f}" for key in ("before", "claimed") if key in row]
        lines.setdefault(", ".join(str(row[name]) for name in names), {})[row["seeds"]] = " > ".join(shares)
    several = sorted({row["seeds"] for row in rows})
    print(f"\n{title:34}", *(f"{f'n = {seeds}':>14}" for seeds in several))
    for name, cells in lines.items():
        print(f"{name:34}", *(f"{cells.get(seeds, ''):>14}" for seeds in several), flush=True)


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=300, help="simulated comparisons of each cell")
    parser.add_argument("--sections", nargs="+", default=SECTIONS, choices=SECTIONS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    record: dict[str, Any] = {}
    if asked.json and asked.json.exists():
        record = json.loads(asked.json.read_text())
    record |= {
        "level": LEVEL,
        "versions": {"wordorder": __version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "python": platform.python_version(),
    }
    if "level" in asked.sections:
        record["false_claims"] = level_rows(asked.sets)
        printed("false claims, %", record["false_claims"], ("noise",))
    if "power" in asked.sections:
        record["power"] = power_rows(asked.sets)
        printed("right claims, %", record["power"], ("means", "arms"))
    if "same" in asked.sections:
        record["same"] = same_rows(asked.sets)
        printed("the same at the margin, %", record["same"], ("noise", "size"))
    if "lost" in asked.sections:
        record["lost"] = lost_rows(max(1, asked.sets))
        print(*record["lost"], sep="\n", flush=True)
    if "folds" in asked.sections:
        record["folds"] = fold_rows(asked.sets)
        printed("false claims over folds, %", record["folds"], ("noise", "arms"))
    if "looks" in asked.sections:
        record["looks"] = look_rows(asked.sets)
        print(*record["looks"], sep="\n", flush=True)
    if "texts" in asked.sections:
        record["texts"] = text_rows(asked.sets)
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
