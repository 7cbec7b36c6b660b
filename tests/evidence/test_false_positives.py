"""The simulations of evidence/results: the tests that the package runs claim no more than their level allows."""

import json
from pathlib import Path

from scipy import stats

RESULTS = Path(__file__).resolve().parents[2] / "evidence" / "results"
RECORD = json.loads((RESULTS / "false_positives.json").read_text(encoding="utf-8"))


def most(sets: int, cells: int) -> float:
    """The largest of so many shares that chance gives where each truly is the level."""
    return float(stats.binom.ppf(1 - 0.005 / cells, sets, RECORD["level"])) / sets


def test_the_simulation_keeps_the_level():
    for rows, key in ((RECORD["false_claims"], "claimed"), (RECORD["same"], "claimed"), (RECORD["folds"], "claimed")):
        # each share of the level is the largest of up to five
        bound = most(rows[0]["sets"], 5 * len(rows))
        assert max(row[key] for row in rows) <= bound, max(rows, key=lambda row: row[key])


def test_three_runs_that_learn_or_do_not_are_held_too():
    few = {row["noise"]: row for row in RECORD["false_claims"] if row["seeds"] == 3}
    assert few["bimodal .5"]["before"] > 0.3
    assert few["bimodal .5"]["claimed"] <= most(few["bimodal .5"]["sets"], 5)


def test_power_grows_with_seeds():
    power = {(row["means"], row["arms"], row["seeds"]): row["claimed"] for row in RECORD["power"]}
    for arms in (2, 4, 8):
        assert power["spaced", arms, 3] < power["spaced", arms, 5] < power["spaced", arms, 8]


def test_lost_runs_keep_the_level_and_repeated_looks_do_not():
    rows = RECORD["lost"]
    assert max(row["used"] for row in rows) <= most(rows[0]["sets"], len(rows))
    assert RECORD["looks"][0]["claimed"] > 1.5 * RECORD["level"]


def test_claims_on_new_texts_keep_the_level():
    rows = [row for row in RECORD["texts"] if row["noise"] != "skewed alone"]  # the page says that it does not hold
    shares = [row[method] for row in rows for method in ("new_texts", "both")]
    assert max(shares) <= most(rows[0]["sets"], len(shares))
    assert max(row["bootstrap"] for row in rows) > 2 * RECORD["level"]
