"""docs/papers.md names tests that are there, and numbers that the committed results give."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]


def results(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "evidence" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def test_every_test_that_is_named_is_in_the_file_before_it():
    assert len(ROWS) > 25
    for row in ROWS:
        files = [name for name in re.findall(r"`([\w/]+\.py)`", row) if (ROOT / "tests" / name).is_file()]
        text = "".join((ROOT / "tests" / name).read_text(encoding="utf-8") for name in files)
        table = text or "".join(path.read_text(encoding="utf-8") for path in _files_above(row))
        missing = [name for name in re.findall(r"`(test_\w+)`", row) if f"def {name}(" not in table]
        assert missing == [], row[:80]


def _files_above(row: str) -> list[Path]:
    """Return the test files that the rows above this one name: "the same"."""
    above = PAGE[: PAGE.index(row)]
    return [ROOT / "tests" / name for name in re.findall(r"`([\w/]+/test_\w+\.py)`", above)]


def test_every_path_is_there():
    for name in re.findall(r"`((?:encodings|papers|ops|networks|attention|repository)/[\w/]+\.py)`", PAGE):
        assert (ROOT / "tests" / name).is_file() or (ROOT / "src" / "wordorder" / name).is_file(), name


@pytest.mark.parametrize(
    ("arm", "shown"),
    [
        ("initial-phases", ".787 with"),
        ("complex-order", ".784 without"),
        ("amplitude-word-sharing", "(.748;"),
        ("complex-vanilla", ".784 and .800"),
        ("period-word-sharing", ".765 to .785"),
        ("amplitude-dimension-sharing", ".765 to .785"),
    ],
)
def test_scores_of_the_ablation_are_those_of_its_results(arm: str, shown: str):
    rows = results("classification")["complex_order_ablation"]["rows"]
    score = f"{fmean(row['accuracy'] for row in rows if row['arm'] == arm):.3f}".removeprefix("0")
    assert shown in PAGE
    assert score in shown


def test_shares_of_steps_and_attention_are_those_on_their_pages():
    tupe, memory = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("tupe.md", "memory.md"))
    table = tupe.partition("<!-- scales -->")[2].partition("<!-- /scales -->")[0]
    shares = [int(share) for line in table.splitlines() if "tupe" in line for share in re.findall(r" (\d+)% \[", line)]
    assert f"{min(shares)} to {max(shares)}% at three sizes" in PAGE
    attention = re.findall(r"\| ([\d.]+)% ±", memory.partition("<!-- attention-by-distance -->")[2])[:2]
    assert f"{attention[1]}% of the attention is on its memory, {attention[0]}% with Transformer-XL" in PAGE
