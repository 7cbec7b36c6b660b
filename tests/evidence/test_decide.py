"""Aggregates over tasks, against numbers computed by hand and by scipy, their coverage, and the table they stand in."""

import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "comparison"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "evidence"))

import decide
from comparison_example import example_results
from decide import (
    aggregate,
    cell_in_words,
    make_decision_table,
    markdown_decision_table,
    normalised,
    probability_of,
    ranks,
    stratified_p,
    win_probability,
)

LOST = -math.inf


def arms_of(*scores):
    return [np.array(own, dtype=float) for own in scores]


def aggregated(tasks):
    return aggregate(tasks, tasks, [f"arm {number}" for number in range(len(tasks[0]))])


def middle_of(*scores):
    """The interquartile mean of one arm with these runs on each task."""
    tasks = [arms_of(own, own) for own in scores]
    return aggregated(tasks).interquartile_mean[0].value


def test_a_tie_counts_half():
    assert win_probability(*arms_of([3, 1], [2, 1])) == 2.5 / 4
    assert win_probability(*arms_of([2, 1], [3, 1])) == 1.5 / 4


def test_a_lost_run_is_worse_than_any_number_and_equal_to_another():
    assert win_probability(*arms_of([LOST], [-1e300])) == 0
    assert win_probability(*arms_of([LOST, 5], [LOST, 1])) == (0.5 + 0 + 1 + 1) / 4


def test_ranks_are_those_of_a_run_among_one_of_each_arm():
    # P(a > b) = 1, P(a > c) = 1/2, P(b > c) = 1/2
    assert ranks(arms_of([5, 5], [1, 1], [9, 0])) == [1 + 0 + 0.5, 1 + 1 + 0.5, 1 + 0.5 + 0.5]
    assert ranks(arms_of([1], [1], [1])) == [2, 2, 2]
    assert ranks(arms_of([1], [3], [2])) == [3, 1, 2]


def test_the_interquartile_mean_is_that_of_the_middle_half():
    scores = [7.0, 0.0, 3.0, 100.0, 2.0, 5.0, -50.0, 4.0]
    assert middle_of(scores) == pytest.approx(stats.trim_mean(scores, 0.25))
    # of five runs the second and fourth count three quarters
    assert middle_of([10, 0, 0, 2, 1]) == pytest.approx((0.75 * 0 + 1 + 0.75 * 2) / 2.5)
    assert middle_of([4.0]) == 4


def test_each_task_counts_the_same_whatever_its_runs():
    tasks = [arms_of([1] * 12, [0] * 12), arms_of([0, 0], [1, 1])]
    found = aggregated(tasks)
    assert found.improvement[0].probability.value == pytest.approx(0.5)
    assert [one.value for one in found.mean_rank] == pytest.approx([1.5, 1.5])
    assert [one.value for one in found.interquartile_mean] == pytest.approx([0.5, 0.5])


def test_scores_with_anchors_do_not_depend_on_the_arms():
    few = normalised(arms_of([-2, -1]), (-4.0, 0.0))
    more = normalised(arms_of([-2, -1], [-3, -8]), (-4.0, 0.0))
    assert few[0].tolist() == more[0].tolist() == [0.5, 0.75]
    assert more[1].tolist() == [0.25, -1.0]


def test_scores_without_anchors_lie_between_the_worst_and_the_best_run():
    assert [own.tolist() for own in normalised(arms_of([1, 3], [5, 2]), None)] == [[0.0, 0.5], [1.0, 0.25]]


@pytest.mark.parametrize(
    ("scores", "anchors", "expected"),
    [
        ([[LOST, 3], [5, 1]], None, [[0.0, 0.5], [1.0, 0.0]]),
        ([[LOST, 3], [5, 1]], (0.0, 10.0), [[0.0, 0.3], [0.5, 0.1]]),
        ([[LOST, 3], [-5, 1]], (0.0, 10.0), [[-0.5, 0.3], [-0.5, 0.1]]),
        ([[LOST, 2], [2, 2]], None, [[0.0, 1.0], [1.0, 1.0]]),
        ([[LOST], [LOST]], None, [[0.0], [0.0]]),
        ([[LOST], [LOST]], (1.0, 2.0), [[0.0], [0.0]]),
    ],
)
def test_a_lost_run_has_the_score_of_the_worst(scores, anchors, expected):
    assert [own.tolist() for own in normalised(arms_of(*scores), anchors)] == expected


