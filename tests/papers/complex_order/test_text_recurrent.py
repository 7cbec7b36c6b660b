import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from text_from_paper import lstm

from wordorder.networks import initialise
from wordorder.papers.complex_order import TextEmbedding, TextNetwork, TextRecurrent


def weights_of(layer):
    return [getattr(layer, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


@pytest.mark.parametrize("side", ["left", "right"])
def test_output_and_every_gradient_match_the_equations(side):
    body = TextRecurrent(5, hidden=4)
    network = TextNetwork(TextEmbedding(30, width=5), body).double()
    texts = texts_of(7, 1, 4)
    ids, valid, positions = padded(texts, side, value=3)
    output = network(ids, positions, key_padding_mask=~valid)
    states = [lstm(list(network.words.embedding.weight[text]), weights_of(body.forwards[0])) for text in texts]
    paper = torch.cat([*(rows[-1] for rows in states), *(row for rows in states for row in rows)])
    ours = torch.cat([output.features.flatten(), output.hidden[valid].flatten()])
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))
    assert (output.hidden[~valid] == 0).all()


def test_initial_weights_leave_the_forget_gate_open():
    body = TextRecurrent(5, hidden=16)
    initialise(body, seed=3, std=0.02)
    (layer,) = body.forwards
    assert layer.bias_ih_l0.tolist() == [0.0] * 16 + [1.0] * 16 + [0.0] * 32
    assert (layer.bias_hh_l0 == 0).all()
    assert 0.2 < layer.weight_hh_l0.abs().max() <= 0.25
    again = TextRecurrent(5, hidden=16)
    initialise(again, seed=3, std=0.5)
    assert torch.equal(layer.weight_ih_l0, again.forwards[0].weight_ih_l0)


def test_autocast_runs_in_float32_on_a_cpu_without_an_lstm_in_16_bits(monkeypatch):
    monkeypatch.setattr("wordorder.papers.complex_order.recurrent._HAS_16_BITS", False)
    network, x = TextRecurrent(6, hidden=5), torch.randn(2, 4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = network(x).features
    assert found.dtype == torch.float32
    assert torch.equal(found, network(x).features)
