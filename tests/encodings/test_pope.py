"""PoPE against its equations in complex numbers, one channel of one pair at a time, on every backend."""

import math
from copy import deepcopy

import pytest
import torch
from attention_cases import (
    BACKENDS,
    MASKS,
    POSITIONS,
    assert_reads_alike_however_it_is_fed,
    hidden_in_segments,
    mask_case,
    positions_case,
    small_network,
)
from torch.testing import assert_close

from wordorder import Decoder, Encoder, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import CATALOG, Composition, OnQueriesAndKeys, PoPE, build_encoding
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Contiguous, Mask

H, D, E, LAYERS = 3, 5, 4, 2


def built(*, heads=H, head_dim=D, dtype=torch.float64, **options):
    """delta in all of [-2 pi, 0], and beyond both ends."""
    encoding = PoPE(head_dim, heads=heads, layers=LAYERS, **options)
    torch.nn.init.uniform_(encoding.delta, -2 * math.pi - 1, 1)
    return encoding.to(dtype)


def terms_of(encoding, query, key=None, layer=1, dtype=torch.float64):
    composition = Composition({"pope": encoding}, head_dim=encoding.head_dim)
    return composition.prepare(query, key, dtype=dtype).layer(layer)


def tokens(T, S, dtype=torch.float64, heads=H, key_heads=H):
    q, k, v = torch.randn(2, heads, T, D), torch.randn(2, key_heads, S, D), torch.randn(2, key_heads, S, E)
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def score_from_paper(q, k, query_at, key_at, delta, base):
    """Eq. 3 to 6: the real part of the products of two complex numbers, that of the query conjugated."""
    total = 0.0
    for d in range(len(q)):
        frequency = base ** (-d / len(q))
        end = -2 * math.pi if delta[d] < -2 * math.pi else 0.0 if delta[d] > 0 else None
        bounded = delta[d] if end is None else 0 * delta[d] + end
        of_query = torch.polar(torch.log(1 + q[d].exp()), torch.tensor(query_at * frequency, dtype=torch.float64))
        of_key = torch.polar(torch.log(1 + k[d].exp()), key_at * frequency + bounded)
        total = total + (of_query.conj() * of_key).real
    return total / math.sqrt(len(q))


