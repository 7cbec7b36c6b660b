"""The README's code runs, and what it names exists."""

import importlib
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Give the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_the_python_examples_run_and_give_what_they_say():
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        for code in blocks("python"):
            exec(compile(code, "README.md", "exec"), names)
    assert tuple(names["hidden"].shape) == (8, 128, 256)
    assert type(names["model"]).__name__ == "WordOrderEncoderForMaskedLM"
    assert names["model"].config.encoding == "tupe-r"


def test_the_first_screen_says_what_it_is_for_and_shows_three_ways_in():
    parts = (
        "# wordorder\n",
        "**Swap the",
        "pip install wordorder",
        "**In PyTorch**",
        "**In Hugging Face",
        "**On your own",
    )
    places = [README.index(part) for part in (*parts, "wordorder compare demo", "<picture>", "make demo", "make test")]
    assert places == sorted(places)
    assert all(len(code.splitlines()) <= 5 for code in blocks("python"))


def test_every_command_and_make_target_that_is_named_exists():
    from wordorder.cli.app import app

    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    named = set(re.findall(r"(?:^|`)wordorder ([a-z-]+)", README, flags=re.MULTILINE))
    assert {"compare", "init"} <= named <= commands
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert {"demo", "test"} <= set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets


def test_the_table_the_picture_and_the_badges_are_those_of_the_committed_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "evidence" / "publish"))
    publish = importlib.import_module("publish_readme")
    assert publish.page_of(README) == README, "run publish_readme.py"
    for name, text in publish.files().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run publish_readme.py"


def test_links_are_absolute_so_that_they_work_on_the_package_index_too():
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)", prose) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose, flags=re.MULTILINE)
    links += re.findall(r"(?:src|srcset|href)=[\"']?([^\"'\s>]+)", prose)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_links_into_the_project_lead_to_what_is_there():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    for path in re.findall(rf"{urls['Documentation']}([\w./-]*)\.html", README):
        assert (ROOT / "docs" / f"{path}.md").is_file(), f"{path}.html"
    code = urls["Repository"].removeprefix("https://github.com/")
    at = rf"https://(?:github\.com/{code}/(?:blob|tree|raw)|raw\.githubusercontent\.com/{code})/main/([\w./-]+)"
    for path in re.findall(at, README):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("docs/results.md", "publish_demo"),
        ("docs/translation.md", "publish_demo"),
        ("docs/comparisons.md", "publish_demo"),
        ("docs/inspect.md", "publish_inspect"),
        ("docs/memory.md", "publish_attention_by_distance"),
        ("docs/cost.md", "publish_cost"),
    ],
)
def test_tables_are_those_of_the_committed_results(page: str, script: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "evidence" / "publish")  # as if it had been run from there
    spec = importlib.util.spec_from_file_location(script, ROOT / "evidence" / "publish" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    publish = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(publish)
    text = (ROOT / page).read_text(encoding="utf-8")
    names = [name for name in re.findall(r"<!-- ([a-z-]+)-table -->", text) if name != "cells"]  # of publish_decision
    assert names
    for name in names:
        results = json.loads((ROOT / "evidence" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        assert publish.put(text, name, publish.table_of(results)) == text
