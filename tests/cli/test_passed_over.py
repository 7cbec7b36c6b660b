"""Commands that read data say which files they leave out, and how many tokens the tokenizer does not know."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app

LEFT_OUT = "3 of the source's files and folders are left out: .md 2, no ending 1"
UNKNOWN = "[UNK] stands for tokens that the tokenizer does not know: "
ARMS = '\n[compare]\nseeds = [0]\n\n[[compare.arms]]\nname = "rope"\n"model.encoding" = "rope"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, recipe_text: str) -> Path:
    """Make a folder with texts, some words of which are rare, between files that are no texts."""
    folder = tmp_path_factory.mktemp("passed-over")
    (folder / "corpus").mkdir()
    for number in range(8):
        words = [f"word{number * place % 23}" if place % 10 else f"rare{number}x{place}" for place in range(120)]
        (folder / "corpus" / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")
    for name in ("notes.md", "more.md", "LICENCE"):
        (folder / "corpus" / name).write_text("No text.", encoding="utf-8")
    (folder / "strange").mkdir()
    for number in range(8):
        strange = " ".join(f"strange{number}x{place}" for place in range(60))
        (folder / "strange" / f"{number}.txt").write_text(strange, encoding="utf-8")
    recipe = (
        recipe_text.replace("corpus.txt", "corpus").replace("= 64", "= 32").replace("max_steps = 4", "max_steps = 1")
    )
    (folder / "one.toml").write_text(recipe, encoding="utf-8")
    (folder / "arms.toml").write_text(recipe.replace('"run"', '"comparison"') + ARMS, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that folder."""
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Result:
    """Train once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return call("train", "one.toml")


def call(*words: str, code: int = 0) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result


def test_training_says_both_and_writes_what_it_left_out(trained: Result, folder: Path):
    assert LEFT_OUT in trained.stderr
    assert UNKNOWN in trained.stderr
    statistics = json.loads((folder / "run" / "data.json").read_text(encoding="utf-8"))
    assert statistics["left_out"] == {".md": 2, "no ending": 1}
    assert statistics["train"]["unknown_fraction"] > 0.01


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["init", "--data", "corpus", "--task", "masked-lm", "--out", "first.toml"], [LEFT_OUT]),
        (["compare", "arms.toml"], [LEFT_OUT, UNKNOWN]),
        (
            ["data", "one.toml"],
            ["3 of the source's files and folders are left out: .md 2, no ending 1", "[UNK] stands for tokens"],
        ),
        (["evaluate", "run/model", "corpus"], [LEFT_OUT, UNKNOWN]),
    ],
)
def test_what_is_passed_over_is_said(words: list[str], lines: list[str]):
    result = call(*words)
    assert [line for line in lines if line not in result.stdout + result.stderr] == []


@pytest.mark.usefixtures("trained")
def test_evaluate_refuses_texts_of_unknown_words():
    (line,) = call("evaluate", "run/model", "strange", "--split", "all", code=2).stderr.splitlines()
    assert "100.0% of the texts of test" in line
    assert "give texts of the language that it learned" in line
