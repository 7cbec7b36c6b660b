"""One table of several results files: what is refused, what stands in it, and how it reads."""

import json
import math
from pathlib import Path

import pytest
from comparison_example import example_results

from wordorder.comparison.decision_table import make_decision_table, results_files
from wordorder.comparison.report.decision_table import (
    cell_in_words,
    headline,
    markdown_decision_table,
    probability_of,
    rank_rows,
    write_decision_table,
)
from wordorder.errors import BadInput

SCORES = {"none": 60.0, "rope": 20.0, "tupe-r": 10.0}


def results(name, finals=SCORES, *, task="masked-lm", fingerprint=None, width=64, seeds=3):
    content = example_results(finals, seeds=seeds, task=task)
    content["name"] = name
    content["recipe"]["model"]["hidden_size"] = width
    content["data"]["fingerprint"] = fingerprint or name
    return content


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write results files by name, each into a folder of its name; return their paths."""
    monkeypatch.chdir(tmp_path)

    def written(*contents):
        paths = []
        for content in contents:
            path = Path(content["name"], "results.json")
            while path.exists():
                path = Path(f"{path.parent}-again", "results.json")
            path.parent.mkdir()
            path.write_text(json.dumps(content))
            paths.append(path)
        return paths

    return written


def faults(paths, **options) -> str:
    with pytest.raises(BadInput) as caught:
        make_decision_table(paths, **options)
    return str(caught.value)


def ranks_of(table, group=0):
    return {score.arm: score.mean_rank.value for score in table.groups[group].arms}


def cell_of(table, task, arm):
    return next(cell for cell in table.cells if (cell.task, cell.arm) == (task, arm))


def test_a_lower_perplexity_and_a_higher_accuracy_are_better(write):
    accuracies = {"none": 0.5, "rope": 0.7, "tupe-r": 0.6}
    table = make_decision_table(write(results("letters"), results("questions", accuracies, task="classification")))
    assert ranks_of(table) == pytest.approx({"tupe-r": 1.5, "rope": 1.5, "none": 3.0})
    assert probability_of(table.groups[0], "tupe-r", "rope").probability.value == pytest.approx(0.5)
    assert probability_of(table.groups[0], "none", "rope").probability.value == 0
    assert [source.higher_is_better for source in table.sources] == [False, True]
    assert cell_of(table, "letters", "tupe-r").rank == cell_of(table, "questions", "rope").rank == 1


def test_perplexity_is_normalised_by_the_vocabulary_and_accuracy_as_it_is(write):
    table = make_decision_table(
        write(results("letters"), results("questions", dict.fromkeys(SCORES, 0.5), task="classification"))
    )
    cell = cell_of(table, "letters", "rope")
    assert cell.score is not None
    assert cell.normalised == pytest.approx(1 - math.log(cell.score) / math.log(4096))
    assert cell_of(table, "questions", "rope").normalised == pytest.approx(0.5, abs=0.01)
    assert table.sources[0].normalised == "0: perplexity 4,096, all tokens alike; 1: perplexity 1; linear in nats"


def test_without_a_vocabulary_the_worst_and_the_best_run_are_0_and_1(write):
    content = results("letters")
    del content["data"]["vocab_size"]
    table = make_decision_table(write(content))
    assert table.sources[0].normalised == "0: the worst run of these arms; 1: the best"
    assert cell_of(table, "letters", "none").normalised < 0.01
    assert cell_of(table, "letters", "tupe-r").normalised > 0.99


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
    assert cell.rank == pytest.approx(1 + (1 - 2 / 3) + (1 - (2 + 0.5 / 3) / 3))
    assert cell.score == pytest.approx(10, rel=0.05)
    assert cell_in_words(cell, table.sources[0]).endswith("n 3 (1 lost)")


def test_an_arm_that_lost_every_run_is_last(write):
    content = results("letters")
    for row in content["rows"]:
        if row["arm"] == "tupe-r":
            row["perplexity"] = None
    table = make_decision_table(write(content))
    cell = cell_of(table, "letters", "tupe-r")
    assert (cell.rank, cell.score, cell.normalised) == (3, None, 0)
    assert cell_in_words(cell, table.sources[0]) == "– n 3 (3 lost)"
    assert "has the best mean rank" in headline(table)


def test_marks_of_cells_come_from_curves_and_trials(write):
    content = results("letters")
    for row in content["rows"]:
        row["curve"] = [[500, 3.0], [1000, 2.0 if row["arm"] == "rope" else 2.999]]
    table = make_decision_table(write(content))
    assert [(cell.arm, cell.still_falling) for cell in table.cells] == [
        ("none", False), ("rope", True), ("tupe-r", False),
    ]  # fmt: skip
    assert cell_of(table, "letters", "rope").relative_fall == pytest.approx(0.1)  # 0.2 in a tenth, of 2.0
    assert not any(cell.rate_at_edge for cell in table.cells)  # 0.002 of 0.001, 0.002, 0.004
    for arm in content["arms"]:
        arm["learning_rate"] = 0.004
    content["name"] = "edge"
    table = make_decision_table(write(content))
    assert all(cell.rate_at_edge for cell in table.cells)
    assert {(cell.learning_rate, cell.encoding_learning_rate) for cell in table.cells} == {(0.004, None)}
    assert cell_in_words(cell_of(table, "edge", "rope"), table.sources[0]).endswith("n 3 ↓ *")
    assert cell_in_words(cell_of(table, "edge", "none"), table.sources[0]).endswith("n 3 *")


def test_other_arms_are_refused_or_left_out(write):
    paths = write(results("letters"), results("words", {"rope": 30.0, "tupe-r": 20.0, "t5": 25.0}))
    assert faults(paths).splitlines() == [
        "letters/results.json: lacks the arms t5",
        "words/results.json: lacks the arms none",
        "train them, or leave these files out; --common-arms keeps the 2 that all files have",
    ]
    table = make_decision_table(paths, common_arms=True)
    assert (table.arms, table.left_out) == (("rope", "tupe-r"), ("none", "t5"))
    assert ranks_of(table) == {"tupe-r": 1, "rope": 2}
    assert "Left out, since some files lack them: none, t5." in markdown_decision_table(table)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(complete=False, waiting=2), "2 runs are still to be trained"),
        (lambda content: content["arms"][1].update(encoding="alibi"), "arm rope has the encoding alibi, in"),
        (lambda content: content.update(rows=content["rows"][1::3]), "has no run of the arms none, tupe-r"),
        (lambda content: content["data"].update(fingerprint="letters"), "is the same task as letters/results.json"),
        (lambda content: content.update(arms=content["arms"][:1]), "--common-arms keeps the 1"),
    ],
)
def test_a_file_that_would_make_the_table_wrong_is_refused(write, change, words):
    content = results("words")
    change(content)
    assert words in faults(write(results("letters"), content))


def test_files_are_found_in_folders_and_named_once(write, tmp_path):
    write(results("letters"), results("words"))
    assert results_files([tmp_path]) == [tmp_path / "letters/results.json", tmp_path / "words/results.json"]
    assert results_files([Path("letters")]) == [Path("letters/results.json")]
    (tmp_path / "empty").mkdir()
    assert "neither it nor a folder in it holds results.json" in faults([Path("empty")])
    assert "is named twice" in faults([Path("letters"), tmp_path])
    assert "cannot be read" in faults([Path("absent.json")])


def test_the_chosen_multiple_of_the_encodings_rate_is_kept(write, tmp_path):
    content = results("letters")
    content["arms"][2]["encoding_learning_rate"] = 16
    table = make_decision_table(write(content))
    write_decision_table(table, tmp_path / "out")
    cells = json.loads((tmp_path / "out" / "aggregate.json").read_text())["cells"]
    assert [cell["encoding_learning_rate"] for cell in cells] == [None, None, 16.0]


def test_recipes_of_one_name_are_told_apart_by_their_paths(write):
    paths = write(results("letters"), results("letters", fingerprint="other"))
    table = make_decision_table(paths)
    assert table.groups[0].tasks == ("letters/results.json", "letters-again/results.json")


def test_sizes_are_aggregated_apart_and_their_ranks_compared(write):
    turned = SCORES | {"rope": 9.0}
    paths = write(
        results("letters", width=128, finals=turned), results("letters", width=64), results("words", width=64),
    )  # fmt: skip
    table = make_decision_table(paths, group_by="model.hidden_size")
    assert [group.value for group in table.groups] == ["64", "128"]  # by number
    assert ranks_of(table, 0) == {"tupe-r": 1, "rope": 2, "none": 3}
    assert ranks_of(table, 1) == {"rope": 1, "tupe-r": 2, "none": 3}
    (turn,) = table.turns
    assert turn.tau == pytest.approx(1 / 3)
    assert (turn.turned, turn.pairs, turn.same_tasks) == ((("tupe-r", "rope"),), 3, False)
    said = headline(table)
    assert "At model.hidden_size 128 rope has the best mean rank, 1.0" in said
    assert "Kendall's tau of the mean ranks is 0.33; 1 of 3 pairs turn round (tupe-r before rope at 64)." in said
    assert "The tasks or their data differ between the two" in said
    heads, rows = rank_rows(table)
    assert "P(rope is better), model.hidden_size 128" in heads
    assert [row[0] for row in rows] == ["tupe-r", "rope", "none"]
    assert all(len(row) == len(heads) for row in rows)
    again = make_decision_table(paths[:2], group_by="model.hidden_size")
    assert again.turns[0].same_tasks
    assert "is the same task" in faults(paths[:2])
    assert "--group-by model.hiden_size: its recipe has no such value" in faults(paths, group_by="model.hiden_size")


def test_the_headline_says_what_can_be_claimed(write):
    names = [f"task-{number}" for number in range(6)]
    few = make_decision_table(write(results(names[0])))
    assert headline(few) == (
        "tupe-r has the best mean rank, 1.0 [1.0, 1.0] of 3 models, over 1 task; on these tasks it is not "
        "significantly different from rope and none. About other tasks nothing can be said: for 3 models that takes "
        "6 tasks."
    )
    one, other = {"none": 60.0, "rope": 10.0, "tupe-r": 10.5}, {"none": 60.0, "rope": 10.5, "tupe-r": 10.0}
    close = [results(name, finals) for name, finals in zip(names[1:], (one, other, one, other, one), strict=True)]
    table = make_decision_table([Path(names[0]), *write(*close)])
    best, second = (score.arm for score in table.groups[0].arms[:2])
    same = f"{best} is better than none, and not significantly different from {second}."
    assert headline(table).startswith(f"{best} and {second} share the best mean rank, 1.5 [1.5, 1.5] of 3 models")
    assert f"on these tasks {same}" in headline(table)
    assert f"On other tasks like these {same}" in headline(table)
    rows = {row[0]: row[-1] for row in rank_rows(table)[1]}
    assert (rows[second].endswith("], not significant"), "not" in rows["none"]) == (True, False)
    pair = probability_of(table.groups[0], second, best)
    other = probability_of(table.groups[0], best, second)
    assert pair.probability.over_tasks is not None
    assert other.probability.over_tasks is not None
    assert pair.probability.value == pytest.approx(1 - other.probability.value)
    assert pair.probability.over_tasks == pytest.approx([1 - end for end in other.probability.over_tasks[::-1]])
    assert pair.p_on_these == other.p_on_these


def test_what_is_written_holds_the_table_its_sources_and_figures(write, tmp_path):
    paths = write(results("letters"), results("a|b", {"none": 0.5, "rope": 0.6, "tupe-r": 0.9}, task="classification"))
    table = make_decision_table(paths, title="Two <tasks>")
    write_decision_table(table, tmp_path / "out")
    written = json.loads((tmp_path / "out/aggregate.json").read_text())
    assert written == json.loads(table.model_dump_json())
    assert written["version"] == 1
    assert set(written["packages"]) == {"wordorder", "numpy", "scipy"}
    text = (tmp_path / "out/table.md").read_text()
    assert text.startswith("# Two &lt;tasks&gt;\n\ntupe-r has the best mean rank")
    assert "| Model | letters: perplexity | a\\|b: accuracy |" in text
    rows = [line for line in text.splitlines() if line.startswith("| tupe-r |")]
    assert len(rows) == 2
    figures = sorted(path.name for path in (tmp_path / "out/figures").iterdir())
    assert figures == [
        f"{stem}.{ending}" for stem in ("mean_rank", "probability_of_improvement") for ending in ("png", "svg")
    ]
    svg = (tmp_path / "out/figures/mean_rank.svg").read_text()
    assert all(f"<!-- {arm} -->" in svg for arm in SCORES)
