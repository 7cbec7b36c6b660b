import math

import pytest
import torch
from attention_cases import BACKENDS, MASKS, POSITIONS, mask_case, positions_case
from torch.testing import assert_close

from wordorder.attention import Call, attention, attention_weights, plan_attention
from wordorder.encodings import TransformerXL, build_encoding
from wordorder.networks import ComplexDecoder, Decoder, initialise
from wordorder.ops import Contiguous, Mask

H, D, C = 3, 4, 12
SIDES = ["signed", "disentangled", "two-vectors"]


def made(sides="disentangled", *, dtype=torch.float64, layers=2, **options):
    encoding = TransformerXL(C, heads=H, head_dim=D, layers=layers, sides=sides, **options)
    initialise(encoding, seed=3, std=0.5)
    return encoding.to(dtype)


def sine_row(t, base, clamp):
    t = t if clamp is None else max(-clamp, min(clamp, t))
    waves = [t * base ** (-2 * m / C) for m in range(C // 2)]
    return torch.tensor([math.sin(w) for w in waves] + [math.cos(w) for w in waves], dtype=torch.float64)


def score_from_paper(encoding, layer, q_i, k_j, h, t, *, right, base=10_000.0, clamp=None):
    """One score, without the scale; ``t`` tokens from the query back to the key."""

    def of_head(vector):
        return (vector[layer] if encoding.vectors_per_layer else vector)[h]

    u, v = of_head(encoding.content_bias), of_head(encoding.position_bias)
    if right and encoding.sides != "signed":
        v = of_head(encoding.position_bias_right)
    if right and encoding.sides == "two-vectors":
        u = of_head(encoding.content_bias_right)
    row = sine_row(t if encoding.sides == "signed" else abs(t), base, clamp)
    projected = (encoding.projections[layer].weight @ row).view(H, D)[h]
    return ((q_i + u) * k_j).sum() + ((q_i + v) * projected).sum()


def attention_from_paper(encoding, layer, q, k, v, query_at, key_at, visible, *, all_right=False, **options):
    """Query by query and key by key; output and log-sum-exp."""
    out, lse = [], []
    for b in range(len(q)):
        for h in range(H):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                if not seen:
                    out.append(q[b, h, i] * 0)
                    lse.append(q[b, h, i, 0] * 0 - math.inf)
                    continue
                scores = []
                for j in seen:
                    t = int(query_at[b][i] - key_at[b][j])
                    one = score_from_paper(
                        encoding, layer, q[b, h, i], k[b, h, j], h, t, right=all_right or t < 0, **options
                    )
                    scores.append(one * D**-0.5)
                weights = torch.stack(scores).softmax(-1)
                out.append(sum(weight * v[b, h, j] for weight, j in zip(weights, seen, strict=True)))
                lse.append(torch.stack(scores).logsumexp(-1))
    return torch.stack(out).view(len(q), H, -1, D), torch.stack(lse).view(len(q), H, -1)


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def gradients(encoding, outputs, leaves, upstream):
    wanted = [*leaves, *encoding.parameters()]
    found = torch.autograd.grad(outputs, wanted, upstream, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, wanted, strict=True)]


def assert_equal(encoding, ours, slow, leaves, *, tolerance=1e-12, name="default"):
    upstream = [torch.randn_like(slow[0]), torch.randn_like(slow[1])][: len(ours)]
    finite = slow[1].isfinite()
    slow = [slow[0], slow[1].where(finite, 0)][: len(ours)]
    ours = [x if index == 0 else x.where(finite, 0) for index, x in enumerate(ours)]
    found = [[*outputs, *gradients(encoding, outputs, leaves, upstream)] for outputs in (ours, slow)]
    for one, other in zip(*found, strict=True):
        limit = tolerance * max(1.0, other.abs().max().item())
        assert_close(one, other, rtol=0, atol=limit, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("seen", MASKS)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 4), (5, 5), (3, 7)])
