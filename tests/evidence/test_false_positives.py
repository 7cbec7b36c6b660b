"""The simulations of evidence/results: the tests that the package runs claim no more than their level allows."""

import json
from pathlib import Path

from scipy import stats

RESULTS = Path(__file__).resolve().parents[2] / "evidence" / "results"
RECORD = json.loads((RESULTS / "false_positives.json").read_text(encoding="utf-8"))


def test_the_simulation_keeps_the_level():
    rows = [row for row in RECORD["false_claims"] if row["noise"] != "one skewed"]  # which breaks the assumption
    assert {row["sets"] for row in rows} == {1000}
    for row in rows:
        worst = max(row["closed"], row["baseline"])
        assert worst <= RECORD["band"][1], row
        assert row["seeds"] > 3 or worst == 0


def test_lost_runs_keep_the_level_and_repeated_looks_do_not():
    sets = RECORD["lost"][0]["sets"]
    assert max(row["used"] for row in RECORD["lost"]) <= stats.binom.ppf(0.995, sets, RECORD["level"]) / sets
    assert max(row["without"] for row in RECORD["lost"]) > 2 * RECORD["level"]
    assert RECORD["looks"][0]["claimed"] > 2 * RECORD["level"]


def test_claims_under_a_model_and_on_new_texts_keep_the_level():
    welch = [row for row in RECORD["welch"] if row["noise"] != "one skewed"]  # the page says that it does not hold
    texts = [row for row in RECORD["texts"] if row["noise"] != "skewed alone"]
    for rows, methods in ((welch, ("claimed", "same")), (texts, ("new_texts", "both"))):
        shares = [row[method] for row in rows for method in methods if method in row]
        # the band of the largest of so many shares
        most = stats.binom.ppf(1 - 0.005 / len(shares), rows[0]["sets"], RECORD["level"]) / rows[0]["sets"]
        assert max(shares) <= most
    assert max(row["claimed"] for row in RECORD["welch"]) > most
    assert max(row["bootstrap"] for row in texts) > 2 * RECORD["level"]
