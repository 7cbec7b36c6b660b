import pytest
import torch
from text_cases import assert_same_with_gradients, padded, texts_of
from torch.testing import assert_close

from wordorder.errors import BadInput
from wordorder.papers.complex_order import (
    ComplexBagOfWords,
    ComplexTextConvolution,
    ComplexTextEmbedding,
    ComplexTextRecurrent,
    TextNetwork,
    UnitaryTextRecurrent,
)

READ_OUTS = ["modulus", "none", "linear", "real-part"]


def waves(embedding, text):
    """``r exp(i w p)`` of each token of one text, complex128 (n, C)."""
    table = embedding.embedding.waves
    steps = torch.arange(len(text))[:, None]
    return table.amplitude[text] * torch.exp(1j * table.frequency[text] * steps)


def relu(z):
    return torch.complex(z.real.clamp(min=0), z.imag.clamp(min=0))


def bias_of(layer, size):
    if layer.bias is not None:
        return torch.complex(layer.bias, layer.bias)
    if layer.bias_real is None:
        return torch.zeros(size, dtype=torch.complex128)
    return torch.complex(layer.bias_real, layer.bias_imag)


def matrix_of(layer):
    imag = torch.zeros_like(layer.weight_real) if layer.weight_imag is None else layer.weight_imag
    return torch.complex(layer.weight_real, imag)


def read(body, kind, z):
    if kind == "linear":
        return body.read_out(torch.cat([z.real, z.imag]))
    return {"modulus": z.abs(), "none": torch.cat([z.real, z.imag]), "real-part": z.real}[kind]


def bag(body, rows, kind):
    mean = rows.sum(0) / len(rows)
    size = body.dense.outputs
    return read(body, kind, relu(matrix_of(body.dense) @ mean + bias_of(body.dense, size)))


def convolution(body, rows, kind):
    features = []
    for bank in body.filters:
        weight, bias, size = matrix_of(bank), bias_of(bank, bank.outputs), bank.size
        short = max(0, size - len(rows))
        rows_k = torch.cat([rows, torch.zeros(short, rows.shape[1], dtype=rows.dtype)])
        found = []
        for s in range(len(rows_k) - size + 1):
            window = rows_k[s : s + size]  # (k, C)
            found.append(relu((weight * window.T).sum((1, 2)) + bias))
        found = torch.stack(found)
        features.append(torch.complex(found.real.max(0).values, found.imag.max(0).values))
    return read(body, kind, torch.cat(features))


def network_of(body, **options):
    network = TextNetwork(ComplexTextEmbedding(30, width=5, **options), body).double()
    for name, parameter in network.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter)
        elif "frequency" in name:
            torch.nn.init.uniform_(parameter, -1, 1)
    return network


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("read_out", READ_OUTS)
@pytest.mark.parametrize(("shared", "bias"), [(False, "complex"), (True, "shared"), (False, "none")])
@pytest.mark.parametrize("kind", ["bag", "convolution"])
def test_output_and_every_gradient_match_the_equations(kind, side, read_out, shared, bias):
    options = {"shared_weights": shared, "bias": bias, "read_out": read_out}
    if kind == "bag":
        body, reference = ComplexBagOfWords(5, **options), bag
    else:
        body, reference = ComplexTextConvolution(5, filters=4, kernel_sizes=(2, 3, 5), **options), convolution
    network = network_of(body)
    texts = texts_of(7, 1, 4, 5)
    ids, valid, positions = padded(texts, side, value=3)
    paper = torch.stack([reference(body, waves(network.words, text), read_out) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert ours.shape[1] == network.features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))


@pytest.mark.parametrize("read_out", ["modulus", "linear", "none"])
def test_an_empty_text_has_features_0_whatever_the_biases(read_out):
    for body in (
        ComplexBagOfWords(5, read_out=read_out),
        ComplexTextConvolution(5, filters=4, read_out=read_out),
        ComplexTextRecurrent(5, hidden=4, read_out=read_out),
        UnitaryTextRecurrent(5, hidden=4, read_out=read_out),
    ):
        network = network_of(body)
        valid = torch.tensor([[False, False, False], [True, True, False]])
        features = network(torch.ones(2, 3, dtype=torch.long), key_padding_mask=~valid).features
        assert (features[0] == 0).all()
        assert features[1].any()


@pytest.mark.parametrize("kind", ["bag", "convolution"])
def test_a_text_of_zeros_sends_no_gradient_that_is_not_a_number(kind):
    body = ComplexBagOfWords(5) if kind == "bag" else ComplexTextConvolution(5, filters=4)
    network = TextNetwork(ComplexTextEmbedding(30, width=5, padding_idx=0), body)
    network(torch.zeros(2, 6, dtype=torch.long)).features.sum().backward()  # z = 0 exactly, where |z| has a kink
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_a_complex_network_wants_complex_embeddings():
    with pytest.raises(BadInput, match="a complex network needs complex embeddings, got encoding 'learned'"):
        ComplexTextEmbedding(30, width=5, encoding="learned")
    with pytest.raises(BadInput, match="which only attention has"):
        ComplexTextEmbedding(30, width=5, encoding="complex-order+t5")


