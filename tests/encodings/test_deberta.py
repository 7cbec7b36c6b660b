import math

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

from wordorder import Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import Composition, DeBERTa, build_encoding
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, Mask

H, D, C, K = 3, 4, 12, 3
TERMS = [(True, True), (True, False), (False, True)]


def made(terms=(True, True), *, dtype=torch.float64, layers=2, max_distance=K, **options):
    sizes = {"heads": H, "head_dim": D, "layers": layers, "max_distance": max_distance}
    encoding = DeBERTa(C, **sizes, content_to_position=terms[0], position_to_content=terms[1], **options)
    initialise(encoding, seed=3, std=0.5)
    return encoding.to(dtype)


def delta(back, k):
    """Eq. 3."""
    if back <= -k:
        return 0
    return 2 * k - 1 if back >= k else back + k


def log_bucket(back, buckets, max_distance):
    """DeBERTa-v2's formula, number by number."""
    middle, far = buckets // 2, abs(back)
    if far <= middle:
        return back
    level = math.log(far / middle) / math.log((max_distance - 1) / middle) * (middle - 1)
    return int(math.copysign(middle + math.ceil(level - 1e-9), back))


def attention_from_paper(
    encoding, layer, q, k, v, query_at, key_at, visible, span=K, bucket=lambda back: back, met=lambda back: -back
):
    """Eq. 4, a query's keys at once; rows are found pair by pair."""
    weights, out = dict(encoding.named_parameters()), []
    maps = [weights.get(f"{name}_projections.{layer}.weight") for name in ("key", "query")]
    scale = 1 / math.sqrt((1 + sum(x is not None for x in maps)) * D)
    for b in range(len(q)):
        for h in range(H):
            as_key, as_query = (None if x is None else weights["table.weight"] @ x[h * D : (h + 1) * D].T for x in maps)
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                back = [int(query_at[b][i] - key_at[b][j]) for j in seen]
                score = k[b, h, seen] @ q[b, h, i]
                if as_key is not None:
                    score = score + as_key[[delta(bucket(t), span) for t in back]] @ q[b, h, i]
                if as_query is not None:
                    score = score + (as_query[[delta(bucket(met(t)), span) for t in back]] * k[b, h, seen]).sum(-1)
                out.append((score * scale).softmax(-1) @ v[b, h, seen])
    return torch.stack(out).view(len(q), H, -1, D)


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def combine_terms(encoding, query, key=None):
    return Composition({"deberta": encoding}, head_dim=D).prepare(query, key)


def assert_equal(encoding, ours, slow, leaves, *, tolerance=1e-12):
    """Compare an output, or one of each backend, and every gradient with those of the slow reference."""
    upstream, wanted = torch.randn_like(slow), [*leaves, *encoding.parameters()]
    outputs = {**ours, "slow": slow} if isinstance(ours, dict) else {"default": ours, "slow": slow}
    found = {name: [y, *torch.autograd.grad(y, wanted, upstream, allow_unused=True)] for name, y in outputs.items()}
    expected = found.pop("slow")
    for name, tensors in found.items():
        for one, other in zip(tensors, expected, strict=True):
            if one is None or other is None:  # the other layer's maps; where nothing is seen, everything
                assert all(grad is None or not grad.any() for grad in (one, other)), name
            else:
                limit = tolerance * max(1.0, other.abs().max().item())
                assert_close(one, other, rtol=0, atol=limit, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("seen", MASKS)
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 5), (9, 9), (4, 9)])
def test_output_and_every_gradient_match_the_equations(terms, seen, T, S):
    encoding, leaves = made(terms), tokens(T, S)
    query, key, mask, at, visible = mask_case(seen, T, S)
    order = combine_terms(encoding, query, key).layer(1)
    ours = {backend: attention(*leaves, order, mask, backend=backend) for backend in BACKENDS}
    assert_equal(encoding, ours, attention_from_paper(encoding, 1, *leaves, *at, visible), leaves)


