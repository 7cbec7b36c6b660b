"""The published classifier, derived again in complex numbers from a description of it; shares no code with ours."""

import math

import pytest
import torch
from torch.testing import assert_close

from wordorder.papers.complex_order import ReferenceOrderEmbedding, ReferenceTransformer
from wordorder.papers.complex_order.published_code import unconjugated_modulus_scores

PRECISION = [(torch.float64, torch.complex128, 1e-12), (torch.float32, torch.complex64, 1e-6)]


def both(weights, name, z):
    """One real layer on both streams: its bias comes in with both of them, (1 + i) b."""
    matrix, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return z @ matrix.T.to(z.dtype) + (1 + 1j) * bias


def attention_in_complex_numbers(weights, at, z, heads):
    q, k, v = (both(weights, f"{at}.{name}", z) for name in ("query", "key", "value"))
    d, found = z.shape[-1] // heads, []
    for h in range(heads):
        part = slice(h * d, (h + 1) * d)
        product = q[..., part] @ k[..., part].transpose(-1, -2)
        # abs of a complex tensor, whose gradient at 0 is 0
        share = torch.softmax(product.abs() / math.sqrt(d), dim=-1)
        found.append(share.to(z.dtype) @ v[..., part])
    return both(weights, f"{at}.out", torch.cat(found, dim=-1))


def norm(weights, at, t):
    return (
        weights[f"{at}.weight"] * (t - t.mean(-1, keepdim=True)) / (t.std(-1, keepdim=True) + 1e-6)
        + weights[f"{at}.bias"]
    )


def feed(weights, at, t):
    inner = torch.relu(t @ weights[f"{at}.up.weight"].T + weights[f"{at}.up.bias"])
    return inner @ weights[f"{at}.down.weight"].T + weights[f"{at}.down.bias"]


def layer_in_complex_numbers(weights, at, z, heads):
    z = attention_in_complex_numbers(weights, f"{at}.attention", z, heads)
    x, y = z.real, z.imag
    x, y = x + norm(weights, f"{at}.norms.0", x), 2 * y
    return torch.complex(*(t + feed(weights, at, norm(weights, f"{at}.norms.1", t)) for t in (x, y)))


def classifier_in_complex_numbers(weights, z, heads):
    z = layer_in_complex_numbers(weights, "layers.0", z, heads)
    swapped = torch.complex(z.imag, z.real)
    z = layer_in_complex_numbers(weights, "layers.1", swapped, heads)[:, -1]
    return torch.cat([norm(weights, "final_norm", t) for t in (z.real, z.imag)], dim=-1)


@pytest.mark.parametrize(("dtype", "complex_dtype", "bound"), PRECISION)
def test_scores_without_conjugation_match_complex_numbers(dtype, complex_dtype, bound):
    q, k = (tuple(torch.randn(2, 3, n, 4, dtype=dtype, requires_grad=True) for _ in range(2)) for n in (5, 7))
    ours = unconjugated_modulus_scores(q, k)
    paper = (torch.complex(*(x.double() for x in q)) @ torch.complex(*(x.double() for x in k)).mT).abs()
    assert_close(ours.double(), paper, rtol=0, atol=bound * max(1.0, paper.abs().max().item()))
    upstream = torch.randn_like(paper)
    found = torch.autograd.grad(ours, [*q, *k], upstream.to(dtype))
    for a, b in zip(found, torch.autograd.grad(paper, [*q, *k], upstream), strict=True):
        assert a.dtype == dtype
        assert_close(a, b, rtol=0, atol=bound * max(1.0, b.abs().max().item()))


def test_scores_without_conjugation_know_the_sum_of_positions():
    def wave(positions):
        angle = positions[:, None] * torch.tensor([1.0, 0.3, 0.02], dtype=torch.float64)
        return angle.cos(), angle.sin()

    near, far = torch.arange(5.0, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64) + 40
    assert_close(unconjugated_modulus_scores(wave(near), wave(far)), unconjugated_modulus_scores(wave(far), wave(near)))
    moved = unconjugated_modulus_scores(wave(far), wave(far))
    assert not torch.allclose(unconjugated_modulus_scores(wave(near), wave(near)), moved, atol=0.1)


