"""The number of CPU threads, and the word that is said when they wait for processors that others use."""

import json

import pytest
import torch

from wordorder.comparison import pipeline
from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.loop import meter
from wordorder.training.loop.meter import Meter, cpu_threads
from wordorder.training.loop.progress import AdviceOnce


@pytest.fixture
def clock(monkeypatch):
    """Seconds of the wall and of the thread, moved by hand."""
    now = {"wall": 0.0, "busy": 0.0}
    monkeypatch.setattr(meter.time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(meter.time, "thread_time", lambda: now["busy"])
    return now


def advice_after(clock, share, *, steps=10, first_share=None):
    """What is said in steps of a second each, of which the thread has a share."""
    counted, said = Meter(torch.device("cpu")), []
    counted.resume()
    for step in range(steps):
        clock["wall"] += 1
        clock["busy"] += share if step or first_share is None else first_share
        said.append(counted.advice())
        counted.pause()
        clock["wall"] += 5  # evaluation, saving
        counted.resume()
    counted.close()
    return [words for words in said if words is not None]


def test_threads_that_wait_for_a_core_are_told_of_once(clock, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    (words,) = advice_after(clock, 0.25)
    for part in ("2 threads", "25% of the time of its core", "training.threads=1", "compare.workers=2"):
        assert part in words
    assert advice_after(clock, 0.98) == []
    assert advice_after(clock, 0.98, first_share=0.0) == []  # the first step loads libraries
    assert advice_after(clock, 0.25, steps=3) == []  # two seconds after the first step are too few to tell
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert advice_after(clock, 0.25) == []


def test_a_run_takes_its_threads_records_them_and_gives_them_back(recipe_file, monkeypatch):
    before = torch.get_num_threads()
    found = []
    monkeypatch.setattr(meter.Meter, "advice", lambda self: found.append(torch.get_num_threads()))
    result = run(read_recipe(recipe_file, [f"training.threads={before + 1}", "training.max_steps=2"]), progress=False)
    assert set(found) == {before + 1}
    environment = json.loads((result.model_dir.parent / "environment.json").read_text())
    assert environment["threads"] == before + 1
    assert torch.get_num_threads() == before
    with cpu_threads(None):
        assert torch.get_num_threads() == before


def test_the_number_must_be_one(recipe_file):
    for value in ("0", "1.5"):
        with pytest.raises(BadInput, match=r"training\.threads: must be"):
            read_recipe(recipe_file, [f"training.threads={value}"])


@pytest.mark.slow
def test_advice_of_a_run_is_shown_beside_its_progress_and_of_a_comparison_once(recipe_file, monkeypatch, capsys):
    monkeypatch.setattr(meter.Meter, "advice", lambda self: "take one thread")
    monkeypatch.setattr(pipeline, "_ADVICE", AdviceOnce())
    recipe = read_recipe(recipe_file, ["training.max_steps=2"])
    for number in range(2):
        pipeline.train(recipe, recipe_file.parent / f"arm-{number}", 0)
    assert capsys.readouterr().err.splitlines() == ["wordorder: take one thread"]
    run(recipe, progress=True)
    assert "run: take one thread" in capsys.readouterr().err.splitlines()
