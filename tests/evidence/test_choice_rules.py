"""The rules by which docs/choose.md recommends encodings, on made-up results."""

from dataclasses import replace

import pytest

from wordorder.comparison.results_file import Row, parse_results
from wordorder.comparison.statistics.summary import summarise


def comparison(seeds: int, scores: dict[str, float], *, spread: float = 0.001):
    """A results file of made-up perplexities: every seed moves all arms alike, and each arm a little by itself."""
    rows = [
        {"arm": arm, "seed": seed, "perplexity": score * (1 + 0.01 * seed + spread * ((7 * seed + len(arm)) % 5))}
        for arm, score in scores.items()
        for seed in range(seeds)
    ]
    arms = [{"name": arm, "encoding": arm} for arm in scores]
    recipe = {"compare": {}, "data": {}, "training": {}, "model": {}}
    planned = {"arms": len(arms), "seeds": list(range(seeds)), "runs": len(rows), "rates": []}
    results = {"arms": arms, "rows": rows, "recipe": recipe, "planned": planned, "task": "masked-lm", "name": "made up"}
    summary = [entry.as_json() for entry in summarise(Row.model_validate(row) for row in rows)]
    return {**results, "summary": summary, "failed": [], "metric": "perplexity"}


def test_none_is_named_that_stands_behind_one_that_is_surely_worse(script):
    standing = script("choice_rules").Standing(
        best="first",
        means={"first": 3.5, "second": 3.6, "steady": 3.64, "noisy": 3.7},
        significant={"second": False, "steady": True, "noisy": False},
        above_control=frozenset({"first", "second", "steady", "noisy"}),
        perplexity=True,
    )
    assert standing.beside == ["second"]


def test_the_best_model_is_recommended_with_those_near_it_that_are_not_significantly_worse(script):
    scores = {"none": 9.0, "first": 3.9, "second": 4.0, "thirds": 4.05, "fourth": 4.1, "far": 4.6, "worse": 4.3}
    found = script("choice_rules").standing_of(parse_results(comparison(8, scores, spread=0.02)))
    assert found.best == "first"
    assert found.beside == ["second", "thirds"], "at most two"
    assert replace(found, above_control=frozenset({"thirds"})).beside == ["thirds"]
    assert found.above_control == {*scores} - {"none"}
    assert found.significant["none"]
    assert found.significant["worse"]
    assert found.distance("far") == pytest.approx(0.18, abs=0.02)


@pytest.mark.parametrize(("seeds", "second", "significant"), [(8, 4.2, True), (3, 4.2, False), (3, 8.0, True)])
def test_few_seeds_are_compared_by_welchs_test(script, seeds: int, second: float, significant: bool):
    results = parse_results(comparison(seeds, {"none": 9.0, "first": 4.0, "second": second}, spread=0.02))
    assert script("choice_rules").standing_of(results).significant["second"] is significant


def test_welchs_tests_are_corrected_for_all_pairs(script):
    """The file tests pairs with its baseline alone; of the others the best model was chosen by the same scores."""
    scores = {"none": 9.0, "first": 4.0, "other": 4.2}
    for others, sure in ({}, True), ({f"m{'o' * size}re": 4.2 for size in range(7)}, False):
        results = comparison(5, scores | others, spread=0.005) | {"baseline": "none"}
        results["recipe"]["compare"]["baseline"] = "none"
        found = script("choice_rules").standing_of(parse_results(results))
        assert found.best == "first"
        assert found.significant["other"] is sure


def test_a_lost_run_is_refused(script):
    results = comparison(3, {"none": 9.0, "good": 4.0})
    results["rows"][-1]["perplexity"] = None
    with pytest.raises(ValueError, match="made up: a run of good has no score"):
        script("choice_rules").standing_of(parse_results(results))


def test_memories_are_named_by_their_flops(script):
    results = comparison(8, {"none": 9.0, "dear": 3.9, "cheap": 4.0}, spread=0.05)
    for arm, flops in zip(results["arms"], (1.0, 4.0, 2.0), strict=True):
        arm |= {"encoding": "rope", "flops_per_token": flops, "overrides": {"model.memory": arm["name"]}}
    found = script("choice_rules").standing_of(parse_results(results))
    assert (found.best, found.beside) == ("dear", ["cheap"])
    assert script("publish_choice").named_in(parse_results(results), found) == ["cheap", "dear"]


def test_fewer_than_three_seeds_recommend_nothing(script):
    assert script("choice_rules").standing_of(parse_results(comparison(2, {"none": 9.0, "good": 4.0}))) is None


def test_a_model_must_beat_the_control_to_be_recommended(script):
    rules = script("choice_rules")
    for score, beaten in ((4.0, True), (8.99, False), (12.0, False)):
        results = parse_results(comparison(8, {"none": 9.0, "other": score}, spread=0.05))
        assert rules.beats_control(results, rules.standing_of(results)) is beaten


def test_the_control_of_memories_is_the_model_without_one(script):
    results = comparison(8, {"rope": 5.0, "recurrence": 4.0})
    results["arms"][1]["overrides"] = {"model.memory": "transformer-xl"}
    results["recipe"]["compare"]["baseline"] = "recurrence"
    assert script("choice_rules").control_of(parse_results(results)) == "rope"


def test_longer_texts_are_judged_by_the_probe(script):
    probe = {
        **{"title": "Longer texts", "x": "tokens", "value": "perplexity", "higher_is_better": False},
        "x_kind": "number",
        "rows": [
            {"arm": arm, "group": "all tokens", "seed": seed, "x": x, "value": value + 0.01 * seed}
            for arm, values in {"none": (10.0, 12.0), "holds": (8.0, 8.4), "grows": (4.0, 20.0)}.items()
            for x, value in zip((64, 1024), values, strict=True)
            for seed in range(3)
        ],
        "skipped": [{"arm": "table", "reason": "longer than its table"}],
    }
    scores = {"none": 10.0, "holds": 8.0, "grows": 4.0, "table": 4.0}
    results = parse_results(comparison(3, scores) | {"probes": {"extrapolation": probe}})
    rules = script("choice_rules")
    assert rules.standing_of(results).best in ("grows", "table")
    longer = rules.standing_of(results, 16)
    assert (longer.best, longer.beside) == ("holds", [])
    assert longer.significant == {"none": True, "grows": True}
    assert rules.growth(results)["grows"] == pytest.approx(5, abs=0.01)
    assert rules.refusing(results) == ["table"]
