"""Run the code of docs/tutorials/*.md from top to bottom, and write down what it printed.

    python evidence/publish/publish_tutorials.py [PAGE.md ...]

In a page, Python blocks run one after the other in one namespace, lines of `bash` blocks that begin with `wordorder`
run as commands, and a block with a title is a file, which is written first. A `text` block right below a block that
runs is its output, and is filled in by this script; `text title="printed once"` is output that differs from machine to
machine. A picture `../figures/tutorials/PAGE/NAME.svg` is the figure NAME.svg that the page's own code drew; this
script takes it from the page's folder. A test runs the same pages and compares what they print and draw with what
they show.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from charts import THEME

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```\n', flags=re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"^!\[[^\]]+\]\(\.\./(figures/tutorials/[^)]+\.svg)\)$", flags=re.MULTILINE)
DRAWING = {"svg.fonttype": "none", "svg.hashsalt": "wordorder"}
"""Text stays text; names of clip paths would be drawn by chance without a salt."""
COLOURS = {"#000000": "currentColor", "#555d66": "currentColor", "#8a2c0a": "#c9562b", "#11785b": "#2a9d7c"}
"""Colour of a figure (the last three are the report's) -> one that is seen on white and on a dark page."""
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
ONCE = "printed once"


@dataclass(frozen=True)
class Printed:
    """What a block printed, and the block of the page that shows it, if one does."""

    text: str
    shown: str | None
    once: bool
    span: tuple[int, int]
    """Of the shown text within the page."""


def run(page: str, name: str) -> Iterator[Printed]:
    """Run a page's blocks in the present folder; one result for each that ran."""
    found = list(BLOCK.finditer(page))
    names: dict[str, Any] = {"__name__": "tutorial"}
    for block, after in zip(found, [*found[1:], None], strict=True):
        language, title, code = block.groups()
        if title and language != "text":
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(code, encoding="utf-8")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), mpl.rc_context(DRAWING):
            if language == "python":
                exec(compile(code, name, "exec"), names)
            elif language == "bash":
                for line in code.splitlines():
                    command(line)
            else:
                continue
        below = after is not None and after[1] == "text" and not page[block.end() : after.start()].strip()
        yield Printed(
            printed.getvalue(),
            after[3] if below and after else None,
            bool(below and after and after[2] == ONCE),
            after.span(3) if below and after else (0, 0),
        )


def command(line: str) -> None:
    """Run a line of a shell that begins with `wordorder`; others are for the reader."""
    from wordorder.cli.app import app

    words = shlex.split(line, comments=True)
    if words[:1] == ["wordorder"]:
        app(words[1:], standalone_mode=False)


def agree(shown: str, printed: str, *, tolerance: float = 0.1) -> bool:
    """Whether two outputs are the same but for the last digits of decimal numbers, which depend on the processor.

    Args:
        shown: on the page.
        printed: now.
        tolerance: largest difference of two decimal numbers, relative, or absolute for those below 1.
    """
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(map(float, NUMBER.findall(shown)), map(float, NUMBER.findall(printed)), strict=True)
    return all(abs(one - other) <= tolerance * max(1.0, abs(one)) for one, other in pairs)


def filled(page: str, results: list[Printed]) -> str:
    """The page with every shown output replaced by the present one."""
    for result in reversed([result for result in results if result.shown is not None]):
        start, end = result.span
        page = page[:start] + result.text + page[end:]
    return page


def figures(page: str) -> dict[Path, str]:
    """Return the figures that a page shows, as files of the repository, drawn in the present folder by its code."""
    return {ROOT / "docs" / name: for_a_page(next(Path().rglob(Path(name).name))) for name in FIGURE.findall(page)}


def for_a_page(path: Path) -> str:
    """Return matplotlib's SVG in the colours of a light or a dark page, as the reader's system asks for."""
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    for part in ("metadata", "style"):
        svg = re.sub(rf"\s*<{part}.*?</{part}>", "", svg, flags=re.DOTALL)
    svg = svg.replace("fill: #ffffff", "fill: none").replace("<defs/>", "")
    for colour, other in COLOURS.items():
        svg = svg.replace(colour, other)
    sized = r'\1fill="currentColor" width="\2" style="max-width:100%;height:auto"\3' + THEME
    svg = re.sub(r'(<svg [^>]*?)width="([^"]*)" height="[^"]*"([^>]*>)', sized, svg, count=1)
    return re.sub(r"\s*\n\s*", "\n", svg)


def main() -> None:
    """Run the named pages, or all."""
    os.environ["COLUMNS"] = "100"
    for path in [TUTORIALS / name for name in sys.argv[1:]] or sorted(TUTORIALS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            sys.path.insert(0, folder)
            began = time.perf_counter()
            path.write_text(filled(page, list(run(page, path.name))), encoding="utf-8")
            print(f"{path.name}: {time.perf_counter() - began:.0f} s")
            for figure, svg in figures(page).items():
                figure.parent.mkdir(parents=True, exist_ok=True)
                figure.write_text(svg, encoding="utf-8")
            sys.path.remove(folder)


if __name__ == "__main__":
    main()
