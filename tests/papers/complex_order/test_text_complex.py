import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from torch.testing import assert_close

from wordorder.errors import BadInput
from wordorder.papers.complex_order import (
    BagOfWords,
    TextConvolution,
    TextEmbedding,
    TextNetwork,
    TextRecurrent,
    UnitaryTextRecurrent,
)


def embedding_of(width=5, encoding="complex-order", **options):
    return TextEmbedding(30, width=width, complex_valued=True, encoding=encoding, **options)


def waves(embedding, text):
    """``r exp(i w p)`` of each token of one text, complex128 (n, C)."""
    table = embedding.embedding.waves
    steps = torch.arange(len(text))[:, None]
    return table.amplitude[text] * torch.exp(1j * table.frequency[text] * steps)


def relu(z):
    return torch.complex(z.real.clamp(min=0), z.imag.clamp(min=0))


def bias_of(layer):
    return torch.complex(*layer.bias_pair())


def matrix_of(layer):
    return torch.complex(layer.weight_real, layer.weight_imag)


def bag(body, rows):
    mean = rows.sum(0) / len(rows)
    return relu(matrix_of(body.dense) @ mean + bias_of(body.dense)).abs()


def convolution(body, rows, read_out="modulus"):
    features = []
    for bank in body.filters:
        weight, bias, size = matrix_of(bank), bias_of(bank), bank.weight_real.shape[2]
        short = max(0, size - len(rows))
        rows_k = torch.cat([rows, torch.zeros(short, rows.shape[1], dtype=rows.dtype)])
        found = []
        for s in range(len(rows_k) - size + 1):
            window = rows_k[s : s + size]  # (k, C)
            found.append(relu((weight * window.T).sum((1, 2)) + bias))
        found = torch.stack(found)
        features.append(torch.complex(found.real.max(0).values, found.imag.max(0).values))
    z = torch.cat(features)
    return z.abs() if read_out == "modulus" else torch.cat([z.real, z.imag])


def network_of(body, **options):
    network = TextNetwork(embedding_of(**options), body).double()
    for name, parameter in network.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter)
        elif "frequency" in name:
            torch.nn.init.uniform_(parameter, -1, 1)
    return network


def assert_equations(body, paper_of, tolerance=1e-12, side="left"):
    network = network_of(body)
    texts = texts_of(7, 1, 4, 5)
    ids, valid, positions = padded(texts, side, value=3)
    paper = torch.stack([paper_of(waves(network.words, text)) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert ours.shape[1] == network.features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()), tolerance=tolerance)


@pytest.mark.parametrize("side", ["left", "right"])
def test_bag_and_every_gradient_match_the_equations(side):
    body = BagOfWords(5, complex_valued=True)
    assert_equations(body, lambda rows: bag(body, rows), side=side)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("read_out", ["modulus", "none"])
@pytest.mark.parametrize("bias", ["complex", "shared"])
def test_convolution_and_every_gradient_match_the_equations(bias, read_out, side):
    body = TextConvolution(5, filters=4, complex_valued=True, bias=bias, read_out=read_out)
    assert_equations(body, lambda rows: convolution(body, rows, read_out), side=side)


def test_an_empty_text_has_features_0_whatever_the_biases():
    for body in (
        BagOfWords(5, complex_valued=True),
        TextConvolution(5, filters=4, complex_valued=True),
        TextConvolution(5, filters=4, complex_valued=True, read_out="none"),
        TextRecurrent(5, hidden=4, complex_valued=True),
        UnitaryTextRecurrent(5, hidden=4),
    ):
        network = network_of(body)
        valid = torch.tensor([[False, False, False], [True, True, False]])
        features = network(torch.ones(2, 3, dtype=torch.long), key_padding_mask=~valid).features
        assert (features[0] == 0).all()
        assert features[1].any()


