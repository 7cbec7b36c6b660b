"""Positions and masks that do not fit are refused alike by every encoding: none broadcasts, none fails in torch."""

import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder, Encoder, attention
from wordorder.encodings import CATALOG, OnLayerInput, OnScoresByInput
from wordorder.errors import BadInput
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed

IDS = torch.arange(12).view(2, 6)

WRONG_KIND = {
    "list": (lambda: [0, 1, 2, 3, 4, 5], r"positions must be a tensor of integers, such as .*, got list"),
    "float": (lambda: torch.arange(6.0), r"positions must be integers, got torch.float32; convert them with .long"),
    "bool": (lambda: torch.ones(6, dtype=torch.bool), r"positions must be integers, got torch.bool"),
    "uint8": (lambda: torch.arange(6, dtype=torch.uint8), r"positions must be int64 or int32, got torch.uint8"),
    "3-d": (lambda: torch.zeros(1, 2, 6).long(), r"positions must be \(T,\) or \(batch, T\), got shape \(1, 2, 6\)"),
    "float Arbitrary": (lambda: Arbitrary(torch.zeros(2, 6)), r"positions must be integers, got torch.float32"),
    "1-d Arbitrary": (lambda: Arbitrary(torch.arange(6)), r"positions must be \(batch, T\), got shape \(6,\)"),
    "float offset": (lambda: Contiguous(6, torch.zeros(2)), r"offset must be integers, got torch.float32"),
    "half an offset": (lambda: Contiguous(6, 0.5), r"offset must be an integer.* got 0.5"),
    "bool sequence": (
        lambda: Packed(torch.zeros(2, 6).long(), torch.zeros(2, 6).bool()),
        r"sequence_BT must be integers, got torch.bool",
    ),
    "short sequence": (
        lambda: Packed(torch.zeros(2, 6).long(), torch.zeros(2, 5).long()),
        r"must have one shape .* got \(2, 6\) and \(2, 5\)",
    ),
    "no token": (lambda: torch.zeros(2, 0).long(), "at least one token, got 0"),
    "length 0": (lambda: Contiguous(0), "at least one token, got 0"),
}
WRONG_SHAPE = {
    "one more": (lambda: torch.arange(7), r"got \(1, 7\)"),
    "one": (lambda: torch.arange(1), r"got \(1, 1\)"),
    "other batch": (lambda: torch.arange(6).expand(3, 6), r"got \(3, 6\)"),
    "length 7": (lambda: Contiguous(7), r"got \(1, 7\)"),
    "offsets of another batch": (lambda: Contiguous(6, torch.zeros(3).long()), r"got \(3, 6\)"),
}
WRONG_PADDING = {
    "list": ([[False] * 6] * 2, "got list; make it a tensor"),
    "float": (torch.zeros(2, 6), r"got torch.float32 \(2, 6\); a Hugging Face attention_mask is the other way round"),
    "Hugging Face's": (torch.ones(2, 6).long(), r"got torch.int64 \(2, 6\); .* pass attention_mask == 0"),
    "1-d": (torch.zeros(6, dtype=torch.bool), r"got torch.bool \(6,\); give one value for each token"),
    "one more": (torch.zeros(2, 7, dtype=torch.bool), r"got torch.bool \(2, 7\)"),
    "other batch": (torch.zeros(3, 6, dtype=torch.bool), r"got torch.bool \(3, 6\)"),
}
WRONG_MASKS = {
    "list": ([[True] * 6] * 6, "mask must be a Mask or a bool tensor .* got list"),
    "name": ("causal", "got str; for a causal mask pass Mask"),
    "float": (torch.ones(6, 6), "mask must be boolean .* got torch.float32"),
    "other sizes": (
        torch.ones(5, 7, dtype=torch.bool),
        r"mask must broadcast to .* \(2, 2, 6, 6\), got shape \(5, 7\)",
    ),
    "five axes": (torch.ones(1, 1, 1, 6, 6, dtype=torch.bool), "mask must broadcast to"),
    "rows of another batch": (
        Mask(Arbitrary(torch.arange(6).expand(3, 6)), Contiguous(6), high=0),
        r"got \(3, 6\)",
    ),
}


NAMES = [name for name, kind in CATALOG.items() if not {"encoder", "decoder"} <= {*kind.refused_in}]
IN_ATTENTION = [name for name in NAMES if not issubclass(CATALOG[name], OnScoresByInput | OnLayerInput)]


def network(name: str) -> Encoder | Decoder:
    """A tiny network with this encoding."""
    kind = Decoder if "encoder" in CATALOG[name].refused_in else Encoder
    return kind(12, width=8, layers=1, heads=2, max_positions=16, encoding=name).eval()


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_refuses_the_same_positions(name):
    read = network(name)
    for make, words in WRONG_KIND.values():
        with pytest.raises(BadInput, match=words):
            read(IDS, make())
        with pytest.raises(BadInput, match=words):
            read.encoding.prepare(make())
    for make, words in WRONG_SHAPE.values():
        with pytest.raises(BadInput, match=rf"positions must be \(6,\), \(1, 6\) or \(2, 6\), .* {words}"):
            read(IDS, make())
        with pytest.raises(BadInput, match=words):
            read.encoding.embed(torch.zeros(2, 6, 8), make())
    token_by_token = (torch.arange(6), torch.arange(6, dtype=torch.int32).expand(2, 6))
    for given in (Contiguous(6), *(() if issubclass(CATALOG[name], OnLayerInput) else token_by_token)):
        assert read(IDS, given).hidden.shape == (2, 6, 8)


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_refuses_the_same_padding(name):
    read, wanted = network(name), r"key_padding_mask must be bool \(batch, tokens\) = \(2, 6\), True = padding, "
    for given, words in WRONG_PADDING.values():
        with pytest.raises(BadInput, match=wanted + words):
            read(IDS, key_padding_mask=given)
    none = torch.zeros(2, 6, dtype=torch.bool)
    assert_close(read(IDS, key_padding_mask=none).hidden, read(IDS).hidden)


@pytest.mark.parametrize("name", NAMES)
def test_no_network_reads_an_empty_text(name):
    read = network(name)
    with pytest.raises(BadInput, match="at least one token, got 0"):
        read(IDS[:, :0])


@pytest.mark.parametrize("name", IN_ATTENTION)
def test_attention_refuses_an_order_or_a_mask_of_other_sizes(name):
    read = network(name)
    q = torch.randn(2, 2, 6, 4)
    for make, words in WRONG_SHAPE.values():
        with pytest.raises(BadInput, match=f"the terms' query positions must be .* {words}"):
            attention(q, q, q, read.encoding.prepare(make()).layer(0))
    longer = read.encoding.prepare(Contiguous(6), Contiguous(7)).layer(0)
    with pytest.raises(BadInput, match=r"the terms' key positions must be .* got \(1, 7\)"):
        attention(q, q, q, longer)
    order = read.encoding.prepare(Contiguous(6)).layer(0)
    for mask, words in WRONG_MASKS.values():
        with pytest.raises(BadInput, match=words):
            attention(q, q, q, order, mask)


def test_a_pattern_over_layers_refuses_the_same():
    read = Encoder(12, width=8, layers=2, heads=2, encoding="rope,none").eval()
    with pytest.raises(BadInput, match="positions must be integers"):
        read.encoding.prepare(torch.arange(6.0))
    q = torch.randn(2, 2, 6, 4)
    with pytest.raises(BadInput, match=r"got \(1, 1\)"):
        attention(q, q, q, read.encoding.prepare(Contiguous(1)).layer(1))
