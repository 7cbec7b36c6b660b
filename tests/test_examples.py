"""The examples run, shortened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def output_of(name: str, *arguments: str, folder: Path) -> str:
    """Run an example in a folder of its own and give what it printed."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "WORDORDER_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_swap_the_encoding_shows_that_order_pays(tmp_path: Path):
    text = output_of("swap_the_encoding.py", "--steps", "60", "--encodings", "none", "tupe-r", folder=tmp_path)
    losses = {line.split()[0]: float(line.split()[-1]) for line in text.splitlines()}
    assert list(losses) == ["none", "tupe-r"]
    assert losses["tupe-r"] < losses["none"]


def test_pretrain_on_your_text_fills_a_mask(tmp_path: Path):
    for number in range(8):
        text = (
            f"the people of the united states number {number} went to the house and spoke of peace and of war . " * 40
        )
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    text = output_of("pretrain_on_your_text.py", "*.txt", "--steps", "4", folder=tmp_path)
    assert "test perplexity" in text
    assert len([line for line in text.splitlines() if line.startswith("0.")]) == 3


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_run_by_a_test(path: Path):
    assert path.name in Path(__file__).read_text(encoding="utf-8")


def test_the_benchmark_prints_ratios_to_plain_attention(tmp_path: Path):
    sizes = ["--length", "16", "--batch", "2", "--width", "16", "--layers", "1", "--rounds", "2"]
    text = output_of("../benchmarks/encodings.py", *sizes, "--json", "speed.json", folder=tmp_path)
    rows = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["rows"]
    assert rows["none"]["ratio"] == 1
    assert all(name in text and row["ratio"] > 0 for name, row in rows.items())
