"""evidence/train.py knows every comparison that is published, and a wider one takes its rates from a narrower one."""

import json
from pathlib import Path

import pytest

from wordorder.comparison.results_file import parse_results

ROOT = Path(__file__).resolve().parents[2]


def test_every_published_comparison_can_be_run_again_by_its_name(script, monkeypatch):
    from wordorder.training.recipe.files import find_recipe

    monkeypatch.chdir(ROOT)
    known = {entry.name: entry for entry in script("train").ALL}
    results = script("publish_demo").RESULTS
    files = {
        str(p.relative_to(results).with_suffix("")): json.loads(p.read_text("utf-8")) for p in results.rglob("*.json")
    }
    assert {name for name, file in files.items() if isinstance(file, dict) and "planned" in file} <= known.keys()
    for entry in known.values():
        recipe = f"evidence/recipes/decision/{entry.recipe}.toml" if entry.wider else entry.recipe
        assert find_recipe(recipe).is_file(), entry.name
        assert entry.wider is None or entry.wider in known


def test_a_comparison_that_takes_its_rates_from_missing_results_is_one_line(script, tmp_path, monkeypatch):
    train = script("train")
    for name in ("ROOT", "RUNS", "RESULTS"):
        monkeypatch.setattr(train, name, tmp_path)
    run = []
    monkeypatch.setattr(train.subprocess, "run", lambda command, **_: run.append(command[1]))
    monkeypatch.setattr("sys.argv", ["train.py", "decision/reverse_128"])
    with pytest.raises(SystemExit, match=r"takes its learning rates from decision/reverse_64, which is missing"):
        train.main()
    assert not run
    monkeypatch.setattr("sys.argv", ["train.py", "decision/reverse_128", "decision/reverse_64"])
    train.main()
    publish = "evidence/publish/publish_demo.py"
    assert run == ["-m", publish, "evidence/wider.py", "-m", publish]


def test_a_finished_comparison_at_another_width_keeps_its_rates_by_the_width(script, tmp_path):
    from wordorder.training import read_recipe
    from wordorder.training.recipe.files import to_toml

    file = ROOT / "evidence" / "results" / "decision" / "n_back_64.json"
    results = parse_results(json.loads(file.read_text(encoding="utf-8")))
    (tmp_path / "wide.toml").write_text(to_toml(script("wider").wider(results, 128, 3)), encoding="utf-8")
    recipe = read_recipe(tmp_path / "wide.toml")
    assert recipe.model["hidden_size"] == 128
    assert recipe.compare.seeds == (0, 1, 2)
    assert recipe.compare.tune == ()
    for arm, before in zip(recipe.compare.arms, results.arms, strict=True):
        assert recipe.for_arm(arm).training.learning_rate == pytest.approx(before.learning_rate / 2)
