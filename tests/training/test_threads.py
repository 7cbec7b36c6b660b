"""The number of CPU threads of a run."""

import json

import pytest
import torch

from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.loop import meter
from wordorder.training.loop.meter import cpu_threads


def test_a_run_takes_its_threads_records_them_and_gives_them_back(recipe_file, monkeypatch):
    before = torch.get_num_threads()
    found = []
    monkeypatch.setattr(meter.Meter, "count", lambda self, batch: found.append(torch.get_num_threads()))
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
