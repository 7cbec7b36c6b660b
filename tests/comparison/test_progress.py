import io
import json

import pytest
from comparison_stand_in import STAND_IN
from rich.console import Console

from wordorder.comparison import compare
from wordorder.comparison.compare import Display, fraction
from wordorder.comparison.engines.local import Outcome
from wordorder.comparison.report.differences import time_in_words
from wordorder.comparison.runs import Run


@pytest.fixture
def runs(make_recipe, tmp_path):
    recipe = make_recipe()
    found = [Run(arm=arm, seed=0, recipe=recipe, folder=tmp_path / arm / "seed-0") for arm in ("[bold]none", "rope")]
    for run in found:
        run.folder.mkdir(parents=True)
    return found


def display(runs, *, terminal):
    return Display(runs, console=Console(file=io.StringIO(), force_terminal=terminal, width=100))


def test_lines_where_there_is_no_terminal(runs):
    with display(runs, terminal=False) as shown:
        for run in runs:
            shown.start(run)
            (run.folder / "metrics.json").touch()
            shown.finish(run, Outcome(status="finished", seconds=42), "perplexity 12.3")
    lines = shown.console.file.getvalue().splitlines()
    assert lines[0] == "[1/2] [bold]none, seed 0 ..."
    assert lines[1].startswith("[bold]none, seed 0: perplexity 12.3 (42 s; about ")
    assert lines[3] == "rope, seed 0: perplexity 12.3 (42 s)"


def test_a_failure_is_said_with_its_reason(runs):
    with display(runs, terminal=False) as shown:
        shown.finish(runs[0], Outcome(status="failed", reason="the loss is NaN", seconds=1), "")
    assert "FAILED: the loss is NaN" in shown.console.file.getvalue()


def test_one_live_display_shows_all_runs_at_work_with_their_steps(runs):
    (runs[1].folder / "curve.jsonl").write_text(json.dumps({"step": 3}) + "\n{half")
    shown = display(runs, terminal=True)
    for run in runs:
        shown.start(run)
    shown.console.print(shown.render())
    text = shown.console.file.getvalue()
    assert "0 of 2 runs" in text
    assert "rope, seed 0" in text
    assert "50%" in text
    assert fraction(runs[1]) == 0.5


def test_finished_runs_count_as_done_but_not_as_speed(runs):
    (runs[0].folder / "metrics.json").touch()
    shown = display(runs, terminal=False)
    assert shown.done_before == 1
    assert shown._time_left() == ""


@pytest.mark.slow
def test_nothing_is_printed_without_progress(make_recipe, log, capfd):
    compare(make_recipe(seeds=[0]), progress=False, pipeline=STAND_IN)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0.40 s"), (89, "89 s"), (150, "2.5 min"), (5370, "90 min"), (7800, "2.2 h")],
)
def test_durations_are_said_as_a_person_would(seconds, text):
    assert time_in_words(seconds) == text
