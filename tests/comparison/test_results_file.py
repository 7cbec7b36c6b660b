"""results.json as a typed value: what is read is written again, and what is wrong is said line by line."""

import json
import time
from pathlib import Path

import pytest
from comparison_example import example_results
from report_example import full_results

from wordorder.comparison import read_results
from wordorder.comparison.results_file import SCHEMA, Results, Row, parse_results
from wordorder.errors import BadInput

COMMITTED = Path(__file__).resolve().parents[2] / "evidence" / "results"


def committed():
    """Name -> content of every committed results file of a comparison."""
    for path in sorted(COMMITTED.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        for name, found in {path.stem: content, **content}.items():
            if isinstance(found, dict) and "schema" in found:
                yield name, found


@pytest.mark.parametrize(("name", "content"), [*committed(), ("made-up", full_results(seeds=3))])
def test_a_file_is_written_again_as_it_was_read(name, content):
    text = json.dumps(content, sort_keys=True)  # integers as integers
    assert json.dumps(parse_results(json.loads(text), name=name).as_json(), sort_keys=True) == text


def test_every_committed_comparison_is_read():
    comparisons = {path.stem for path in (*COMMITTED.glob("decision/*.json"), *COMMITTED.glob("memory-*.json"))}
    comparisons -= {"memory-step"}  # it times steps
    assert comparisons >= {"even_pairs_64", "even_pairs_128", "memory-brackets", "memory-wikitext"}
    assert comparisons | {"demo", "demo-long", "order-binding", "tupe-64x2"} <= set(dict(committed()))


def test_all_faults_are_said_at_once_each_with_its_place():
    content = example_results({"rope": 40.0, "t5": 50.0})
    content["rows"][3] |= {"seed": "one", "steps": 2.5}
    content["rows"][0]["curve"][2] = [100, "low"]
    content["summary"][1]["perplexity"]["mean"] = [1]
    content["budget"] = {"arms": {"t5": {"value": True}}}
    content["recipe"]["training"]["threads"] = {"x": 1}
    del content["task"]
    with pytest.raises(BadInput) as refused:
        parse_results(content, name="runs/x/results.json")
    assert set(refused.value.faults) == {
        "runs/x/results.json: recipe.training: threads must be of type int, got {'x': 1}",
        "runs/x/results.json: task: is missing",
        "runs/x/results.json: rows[0].curve[2][1]: should be a number, got 'low'",
        "runs/x/results.json: rows[3].seed: should be a valid integer, got 'one'",
        "runs/x/results.json: rows[3].steps: should be a valid integer, got 2.5",
        "runs/x/results.json: summary[1].perplexity.mean: should be a number, got [1]",
        "runs/x/results.json: budget.arms.t5.value: should be a number, got True",
    }


@pytest.mark.parametrize("content", [[], "text", None, 3])
def test_what_is_no_object_is_no_results_file(content):
    with pytest.raises(BadInput, match=r"^results\.json: the file: should be"):
        parse_results(content)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for text in ("{", "\x00", '{"a": '):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(BadInput, match=r"results\.json: cannot be read: "):
            read_results(tmp_path / "results.json")
    with pytest.raises(BadInput, match="cannot be read: "):
        read_results(tmp_path / "nowhere.json")


def test_a_path_may_be_a_string(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(example_results({"rope": 40.0})))
    assert read_results(str(path)) == read_results(path)
    with pytest.raises(BadInput, match="cannot be read: "):
        read_results(str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"energy": 3}, "energy: is no key of a results file"),
        ({"version": 1}, "version: is no key of a results file"),
        ({"schema": SCHEMA + 1}, f"schema: should be {SCHEMA}, got {SCHEMA + 1}"),
    ],
)
def test_an_unknown_key_or_schema_is_refused(changes, fault):
    with pytest.raises(BadInput, match=fault):
        parse_results(example_results({"rope": 40.0}) | changes)


def test_a_value_is_frozen_and_its_copy_has_what_was_changed():
    row = Row(arm="a", seed=0, bleu=3)
    with pytest.raises(ValueError, match="frozen"):
        row.seed = 1
    assert row.having(bleu=4.5, fold=2).as_json() == {"arm": "a", "seed": 0, "bleu": 4.5, "fold": 2}
    assert (row.score("bleu"), row.score("seed"), row.score("arm"), row.score("model")) == (3, 0, None, None)


def test_a_large_comparison_is_read_at_once():
    content = example_results({f"arm{n}": 40.0 + n for n in range(12)}, seeds=5)
    for row in content["rows"]:
        row["curve"] = [[step, 2.5] for step in range(1, 301)]
    assert len(content["rows"]) == 60
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        assert isinstance(parse_results(content), Results)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.1


def test_what_is_no_object_is_said_in_words_of_json():
    with pytest.raises(BadInput, match=r"results\.json: the file: should be an object, got \[\]"):
        parse_results([])
