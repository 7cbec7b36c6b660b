"""`wordorder compare`: seeds and arms that are added, and wrong use."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app

ARMS = """
threads = 1

[compare]
seeds = [0, 1]

[[compare.arms]]
name = "rope"
model.encoding = "rope"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, recipe_text: str) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    (folder / "arms.toml").write_text(recipe_text + ARMS, encoding="utf-8")
    (folder / "options.toml").write_text(recipe_text + ARMS + "model.encoding_options = {}\n", encoding="utf-8")
    (folder / "more-steps.toml").write_text(recipe_text + ARMS + "training.max_steps = 9\n", encoding="utf-8")
    words = "the people of the united states went home . "
    (folder / "corpus.txt").write_text("".join(words * (3 + n % 4) + f"{n}\n" for n in range(40)), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == code, result.stderr
    return result


@pytest.mark.slow
def test_seeds_and_arms_are_added_to_the_folder_and_the_rest_is_not_trained_again(folder: Path):
    more = '[{name="rope", "model.encoding"="rope"}, {name="alibi", "model.encoding"="alibi"}]'
    trained: dict[Path, int] = {}
    results: dict[str, Any] = {}
    for added in ("compare.seeds=[0]", "compare.seeds=[0, 1]", f"compare.arms={more}"):
        results = json.loads(run("arms.toml", "--output-dir", "more", "--set", added, "--json").stdout)
        before, trained = trained, {path: path.stat().st_mtime_ns for path in folder.glob("more/*/seed-*/metrics.json")}
        assert before.items() < trained.items()
    assert [(row["arm"], row["seed"]) for row in results["rows"]] == [
        (arm, seed) for seed in (0, 1) for arm in ("rope", "alibi")
    ]
    assert [look["runs"] for look in results["looks"]] == [{"rope": 1}, {"rope": 2}, {"rope": 2, "alibi": 2}]


def test_a_pipe_gets_the_table_and_the_verdict_as_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "[bold]a|b & `c` \\d &lt;"
    published = Path(__file__).resolve().parents[2] / "evidence" / "results" / "demo.json"
    text = published.read_text("utf-8").replace('"rope"', json.dumps(name))
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr("wordorder.comparison.compare", lambda *_, **__: tmp_path / "results.json")
    lines = run("arms.toml").stdout.splitlines()
    assert lines[1].split() == ["Model", "token", "perplexity", "none", "Parameters", "Training", "time"]
    (row,) = [line for line in lines if line.startswith(f"{name} ")]
    assert row.removeprefix(name).split()[:5] == ["5.15", "±", "0.16", "−65.4%*", "109,844"]
    lowest = "t5 has the lowest mean masked-token perplexity, 4.42"
    assert f"{lowest}: not significantly below tupe-r (4.64), 70% below none." in lines
    better = f"Significant (Welch's test with a common floor): better than {name} and none. Not significant against"
    assert any(line.startswith(f"{better} tupe-r.") for line in lines)
    assert lines[-1] == f"Report: {tmp_path / 'report.html'}"
    assert len(lines) <= 15


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["arms.toml", "--dry-run", "--set", "compare.probes.shuffeled.x=1"], "there is no such probe"),
        (["arms.toml", "--dry-run", "--set", "compare.grid=[1e-3]", "--set", "compare.tune=[1e-3]"], "compare.grid"),
        (["more-steps.toml", "--dry-run"], "overrides training.max_steps: the arms would see different amounts"),
        (["arms.toml", "--dry-run", "--set", "model.encoding=t5"], "every arm sets model.encoding itself"),
        (["options.toml", "--set", "model.encoding_options.theta=free"], "sets model.encoding_options.theta itself"),
        ([], "Missing argument 'RECIPE'"),
        (["arms.toml", "more.toml"], "unexpected extra argument"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: list[str], words: str):
    result = run(*arguments, code=2)
    (line,) = result.stderr.splitlines()
    assert words in line
    assert result.stdout == ""


def test_an_override_that_some_arm_leaves_to_the_recipe_counts():
    two = 'compare.arms=[{name="rope", "model.encoding"="rope"}, {name="as-written"}]'
    shown = run("arms.toml", "--dry-run", "--json", "--set", two, "--set", "model.encoding=t5")
    assert json.loads(shown.stdout)["model"]["encoding"] == "t5"
