"""A term by the layer's input that is one file of somebody else, beside what each network does for FoX."""

import sys
from pathlib import Path

import pytest
import torch
from network_cases import decoder
from torch.testing import assert_close

from wordorder import Positional, SegmentRecurrence, encodings
from wordorder.encodings import CATALOG, register_encoding
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache, check_encoding

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contribution"))
from forgetting import Forgetting

IDS = torch.arange(40).view(2, 20) % 39 + 1


@pytest.fixture(autouse=True)
def registered():
    register_encoding("forgetting", Forgetting)
    yield
    del CATALOG["forgetting"]


def test_every_check_of_an_encoding_finds_nothing():
    findings = check_encoding(Forgetting, use="decoder")
    assert {finding.kind for finding in findings} == {"information"}
    assert {finding.check for finding in findings} == {"word order", "start values"}


@pytest.mark.parametrize("beside", ["", "rope+", "t5@6,"])
@pytest.mark.parametrize("memory", [None, SegmentRecurrence(7)])
def test_it_is_fox_with_every_gradient(beside, memory):
    ours, theirs = (decoder(f"{beside}{name}", memory=memory) for name in ("forgetting", "fox"))
    weights = {name.replace(".fox.", ".forgetting."): tensor for name, tensor in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    hidden = []
    for network in (ours, theirs):
        first = network(IDS[:, :9])
        hidden.append(network(IDS[:, 9:], memory=first.memory).hidden if memory else first.hidden)
    assert_close(*hidden, rtol=0, atol=1e-12)
    upstream = torch.randn_like(hidden[0])
    mine, fox = (
        torch.autograd.grad((y * upstream).sum(), list(n.encoding.parameters()), allow_unused=True)
        for y, n in zip(hidden, (ours, theirs), strict=True)
    )
    assert any(gradient is not None and gradient.abs().sum() > 0 for gradient in mine)
    assert_close(mine, fox, rtol=0, atol=1e-11)


def test_token_by_token_equals_at_once_in_its_network_and_in_one_of_ones_own():
    network, cache = decoder("forgetting"), KeyValueCache()
    steps = [network(IDS[:, t : t + 1], cache=cache).hidden for t in range(20)]
    assert_close(torch.cat(steps, 1), network(IDS).hidden, rtol=0, atol=1e-10)
    positional = Positional("forgetting", width=16, heads=2, layers=2, causal=True).double()
    x, (q, k, v) = torch.randn(2, 9, 16).double(), torch.randn(3, 2, 2, 9, 8).double()
    whole, cache = positional.prepare(x).attend(1, q, k, v, x=x), positional.cache()
    for t in range(9):
        new = slice(t, t + 1)
        step = positional.prepare(x[:, new], cache=cache)
        for layer in range(2):
            out = step.attend(layer, q[:, :, new], k[:, :, new], v[:, :, new], x=x[:, new])
            if layer == 1:
                assert_close(out, whole[:, :, new], rtol=0, atol=1e-10)


def test_it_is_refused_where_it_says_so():
    with pytest.raises(BadInput, match="'forgetting' is not defined for encoder: a gate forgets"):
        encodings.build_encoding("forgetting", width=16, heads=2, layers=1, max_positions=9)
