"""How many functions of this package one forward pass calls: what a reader walks through and small inputs wait for.

The bounds are what was counted when this was written: a change that needs more says why here.
"""

import sys
from pathlib import Path

import pytest
import torch

from wordorder import Decoder, Encoder, LookAheadMemory

PACKAGE = str(Path(sys.modules[Encoder.__module__].__file__).parents[1])
IDS = torch.arange(32).view(2, 16)
PADDING = torch.zeros(2, 16, dtype=torch.bool).index_fill(1, torch.tensor([15]), True)


def calls(forward):
    """Return how many calls of functions of the package a forward makes, the second time that it runs."""
    forward()
    count = 0

    def profile(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        forward()
    finally:
        sys.setprofile(before)
    return count


def test_of_an_encoder_layer():
    encoder = Encoder(50, width=32, layers=1, heads=4, encoding="tupe-r", max_positions=64).eval()
    assert calls(lambda: encoder(IDS, key_padding_mask=PADDING)) <= 140


@pytest.mark.parametrize(("layers", "most"), [(1, 221), (2, 577)])
def test_of_a_segment_with_look_ahead_memory(layers, most):
    memory = LookAheadMemory(8)
    decoder = Decoder(50, width=32, layers=layers, heads=4, encoding="transformer-xl", memory=memory).eval()
    state = decoder(IDS).memory
    assert calls(lambda: decoder(IDS, memory=state)) <= most