def test_dropout_keeps_phases():
    embedding = ComplexTextEmbedding(30, width=64, dropout=0.5)
    ids = torch.randint(1, 30, (2, 9))
    steps = torch.arange(1, 10)  # at 0 there is no imaginary part to compare
    dropped, whole = embedding(ids, steps), embedding.eval()(ids, steps)
    ratio = (dropped / whole).unflatten(-1, (2, 64))
    assert_close(ratio[..., 0, :], ratio[..., 1, :], rtol=1e-4, atol=1e-4)
    assert set(ratio.round().unique().tolist()) == {0.0, 2.0}


def weights_of(direction, which):
    """Complex gates, (4, out, in)."""
    weight = getattr(direction, f"{which}_weight")
    return torch.complex(weight[0], weight[1] if len(weight) == 2 else torch.zeros_like(weight[0]))


def states(rows, direction):
    """h_t of a complex LSTM, one gate at a time."""
    W, U = weights_of(direction, "input"), weights_of(direction, "hidden")
    bias = direction.bias if direction.bias.shape[1] == 2 else direction.bias.expand(-1, 2, -1)
    h = c = torch.zeros(direction.hidden, dtype=torch.complex128)
    found = []
    for row in rows:
        i, f, g, o = (W[k] @ row + U[k] @ h + torch.complex(*bias[k]) for k in range(4))
        parts = []
        for part in ("real", "imag"):
            old, gates = getattr(c, part), [getattr(gate, part) for gate in (i, f, g, o)]
            cell = gates[1].sigmoid() * old + gates[0].sigmoid() * gates[2].tanh()
            parts.append((cell, gates[3].sigmoid() * cell.tanh()))
        c, h = (torch.complex(parts[0][k], parts[1][k]) for k in (0, 1))
        found.append(h)
    return found


def recurrent(body, rows, kind):
    rows = list(rows)
    for layer in body.layers:
        rows = states(rows, layer.directions[0])
    return read(body, kind, rows[-1])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("layers", "shared", "read_out"),
    [(1, False, "modulus"), (2, False, "none"), (1, True, "linear"), (2, True, "modulus")],
)
def test_recurrent_output_and_gradients_match_the_equations(layers, shared, read_out, side):
    body = ComplexTextRecurrent(5, hidden=4, layers=layers, shared_weights=shared, read_out=read_out)
    network = network_of(body)
    texts = texts_of(6, 1, 3)
    ids, valid, positions = padded(texts, side, value=3)
    paper = torch.stack([recurrent(body, waves(network.words, text), read_out) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert ours.shape[1] == network.features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()))


def unitary(body, rows, kind):
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
    return read(body, kind, h)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("read_out", ["none", "modulus"])
def test_the_unitary_network_of_the_reference_code(side, read_out):
    body = UnitaryTextRecurrent(5, hidden=4, read_out=read_out)
    network = network_of(body)
    torch.nn.init.uniform_(body.cell.bias, -0.2, 0.2)
    texts = texts_of(6, 1, 3)
    ids, valid, positions = padded(texts, side, value=3)
    paper = torch.stack([unitary(body, waves(network.words, text), read_out) for text in texts])
    ours = network(ids, positions, key_padding_mask=~valid).features
    assert_same_with_gradients(ours, paper, dict(network.named_parameters()), tolerance=1e-10)


def test_options_reach_the_layers():
    shared = {"shared_weights": True, "bias": "shared", "read_out": "none"}
    for body, layer in (
        (ComplexBagOfWords(5, **shared), "dense"),
        (ComplexTextConvolution(5, filters=4, kernel_sizes=(2,), **shared), "filters.0"),
    ):
        assert {name for name, _ in body.named_parameters()} == {f"{layer}.weight_real", f"{layer}.bias"}
    one, two = (ComplexTextRecurrent(5, hidden=4, shared_weights=kind) for kind in (True, False))
    sizes = [sum(p.numel() for p in body.parameters()) for body in (one, two)]
    assert sizes[1] == 2 * sizes[0]


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="read_out must be one of linear, modulus"):
        ComplexBagOfWords(5, read_out="abs")
    with pytest.raises(ValueError, match="filters must be positive, got 0"):
        ComplexTextConvolution(5, filters=0)
    with pytest.raises(ValueError, match="hidden must be positive, got 0"):
        ComplexTextRecurrent(5, hidden=0)
