"""docs/memory.md: what it says of encodings and fields is so."""

import re
from pathlib import Path

import pytest
import torch

import wordorder
from wordorder.encodings import CATALOG
from wordorder.memory import MEMORIES
from wordorder.models import WordOrderEncoderConfig, config_fields

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("network", [wordorder.Encoder, wordorder.Decoder])
@pytest.mark.parametrize("memory", [kind(5) for kind in MEMORIES.values()], ids=[*MEMORIES])
def test_every_encoding_of_the_catalogue_is_defined_with_every_memory_or_named_on_the_page(network, memory):
    use = network.__name__.lower()
    for name, encoding in CATALOG.items():
        if {"encoder", "decoder"} <= {*encoding.refused_in}:  # for models of transformers alone
            continue
        if not {use, "memory", "right" if memory.looks_right else "memory"}.isdisjoint(encoding.refused_in):
            assert re.search(
                rf"^\| .*`{name}`.* \| .*{memory.name if use not in encoding.refused_in else use}", PAGE, re.M
            )
            continue
        built = network(9, width=16, layers=2, heads=2, max_positions=9, encoding=name, memory=memory).eval()
        state = None
        for _ in range(4):  # a table of 9 positions holds 5 slots and 4 tokens, whatever was read before
            state = built(torch.randint(9, (1, 4)), memory=state).memory
        assert state.position == 16, name


def test_learned_tables_and_fields_are_those_of_the_page():
    bounded = {name for name, kind in CATALOG.items() if kind.bounded}
    told = re.search(r"learned tables \(([^)]*)\)", PAGE)
    assert told is not None
    assert set(re.findall(r"`([a-z-]+)`", told[1])) == bounded
    fields = re.findall(r"^\| `([a-z_]+)` \| ", PAGE, flags=re.MULTILINE)
    assert set(fields) <= set(config_fields("encoder"))
    assert WordOrderEncoderConfig(memory="look-ahead").document_pooling == "mean"
