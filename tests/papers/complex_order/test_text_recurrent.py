import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from text_from_paper import recurrent

from wordorder.networks import initialise
from wordorder.papers.complex_order import ComplexTextRecurrent, TextEmbedding, TextNetwork, TextRecurrent


def weights_of(lstms):
    return [[getattr(m, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")] for m in lstms]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("layers", [1, 2])
def test_output_and_every_gradient_match_the_equations(side, layers):
    body = TextRecurrent(5, hidden=4, layers=layers)
    network = TextNetwork(TextEmbedding(30, width=5), body).double()
    texts = texts_of(7, 1, 4)
    ids, valid, positions = padded(texts, side, value=3)
    output = network(ids, positions, key_padding_mask=~valid)
    states = [recurrent(list(network.words.embedding.weight[text]), weights_of(body.forwards)) for text in texts]
    paper = torch.cat([*(rows[-1] for rows in states), *(row for rows in states for row in rows)])
    ours = torch.cat([output.features.flatten(), output.hidden[valid].flatten()])
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))
    assert (output.hidden[~valid] == 0).all()


def test_initial_weights_leave_the_forget_gate_open():
    body = TextRecurrent(5, hidden=16)
    initialise(body, seed=3, std=0.02)
    (lstm,) = body.forwards
    assert lstm.bias_ih_l0.tolist() == [0.0] * 16 + [1.0] * 16 + [0.0] * 32
    assert (lstm.bias_hh_l0 == 0).all()
    assert 0.2 < lstm.weight_hh_l0.abs().max() <= 0.25
    again = TextRecurrent(5, hidden=16)
    initialise(again, seed=3, std=0.5)
    assert torch.equal(lstm.weight_ih_l0, again.forwards[0].weight_ih_l0)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hidden": 0}, "hidden must be positive, got 0"),
        ({"layers": 0}, "layers must be positive"),
    ],
)
def test_wrong_sizes_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        TextRecurrent(5, **{"hidden": 4, **options})


@pytest.mark.parametrize(("kind", "channels"), [(TextRecurrent, 4), (ComplexTextRecurrent, 8)])
def test_dropout_is_between_layers_and_in_training_alone(kind, channels):
    x = torch.randn(2, 5, channels)
    for layers, differs in ((1, False), (2, True)):
        body = kind(4, hidden=6, layers=layers, dropout=0.5)
        assert torch.equal(body(x).features, body(x).features) != differs
        body.eval()
        assert torch.equal(body(x).features, body(x).features)


def test_autocast_runs_in_float32_on_a_cpu_without_an_lstm_in_16_bits(monkeypatch):
    monkeypatch.setattr("wordorder.papers.complex_order.recurrent._HAS_16_BITS", False)
    network, x = TextRecurrent(6, hidden=5), torch.randn(2, 4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = network(x).features
    assert found.dtype == torch.float32
    assert torch.equal(found, network(x).features)