def test_the_exchange_test_is_that_of_mann_and_whitney_on_one_task():
    one, other = arms_of([5, 6, 7, 9], [1, 8, 3, 4])
    exact = stats.mannwhitneyu(one, other, method="exact").pvalue
    assert stratified_p([(one, other)]) == pytest.approx(exact, abs=0.01)
    assert stratified_p([tuple(arms_of([5, 6, 7, 8], [1, 2, 3, 4]))]) == pytest.approx(2 / 70, abs=0.005)


def test_tasks_that_agree_add_up_and_tasks_that_contradict_cancel():
    ahead = tuple(arms_of([4, 5, 6], [1, 2, 3]))
    assert stratified_p([ahead]) == pytest.approx(2 / 20, abs=0.01)
    assert stratified_p([ahead] * 3) == pytest.approx(2 / 20**3, abs=0.0005)
    assert stratified_p([ahead, ahead[::-1]]) == 1.0
    behind = tuple(arms_of([1, 2], [3, 4]))  # fewer runs, but a task counts the same
    assert stratified_p([ahead, behind]) == 1.0
    assert stratified_p([tuple(arms_of([1, 1], [1, 1]))]) == 1.0


def test_a_claim_about_other_tasks_takes_as_many_as_one_about_seeds():
    apart = [arms_of([2, 2, 2], [1, 1, 1])] * 6
    assert aggregated(apart[:5]).improvement[0].p_on_others == 2 / 2**5
    assert aggregated(apart).improvement[0].p_on_others == 2 / 2**6


def test_pairs_are_corrected_for_their_number():
    chance = np.random.default_rng(0)
    tasks = [[chance.normal(size=3) + 3 * (arm == 0) for arm in range(4)] for _ in range(3)]
    found = aggregated(tasks)
    pairs = [[int(name.removeprefix("arm ")) for name in (pair.arm, pair.against)] for pair in found.improvement]
    raw = [stratified_p([(runs[one], runs[other]) for runs in tasks]) for one, other in pairs]
    assert min(pair.p_on_these for pair in found.improvement) == pytest.approx(6 * min(raw))  # Holm, six pairs
    assert all(pair.p_on_others >= 0.25 for pair in found.improvement)


def test_intervals_hold_the_number_and_are_missing_where_nothing_can_be_drawn():
    chance = np.random.default_rng(3)
    tasks = [[chance.normal(size=4) for _ in range(3)] for _ in range(5)]
    for number in (found := aggregated(tasks)).mean_rank + found.interquartile_mean:
        for interval in (number.over_seeds, number.over_tasks):
            assert interval is not None
            assert interval[0] < number.value < interval[1]
    assert aggregated(tasks) == found  # the seed of the bootstrap is fixed
    two = aggregated(tasks[:2]).mean_rank[0]
    assert two.over_tasks is None
    assert two.over_seeds is not None
    tasks[3][1] = tasks[3][1][:1]
    single = aggregated(tasks).mean_rank[0]
    assert single.over_seeds is None
    assert single.over_tasks is not None