@pytest.mark.parametrize("seen", MASKS)
def test_the_reading_of_the_reference_code(seen):
    encoding, leaves = made(variant="reference-code"), tokens(7, 9)
    query, key, mask, at, visible = mask_case(seen, 7, 9)
    order = combine_terms(encoding, query, key).layer(1)
    ours = {backend: attention(*leaves, order, mask, backend=backend) for backend in BACKENDS}
    slow = attention_from_paper(encoding, 1, *leaves, *at, visible, met=lambda back: back)
    assert_equal(encoding, ours, slow, leaves)
    other = attention_from_paper(encoding, 1, *leaves, *at, visible)
    assert (slow - other).abs().max() > 0.01


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("buckets", [None, 8])
def test_the_reference_code_is_what_transformers_computes(terms, buckets):
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    kinds = [kind for kind, wanted in zip(("c2p", "p2c"), terms, strict=True) if wanted]
    config = DebertaV2Config(
        hidden_size=H * D, num_attention_heads=H, relative_attention=True, pos_att_type=kinds, share_att_key=False,
        position_buckets=buckets or -1, max_relative_positions=20,
    )  # fmt: skip
    theirs = DisentangledSelfAttention(config).double().eval()
    encoding = made(terms, max_distance=20, buckets=buckets, variant="reference-code")
    weights = dict(encoding.named_parameters())
    with torch.no_grad():
        for name, wanted in (("key", terms[0]), ("query", terms[1])):
            if wanted:
                projection = getattr(theirs, f"pos_{name}_proj")
                projection.weight.copy_(weights[f"{name}_projections.1.weight"])
                projection.bias.zero_()
        q, k, _ = (leaf.detach() for leaf in tokens(17, 17))
        flat = [x.reshape(2 * H, 17, D) for x in (q, k)]
        wanted = theirs.disentangled_attention_bias(*flat, None, weights["table.weight"], 1 + sum(terms))
        term = combine_terms(encoding, Contiguous(17)).layer(1).content[0]
        found = term.scores(q, k, encoding.content_scale(D), None)
    assert_close(found, wanted.view(2, H, 17, 17), rtol=0, atol=1e-6)  # transformers' buckets and roots are float32


@pytest.mark.parametrize(("T", "span"), [(1, 2), (63, 2), (63, 100)])
def test_long_and_short_spans(T, span):
    encoding, leaves, where = made(max_distance=span, layers=1), tokens(T, T), Contiguous(T)
    at = [where.index_BT().expand(2, -1)] * 2
    ours = attention(*leaves, combine_terms(encoding, where).layer(0), Mask(where, where))
    slow = attention_from_paper(encoding, 0, *leaves, *at, lambda b, i, j: True, span=span)
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_of_every_kind(terms, kind):
    encoding, leaves = made(terms), tokens(5, 5)
    query, key, at, visible = positions_case(kind)
    order, mask = combine_terms(encoding, query, key).layer(0), Mask(query, key)
    ours = {backend: attention(*leaves, order, mask, backend=backend) for backend in ("sdpa", "kept-tiles")}
    assert_equal(encoding, ours, attention_from_paper(encoding, 0, *leaves, *at, visible), leaves)


@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 9), (8, 30)])
@pytest.mark.parametrize("positions", [Contiguous(40), Arbitrary(torch.arange(40)[None])])
def test_logarithmic_buckets(buckets, max_distance, positions):
    encoding, leaves = made(max_distance=max_distance, buckets=buckets), tokens(40, 40)
    assert encoding.table.weight.shape == (2 * buckets, C)
    at = [positions.index_BT().expand(2, -1)] * 2
    ours = attention(*leaves, combine_terms(encoding, positions).layer(0))
    slow = attention_from_paper(
        encoding,
        0,
        *leaves,
        *at,
        lambda b, i, j: True,
        span=buckets,
        bucket=lambda back: log_bucket(back, buckets, max_distance),
    )
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize(("buckets", "max_distance"), [(4, 11), (6, 16), (22, 16), (256, 512)])
def test_the_last_border_is_a_whole_number_whatever_rounding_makes_of_it(buckets, max_distance):
    row = made(max_distance=max_distance, buckets=buckets).row
    assert row(torch.tensor([1 - max_distance, -max_distance, -9 * max_distance])).tolist() == [1, 0, 0]


