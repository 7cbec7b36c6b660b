import pytest
import torch
from torch.testing import assert_close

from wordorder.networks import initialise
from wordorder.papers.complex_order import ReferenceOrderEmbedding, ReferenceVanillaEmbedding, ReferenceWords

V, D = 11, 6


def test_frequencies_of_the_published_code():
    pairs = 10_000 ** (-2 * torch.tensor([0, 0, 1, 1, 2, 2]).double() / D)
    frequency = ReferenceOrderEmbedding(V, D).double().frequency
    assert (frequency[0] == 0).all()
    assert_close(frequency[1:], pairs.expand(V - 1, D), rtol=1e-6, atol=0)
    assert 0.9 < ReferenceVanillaEmbedding(999, D).frequency.std() < 1.1


@pytest.mark.parametrize("kind", [ReferenceOrderEmbedding, ReferenceVanillaEmbedding])
def test_amplitudes_are_the_published_code_s_in_any_network(kind):
    embedding = kind(999, 64)
    initialise(embedding, seed=3, std=0.02)
    assert abs(embedding.amplitude.std().item() - 1) < 0.1
    embedding.resize(1999)
    assert abs(embedding.amplitude[999:].std().item() - 1) < 0.1


@pytest.mark.parametrize("kind", [ReferenceOrderEmbedding, ReferenceVanillaEmbedding])
def test_both_are_waves_over_positions(kind):
    coded, ids = kind(V, D).double(), torch.randint(V, (2, 5))
    turned = coded.amplitude[ids] * torch.exp(1j * coded.frequency[ids] * torch.arange(5).double()[:, None])
    assert_close(torch.complex(*coded(ids, torch.arange(5))), turned)
    assert_close(ReferenceWords(coded)(ids, torch.arange(5)), torch.cat((turned.real, turned.imag), dim=-1))
    assert set(dict(coded.named_parameters())) == {"amplitude", "frequency"}
