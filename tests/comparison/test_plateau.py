"""Ends of validation curves, and rates at the edge of those that were tried."""

import pytest
from comparison_example import read

from wordorder.comparison.statistics.curves import end_of_curve, mean_end, rate_at_edge


def line(start: float, slope: float, *, steps: range) -> list[tuple[int, float]]:
    return [(step, start + slope * step) for step in steps]


def test_the_fall_of_a_straight_curve_is_that_of_its_last_tenth():
    end = end_of_curve(line(3.0, -0.01, steps=range(5, 101, 5)))
    assert end is not None
    assert (end.loss, end.fall) == (pytest.approx(2.0), pytest.approx(0.1))
    assert end.still_falling


def test_only_points_from_nine_tenths_of_the_steps_on_count():
    early = line(9.0, -0.08, steps=range(10, 90, 10))
    end = end_of_curve([*early, (90, 2.0), (95, 2.03), (100, 1.97)])
    # least squares through (-5, 2.00), (0, 2.03), (5, 1.97): slope -0.003, mean 2.0
    assert end is not None
    assert (end.loss, end.fall) == (pytest.approx(1.985), pytest.approx(0.03))


def test_a_curve_of_few_evaluations_is_judged_by_its_last_two():
    end = end_of_curve([(80, 2.0), (20, 5.0), (100, 1.9), (40, None)])
    assert end is not None
    assert (end.loss, end.fall) == (pytest.approx(1.9), pytest.approx(0.05))  # 0.1 over a fifth of the steps


@pytest.mark.parametrize("curve", [[], [(100, 2.0)], [(50, None), (100, 2.0)], [(100, 2.0), (100, 1.0)]])
def test_a_single_point_has_no_slope(curve):
    assert end_of_curve(curve) is None


@pytest.mark.parametrize(
    ("before", "last", "falling"),
    [
        (2.00, 1.979, True),  # 0.021 is more than a hundredth of 1.979
        (2.00, 1.981, False),
        (2.00, 2.30, False),
        (0.0100, 0.0091, False),  # a tenth of the loss of a solved task, but less than 0.001
        (0.0100, 0.0089, True),
    ],
)
def test_a_curve_falls_from_one_percent_of_the_loss_on(before, last, falling):
    end = end_of_curve([(10, 9.0), (90, before), (100, last)])
    assert end is not None
    assert end.fall == pytest.approx(before - last)
    assert end.still_falling == falling


def test_runs_are_averaged_and_those_without_a_curve_left_out():
    end = mean_end([line(3.0, -0.01, steps=range(50, 101, 10)), line(2.0, 0.0, steps=range(50, 101, 10)), ()])
    assert end is not None
    assert (end.loss, end.fall) == (pytest.approx(2.0), pytest.approx(0.05))
    assert mean_end([(), [(1, 2.0)]]) is None


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