@pytest.mark.parametrize("kind", ["bag", "convolution"])
def test_a_text_of_zeros_sends_no_gradient_that_is_not_a_number(kind):
    body = BagOfWords(5, complex_valued=True) if kind == "bag" else TextConvolution(5, filters=4, complex_valued=True)
    network = TextNetwork(embedding_of(padding_idx=0), body)
    network(torch.zeros(2, 6, dtype=torch.long)).features.sum().backward()  # z = 0 exactly, where |z| has a kink
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_a_complex_network_wants_complex_embeddings():
    with pytest.raises(BadInput, match="a complex network needs complex embeddings, got encoding 'learned'"):
        embedding_of(encoding="learned")
    with pytest.raises(BadInput, match="which only attention has"):
        embedding_of(encoding="complex-order+t5")


def test_dropout_keeps_phases():
    embedding = embedding_of(64, dropout=0.5)
    ids = torch.randint(1, 30, (2, 9))
    steps = torch.arange(1, 10)  # at 0 there is no imaginary part to compare
    dropped, whole = embedding(ids, steps), embedding.eval()(ids, steps)
    ratio = (dropped / whole).unflatten(-1, (2, 64))
    assert_close(ratio[..., 0, :], ratio[..., 1, :], rtol=1e-4, atol=1e-4)
    assert set(ratio.round().unique().tolist()) == {0.0, 2.0}


def last_state(rows, lstm):
    """h_n of a complex LSTM, one gate at a time."""
    W, U = torch.complex(*lstm.input_weight), torch.complex(*lstm.hidden_weight)
    h = c = torch.zeros(lstm.hidden, dtype=torch.complex128)
    for row in rows:
        i, f, g, o = (W[k] @ row + U[k] @ h + torch.complex(*lstm.bias[k]) for k in range(4))
        parts = []
        for part in ("real", "imag"):
            old, gates = getattr(c, part), [getattr(gate, part) for gate in (i, f, g, o)]
            cell = gates[1].sigmoid() * old + gates[0].sigmoid() * gates[2].tanh()
            parts.append((cell, gates[3].sigmoid() * cell.tanh()))
        c, h = (torch.complex(parts[0][k], parts[1][k]) for k in (0, 1))
    return h


@pytest.mark.parametrize("side", ["left", "right"])
def test_recurrent_output_and_gradients_match_the_equations(side):
    body = TextRecurrent(5, hidden=4, complex_valued=True)
    lstm = body.get_submodule("layers.0.directions.0")
    assert_equations(body, lambda rows: last_state(rows, lstm).abs(), side=side)


def unitary(body, rows):
    """Arjovsky et al. 2016, Eq. 6 without Fourier transforms, over the real parts and then the imaginary ones."""
    cell = body.cell
    size = cell.hidden
    W = torch.complex(cell.input_weight[:size], cell.input_weight[size:])
    turns = [torch.diag(torch.exp(1j * angle)) for angle in cell.angle]
    mirrors = []
    for v in cell.reflection:
        v = torch.complex(*v)
        mirrors.append(torch.eye(size) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum())
    shuffle = torch.eye(size)[cell.permutation].to(torch.complex128)
    recurrence = turns[2] @ mirrors[1] @ turns[1] @ shuffle @ mirrors[0] @ turns[0]
    h = torch.zeros(size, dtype=torch.complex128)
    for row in [*rows.real, *rows.imag]:
        z = W @ row.to(torch.complex128) + recurrence @ h
        h = z * (z.abs() + cell.bias).clamp(min=0) / (z.abs() + 1e-6)
    return torch.cat([h.real, h.imag])


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_unitary_network_of_the_reference_code(side):
    body = UnitaryTextRecurrent(5, hidden=4)
    assert_equations(body, lambda rows: unitary(body, rows), tolerance=1e-10, side=side)


def test_wrong_options_are_named():
    for kind in (TextRecurrent, UnitaryTextRecurrent):
        with pytest.raises(ValueError, match="hidden must be positive, got 0"):
            kind(5, hidden=0)
    for complex_valued in (False, True):
        with pytest.raises(ValueError, match="filters must be positive, got 0"):
            TextConvolution(5, filters=0, complex_valued=complex_valued)
