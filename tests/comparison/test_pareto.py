import random

import pytest
from comparison_example import read
from report_example import full_results

from wordorder.comparison.costs import COSTS, Point, costs_known, front_of, pareto_front


def points(**places):
    return [Point(name=name, cost=cost, quality=quality) for name, (cost, quality) in places.items()]


def test_the_front_is_what_nothing_else_beats_in_both():
    front = pareto_front(points(dear=(9, 1.0), cheap=(1, 5.0), middle=(4, 2.0), bad=(5, 3.0)), more_is_better=False)
    assert front.on == ("cheap", "middle", "dear")
    assert front.behind == (("bad", "middle"),)
    assert front.words == "On the Pareto front: cheap, middle and dear. Behind it: bad (beaten by middle)."


@pytest.mark.parametrize("more_is_better", [False, True])
@pytest.mark.parametrize("more_cost_is_better", [False, True])
def test_directions(more_is_better, more_cost_is_better):
    corners = {f"{cost} {quality}": (cost, quality) for cost in (1, 2) for quality in (1, 2)}
    front = pareto_front(points(**corners), more_is_better=more_is_better, more_cost_is_better=more_cost_is_better)
    assert front.on == (f"{1 + more_cost_is_better} {1 + more_is_better}",)
    assert len(front.behind) == 3


def test_ties():
    front = pareto_front(points(a=(1, 2.0), b=(1, 2.0), c=(1, 3.0), d=(2, 2.0)), more_is_better=False)
    assert front.on == ("a", "b")
    assert {name for name, _ in front.behind} == {"c", "d"}


def test_missing_values_are_named_and_beat_nobody():
    front = pareto_front(points(a=(1, 2.0), b=(None, 1.0), c=(0, None)), more_is_better=False)
    assert (front.on, front.behind, front.unknown) == (("a",), (), ("b", "c"))
    assert front.words.endswith("Not known: b and c.")
    assert pareto_front([], more_is_better=True).words == "No arm has both numbers."


def test_every_point_is_on_the_front_or_beaten_by_one_that_is():
    chance = random.Random(0)
    for _ in range(50):
        drawn = {str(n): (chance.randrange(6), chance.randrange(6)) for n in range(8)}
        front = pareto_front(points(**drawn), more_is_better=False)
        assert sorted(front.on + tuple(name for name, _ in front.behind)) == sorted(drawn)
        for name, by in front.behind:
            assert by in front.on
            assert drawn[by] != drawn[name]
            assert all(b <= a for a, b in zip(drawn[name], drawn[by], strict=True))
        for one in front.on:
            assert not any(
                drawn[other] != drawn[one] and all(o <= m for o, m in zip(drawn[other], drawn[one], strict=True))
                for other in drawn
            )


def test_costs_have_their_units_and_direction():
    results = full_results({"rope": 40.0, "tupe-r": 30.0}, seeds=3)
    by_key = {cost.key: cost for cost in COSTS}
    entry, arm = read(results).summary[0], read(results).arms[0]
    assert by_key["parameters"].value(entry, arm) == pytest.approx(1.02)
    memory = entry.columns["peak_memory_bytes"].median
    assert by_key["peak_memory_bytes"].value(entry, arm) == pytest.approx(memory / 2**20)
    assert front_of(read(results), by_key["parameters"]).on == ("rope", "tupe-r")
    for row in results["summary"]:  # rope better, and the slower one
        row["perplexity"]["mean"] = 20.0 if row["arm"] == "rope" else 30.0
        row["tokens_per_second"]["median"] = 10.0 if row["arm"] == "rope" else 20.0
        row["train_seconds"]["median"] = 20.0
    assert front_of(read(results), by_key["tokens_per_second"]).on == (
        "tupe-r",
        "rope",
    )  # the cheapest first: the fastest
    assert front_of(read(results), by_key["train_seconds"]).on == ("rope",)
    for row in results["summary"]:
        row.pop("train_seconds")
    assert "train_seconds" not in {cost.key for cost in costs_known(read(results))}