def within(share: float, expected: float, sets: int) -> bool:
    """Whether a share of so many sets is at least the expected one, up to a chance of one in a hundred."""
    return share >= expected - 2.33 * math.sqrt(expected * (1 - expected) / sets)


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "runs"), [(4, 3), (6, 5)])
def test_intervals_hold_the_truth_as_often_as_they_say(monkeypatch, tasks, runs):
    monkeypatch.setattr(decide, "REPLICATES", 1000)
    monkeypatch.setattr(decide, "PERMUTATIONS", 9)  # not looked at
    chance, sets, hits = np.random.default_rng(5), 300, {"rank": 0, "middle": 0, "pair": 0}
    levels = chance.normal(0, 0.7, (tasks, 2))  # of the arms on each task; the same in every set
    truth = float(np.mean([NormalDist().cdf((a - b) / math.sqrt(2)) for a, b in levels]))
    many = np.sort(np.concatenate([chance.normal(level, 1, 100_000) for level in levels[:, 0]]))
    middle = float(many[len(many) // 4 : 3 * len(many) // 4].mean())
    for _ in range(sets):
        drawn = [[chance.normal(level, 1, runs) for level in own] for own in levels]
        found = aggregated(drawn)
        for name, number, true in (
            ("rank", found.mean_rank[0], 2 - truth),
            ("middle", found.interquartile_mean[0], middle),
            ("pair", found.improvement[0].probability, truth),
        ):
            assert number.over_seeds is not None
            hits[name] += number.over_seeds[0] <= true <= number.over_seeds[1]
    assert all(within(count / sets, 0.93, sets) for count in hits.values()), hits


@pytest.mark.slow
def test_intervals_over_tasks_hold_the_truth_of_other_tasks(monkeypatch):
    monkeypatch.setattr(decide, "REPLICATES", 1000)
    monkeypatch.setattr(decide, "PERMUTATIONS", 9)
    chance, sets, hits = np.random.default_rng(6), 300, 0
    truth = NormalDist().cdf(0.5 / math.sqrt(2 + 2))  # noise of two runs, and of two arms' levels on a task
    for _ in range(sets):
        levels = chance.normal([0.5, 0.0], 1, (8, 2))
        drawn = [[chance.normal(level, 1, 4) for level in own] for own in levels]
        interval = aggregated(drawn).improvement[0].probability.over_tasks
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert within(hits / sets, 0.93, sets), hits


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "runs", "arms"), [(1, 5, 2), (3, 3, 4), (6, 3, 4)])
def test_equal_arms_are_seldom_called_different(monkeypatch, tasks, runs, arms):
    monkeypatch.setattr(decide, "REPLICATES", 2)  # not looked at
    monkeypatch.setattr(decide, "PERMUTATIONS", 1999)
    chance, sets, claims = np.random.default_rng(7), 200, {"these": 0, "others": 0}
    for _ in range(sets):
        drawn = [[chance.normal(size=runs) for _ in range(arms)] for _ in range(tasks)]
        found = aggregated(drawn).improvement
        claims["these"] += any(pair.p_on_these <= 0.05 for pair in found)
        claims["others"] += any(pair.p_on_others <= 0.05 for pair in found)
    assert all(within(1 - count / sets, 0.95, sets) for count in claims.values()), claims


SCORES = {"none": 60.0, "rope": 20.0, "tupe-r": 10.0}
ACCURACIES = {"none": 0.5, "rope": 0.7, "tupe-r": 0.6}