def test_output_and_every_gradient_match_the_equations(sides, seen, T, S):
    encoding, leaves = made(sides), tokens(T, S)
    query, key, mask, at, visible = mask_case(seen, T, S)
    order = encoding_order(encoding, query, key).layer(1)
    slow = attention_from_paper(encoding, 1, *leaves, *at, visible)
    for backend in BACKENDS:
        ours = attention(*leaves, order, mask, backend=backend, return_lse=backend != "sdpa")
        assert_equal(encoding, list(ours) if backend != "sdpa" else [ours], slow, leaves, name=backend)


def encoding_order(encoding, query, key):
    from wordorder.encodings import Composition

    return Composition({"transformer_xl": encoding}, head_dim=D).prepare(query, key)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("kind", [*POSITIONS, "far apart"])
def test_positions_of_every_kind(sides, kind):
    encoding, leaves = made(sides), tokens(5, 5)
    query, key, at, visible = positions_case(kind)
    order, mask = encoding_order(encoding, query, key).layer(0), Mask(query, key)
    slow = attention_from_paper(encoding, 0, *leaves, *at, visible)
    for backend in ("sdpa", "kept-tiles"):
        assert_equal(encoding, [attention(*leaves, order, mask, backend=backend)], slow, leaves, name=backend)


@pytest.mark.parametrize("sides", SIDES)
def test_with_ahead_every_key_counts_as_one_to_the_right(sides):
    encoding, leaves = made(sides), tokens(5, 4)
    query, key = Contiguous(5), Contiguous(4, 2)
    order = encoding_order(encoding, query, key).right_only().layer(1)
    ours = attention(*leaves, order, return_lse=True)
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]
    slow = attention_from_paper(encoding, 1, *leaves, *at, lambda b, i, j: True, all_right=True)
    assert_equal(encoding, list(ours), slow, leaves)


def test_orders_without_such_a_term_look_ahead_as_they_are():
    order = build_encoding("t5", width=C, heads=H, layers=1, max_positions=9).prepare(Contiguous(4))
    assert order.right_only() == order
    shaw = build_encoding("shaw", width=C, heads=H, layers=1, max_positions=9).prepare(Contiguous(4))
    assert shaw.right_only() == shaw


@pytest.mark.parametrize(("base", "clamp"), [(500.0, None), (10_000.0, 2), (500.0, 3)])
@pytest.mark.parametrize("sides", ["signed", "disentangled"])
def test_base_and_clamp(base, clamp, sides):
    encoding, leaves, where = made(sides, base=base, clamp=clamp), tokens(6, 6), Contiguous(6)
    at = [where.index_BT().expand(2, -1)] * 2
    ours = attention(*leaves, encoding_order(encoding, where, where).layer(0))
    slow = attention_from_paper(encoding, 0, *leaves, *at, lambda b, i, j: True, base=base, clamp=clamp)
    assert_equal(encoding, [ours], slow, leaves)


@pytest.mark.parametrize("sides", SIDES)
def test_vectors_of_each_layer_s_own(sides):
    encoding, leaves, where = made(sides, vectors_per_layer=True), tokens(5, 5), Contiguous(5)
    at = [where.index_BT().expand(2, -1)] * 2
    ours = attention(*leaves, encoding_order(encoding, where, where).layer(1))
    assert_equal(encoding, [ours], attention_from_paper(encoding, 1, *leaves, *at, lambda b, i, j: True), leaves)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lower_precisions(dtype, bound, backend):
    exact = made()
    low = made().to(dtype)
    exact.load_state_dict({name: value.double() for name, value in low.state_dict().items()})
    where, leaves = Contiguous(33), tokens(33, 33, dtype)
    mask = Mask(where, where, high=0)
    ours = attention(*leaves, encoding_order(low, where, where).layer(1), mask, backend=backend)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    slow = attention(*wide, encoding_order(exact, where, where).layer(1), mask, backend="reference")
    assert ours.dtype == dtype
    upstream = torch.randn_like(slow)
    found = [
        [x, *gradients(e, [x], y, [upstream.to(x.dtype)])] for e, x, y in ((low, ours, leaves), (exact, slow, wide))
    ]
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() <= bound * max(1.0, other.abs().max().item())


