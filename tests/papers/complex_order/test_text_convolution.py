import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from text_from_paper import convolution

from wordorder.networks import initialise
from wordorder.papers.complex_order import TextConvolution, TextEmbedding, TextNetwork


@pytest.mark.parametrize("side", ["left", "right"])
def test_output_and_every_gradient_match_the_equation(side):
    body = TextConvolution(5, filters=3)
    network = TextNetwork(TextEmbedding(30, width=5), body).double()
    for bank in body.filters:
        torch.nn.init.normal_(bank.bias)
    texts = texts_of(9, 1, 3, 5)  # one shorter than the smallest filter, one as long as the largest
    ids, valid, positions = padded(texts, side, value=7)
    banks = [(bank.weight, bank.bias) for bank in body.filters]
    paper = torch.stack([convolution(list(network.words.embedding.weight[text]), banks) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_without_a_mask_every_token_counts(length):
    body = TextConvolution(5, filters=3).double()
    x = torch.randn(2, length, 5, dtype=torch.float64)
    banks = [(bank.weight, bank.bias) for bank in body.filters]
    paper = torch.stack([convolution(list(rows), banks) for rows in x])
    assert_same_with_gradients(body(x).features, paper, dict(body.named_parameters()))


def test_filters_start_at_he_s_scale_whatever_the_network_s():
    body = TextConvolution(100, filters=200)
    initialise(body, seed=0, std=7.0)
    for bank, size in zip(body.filters, (3, 4, 5), strict=True):
        assert bank.weight.var().item() == pytest.approx(2 / (size * 100), rel=0.03)
        assert (bank.bias == 0).all()
