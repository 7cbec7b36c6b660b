import io
import sys

import pytest

from wordorder.training.loop import progress
from wordorder.training.loop.progress import AdviceOnce, Shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_every_ten_seconds_and_at_the_end(clock, capsys):
    lines = Shown("tiny")
    lines.start(0, 1000)
    for step in range(1, 1001):
        clock[0] += 0.0625
        lines.update(step, 2.5, 64 * step)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 7
    assert captured.err.splitlines()[0].startswith(
        "tiny: step 160/1000  loss 2.5000  16.0 steps/s  1,024 tokens/s  0:00:52"
    )


def test_the_rate_is_that_since_the_resumption(clock, capsys):
    lines = Shown("tupe")
    lines.start(500, 1000)
    clock[0] += 10
    lines.update(501, 1.0, 501 * 10)
    clock[0] += 90
    lines.update(600, 1.0, 6000)
    assert capsys.readouterr().err.endswith("loss 1.0000  1.0 steps/s  10 tokens/s  0:06:40 left\n")


def test_the_bar_shows_step_loss_rate_and_time_left_on_stderr(clock, monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    bar = Shown("tiny")
    bar.start(0, 100)
    for step in range(1, 51):
        clock[0] += 0.125
        bar.update(step, 3.25, 10 * step)
    bar.say("validation loss 3")
    bar.close()
    shown = terminal.getvalue()
    for words in ("tiny", "49/100", "loss 3.2500", "8.0 steps/s", "80 tokens/s", "0:00:06 left", "validation loss 3"):
        assert words in shown, words
    assert capsys.readouterr().out == ""


def test_the_loss_is_the_mean_of_the_last_steps_and_the_last_step_is_shown(clock, capsys):
    lines = Shown("tiny")
    lines.start(0, 60)
    for step in range(1, 61):
        lines.update(step, 100.0 if step <= 10 else float(step % 2), step)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tiny: step 60/60  loss 0.5000  ")


def test_of_many_runs_each_advice_is_shown_once(capsys):
    told = AdviceOnce()
    for words in ("first", "first", "second"):
        told.say(words)
        told.advise(words)
    assert capsys.readouterr().err == "wordorder: first\nwordorder: second\n"


def test_a_name_of_a_folder_cannot_move_the_cursor(capsys):
    Shown("a\x1b[2J\u202e").say("step 1")
    assert capsys.readouterr().err == "a\\u001b[2J\\u202e: step 1\n"
