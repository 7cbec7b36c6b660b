import math

import pytest
from comparison_example import example_results, read

from wordorder.comparison.statistics.curves import first_step_at, steps_to_loss

FALLING = [(10, 4.0), (20, 3.0), (30, 1.0), (40, 2.0)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (3.0, (20.0, 10)),
        (2.0, (25.0, 10)),  # halfway from 3 at 20 to 1 at 30
        (3.25, (17.5, 10)),
        (1.0, (30.0, 10)),
        (4.5, (10, 10)),  # there already when first looked at
        (0.9, (math.inf, 0.0)),
    ],
)
def test_the_first_crossing_is_found_between_two_points(target, expected):
    assert first_step_at(FALLING, target) == expected


def results_of(curves, **more):
    """One list of curves per arm, a seed each; the points are 10 steps apart."""
    rows = [
        {"arm": arm, "seed": seed, "curve": [[10 * (n + 1), loss] for n, loss in enumerate(losses)]}
        for arm, seeds in curves.items()
        for seed, losses in enumerate(seeds)
    ]
    return {"rows": rows, "arms": [{"name": arm} for arm in curves], **more}


def test_steps_are_paired_by_seed_and_their_median_is_told():
    results = results_of(
        {
            "rope": [[4, 3, 2, 1.0], [4, 3, 2.0, 2.5], [4, 3, 2, 1.0]],
            "tupe-a": [[4, 1, 1, 1], [4, 2, 1, 1], [4, 3, 2, 0.5]],
        }
    )
    (entry,) = steps_to_loss(read(results))
    assert entry.as_json() == {
        "arm": "tupe-a",
        "baseline": "rope",
        "target": 1.0,  # each seed has its own: 1, 2 (the best, not the last) and 1
        "baseline_steps": 40,
        "steps": 20.0,  # of 20, 20 and 36 2/3
        "low": 20.0,
        "high": pytest.approx(30 + 10 * (1 / 1.5)),
        "share": pytest.approx(2 / 3),  # of 20/40, 20/30 and 0.92
        "n": 3,
        "reached": 3,
        "resolution": 10,
    }


def test_an_arm_that_never_gets_there_has_no_steps():
    slow = results_of({"rope": [[2, 1]] * 3, "none": [[3, 2], [3, 1.5], [3, 0.5]]})
    (entry,) = steps_to_loss(read(slow))
    assert (entry.steps, entry.share, entry.low, entry.high) == (None, None, 18.0, None)
    assert (entry.reached, entry.n) == (1, 3)


def test_the_named_baseline_is_the_measure_and_only_common_seeds_count():
    curves = {"rope": [[3, 2]] * 2, "tupe-a": [[3, 1]] * 3, "none": [[3, 3]]}
    entries = steps_to_loss(read(results_of(curves, baseline="tupe-a")))
    assert [(entry.arm, entry.baseline, entry.n) for entry in entries] == [
        ("rope", "tupe-a", 2),
        ("none", "tupe-a", 1),
    ]


def test_without_curves_or_baseline_there_is_nothing_to_tell():
    assert steps_to_loss(read(results_of({"rope": [[]], "none": [[2.0]]}))) == ()
    assert steps_to_loss(read(results_of({"rope": [[2.0]]}, baseline="none"))) == ()
    assert steps_to_loss(read({"rows": [], "arms": []})) == ()
    missing = results_of({"rope": [[None, 2.0]], "none": [[2.0, None]]})
    assert [entry.steps for entry in steps_to_loss(read(missing))] == [10]


def test_folds_are_paired_too():
    results = results_of({"rope": [[3, 2]], "none": [[3, 1]]})
    results["rows"] = [row | {"fold": fold} for fold in range(2) for row in results["rows"]]
    assert [entry.n for entry in steps_to_loss(read(results))] == [2]


def test_the_entry_says_how_fine_the_curves_are():
    entry = steps_to_loss(read(example_results({"none": 300.0, "tupe-r": 30.0})))[0]
    assert (entry.resolution, entry.n) == (50, 3)