def attention_from_paper(delta, q, k, v, query_at, key_at, visible, base=1e4):
    """Grouped queries: head h of the queries reads key head h // (H / G)."""
    rows, groups = [], q.shape[1] // k.shape[1]
    for b in range(len(q)):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                rows.append(0 * (v[b, h // groups, 0] + k[b].sum() + q[b, h, i].sum() + delta[h].sum()))
                if not seen:
                    continue
                scores = [
                    score_from_paper(
                        q[b, h, i], k[b, h // groups, j], float(query_at[b][i]), float(key_at[b][j]), delta[h], base
                    )
                    for j in seen
                ]
                weight = torch.stack(scores).softmax(-1)
                rows[-1] = sum(w * v[b, h // groups, j] for w, j in zip(weight, seen, strict=True))
    return torch.stack(rows).view(len(q), q.shape[1], -1, v.shape[-1])


def assert_equal(outputs, slow, leaves, *, bound=1e-12):
    """Compare the output of each backend, and every gradient, with those of the slow reference."""
    upstream = torch.randn_like(slow)
    expected = [slow, *torch.autograd.grad(slow, leaves, upstream)]
    for name, y in outputs.items():
        found = [y, *torch.autograd.grad(y, leaves, upstream)]
        for what, one, other in zip(("output", "q", "k", "v", "delta"), found, expected, strict=True):
            limit = bound * max(1.0, other.abs().max().item())
            assert_close(
                one, other, rtol=0, atol=limit, msg=lambda text, name=name, what=what: f"{name} {what}: {text}"
            )


@pytest.mark.parametrize("seen", MASKS)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 7), (7, 7), (3, 7)])
def test_output_and_every_gradient_match_the_paper(seen, T, S):
    encoding, leaves = built(), tokens(T, S)
    query, key, mask, at, visible = mask_case(seen, T, S)
    terms = terms_of(encoding, query, key)
    ours = {backend: attention(*leaves, terms, mask, backend=backend) for backend in BACKENDS}
    slow = attention_from_paper(encoding.delta[1], *leaves, *at, visible)
    assert_equal(ours, slow, [*leaves, encoding.delta])


@pytest.mark.parametrize("base", [500.0, 5e5])
@pytest.mark.parametrize("kind", [*POSITIONS, "far apart"])
def test_positions_of_every_kind(kind, base):
    encoding, leaves = built(base=base), tokens(5, 5)
    query, key, at, visible = positions_case(kind)
    mask = Mask(query, key) if kind == "packed" else None
    ours = {"default": attention(*leaves, terms_of(encoding, query, key, layer=0), mask)}
    slow = attention_from_paper(encoding.delta[0], *leaves, *at, visible, base=base)
    assert_equal(ours, slow, [*leaves, encoding.delta], bound=1e-10 if kind == "far apart" else 1e-12)


@pytest.mark.parametrize("backend", ["triton", *BACKENDS])
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 2), (3, 1)])
def test_grouped_queries_have_a_delta_for_each_query_head(heads, key_heads, backend, request):
    dtype, bound = torch.float64, 1e-12
    if backend == "triton":
        request.getfixturevalue("interpreter")
        dtype, bound = torch.float32, 2e-6  # a hundred sums of numbers about 1, each rounded to 2**-24
    encoding = built(heads=heads)
    leaves = tokens(7, 7, dtype, heads, key_heads)
    where = Contiguous(7)
    ours = attention(*leaves, terms_of(encoding.to(dtype), where, dtype=dtype), backend=backend)
    wide = [x.detach().double().requires_grad_() for x in (*leaves, encoding.delta)]
    order = torch.arange(7).expand(2, -1)
    slow = attention_from_paper(wide[3][1], *wide[:3], order, order, lambda b, i, j: True)
    upstream = torch.randn_like(slow)
    found = [ours, *torch.autograd.grad(ours, [*leaves, encoding.delta], upstream.to(dtype))]
    for one, other in zip(found, [slow, *torch.autograd.grad(slow, wide, upstream)], strict=True):
        assert (one.double() - other).abs().max() <= bound * max(1.0, other.abs().max().item())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_lower_precisions(dtype, backend):
    """In float32 an angle near position 1,000 is rounded by 1,000 * 2**-24; to 16 bits queries, keys and output are."""
    if dtype == torch.float16 and "tiles" in backend:
        pytest.skip("tiles refuse float16")
    bound = {torch.float32: 1000 * 2.0**-24, torch.float16: 8 * 2.0**-11, torch.bfloat16: 8 * 2.0**-8}[dtype]
    narrow, leaves, where = built(dtype=dtype), tokens(63, 63, dtype), Contiguous(63, 937)
    wide, exact_leaves = deepcopy(narrow).double(), [x.detach().double().requires_grad_() for x in leaves]
    mask, upstream, found = Mask(where, where, high=0), torch.randn(2, H, 63, E, dtype=torch.float64), []
    for encoding, x in ((narrow, leaves), (wide, exact_leaves)):
        y = attention(*x, terms_of(encoding, where, dtype=x[0].dtype), mask, backend=backend)
        assert y.dtype == x[0].dtype
        found.append([y, *torch.autograd.grad(y, [*x, encoding.delta], upstream.to(y.dtype))])
    for one, exact in zip(*found, strict=True):
        assert (one.double() - exact).abs().max() <= bound * max(1.0, exact.abs().max().item())


def test_content_decides_magnitudes_and_position_angles():
    encoding, (x, other, _) = built(), (10 * leaf for leaf in tokens(9, 9))
    terms = terms_of(encoding, Contiguous(9, 1000), Contiguous(9, 7))
    for move in (terms.move_queries, terms.move_keys):
        moved = [torch.complex(*move(content).chunk(2, dim=-1)) for content in (x, other)]
        assert_close(moved[0].abs(), (1 + x.exp()).log(), rtol=1e-9, atol=1e-9)  # torch's softplus(x) is x above 20
        turn = moved[0] / moved[1]
        assert_close(turn.imag, torch.zeros_like(x), rtol=0, atol=1e-9 * turn.abs().max().item())
        assert (turn.real > 0).all()


