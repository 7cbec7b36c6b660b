"""The classification page holds what was measured, the paper's numbers beside it, and nothing typed by hand."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest
from comparison_example import example_results

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "evidence" / "recipes"


@pytest.fixture(scope="module")
def publish():
    path = ROOT / "evidence" / "publish" / "publish_classification.py"
    spec = importlib.util.spec_from_file_location("publish_classification", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))  # it imports the scripts beside it
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def paper(publish):
    return json.loads(publish.PAPER.read_text(encoding="utf-8"))


@pytest.fixture
def measured(publish):
    """Made-up results of two sets: TREC over seeds, MR over folds and with an optimistic protocol."""
    trec = example_results({"bag+none": 0.8, "transformer+rope": 0.9}, task="classification")
    trec |= {"name": "complex_order_classification", "protocol": "test-once", "optimistic": False}
    mr = example_results({"bag+none": 0.7}, task="classification")
    mr |= {"name": "complex_order_mr", "protocol": "best-checkpoint-on-test", "optimistic": True}
    mr["planned"]["folds"] = [0, 1, 2]
    mr["recipe"]["data"] |= {"folds": 10, "source": "elsewhere/somebody/mr"}
    return {results["name"]: publish.trimmed(results) for results in (trec, mr)}


def cells(text, arm):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {arm} ")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_measured_and_the_papers_numbers_stand_side_by_side(publish, paper, measured):
    text = publish.comparison_of(publish.published_of(measured), paper)
    head, first, other = cells(text, "Model"), cells(text, "bag+none"), cells(text, "transformer+rope")
    assert head == ["Model", "TREC", "MR, optimistic"]
    trec, mr = (
        {entry["arm"]: entry["accuracy"]["mean"] for entry in measured[name]["summary"]}
        for name in ("complex_order_classification", "complex_order_mr")
    )
    assert first[1:] == [f"{trec['bag+none']:.3f} (0.874)", f"{mr['bag+none']:.3f} (0.765)"]  # Fasttext of Table 2
    assert other[1:] == [f"{trec['transformer+rope']:.3f}", "–"]  # the paper has no rope, and MR none here
    assert "TREC: mean of 3 seeds, protocol test-once." in text
    assert "MR: mean of 3 folds of 10 (cross-validation), protocol best-checkpoint" in text
    spreads = [entry["accuracy"]["std"] for results in measured.values() for entry in results["summary"]]
    assert f"Standard deviations are at most {max(spreads):.3f}." in text
    assert "https://arxiv.org/abs/1912.12333, Table 2" in text


def test_nothing_of_one_machine_is_published(publish, measured):
    text = json.dumps(measured)
    assert "somebody" not in text
    assert "output_dir" not in text
    assert '"curve"' not in text
    assert measured["complex_order_mr"]["recipe"]["data"]["source"] == "mr"


def test_every_arm_of_the_recipes_has_its_row_in_the_papers_table(publish, paper):
    arms = tomllib.loads((RECIPES / "complex_order_classification.toml").read_text())["compare"]["arms"]
    beyond = {"transformer+rope", "transformer+t5", "transformer+tupe-r"}
    assert {arm["name"] for arm in arms} - beyond == set(paper["arms"])
    assert sorted(paper["arms"].values()) == sorted(paper["rows"])
    assert all(len(row) == len(paper["columns"]) for row in paper["rows"].values())
    ablation = tomllib.loads((RECIPES / "complex_order_ablation.toml").read_text())["compare"]["arms"]
    names = {arm["name"] for arm in ablation}
    assert set(paper["ablation"]["rows"]) | {"complex-order+shared", "initial-phases+shared"} == names
    for arm in {arm["name"] for arm in arms}:
        assert publish._style(arm)["marker"] != "x"
        assert publish._style(arm)["color"] != "#57606a"