def test_gradients_of_scores_without_conjugation_at_exact_zero_are_finite():
    q, k = (tuple(torch.randn(1, 4, 3, dtype=torch.float64) for _ in range(2)) for _ in range(2))
    for part in (*q, *k):
        part[0, 1] = 0
        part.requires_grad_()
    grads = torch.autograd.grad(unconjugated_modulus_scores(q, k).sum(), [*q, *k])
    assert all(grad.isfinite().all() for grad in grads)
    assert all((grad[0, 1] == 0).all() for grad in grads)


def features_of(network, z):
    """Both streams of the last slot, as the whole network reads them."""
    return torch.cat([part[:, -1] for part in network(z)], dim=-1)


def build(dtype):
    network = ReferenceTransformer(12, heads=3, feedforward=10, dropout=0.0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.3)
    return network.to(dtype)


@pytest.mark.parametrize(("dtype", "complex_dtype", "bound"), PRECISION)
@pytest.mark.parametrize("length", [1, 5, 53])
def test_whole_classifier_and_every_gradient(length, dtype, complex_dtype, bound):
    network, embedding = build(dtype), ReferenceOrderEmbedding(30, 12).to(dtype)
    ids, descending = torch.randint(30, (3, length)), torch.arange(length).flip(0)
    head = torch.randn(24, 4, dtype=dtype) / 24**0.5
    ours = features_of(network, embedding(ids, descending)) @ head
    # the same in the wider precision, as both would round by themselves
    names = [name for name, _ in network.named_parameters()]
    leaves = [embedding.amplitude, embedding.frequency, *network.parameters()]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    amplitude, frequency = (table[ids] for table in wide[:2])
    wave = amplitude * torch.exp(1j * frequency * descending[:, None].double())
    weights = dict(zip(names, wide[2:], strict=True))
    if length == 1:  # a phase that nothing but position 0 has: the frequency cannot be heard
        wide[1] = frequency.sum() * 0 + wide[1]
    theirs = classifier_in_complex_numbers(weights, wave, 3) @ head.double()
    assert_close(ours.double(), theirs, rtol=0, atol=bound * max(1.0, theirs.abs().max().item()))
    upstream = torch.randn_like(theirs)
    found = torch.autograd.grad(ours, leaves, upstream.to(dtype))
    expected = torch.autograd.grad(theirs, wide, upstream, allow_unused=True)
    for name, a, b in zip(("amplitude", "frequency", *names), found, expected, strict=True):
        b = torch.zeros_like(a).double() if b is None else b
        limit = bound * max(1.0, b.abs().max().item())
        assert_close(a.double(), b, rtol=0, atol=limit, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(("dtype", "complex_dtype", "bound"), PRECISION)
def test_attention_and_every_gradient(dtype, complex_dtype, bound):
    attention = build(dtype).layers[0].attention
    z = tuple(torch.randn(2, 7, 12, dtype=dtype, requires_grad=True) for _ in range(2))
    weights = {f"a.{name}": parameter for name, parameter in attention.named_parameters()}
    ours = attention(*z)
    theirs = attention_in_complex_numbers(weights, "a", torch.complex(*z), 3)
    assert theirs.dtype == complex_dtype
    upstream, leaves = [torch.randn_like(z[0]) for _ in range(2)], [*z, *attention.parameters()]
    found = torch.autograd.grad(ours, leaves, upstream)
    expected = torch.autograd.grad([theirs.real, theirs.imag], leaves, upstream)
    for a, b in zip((*ours, *found), (theirs.real, theirs.imag, *expected), strict=True):
        assert_close(a, b, rtol=0, atol=bound * max(1.0, b.abs().max().item()))


def test_gradients_of_padding_rows_at_exact_zero_are_finite():
    network, z = build(torch.float64), [torch.randn(2, 6, 12, dtype=torch.float64) for _ in range(2)]
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    for part in z:
        part[:, 4:] = 0
        part.requires_grad_()
    features = features_of(network, (z[0], z[1]))
    grads = torch.autograd.grad(features.square().sum(), [*z, *network.parameters()])
    assert features.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)


def test_padding_changes_the_result_as_it_does_there():
    network, z = build(torch.float64).eval(), tuple(torch.randn(1, 6, 12, dtype=torch.float64) for _ in range(2))
    padded = tuple(torch.cat((part, torch.zeros(1, 2, 12, dtype=torch.float64)), dim=1) for part in z)
    assert network.features == 24
    assert not torch.allclose(features_of(network, z), features_of(network, padded), atol=1e-3)
