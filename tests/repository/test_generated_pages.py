"""Tables and figures of the pages are those that the committed results and the code give now."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wordorder.encodings import CATALOG, options_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
Files = dict[Path, str]


def of_page(publish: ModuleType) -> Files:
    """Return the page of a script that rewrites the whole page."""
    return {publish.PAGE: publish.page_of(publish.PAGE.read_text(encoding="utf-8"))}


def of_blocks(publish: ModuleType, tables: dict[str, str], page: Path) -> Files:
    """Return a page with tables in the blocks of their names."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        assert f"<!-- {name} -->" in text
        text = publish.put(text, name, table)
    return {page: text}


def of_results(publish: ModuleType, page: Path) -> Files:
    """Return a page of which each block has the table of the results of its name."""
    names = re.findall(r"<!-- ([a-z-]+) -->", page.read_text(encoding="utf-8"))
    results = {name: committed(name) for name in names if name != "cells"}  # of publish_decision
    assert results
    return of_blocks(publish, {name: publish.table_of(of) for name, of in results.items()}, page)


def of_catalogue(publish: ModuleType) -> Files:
    """Return every page, with the tables that follow from the code."""
    pages = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    readme = {ROOT / "README.md": publish.page_of((ROOT / "README.md").read_text(encoding="utf-8"), "README.md")}
    return readme | {page: publish.page_of(text, page.relative_to(DOCS).as_posix()) for page, text in pages.items()}


def committed(name: str) -> dict[str, Any]:
    (file,) = (file for folder in ("benchmarks", "evidence") for file in ROOT.glob(f"{folder}/results/{name}.json"))
    return json.loads(file.read_text(encoding="utf-8"))


def classification(publish: ModuleType) -> Files:
    results, paper = (json.loads(file.read_text(encoding="utf-8")) for file in (publish.RESULTS, publish.PAPER))
    text = publish.PAGE.read_text(encoding="utf-8")
    return {publish.PAGE: publish.page_of(text, publish.published_of(results), paper)}


def below_docs(files: dict[str, str]) -> Files:
    return {DOCS / name: text for name, text in files.items()}


WRITTEN: dict[str, list[Callable[[ModuleType], Files]]] = {
    "publish_attention_by_distance": [
        lambda publish: of_results(publish, publish.PAGE),
        lambda publish: {publish.FIGURE: f"{publish.chart_of(committed('attention-by-distance'))}\n"},
    ],
    "publish_backends": [of_page],
    "publish_choice": [of_page],
    "publish_classification": [classification],
    "publish_commands": [of_page],
    "publish_cost": [lambda publish: of_results(publish, publish.PAGE)],
    "publish_decision": [lambda publish: below_docs(publish.pages())],
    "publish_demo": [
        lambda publish, name=name: of_results(publish, DOCS / f"{name}.md")
        for name in ("results", "translation", "comparisons")
    ],
    "publish_encodings": [of_catalogue],
    "publish_inspect": [lambda publish: of_results(publish, publish.PAGE)],
    "publish_performance": [
        of_page,
        lambda publish: below_docs({f"figures/{name}": f"{chart}\n" for name, chart in publish.figures().items()}),
    ],
    "publish_rates": [of_page],
    "publish_readme": [
        lambda publish: {publish.README: publish.page_of(publish.README.read_text(encoding="utf-8"))},
        lambda publish: below_docs(publish.files()),
    ],
    "publish_scales": [of_page],
    "publish_statistics": [lambda publish: of_blocks(publish, publish.tables(), publish.PAGE)],
}
"""Script -> functions that return the files that it writes, from the committed results."""


@pytest.mark.parametrize("name", WRITTEN)
def test_files_are_what_their_script_writes(name: str, script: Callable[[str], ModuleType]):
    publish = script(name)
    for written in WRITTEN[name]:
        for file, text in written(publish).items():
            assert file.read_text(encoding="utf-8") == text, f"{file.name}: run {name}.py"


def test_every_script_that_writes_a_page_is_tried():
    scripts = {file.stem for file in ROOT.glob("evidence/publish/publish_*.py")}
    assert scripts == {*WRITTEN, "publish_tutorials"}, "publish_tutorials: see test_tutorials.py"


def test_every_block_has_its_content_and_its_end(script: Callable[[str], ModuleType]):
    """A mark without its end, or with nothing before it, would be an empty place on the page."""
    of_blocks = script("blocks").BLOCK
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        opened = re.findall(r"^<!-- ([a-z][^>]*) -->$", text, flags=re.MULTILINE)
        blocks = {found["name"]: found[0] for found in of_blocks.finditer(text)}
        if "reference/" not in name:  # the names of the reference are what the site alone can show
            assert opened == list(blocks), f"{name}: a mark has no end; run `make pages`"
        assert [block for block, content in blocks.items() if content.count("\n") < 4] == [], f"{name} has empty blocks"


def test_a_mark_that_no_script_knows_is_named(script: Callable[[str], ModuleType]):
    with pytest.raises(ValueError, match=r"index\.md: there is no table 'catalogue: nothing'"):
        script("publish_encodings").page_of("<!-- catalogue: nothing -->\n<!-- /catalogue -->\n", "index.md")


def test_every_encoding_has_a_page_and_a_meaning_for_each_option(script: Callable[[str], ModuleType]):
    pages = script("publish_encodings")
    assert set(pages.pages()) == set(CATALOG), "each class of the catalogue has its facts on one page"
    for name, kind in CATALOG.items():
        assert options_of(kind).keys() <= pages.arguments_of(kind).keys(), f"{name}: an option has no meaning"


def test_scores_are_those_of_the_results(script: Callable[[str], ModuleType]):
    results, lines = committed("order-binding"), script("publish_encodings").scores("order-binding").splitlines()[2:]
    scores = {line.split(" | ")[0].strip("| `"): float(line.split(" | ")[1].split()[0]) for line in lines}
    metric = results["metric"]
    assert scores == {entry["arm"]: round(entry[metric]["mean"], 3) for entry in results["summary"]}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)


@pytest.mark.slow
def test_the_figures_of_the_mechanisms_are_all_drawn_by_their_script(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; it comes with the extra train")
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    script("draw_mechanisms").draw([], steps=1, out=tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        file.name for file in (DOCS / "figures" / "mechanisms").iterdir()
    }
