"""Sentences, tables and intervals where runs diverged, were lost, or are too few to say who is best."""

import math
from pathlib import Path

import pytest
from comparison_example import compared, read, summarised

from wordorder.comparison.report.differences import in_percent
from wordorder.comparison.report.html import write_report
from wordorder.comparison.report.table import markdown_table
from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.results_file import parse_results, read_results
from wordorder.tasks.task import LARGEST_LOSS

DEMO = Path(__file__).parents[2] / "evidence" / "results" / "demo.json"


def made(scores, *, key="perplexity", baseline=None, statistic="mean"):
    """Results of arms with a score for each seed; None is a run that failed."""
    rows, failed = [], []
    for arm, own in scores.items():
        for seed, score in enumerate(own):
            if score is None:
                failed.append({"arm": arm, "seed": seed, "status": "failed", "stage": "seeds", "reason": "the loss"})
                continue
            loss = math.log(score) if key == "perplexity" else 0.5 + 0.01 * seed
            rows.append(
                {"arm": arm, "seed": seed, "loss": loss, key: score, "steps": 9, "curve": [[9, 1.0 + len(rows)]]}
            )
    compare = {"arms": [{"name": arm} for arm in scores]} | ({} if baseline is None else {"baseline": baseline})
    task = "masked-lm" if key == "perplexity" else "classification"
    seeds = max(map(len, scores.values()))
    content = {
        "schema": 1,
        "name": "made up",
        "task": task,
        "metric": key,
        "statistic": statistic,
        "complete": not failed,
        "waiting": 0,
        "planned": {"arms": len(scores), "seeds": list(range(seeds)), "runs": len(rows) + len(failed)},
        "recipe": {"data": {"source": "sotu"}, "task": {"name": task}, "model": {}, "training": {}, "compare": compare},
        "arms": [{"name": arm, "parameters": {"total": 1000}} for arm in scores],
        "rows": rows,
        "failed": failed,
        **({} if baseline is None else {"baseline": baseline}),
        "summary": summarised(rows),
    }
    return content | compared(content)


@pytest.mark.parametrize("loss", [50, 420, 690, 900])
def test_a_perplexity_that_diverged_is_reported(tmp_path, loss):
    content = read_results(DEMO).as_json()
    for row in content["rows"]:
        if row["arm"] == "none":
            row["loss"] = loss + row["seed"]
            row["perplexity"] = math.exp(min(row["loss"], LARGEST_LOSS))
    content["recipe"]["compare"]["baseline"] = "none"
    content |= {"baseline": "none", "summary": summarised(content["rows"])}
    content |= compared(content)
    write_report(parse_results(content), tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert max(len(word) for word in table.split() if word[0].isdigit()) < 30
    assert ("(none lost 3 of 3)" in table) == (loss == 900)
    assert "inf" not in table


def test_huge_percentages_have_an_exponent():
    assert in_percent(-3e20) == "\u22123e+20%"
    assert in_percent(2.5) == "2.5%"


def test_nobody_is_best_while_another_is_significantly_better():
    """The mean of the runs that are left flatters a model that lost some."""
    x = [30 + 0.01 * seed for seed in range(12)]
    found = verdict(read(made({"x": [*x, *[None] * 12], "z": [v + 0.5 for v in x] * 2, "r": [v + 90 for v in x] * 2})))
    assert found.best == "x"
    assert "is best" not in found.sentence
    assert "yet z (" in found.sentence
    assert "z is significantly better" in found.status


def test_a_lost_run_is_in_the_difference_and_its_interval():
    a = [30.0 + 0.1 * seed for seed in range(8)]
    content = made({"a": a, "b": [30.6, 29.9, 33.0, *[None] * 5]})
    (entry,) = content["comparisons"]
    logs = [math.log(score) for score in (30.6, 29.9, 33.0, *[33.0] * 5)]  # the worst of all
    assert entry["n"] == 8
    assert entry["difference"] == pytest.approx(sum(map(math.log, a)) / 8 - sum(logs) / 8)
    assert entry["low"] < entry["difference"] < entry["high"]
    assert ", p = " in markdown_table(read(content))


def test_a_pilot_of_one_seed_names_no_best():
    assert "has the lowest mean" in verdict(read(made({"a": [30.0], "b": [60.0]}))).sentence


def test_medians_that_overlap_name_no_best():
    near = made({"a": [0.8, 0.7, 0.9], "b": [0.79, 0.85, 0.6]}, key="accuracy", statistic="median")
    assert "has the highest median" in verdict(read(near)).sentence
    apart = made({"a": [0.8, 0.7, 0.9], "b": [0.5, 0.55, 0.6]}, key="accuracy", statistic="median")
    assert verdict(read(apart)).sentence.startswith("a is best: median")


def test_a_model_that_lost_more_runs_is_not_called_the_same():
    x = [30.0, 30.01, 29.99, 30.02, 29.98]
    same = verdict(read(made({"x": x, "y": [value + 0.01 for value in x]}))).status
    assert "The same within 1%" in same
    lost = verdict(read(made({"x": x, "y": [30.01, 30.02, 30.0, None, None]}))).status
    assert "same" not in lost


def test_a_baseline_without_a_run_is_compared_with_nobody():
    scores = {"a": [None] * 3, "b": [30.0, 30.2, 30.1], "c": [40.0, 40.1, 40.3]}
    content = made(scores, baseline="a")
    assert content["comparisons"] == []
    assert content["significance"]["family"] == "every other arm against the baseline a"
    found = verdict(read(content))
    assert "Not tested against c." in found.status
    assert "The baseline a lost all its runs, so that nothing was tested." in found.evidence


def test_stars_and_lines_of_names_are_no_markup_in_a_paragraph():
    content = made({"a": [30.0, None], "b": [31.0, 31.5]})
    content["recipe"]["data"]["source"] = "texts/*/*.txt"
    content["failed"][0]["reason"] = "Mine.__init__() got ~x~"
    table = markdown_table(read(content))
    assert "texts/&#42;/&#42;.txt" in table
    assert "Mine.&#95;&#95;init&#95;&#95;() got &#126;x&#126;" in table
