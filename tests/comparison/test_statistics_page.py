"""docs/statistics.md holds the package's own rule and what was measured, and nothing that was typed by hand."""

import importlib.util
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]


def test_tables_are_those_of_the_rule_and_the_committed_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "evidence" / "publish")  # as if it had been run from there
    spec = importlib.util.spec_from_file_location(
        "publish_statistics", ROOT / "evidence" / "publish" / "publish_statistics.py"
    )
    assert spec is not None
    assert spec.loader is not None
    publish = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(publish)
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    for name, table in publish.tables().items():
        assert f"<!-- {name}-table -->" in text
        assert publish.put(text, name, table) == text


def test_the_simulation_keeps_the_level():
    import json

    record = json.loads((ROOT / "evidence" / "results" / "false_positives.json").read_text(encoding="utf-8"))
    rows = [row for row in record["false_claims"] if row["noise"] != "one skewed"]  # which breaks the assumption
    assert {row["sets"] for row in rows} == {1000}
    for row in rows:
        worst = max(row["closed"], row["baseline"])
        assert worst <= record["band"][1], row
        assert row["seeds"] > 3 or worst == 0


def test_lost_runs_keep_the_level_and_repeated_looks_do_not():
    import json

    record = json.loads((ROOT / "evidence" / "results" / "false_positives.json").read_text(encoding="utf-8"))
    sets = record["lost"][0]["sets"]
    assert max(row["used"] for row in record["lost"]) <= stats.binom.ppf(0.995, sets, record["level"]) / sets
    assert max(row["without"] for row in record["lost"]) > 2 * record["level"]
    assert record["looks"][0]["claimed"] > 2 * record["level"]


def test_claims_under_a_model_and_on_new_texts_keep_the_level():
    import json

    record = json.loads((ROOT / "evidence" / "results" / "false_positives.json").read_text(encoding="utf-8"))
    welch = [row for row in record["welch"] if row["noise"] != "one skewed"]  # the page says that it does not hold
    texts = [row for row in record["texts"] if row["noise"] != "skewed alone"]
    for rows, methods in ((welch, ("claimed", "same")), (texts, ("new_texts", "both"))):
        shares = [row[method] for row in rows for method in methods if method in row]
        # the band of the largest of so many shares
        most = stats.binom.ppf(1 - 0.005 / len(shares), rows[0]["sets"], record["level"]) / rows[0]["sets"]
        assert max(shares) <= most
    assert max(row["claimed"] for row in record["welch"]) > most
    assert max(row["bootstrap"] for row in texts) > 2 * record["level"]
