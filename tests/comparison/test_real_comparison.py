"""A comparison with the package's own data, training and cost: small, but nothing is made up."""

import json

import pytest
import torch

from wordorder.comparison import compare, read_results

ARMS = {
    "rope": {"model.encoding": "rope"},
    "the same rope": {"model.encoding": "rope"},
    "tupe-r": {"model.encoding": "tupe-r"},
}


@pytest.mark.slow
def test_two_names_of_one_arm_give_the_same_numbers(make_recipe, tmp_path, capfd):
    arms = {name.replace(" ", "-"): changes for name, changes in ARMS.items()}
    threads = torch.get_num_threads()
    results = json.loads(compare(make_recipe(seeds=[5], arms=arms), progress=False).read_text())
    assert torch.get_num_threads() == threads
    assert capfd.readouterr() == ("", "")
    one, other, tupe = results["rows"]
    for number in ("loss", "perplexity", "curve", "parameters", "flops_per_token", "steps"):
        assert one[number] == other[number]
    assert one["loss"] != tupe["loss"]
    assert one["seed"] == 5
    assert len(one["curve"]) > 1
    assert tupe["parameters"] > one["parameters"]
    assert sum(results["arms"][2]["encoding_parameters"].values()) == tupe["parameters"] - one["parameters"]
    assert "learning_curves.png" in {p.name for p in (tmp_path / "out/figures").iterdir()}
    assert (tmp_path / "out" / one["model"] / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_worker_gives_what_this_process_gives(make_recipe, tmp_path):
    options = {"arms": {"tupe-a": {"model.encoding": "tupe-a"}}, "seeds": [0], "tune": [0.004]}
    paths = [
        compare(make_recipe(**options, workers=workers), output_dir=tmp_path / str(workers), progress=False)
        for workers in (1, 2)
    ]
    alone, together = (json.loads(path.read_text()) for path in paths)
    assert alone["tuning"] == together["tuning"]
    assert [(row["loss"], row["curve"]) for row in alone["rows"]] == [
        (row["loss"], row["curve"]) for row in together["rows"]
    ]
    assert together["environment"]["threads"] == 1
    trial = json.loads((tmp_path / "2" / "tupe-a" / "tune-0.004" / "metrics.json").read_text())
    assert trial.keys() >= {"validation"}
    assert "test" not in trial


@pytest.mark.slow
def test_three_seeds_give_claims_about_seeds_and_about_texts(make_recipe, tmp_path):
    arms = {name: {"model.encoding": name} for name in ("rope", "none")}
    results = read_results(compare(make_recipe(seeds=[0, 1, 2], arms=arms), progress=False))
    (entry,) = results.comparisons
    assert (entry.n, entry.test) == (3, "Welch's test with a common floor")
    assert entry.new_texts.difference == pytest.approx(entry.difference, rel=1e-3)
    assert entry.retrained_new_texts.difference == pytest.approx(entry.difference, rel=1e-3)
    table = (tmp_path / "out/table.md").read_text()
    assert "These trained models, on new texts: " in table
    assert "Retrained, and on new texts: " in table
