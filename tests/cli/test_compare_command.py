"""`wordorder compare`: seeds and arms that are added, and wrong use."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app
from wordorder.comparison.report.table import escaped

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


def test_a_pipe_gets_the_table_as_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = "worse by 0.12, p < 0.001 & `a` \\b [c](d) &lt;"
    (tmp_path / "table.md").write_text(escaped(words), encoding="utf-8")
    monkeypatch.setattr("wordorder.comparison.compare", lambda *_, **__: tmp_path / "results.json")
    assert run("arms.toml").stdout.splitlines()[0] == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["arms.toml", "--budget", "30m"], "--budget was removed; train fewer seeds with --seeds 2"),
        (["arms.toml", "--dry-run", "--set", "compare.probes.shuffeled.x=1"], "there is no such probe"),
        (["arms.toml", "--dry-run", "--set", "compare.grid=[1e-3]", "--set", "compare.tune=[1e-3]"], "compare.grid"),
        (["more-steps.toml", "--dry-run"], "overrides training.max_steps: the arms would see different amounts"),
        ([], "Missing argument 'RECIPE'"),
        (["arms.toml", "more.toml"], "unexpected extra argument"),
        (["--from", "a", "b", "c"], "run compare again in the same folder with more seeds or arms"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: list[str], words: str):
    result = run(*arguments, code=2)
    (line,) = result.stderr.splitlines()
    assert words in line
    assert result.stdout == ""
