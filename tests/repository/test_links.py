"""Links and pictures of the repository's Markdown lead to files and headings that are there.

Addresses of the project itself are taken as the files that they show; those of others are not asked. Anchors of the
Python reference are made as the site is built, which `make docs` checks.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.figures.source import addresses_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
REPOSITORY = URLS["Repository"].removeprefix("https://github.com/")
FILES_OF_THE_PROJECT = re.compile(
    rf"https://(?:github\.com/{REPOSITORY}/(?:blob|tree|raw)|raw\.githubusercontent\.com/{REPOSITORY})/main/(.+)"
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and GitHub make them, and those that it sets itself."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = [re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*?)(?: \{#.*)?$", prose, re.M)]
    return {re.sub(r"[ -]+", "-", title.strip()) for title in headings} | set(re.findall(r"[#\"]([\w-]+)[\"}]", text))


def target(page: Path, address: str) -> tuple[Path, str] | None:
    """Return the file and the anchor that an address of a page leads to; None for an address of others."""
    path, _, anchor = address.partition("#")
    if file_of_project := FILES_OF_THE_PROJECT.fullmatch(path):
        return ROOT / file_of_project[1], anchor
    if re.match(r"[a-z]+:", address):
        return None
    return (page.parent / path if path else page), anchor


def broken(page: Path) -> Iterator[str]:
    for address in addresses_in(page.read_text(encoding="utf-8")):
        if (goal := target(page, address)) is None:
            continue
        file, anchor = goal
        if not file.exists():
            yield address
        elif anchor and file.suffix == ".md" and "reference" not in file.parts and anchor not in anchors(file):
            yield address


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_pictures_lead_to_files_and_headings(page: Path):
    assert list(broken(page)) == []


def test_a_planted_link_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# A title: two\n[a](#a-title-two) [b](#no) [c](no.md) [d](https://arxiv.org/x)\n![e](page.png)\n")
    assert list(broken(page)) == ["#no", "no.md", "page.png"]


def test_what_only_the_site_can_show_is_on_its_reference_alone():
    """A page is read as a file too, where nothing is included and no docstring is put in."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        if "reference" not in page.parts:
            assert re.findall(r"^(?::::|--8<--|!!!|\?\?\?).*", text, re.MULTILINE) == [], page.name


def test_every_figure_in_a_page_has_a_width():
    """A drawing without a width of its own is as wide as the page, or has no width at all."""
    pictures = [(page, name) for page in PAGES for name in re.findall(r"\]\(([^)]+\.svg)\)", page.read_text("utf-8"))]
    files = {page.parent / name for page, name in pictures}
    assert len(files) > 10
    without = [file.name for file in files if not re.search(r"<svg [^>]*\bwidth=", file.read_text(encoding="utf-8"))]
    assert without == []
