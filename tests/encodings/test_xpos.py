import cmath
import math

import pytest
import torch
from attention_cases import BACKENDS, assert_reads_alike_however_it_is_fed, hidden_in_segments, small_network
from torch.testing import assert_close

from wordorder import Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import Composition, XPos, build_encoding
from wordorder.errors import BadInput
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed

H, D = 2, 6


def score_from_paper(q_i, k_j, n, m, *, base=1e4, scale_base=512, gamma=0.4):
    """Re sum over pairs of q k* exp(i (n - m) theta) zeta ** ((n - m) / scale_base), one pair of tokens."""
    channels, total = len(q_i), 0.0
    for i in range(channels // 2):
        zeta = (i / (channels / 2) + gamma) / (1 + gamma)
        theta = base ** (-2 * i / channels)
        turn = cmath.exp(1j * (n - m) * theta) * zeta ** ((n - m) / scale_base)
        q, k = (torch.complex(x[i], x[i + channels // 2]) for x in (q_i, k_j))
        total = total + (q * k.conj() * turn).real
    return total


def attention_from_paper(q, k, v, query_at, key_at, visible, **constants):
    rows = []
    for b in range(len(q)):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                places = [(int(query_at[b][i]), int(key_at[b][j])) for j in seen]
                scores = [
                    score_from_paper(q[b, h, i], k[b, h, j], n, m, **constants) / math.sqrt(q.shape[-1])
                    for j, (n, m) in zip(seen, places, strict=True)
                ]
                weight = torch.stack(scores).softmax(-1)
                rows.append(sum(w * v[b, h, j] for w, j in zip(weight, seen, strict=True)))
    return torch.stack(rows).view(len(q), q.shape[1], -1, v.shape[-1])


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def combine_terms(query, key=None, dtype=torch.float64, **options):
    return Composition({"xpos": XPos(D, **options)}, head_dim=D).prepare(query, key, dtype=dtype).layer(0)


@pytest.mark.parametrize("constants", [{}, {"base": 500.0, "scale_base": 16.0, "gamma": 1.5}, {"scale_base": 4.0}])
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (9, 9), (4, 9)])
def test_output_and_every_gradient_match_the_equations(constants, T, S):
    leaves, query, key = tokens(T, S), Contiguous(T, S - T + 20), Contiguous(S, 20)
    mask = Mask(query, key, high=0)
    order = combine_terms(query, key, **constants)
    ours = {backend: attention(*leaves, order, mask, backend=backend) for backend in BACKENDS}
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]
    slow = attention_from_paper(*leaves, *at, lambda b, i, j: at[0][b, i] >= at[1][b, j], **constants)
    upstream = torch.randn_like(slow)
    expected = [slow, *torch.autograd.grad(slow, leaves, upstream)]
    for backend, y in ours.items():
        for one, other in zip([y, *torch.autograd.grad(y, leaves, upstream)], expected, strict=True):
            limit = 1e-12 * max(1.0, other.abs().max().item())
            assert_close(one, other, rtol=0, atol=limit, msg=lambda text, backend=backend: f"{backend}: {text}")


@pytest.mark.parametrize("T", [1, 63])
@pytest.mark.parametrize("kind", ["far", "packed", "arbitrary", "offsets", "offsets of keys"])
def test_products_depend_on_distance_whatever_the_positions(kind, T):
    q, k, _ = tokens(T, T)
    offsets = torch.tensor([0, -5])
    index = torch.cat([torch.arange(T // 3), torch.arange(T - T // 3)]).expand(2, -1)
    query, key = {
        "far": (Contiguous(T, 200_000),) * 2,
        "packed": (Packed(index, (index == 0).cumsum(-1)),) * 2,
        "arbitrary": (Arbitrary(torch.randint(300, (1, T))), Arbitrary(torch.randint(300, (2, T)))),
        "offsets": (Contiguous(T, offsets),) * 2,
        "offsets of keys": (Contiguous(T, 7), Contiguous(T, offsets)),
    }[kind]
    order = combine_terms(query, key)
    products = order.move_queries(q) @ order.move_keys(k).transpose(-1, -2)
    at = [positions.index_BT().expand(2, -1) for positions in (query, key)]
    for b, i, j in ((0, 0, 0), (1, T - 1, T // 2), (1, T // 4, T - 1)):
        expected = score_from_paper(q[b, 1, i], k[b, 1, j], int(at[0][b, i]), int(at[1][b, j]))
        assert_close(products[b, 1, i, j], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_lower_precisions(dtype, bound):
    where, leaves = Contiguous(63), tokens(63, 63, dtype)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    mask, upstream, found = Mask(where, where, high=0), torch.randn(2, H, 63, D, dtype=torch.float64), []
    for x in (leaves, wide):
        y = attention(*x, combine_terms(where, dtype=x[0].dtype), mask)
        assert y.dtype == x[0].dtype
        found.append([y, *torch.autograd.grad(y, x, upstream.to(y.dtype))])
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() <= bound * max(1.0, other.abs().max().item())


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("backend", ["sdpa", "recomputed-tiles"])
def test_a_text_of_32_768_tokens_neither_overflows_nor_loses_the_near_keys(dtype, bound, backend):
    """Some tokens at both ends and in the middle: every pair of them is in the products."""
    length = 32_768
    place = torch.cat([torch.arange(4), length // 2 + torch.arange(4), length - 4 + torch.arange(4)])[None]
    leaves = tokens(12, 12, dtype)
    order = combine_terms(Arbitrary(place), dtype=dtype)
    ours = attention(*leaves, order, Mask(Arbitrary(place), Arbitrary(place), high=0), backend=backend)
    at = place.expand(2, -1)
    slow = attention_from_paper(*(x.double() for x in leaves), at, at, lambda b, i, j: j <= i)
    assert (ours.double() - slow).abs().max() <= bound * slow.abs().max()
    grads = torch.autograd.grad(ours.sum(), leaves)
    assert all(grad.isfinite().all() for grad in grads)
    whole = XPos(D)(Contiguous(length), Contiguous(length), dtype=dtype)
    for move in whole:
        assert move.apply(torch.ones(1, 1, length, D, dtype=dtype)).isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "longest"), [(torch.float32, 33_400), (torch.bfloat16, 33_400), (torch.float16, 5_796)]
)
def test_windows_that_would_overflow_are_refused(dtype, longest):
    encoding = XPos(D)
    for length in (longest - 5, longest + 5):
        where = Contiguous(length, 9)
        if length < longest:
            moved = [
                move.apply(torch.full((1, 1, length, D), 3.0, dtype=dtype))
                for move in encoding(where, where, dtype=dtype)
            ]
            assert all(x.isfinite().all() for x in moved)
        else:
            with pytest.raises(ValueError, match=f"holds .* tokens in .*, got {length}; take a larger scale_base"):
                encoding(where, where, dtype=dtype)
            XPos(D, scale_base=1024)(where, where, dtype=dtype)


def network(encoding_options=None, **more):
    return small_network(Decoder, "xpos", encoding_options or {"scale_base": 4.0}, **more)


def test_under_autocast_the_limit_is_that_of_the_queries_dtype():
    decoder, like = network(encoding_options={"scale_base": 512.0}).float(), torch.zeros(1, 5_800, 24)
    decoder.plan(Contiguous(5_800), like, causal=True, backend="recomputed-tiles")
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(ValueError, match=r"tokens in float16"):
        decoder.plan(Contiguous(5_800), like, causal=True)


@pytest.mark.parametrize("key_value_heads", [4, 1])
def test_grouped_queries_caches_padding_and_packing(key_value_heads):
    assert_reads_alike_however_it_is_fed(network(key_value_heads=key_value_heads))


def test_a_memory_s_slots_stand_where_they_stood():
    decoder, ids = network(layers=1, memory=SegmentRecurrence(40)), torch.randint(30, (2, 12))
    assert_close(hidden_in_segments(decoder, ids, [5, 4, 3]), decoder(ids).hidden, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"head_dim": 5}, "head_dim"),
        ({"base": 1.0}, "base"),
        ({"scale_base": 0.0}, "scale_base"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": math.inf}, "gamma"),
    ],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        XPos(**{"head_dim": D, **options})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Encoder(9, encoding="xpos"), "not defined for encoder.*grows without limit"),
        (
            lambda: Decoder(9, encoding="xpos", memory=LookAheadMemory(4)),
            "look-ahead memory.*keys to their right",
        ),
        (
            lambda: build_encoding("xpos", width=8, heads=2, layers=1, max_positions=8, use="cross-attention"),
            "not of one text",
        ),
    ],
)
def test_where_its_factor_would_grow_it_is_refused(wrong, words):
    with pytest.raises(BadInput, match=words):
        wrong()
