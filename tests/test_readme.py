"""The README's code runs, and what it names exists."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Give the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_example_runs_and_order_pays(code: str, capsys: pytest.CaptureFixture[str]):
    with torch.random.fork_rng():
        exec(compile(code, "README.md", "exec"), {})
    losses = {line.split()[0]: float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()}
    assert len(losses) == 5
    assert all(loss < losses["none"] / 2 for name, loss in losses.items() if name != "none"), losses


def test_the_first_screen_has_the_sentence_the_commands_an_example_and_the_table():
    places = [README.index(part) for part in ("# wordorder\n", "make demo", "```python", "<!-- demo-long-table -->")]
    assert places == sorted(places)
    assert len(blocks("python")[0].splitlines()) <= 15
    assert README.index("<!-- /demo-long-table -->") > places[-1]


def test_every_command_and_make_target_that_is_named_exists():
    from wordorder.cli.app import app

    commands = {command.name for command in app.registered_commands}
    named = set(re.findall(r"^wordorder ([a-z-]+)", README, flags=re.MULTILINE))
    assert named == commands
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) - {"demo", "test", "docs"} == set()
    assert {"demo", "test", "check", "docs", "bench", "clean", "lint", "types", "wheel-test"} <= targets


def test_every_folder_and_file_that_is_named_exists():
    named = re.findall(r"`((?:src|recipes|examples|benchmarks|docs|tests)[\w/.]*)`", README)
    assert len(named) > 10
    named += re.findall(r"\]\(([\w./]+)\)", README) + re.findall(r"(recipes/[\w.-]+\.toml)", README)
    named = [f"src/wordorder/{name}" if name.startswith("recipes") else name for name in named]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("README.md", "publish_demo"),
        ("docs/results.md", "publish_demo"),
        ("docs/translation.md", "publish_demo"),
        ("docs/comparisons.md", "publish_demo"),
        ("docs/complex-order.md", "publish_demo"),
        ("docs/language-models.md", "publish_demo"),
        ("docs/inspect.md", "publish_inspect"),
        ("docs/cost.md", "publish_cost"),
    ],
)
def test_tables_are_those_of_the_committed_results(page: str, script: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # as if it had been run from there
    spec = importlib.util.spec_from_file_location(script, ROOT / "benchmarks" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    publish = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(publish)
    text = (ROOT / page).read_text(encoding="utf-8")
    names = [name for name in re.findall(r"<!-- ([a-z-]+)-table -->", text)]
    assert names
    for name in names:
        results = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        assert publish.put(text, name, publish.table_of(results)) == text