def test_delta_beyond_its_ends_counts_as_the_end_and_has_no_gradient():
    encoding, (q, k, _), products = built(), tokens(4, 4), []
    for low, high in ((-2 * math.pi, 0.0), (-2 * math.pi - 3, 2.0)):
        with torch.no_grad():
            encoding.delta[0] = -1.0
            encoding.delta[0, 0], encoding.delta[0, 1] = low, high
        terms = terms_of(encoding, Contiguous(4), layer=0)
        products.append(terms.move_queries(q) @ terms.move_keys(k).mT)
    assert_close(*products, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(products[1].square().sum(), encoding.delta)
    assert (gradient[0, :2] == 0).all()
    assert (gradient[0, 2] != 0).all()
    assert (gradient[1] == 0).all()  # of the other layer


def test_delta_starts_at_0_from_where_it_can_be_learned_or_anywhere():
    zero, first, second = (PoPE(64, heads=4, layers=2, first_delta=name) for name in ("zero", "uniform", "uniform"))
    for encoding, std in ((zero, 0.5), (first, 0.5), (second, 0.02)):
        initialise(encoding, seed=0, std=std)
    assert (zero.delta == 0).all()
    assert -2 * math.pi <= first.delta.min() < -6.2
    assert -0.1 < first.delta.max() < 0
    assert torch.equal(first.delta, second.delta)
    q = torch.randn(1, 4, 6, 64)
    terms = terms_of(zero, Contiguous(6), dtype=q.dtype)
    (gradient,) = torch.autograd.grad(attention(q, q, q, terms).square().sum(), zero.delta)
    assert (gradient[1] != 0).all()


@pytest.mark.usefixtures("interpreter")
def test_what_is_chosen_knows_that_heads_are_twice_as_wide():
    where, q = Contiguous(6), torch.randn(1, 2, 6, 48, dtype=torch.float32)
    network = Encoder(9, width=96, heads=2, layers=3, encoding="none,pope,pope")
    plans = network.plan(where, torch.randn(1, 6, 96))
    assert [plans.layer(layer).call.head_dim for layer in range(3)] == [48, 96, 96]
    terms = terms_of(PoPE(48, heads=2, layers=2), where, dtype=q.dtype)
    with pytest.raises(ValueError, match="heads of at most 64 channels here, got 96; take backend=None"):
        attention(q, q, q, terms, backend="triton")


@pytest.mark.parametrize("key_value_heads", [4, 2, 1])
def test_grouped_queries_caches_padding_and_packing(key_value_heads):
    assert_reads_alike_however_it_is_fed(small_network(Decoder, "pope", key_value_heads=key_value_heads))


def test_a_text_in_segments_is_the_text_itself():
    """One layer: slots hold what the tokens were."""
    decoder = small_network(Decoder, "pope", layers=1, memory=SegmentRecurrence(40))
    ids = torch.randint(30, (2, 12))
    assert_close(hidden_in_segments(decoder, ids, [5, 4, 3]), decoder(ids).hidden, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["rope+pope", "pope+rope", "xpos+pope", "pope+untied-sum", "none,t5+pope+rope"])
def test_beside_another_that_moves_queries_and_keys_it_is_refused(name):
    with pytest.raises(BadInput, match="'pope' is not defined for layers with another encoding of queries and keys"):
        build_encoding(name, width=24, heads=4, layers=2, max_positions=8, use="decoder")
    assert build_encoding("rope,pope", width=24, heads=4, layers=2, max_positions=8).parts["pope"].delta.shape[0] == 1


def test_attention_wants_to_know_the_layer():
    encoding, (q, k, v) = built(), tokens(4, 4)
    assert issubclass(CATALOG["pope"], OnQueriesAndKeys)
    with pytest.raises(BadInput, match="weights for each layer, and attention does not know which"):
        attention(q, k, v, encoding)
    with pytest.raises(BadInput, match=r"pass terms\.layer\(index\)"):
        attention(q, k, v, Composition({"pope": encoding}, head_dim=D).prepare(4))
    with pytest.raises(ValueError, match="delta is of 3 heads, got queries of 1"):
        attention(q[:, :1], k[:, :1], v[:, :1], terms_of(encoding, Contiguous(4)))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"head_dim": 0}, "head_dim must be positive, got 0"),
        ({"heads": -1}, "heads must be positive, got -1"),
        ({"layers": 0}, "layers must be positive, got 0"),
        ({"base": 1.0}, "base must be greater than 1, got 1.0"),
        ({"base": math.inf}, "base must be greater than 1 and finite, got inf"),
        ({"first_delta": "one"}, "first_delta must be one of zero, uniform, got 'one'"),
    ],
)
def test_arguments_out_of_range_are_named(argument, words):
    with pytest.raises(ValueError, match=words):
        PoPE(**{"head_dim": D, "heads": H, "layers": 1, **argument})