def test_buckets_of_deberta_v3_at_their_borders():
    row = made(max_distance=512, buckets=256).row
    back = torch.tensor([0, 1, 128, 129, 130, 131, 510, 511, 512, 9999])
    assert (row(back) - 256).tolist() == [0, 1, 128, 129, 130, 131, 255, 255, 255, 255]
    assert (row(-back) - 256).tolist() == [0, -1, -128, -129, -130, -131, -255, -255, -256, -256]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lower_precisions(dtype, bound, backend):
    exact, low = made(), made().to(dtype)
    exact.load_state_dict({name: value.double() for name, value in low.state_dict().items()})
    where, leaves = Contiguous(33), tokens(33, 33, dtype)
    mask = Mask(where, where)
    ours = attention(*leaves, combine_terms(low, where).layer(1), mask, backend=backend)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    slow = attention(*wide, combine_terms(exact, where).layer(1), mask, backend="reference")
    assert ours.dtype == dtype
    upstream, found = torch.randn_like(slow), []
    for encoding, y, x in ((low, ours, leaves), (exact, slow, wide)):
        grads = torch.autograd.grad(y, [*x, *encoding.parameters()], upstream.to(y.dtype), allow_unused=True)
        found.append([y, *(grad for grad in grads if grad is not None)])
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() <= bound * max(1.0, other.abs().max().item())


def test_scale_and_parameters_follow_the_terms():
    for terms, count in zip(TERMS, (3, 2, 2), strict=True):
        encoding = made(terms)
        assert encoding.content_scale(D) == pytest.approx(1 / math.sqrt(count * D))
        assert sum(encoding.cost_parts().values()) == sum(p.numel() for p in encoding.parameters())
    assert set(made().cost_parts()) == {"relative table", "W_kr", "W_qr"}
    sizes = {"width": C, "heads": H, "layers": 2, "max_positions": 9}
    assert build_encoding("deberta", **sizes).parts["deberta"].table.weight.shape == (18, C)
    assert build_encoding("deberta+t5", **sizes).scales[0] == pytest.approx(1 / math.sqrt(3 * D))
    with pytest.raises(ValueError, match="content scales"):
        build_encoding("deberta+tupe-a", **sizes)


def network(kind, **options):
    return small_network(kind, "deberta", {"max_distance": 5}, **options)


@pytest.mark.parametrize("key_value_heads", [4, 2, 1])
def test_grouped_queries_caches_padding_and_packing(key_value_heads):
    assert_reads_alike_however_it_is_fed(network(Decoder, key_value_heads=key_value_heads))


@pytest.mark.parametrize("kind", [Encoder, Decoder])
@pytest.mark.parametrize("memory", [SegmentRecurrence(6), LookAheadMemory(6)])
def test_fast_and_slow_read_a_memory_alike(kind, memory):
    built, ids = network(kind, memory=memory), torch.randint(30, (2, 12))
    found = [hidden_in_segments(built, ids, 4, backend=backend) for backend in (None, "reference")]
    assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"width": 0}, "width"),
        ({"heads": 0}, "heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"layers": 0}, "layers"),
        ({"max_distance": 0}, "max_distance"),
        ({"content_to_position": False, "position_to_content": False}, "cannot both be False"),
        ({"buckets": 5}, "buckets must be even"),
        ({"variant": "code"}, "variant"),
        ({"buckets": 2}, "buckets"),
        ({"buckets": 8, "max_distance": 5}, r"less than 2 \(max_distance - 1\) = 8, got 8"),
    ],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        DeBERTa(**{"width": C, "heads": H, "head_dim": D, "layers": 1, **options})


def test_cross_attention_is_refused():
    with pytest.raises(BadInput, match="no common axis"):
        build_encoding("deberta", width=C, heads=H, layers=1, max_positions=9, use="cross-attention")