def test_angles_of_far_distances_are_exact():
    encoding = made(dtype=torch.bfloat16)
    rows = encoding.sines(torch.tensor([5000, 30_000]))
    assert rows.dtype == torch.float32
    expected = torch.stack([sine_row(t, 10_000.0, None) for t in (5000, 30_000)])
    assert_close(rows.double(), expected, rtol=0, atol=4e-3)  # float32 angles up to 30,000: spacing 2e-3
    assert_close(made().sines(torch.tensor([5000, 30_000])), expected, rtol=0, atol=1e-11)


def test_parameters_are_those_of_the_sides():
    def parameters(**options):
        return set(dict(TransformerXL(C, heads=H, head_dim=D, layers=1, **options).named_parameters()))

    shared = {"projections.0.weight", "content_bias", "position_bias"}
    assert parameters(sides="signed") == shared
    assert parameters() == shared | {"position_bias_right"}
    assert parameters(sides="two-vectors") == shared | {"position_bias_right", "content_bias_right"}
    assert parameters(bidirectional=False) == shared
    of_use = {
        (use, right): build_encoding(
            "transformer-xl", width=C, heads=H, layers=1, max_positions=9, use=use, looks_right=right
        )
        .parts["transformer_xl"]
        .sides
        for use, right in [("encoder", False), ("decoder", False), ("decoder", True)]
    }
    assert list(of_use.values()) == ["disentangled", "signed", "disentangled"]


def test_rope_beside_it_leaves_the_term_alone():
    """Rotations touch q.k alone: u meets keys as they were."""
    both = build_encoding("rope+transformer-xl", width=C, heads=H, layers=1, max_positions=9)
    initialise(both, seed=0, std=0.5)
    both.double()
    where, (q, k, v) = Contiguous(7), tokens(7, 7)
    order = both.prepare(where).layer(0)
    term = order.content[0].scores(q, k, order.scale, None)
    turned = order.move_queries(q) @ order.move_keys(k).transpose(-1, -2) * order.scale
    expected = (turned + term).softmax(-1) @ v
    for backend in BACKENDS:
        assert_close(attention(q, k, v, order, backend=backend), expected)
    alone = attention(q, k, v, encoding_order(both.parts["transformer_xl"], where, where).layer(0))
    assert not torch.allclose(alone, expected, atol=1e-3)


def test_weights_are_those_that_mix_the_values():
    encoding, (q, k, v) = made(), tokens(5, 5)
    order = encoding_order(encoding, Contiguous(5), Contiguous(5)).layer(0)
    plan = plan_attention(order, None, Call.of(q, k, return_weights=True))
    assert_close(attention_weights(q, k, plan) @ v, attention(q, k, v, order))


def test_grouped_queries_and_complex_heads():
    ids = torch.randint(30, (2, 9))
    sizes = {"width": 24, "heads": 4, "layers": 2, "max_positions": 20, "dropout": 0.0, "attention_dropout": 0.0}
    for kind, options in (
        (Decoder, {"key_value_heads": 2}),
        (ComplexDecoder, {"encoding": "complex-order+transformer-xl"}),
    ):
        network = kind(30, **{"encoding": "transformer-xl", **sizes, **options})
        initialise(network, seed=0, std=0.3)
        before = network(ids).hidden
        before.sum().backward()
        for name, parameter in network.encoding.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name  # noqa: PT018
        assert_close(network(ids, backend="reference").hidden, before, rtol=1e-4, atol=1e-5)
        ids_changed = ids.clone()
        ids_changed[:, 6:] = 1
        assert_close(network(ids_changed).hidden[:, :6], before[:, :6], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"width": 7}, "width"),
        ({"heads": 0}, "heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"layers": 0}, "layers"),
        ({"sides": "both"}, "sides"),
        ({"clamp": 0}, "clamp"),
        ({"base": 1.0}, "base"),
    ],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        TransformerXL(**{"width": C, "heads": H, "head_dim": D, "layers": 1, **options})
