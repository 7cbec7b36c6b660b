"""Adapters, offloading and wrappers act on the modules of text networks, and padding on the left is not counted."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder.errors import BadInput
from wordorder.ops import Contiguous
from wordorder.papers.complex_order import BagOfWords, TextConvolution, TextEmbedding, TextNetwork, TextRecurrent

BODIES = {
    "bag": BagOfWords,
    "convolution": TextConvolution,
    "recurrent": lambda width, **kind: TextRecurrent(width, hidden=5, **kind),
}
COMPLEX = [pytest.param(False, id="real"), pytest.param(True, id="complex")]


class Around(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module

    def forward(self, *arguments, **keywords):
        return self.inner(*arguments, **keywords)


def build(body, complex_valued, encoding="complex-order"):
    torch.manual_seed(0)
    words = TextEmbedding(30, width=8, encoding=encoding, complex_valued=complex_valued, dropout=0.0)
    return TextNetwork(words, BODIES[body](8, complex_valued=complex_valued)).eval()


def features(network):
    ids = torch.randint(1, 30, (2, 9), generator=torch.Generator().manual_seed(1))
    return network(ids, Contiguous(9, 5)).features


@pytest.mark.parametrize("complex_valued", COMPLEX)
@pytest.mark.parametrize("body", BODIES)
def test_wrapped_embeddings_are_told_positions(body, complex_valued):
    network = build(body, complex_valued)
    expected = features(network)
    network.words.embedding = Around(network.words.embedding)
    assert_close(features(network), expected)


@pytest.mark.parametrize("complex_valued", COMPLEX)
def test_filters_may_be_wrapped(complex_valued):
    network = build("convolution", complex_valued)
    expected = features(network)
    for index, bank in enumerate(network.body.filters):
        network.body.filters[index] = Around(bank)
    assert_close(features(network), expected)


@pytest.mark.parametrize("complex_valued", COMPLEX)
@pytest.mark.parametrize("body", BODIES)
def test_weights_that_are_loaded_as_modules_are_called_give_the_same(body, complex_valued):
    accelerate = pytest.importorskip("accelerate")
    network = build(body, complex_valued)
    offloaded = accelerate.cpu_offload(copy.deepcopy(network), execution_device="cpu")
    with torch.no_grad():
        assert torch.equal(features(offloaded), features(network))


def test_padding_on_the_left_is_not_counted_in_silence():
    network = build("bag", complex_valued=False)
    ids, padding = torch.randint(1, 30, (2, 9)), torch.zeros(2, 9, dtype=torch.bool)
    padding[0, :3] = True
    with pytest.raises(BadInput, match="pass positions=Contiguous"):
        network(ids, key_padding_mask=padding)
    found = network(ids, Contiguous(9, torch.tensor([-3, 0])), key_padding_mask=padding).features[0]
    assert_close(found, network(ids[:1, 3:]).features[0])
