import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from text_from_paper import bag
from torch.testing import assert_close

from wordorder.papers.complex_order import BagOfWords, TextEmbedding, TextNetwork


@pytest.mark.parametrize("side", ["left", "right"])
def test_output_and_gradient_match_the_equation(side):
    network = TextNetwork(TextEmbedding(30, width=6), BagOfWords(6)).double()
    texts = texts_of(7, 1, 4)
    ids, valid, positions = padded(texts, side)
    paper = torch.stack([bag(list(network.words.embedding.weight[text])) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))


def test_order_is_nothing_to_a_bag_even_with_added_positions():
    for encoding in ("none", "learned", "sinusoidal"):
        network = TextNetwork(TextEmbedding(30, width=6, encoding=encoding), BagOfWords(6)).double()
        ids = torch.randint(30, (2, 9))
        assert_close(network(ids).features, network(ids[:, torch.randperm(9)]).features)


def test_a_mean_of_16_bit_vectors_is_rounded_once():
    x = torch.randn(50, 999, 3).bfloat16()
    mean = BagOfWords(3)(x).features
    assert mean.dtype == torch.bfloat16
    assert torch.equal(mean, x.double().mean(1).bfloat16())