def results(name, finals=SCORES, *, task="masked-lm", fingerprint=None, width=64):
    content = example_results(finals, task=task)
    content["name"] = name
    content["recipe"]["model"]["hidden_size"] = width
    content["data"]["fingerprint"] = fingerprint or name
    content["data"]["train"]["tokens"] = 1_000_000  # two passes
    return content


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write results files; return their paths."""
    monkeypatch.chdir(tmp_path)

    def written(*contents):
        paths = [Path(f"{number}-{content['name']}.json") for number, content in enumerate(contents)]
        for path, content in zip(paths, contents, strict=True):
            path.write_text(json.dumps(content))
        return paths

    return written


def ranks_of(table, group=0):
    return {score.arm: score.mean_rank.value for score in table.groups[group].arms}


def cell_of(table, task, arm):
    return next(cell for cell in table.cells if (cell.task, cell.arm) == (task, arm))


def test_a_lower_perplexity_and_a_higher_accuracy_are_better(write):
    table = make_decision_table(write(results("letters"), results("questions", ACCURACIES, task="classification")))
    assert ranks_of(table) == pytest.approx({"tupe-r": 1.5, "rope": 1.5, "none": 3.0})
    assert probability_of(table.groups[0], "tupe-r", "rope").probability.value == pytest.approx(0.5)
    assert probability_of(table.groups[0], "none", "rope").probability.value == 0
    assert [ranks(task.runs) for task in table.tasks] == [[3, 2, 1], [3, 1, 2]]


def test_perplexity_is_normalised_by_the_vocabulary_and_accuracy_as_it_is(write):
    letters, questions = make_decision_table(
        write(results("letters"), results("questions", ACCURACIES, task="classification"))
    ).tasks
    perplexities = [row.perplexity for row in letters.results.rows if row.arm == "rope"]
    assert letters.normal[1].tolist() == pytest.approx([1 - math.log(p) / math.log(4096) for p in perplexities])
    assert questions.normal[1].tolist() == pytest.approx([0.7] * 3, abs=0.02)
    assert letters.scale == "0: perplexity 4,096, all tokens alike; 1: perplexity 1; linear in nats"


def test_without_a_vocabulary_the_worst_and_the_best_run_are_0_and_1(write):
    content = results("letters")
    del content["data"]["vocab_size"]
    (task,) = make_decision_table(write(content)).tasks
    assert task.scale == "0: the worst run of these arms; 1: the best"
    assert min(task.normal[0]) == 0
    assert max(task.normal[2]) == 1


def test_a_cell_has_its_mean_on_the_scale_of_the_tests_and_an_interval(write):
    content = results("letters")
    for row, value in zip([row for row in content["rows"] if row["arm"] == "rope"], (8.0, 4.0, 2.0), strict=True):
        row["perplexity"] = value
    cell = cell_of(make_decision_table(write(content)), "letters", "rope")
    half = 4.302653 * math.log(2) / math.sqrt(3)  # Student's t with 2 degrees of freedom
    assert cell.score == pytest.approx(4)
    assert cell.low == pytest.approx(4 * math.exp(-half))
    assert cell.high == pytest.approx(4 * math.exp(half))


def test_an_interval_ends_at_the_lowest_and_the_perfect_score(write):
    content = results("questions", dict.fromkeys(SCORES, 0.5), task="classification")
    for row, value in zip([row for row in content["rows"] if row["arm"] == "rope"], (1.0, 0.2, 1.0), strict=True):
        row["accuracy"] = value
    cell = cell_of(make_decision_table(write(content)), "questions", "rope")
    assert (cell.low, cell.high) == (0, 1)


def test_a_lost_run_counts_as_the_worst(write):
    content = results("letters")
    content["rows"] = [row for row in content["rows"] if (row["arm"], row["seed"]) != ("tupe-r", 1)]
    content["failed"] = [{"arm": "tupe-r", "seed": 1, "status": "failed", "stage": "seeds", "reason": "diverged"}]
    content["rows"][0]["perplexity"] = None  # a loss that was not a number: the first arm, none
    table = make_decision_table(write(content))
    cell = cell_of(table, "letters", "tupe-r")
    assert (cell.runs, cell.lost) == (3, 1)
    # two of three runs beat all others; the third beats nothing but ties with the lost one of none
    assert ranks(table.tasks[0].runs)[2] == pytest.approx(1 + (1 - 2 / 3) + (1 - (2 + 0.5 / 3) / 3))
    assert cell.score == pytest.approx(10, rel=0.05)
    assert cell_in_words(cell, table.tasks[0].metric).endswith("n 3 (1 lost) ↓")


def test_an_arm_that_lost_every_run_is_last(write):
    content = results("letters")
    for row in content["rows"]:
        if row["arm"] == "tupe-r":
            row["perplexity"] = None
    table = make_decision_table(write(content))
    assert ranks(table.tasks[0].runs)[2] == 3
    assert table.tasks[0].normal[2].tolist() == [0, 0, 0]
    assert cell_in_words(cell_of(table, "letters", "tupe-r"), table.tasks[0].metric) == "– n 3 (3 lost) ↓"


def test_a_diverged_perplexity_has_a_cell(write):
    content = results("letters")
    next(row for row in content["rows"] if row["arm"] == "rope")["perplexity"] = math.exp(690)
    cell = cell_of(make_decision_table(write(content)), "letters", "rope")
    assert cell.score is not None
    assert 1e99 < cell.score < math.inf


def test_marks_of_cells_come_from_curves_and_trials(write):
    content = results("letters")
    for row in content["rows"]:
        row["curve"] = [[500, 3.0], [1000, 2.0 if row["arm"] == "rope" else 2.999]]
    table = make_decision_table(write(content))
    assert [(cell.arm, cell.still_falling) for cell in table.cells] == [
        ("none", False), ("rope", True), ("tupe-r", False),
    ]  # fmt: skip
    assert not any(cell.rate_at_edge for cell in table.cells)  # 0.002 of 0.001, 0.002, 0.004
    for arm in content["arms"]:
        arm["learning_rate"] = 0.004
    table = make_decision_table(write(content))
    assert all(cell.rate_at_edge for cell in table.cells)
    assert cell_in_words(cell_of(table, "letters", "rope"), table.tasks[0].metric).endswith("n 3 ↓ *")
    assert cell_in_words(cell_of(table, "letters", "none"), table.tasks[0].metric).endswith("n 3 *")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(complete=False, waiting=2), "2 runs are still to be trained"),
        (lambda content: content["arms"][1].update(encoding="alibi"), "arm rope has the encoding alibi, in"),
        (lambda content: content.update(rows=content["rows"][1::3]), "has no run of the arms none, tupe-r"),
        (lambda content: content["data"].update(fingerprint="letters"), "is the same task as 0-letters"),
        (lambda content: content.update(arms=content["arms"][:1]), "has the arms none, and 0-letters"),
    ],
)
def test_a_file_that_would_make_the_table_wrong_is_refused(write, change, words):
    content = results("words")
    change(content)
    with pytest.raises(ValueError, match=words):
        make_decision_table(write(results("letters"), content))


def test_recipes_of_one_name_are_told_apart_by_their_paths(write):
    table = make_decision_table(write(results("letters"), results("letters", fingerprint="other")))
    assert table.groups[0].tasks == ("0-letters.json", "1-letters.json")


def test_sizes_are_aggregated_apart(write):
    turned = SCORES | {"rope": 9.0}
    paths = write(
        results("letters", width=128, finals=turned), results("letters", width=64), results("words", width=64),
    )  # fmt: skip
    table = make_decision_table(paths, group_by="model.hidden_size")
    assert [group.value for group in table.groups] == ["64", "128"]  # by number
    assert ranks_of(table, 0) == {"tupe-r": 1, "rope": 2, "none": 3}
    assert ranks_of(table, 1) == {"rope": 1, "tupe-r": 2, "none": 3}
    with pytest.raises(ValueError, match="is the same task"):
        make_decision_table(paths[:2])
    with pytest.raises(ValueError, match=r"--group-by model\.hiden_size: its recipe has no such value"):
        make_decision_table(paths, group_by="model.hiden_size")


def test_what_can_be_claimed_is_marked(write):
    text = markdown_decision_table(make_decision_table(write(results("task-0"))))
    assert "| none | 3.0 [3.0, 3.0] | – |" in text  # one task says nothing of others
    assert "1.00 [1.00, 1.00] |" in text  # nor do three runs of each tell three models apart
    one, other = {"none": 60.0, "rope": 10.0, "tupe-r": 10.5}, {"none": 60.0, "rope": 10.5, "tupe-r": 10.0}
    finals = [SCORES, one, other, one, other, one, other, one]
    table = make_decision_table(write(*(results(f"task-{n}", scores) for n, scores in enumerate(finals))))
    best, second, _ = (score.arm for score in table.groups[0].arms)
    lines = markdown_decision_table(table).splitlines()
    rows = {line.split(" | ")[0]: line for line in lines if "[1.00, 1.00]" in line}
    assert list(rows) == ["| none"]
    assert rows["| none"].endswith("1.00 [1.00, 1.00]*† |")
    pair, other = (probability_of(table.groups[0], *arms) for arms in ((second, best), (best, second)))
    assert pair.probability.over_tasks is not None
    assert other.probability.over_tasks is not None
    assert pair.probability.value == pytest.approx(1 - other.probability.value)
    assert pair.probability.over_tasks == pytest.approx([1 - end for end in other.probability.over_tasks[::-1]])
    assert pair.p_on_these == other.p_on_these


def test_a_task_that_nobody_solves_ranks_nobody(write):
    unsolved = results("even pairs", {"none": 10.0, "rope": 10.5, "tupe-r": 11.0})
    (group,) = make_decision_table(write(results("letters"), unsolved)).groups
    assert [len(group.tasks), len(group.all_tasks)] == [1, 2]
    alone = make_decision_table(write(results("letters"))).groups[0]
    assert {s.arm: s.mean_rank.value for s in group.arms} == {s.arm: s.mean_rank.value for s in alone.arms}


def test_the_script_prints_ranks_scores_and_scales(write):
    paths = write(results("letters"), results("a|b", ACCURACIES, task="classification"))
    script = decide.__file__
    printed = subprocess.run([sys.executable, script, *map(str, paths)], capture_output=True, text=True, check=True)
    assert "| Model | Mean rank | on other tasks | Interquartile mean | P(" in printed.stdout
    assert "| Model | letters: perplexity | a\\|b: accuracy |" in printed.stdout
    assert "| a\\|b | – | accuracy / 1 | 1-a\\|b.json |" in printed.stdout
