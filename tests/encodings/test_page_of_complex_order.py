"""docs/complex-order.md: its numbers and names are those of the code."""

import re
from pathlib import Path
from typing import get_args

import pytest
import torch

from wordorder import ComplexOrderEmbedding, ComplexVanillaEmbedding
from wordorder.encodings.wave_embedding import AsReal, FrequencyInit

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "complex-order.md").read_text(encoding="utf-8")


def test_the_table_counts_parameters():
    with torch.device("meta"):
        built = {
            "`full`": ComplexOrderEmbedding(30_000, 512),
            "`word-sharing`": ComplexOrderEmbedding(30_000, 512, frequency="word-sharing"),
            "`dimension-sharing`": ComplexOrderEmbedding(30_000, 512, frequency="dimension-sharing"),
            "`full`, and phases": ComplexOrderEmbedding(30_000, 512, phase=True),
            "`complex-vanilla`: phases, no frequency": ComplexVanillaEmbedding(30_000, 512),
        }
    for name, embedding in built.items():
        count = sum(parameter.numel() for parameter in embedding.parameters())
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} | ("))
        assert f" {count:,} " in row
        assert float(row.split("|")[-2]) == pytest.approx(count / (30_000 * 512), abs=6e-4)


def test_every_choice_is_in_its_table():
    told = set(re.findall(r"^\| `([a-z-]+)`", PAGE, flags=re.MULTILINE))
    assert {*get_args(FrequencyInit), *get_args(AsReal)} <= told
