"""Whether training was long enough, and rates at the edge of those that were tried."""

from pathlib import Path

import pytest
from comparison_example import read

from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.results_file import read_results
from wordorder.comparison.statistics.curves import finished, rate_at_edge

RESULTS = Path(__file__).parents[2] / "evidence" / "results"


def trained(curve, *, tokens=2_000_000, text=1_000_000, parameters=50_000, **more):
    """Results of one arm with one run that has this curve, on a text of so many tokens."""
    row = {"arm": "rope", "seed": 0, "curve": curve, "steps": 100, "tokens_per_second": tokens, "train_seconds": 1}
    arm = {"name": "rope", "parameters": {"total": parameters}}
    content = {"task": "causal-lm", "rows": [row], "arms": [arm], "data": {"train": {"tokens": text}}, **more}
    return finished(read(content), "rope")


def decaying(fall, end=100):
    """A curve that loses this share of its loss per tenth of the steps until 75%, and nothing after."""
    return [(step, 2.0 * (1 - fall * min(step, 0.75 * end) / (0.1 * end))) for step in range(0, end + 1, 5)]


def test_the_fall_is_measured_before_the_rate_has_decayed():
    found = trained(decaying(0.03))
    half, three_quarters = 2 * (1 - 0.03 * 5), 2 * (1 - 0.03 * 7.5)
    assert found.fall == pytest.approx((half - three_quarters) / half / 2.5)
    assert found.state == "still improving"  # though the last quarter is flat
    assert (found.passes, found.tokens_per_parameter) == (2, 40)


@pytest.mark.parametrize(
    ("curve", "state"),
    [
        (decaying(0.001), "unknown"),
        (decaying(0.015), "unknown"),
        (decaying(0.025), "still improving"),
        ([(step, 0.001 * loss) for step, loss in decaying(0.05)], "unknown"),  # a solved task
        ([(20, 3.0), (40, 2.5), (60, 2.2), (80, 2.0), (100, 1.95)], "still improving"),  # as init evaluates
        ([(80, 3.0), (100, 1.0)], "unknown"),
        ([(50, None), (100, 2.0)], "unknown"),
        ([], "unknown"),
    ],
)
def test_a_curve_is_still_improving_from_two_percent_on(curve, state):
    assert trained(curve).state == state


@pytest.mark.parametrize(
    ("tokens", "parameters", "state"),
    [(900_000, 50_000, "hardly begun"), (900_000, 40_000, "unknown"), (1_100_000, 90_000, "unknown")],
)
def test_less_than_one_pass_has_hardly_begun_but_for_small_networks(tokens, parameters, state):
    assert trained(decaying(0.001), tokens=tokens, parameters=parameters).state == state


def test_passes_of_examples_are_those_of_the_batches():
    more = {"data": {"train": {"tokens": 9, "segments": 640}}, "task": "classification"}
    training = {"batch_size": 64}
    assert trained([], **more, recipe={"training": training}).passes == 10
    assert trained([], **more).passes is None


def test_a_text_that_is_generated_has_no_passes():
    assert trained([], recipe={"data": {"source": "task:recall"}}).passes is None


@pytest.mark.parametrize(("name", "but"), [("compare-clm", ()), ("demo-early", ()), ("demo-long", ("none",))])
def test_committed_trainings_that_had_hardly_begun_or_still_improve_are_called_so(name, but):
    """The slope of their last tenth is below 1% for all of compare-clm, whose rate decays to 0."""
    results = read_results(RESULTS / f"{name}.json")
    states = {arm.name: finished(results, arm.name).state for arm in results.arms}
    assert {arm for arm, state in states.items() if state == "unknown"} == set(but)
    assert "over the training text" in verdict(results).caveat
    assert "need not be after longer training" in verdict(results).caveat


def test_five_hundred_steps_on_a_million_letters_are_unfinished():
    """500 steps of 32 x 64 letters of 979,372: 1.2 passes; the middle of the curve is that of a committed decoder."""
    (row, *_) = (row for row in read_results(RESULTS / "compare-clm.json").rows if row.arm == "rope")
    curve = [(step * 500 / 400, loss) for step, loss in row.curve]
    found = trained(curve, tokens=500 * 32 * 64, text=int(0.9 * 979_372))
    assert found.passes == pytest.approx(1.2, abs=0.05)
    assert found.state == "still improving"


def results_of(rate, *, tuning=(), grid=()):
    tuned = [
        {"arm": arm, "learning_rate": tried, "status": "failed"}
        | ({"status": "finished", "loss": loss} if loss else {})
        for arm, tried, loss in tuning
    ]
    grids = [{"arm": "rope", "learning_rate": tried, "chosen": chosen} for tried, chosen in grid]
    return read({"arms": [{"name": "rope", "learning_rate": rate}], "tuning": tuned, "grid": grids})


@pytest.mark.parametrize(("rate", "edge"), [(0.001, True), (0.002, False), (0.004, True)])
def test_the_lowest_and_the_highest_rate_of_the_arm_are_edges(rate, edge):
    tuning = [("rope", tried, 1.0) for tried in (0.004, 0.001, 0.002)] + [("t5", 0.008, 1.0), ("t5", 0.0005, 1.0)]
    assert rate_at_edge(results_of(rate, tuning=tuning), "rope") is edge


def test_a_rate_that_diverged_was_tried():
    tuning = [("rope", 0.001, 1.0), ("rope", 0.002, 0.9), ("rope", 0.004, None)]
    assert rate_at_edge(results_of(0.002, tuning=tuning), "rope") is False


def test_a_grid_says_itself_which_rate_it_chose():
    grid = [(0.001, False), (0.002, False), (0.004, True)]
    assert rate_at_edge(results_of(0.002, grid=grid), "rope") is True


def test_nothing_is_said_of_a_rate_that_was_not_searched_for():
    assert rate_at_edge(results_of(0.002), "rope") is None
    assert rate_at_edge(results_of(0.002, tuning=[("rope", 0.002, 1.0)] * 2), "rope") is None


@pytest.mark.parametrize(("factor", "edge"), [(1, True), (4, False), (16, True)])
def test_the_rate_of_the_encoding_has_edges_too(factor, edge):
    trial = {"arm": "t5", "learning_rate": 0.002, "status": "finished", "loss": 1.0}
    tuning = [{**trial, "encoding_learning_rate": tried} for tried in (1, 4, 16)]
    arm = {"name": "t5", "learning_rate": 0.002, "encoding_learning_rate": factor}
    assert rate_at_edge(read({"arms": [arm], "tuning": tuning}), "t5") is edge
