import math

import pytest
import torch
from attention_cases import BACKENDS, assert_reads_alike_however_it_is_fed, hidden_in_segments, small_network
from torch.testing import assert_close

from wordorder import Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.attention import attention
from wordorder.encodings import Composition, CoPE, build_encoding, cope
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed

H, D = 3, 4


def made(*, dtype=torch.float64, max_position=5, std=0.7):
    encoding = CoPE(D, layers=2, max_position=max_position)
    initialise(encoding, seed=3, std=std)
    return encoding.to(dtype)


def attention_from_paper(encoding, layer, q, k, v, visible, before=lambda b, j, m: m >= j):
    """Eq. 2 to 5 with the listing's scales, pair by pair; ``before(b, j, m)``: key m is not before key j."""
    e, rows = encoding.tables[layer].weight, []
    for b in range(len(q)):
        for h in range(H):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                logit = {j: q[b, h, i] @ k[b, h, j] / math.sqrt(D) for j in seen}
                scores = []
                for j in seen:
                    p = sum(torch.sigmoid(logit[m]) for m in seen if before(b, j, m))
                    p = p.clamp(max=len(e) - 1)
                    low, high = math.floor(p.item()), math.ceil(p.item())
                    scores.append(logit[j] + q[b, h, i] @ ((p - low) * e[high] + (1 - (p - low)) * e[low]))
                weight = torch.stack(scores).softmax(-1) if seen else []
                rows.append(sum((w * v[b, h, j] for w, j in zip(weight, seen, strict=True)), 0 * q[b, h, i]))
    return torch.stack(rows).view(len(q), H, -1, D)


def listing(q, k, v, e, mask):
    """The paper's appendix, tensors as they stand there: for lengths that loops would not reach."""
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask.log()
    gates = torch.sigmoid(logits)
    pos = gates.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=len(e) - 1)
    up, down = pos.ceil().long(), pos.floor().long()
    by_integer = q @ e.T
    share = pos - down
    term = by_integer.gather(-1, up) * share + by_integer.gather(-1, down) * (1 - share)
    return (logits + term).softmax(-1) @ v


def tokens(T, S, dtype=torch.float64):
    return [torch.randn(2, H, n, D, dtype=dtype, requires_grad=True) for n in (T, S, S)]


def combine_terms(encoding, query, key=None):
    return Composition({"cope": encoding}, head_dim=D).prepare(query, key)


def assert_equal(encoding, ours, slow, leaves, *, tolerance=1e-12):
    """Compare an output, or one of each backend, and every gradient with those of the slow reference."""
    upstream, wanted = torch.randn_like(slow), [*leaves, *encoding.parameters()]
    outputs = {**ours, "slow": slow} if isinstance(ours, dict) else {"default": ours, "slow": slow}
    found = {name: [y, *torch.autograd.grad(y, wanted, upstream, allow_unused=True)] for name, y in outputs.items()}
    expected = found.pop("slow")
    for name, tensors in found.items():
        for one, other in zip(tensors, expected, strict=True):
            if one is None or other is None:  # the other layer's table
                assert one is other, name
            else:
                limit = tolerance * max(1.0, other.abs().max().item())
                assert_close(one, other, rtol=0, atol=limit, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("max_position", [2, 6])
@pytest.mark.parametrize("seen", ["causal", "padded on the right", "padded on the left", "tensor", "within"])
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 5), (9, 9), (4, 9)])
def test_output_and_every_gradient_match_the_equations(max_position, seen, T, S):
    encoding, leaves = made(max_position=max_position), tokens(T, S)
    query, key, valid = Contiguous(T, S - T), Contiguous(S), torch.ones(2, S, dtype=torch.bool)
    valid[1, S // 2 :] = seen != "padded on the right"
    valid[1, : S // 2] &= seen != "padded on the left"
    low, tokens_BS = -2 if seen == "within" else None, valid if seen.startswith("padded") else None
    mask = Mask(query, key, low, high=0, tokens_BS=tokens_BS)
    dense = mask.dense().expand(2, 1, T, S)
    order, given = combine_terms(encoding, query, key).layer(1), dense if seen == "tensor" else mask
    ours = {backend: attention(*leaves, order, given, backend=backend) for backend in BACKENDS}
    slow = attention_from_paper(encoding, 1, *leaves, lambda b, i, j: bool(dense[b, 0, i, j]))
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("block", [40, 2**16])
@pytest.mark.parametrize("T", [1, 63, 200])
def test_blocks_match_the_listing(T, block, backend, monkeypatch):
    monkeypatch.setattr(cope, "CPU_BLOCK", block if T < 200 else 2**16)
    encoding, leaves, where = made(max_position=20), tokens(T, T), Contiguous(T)
    ours = attention(*leaves, combine_terms(encoding, where).layer(0), Mask(where, where, high=0), backend=backend)
    triangle = torch.ones(T, T, dtype=torch.float64).tril()
    assert_equal(encoding, ours, listing(*leaves, encoding.tables[0].weight, triangle), leaves)


@pytest.mark.parametrize("kind", ["packed", "arbitrary", "out of order", "offsets"])
def test_positions_of_every_kind(kind):
    encoding, leaves = made(), tokens(5, 5)
    sequence = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]])
    index, offsets = torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]]), torch.tensor([0, -2])
    where = {
        "packed": Packed(index, sequence),
        "arbitrary": Arbitrary(torch.tensor([[0, 3, 9, 10, 20]])),
        "out of order": Arbitrary(torch.tensor([[3, 9, 0, 20, 1], [4, 3, 2, 1, 0]])),
        "offsets": Contiguous(5, offsets),
    }[kind]
    at, mask = where.index_BT().expand(2, -1), Mask(where, where, high=0)
    dense = mask.dense().expand(2, 1, 5, 5)
    ours = attention(*leaves, combine_terms(encoding, where).layer(0), mask)
    slow = attention_from_paper(
        encoding, 0, *leaves, lambda b, i, j: bool(dense[b, 0, i, j]), before=lambda b, j, m: at[b, m] >= at[b, j]
    )
    assert_equal(encoding, ours, slow, leaves)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_lower_precisions(dtype, bound, backend):
    low, where, leaves = made(std=0.4).to(dtype), Contiguous(63), tokens(63, 63, dtype)
    ours = attention(*leaves, combine_terms(low, where).layer(1), Mask(where, where, high=0), backend=backend)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    table = low.tables[1].weight.detach().double().requires_grad_()
    slow = listing(*wide, table, torch.ones(63, 63, dtype=torch.float64).tril())
    assert ours.dtype == dtype
    upstream = torch.randn_like(slow)
    found = [
        [ours, *torch.autograd.grad(ours, [*leaves, low.tables[1].weight], upstream.to(dtype))],
        [slow, *torch.autograd.grad(slow, [*wide, table], upstream)],
    ]
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() <= bound * max(1.0, other.abs().max().item())


def test_gates_at_rest_count_every_second_token():
    """With queries of 0 every gate is 1/2: position p of the n-th key back is n/2, and the term itself is 0."""
    q, (_, k, _) = torch.zeros(2, H, 6, D, dtype=torch.float64), tokens(6, 6)
    where, encoding = Contiguous(6), made(max_position=2)
    q[..., 0] = 1e-300  # so small that gates stay 1/2, and yet the term can be read off
    with torch.no_grad():
        encoding.tables[0].weight[:, 0] = torch.tensor([0.0, 1.0, 4.0])
    visible = Mask(where, where, high=0)
    term = combine_terms(encoding, where).layer(0).content[0].scores(q, k, 0.5, visible) * 1e300
    assert_close(term[0, 0, 5], torch.tensor([4.0, 4.0, 4.0, 2.5, 1.0, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("compute", [cope.interpolated_by_count, cope.written_out])
def test_nan_stays_in_its_row_and_ends_no_training_step(compute):
    q, k, _ = tokens(7, 7)
    table, mask = torch.randn(4, D, dtype=q.dtype), Mask(Contiguous(7), Contiguous(7), high=0)
    spoiled = q.detach().index_fill(2, torch.tensor([3]), torch.nan).requires_grad_()
    whole, found = compute(q, k, table, 0.5, mask), compute(spoiled, k, table, 0.5, mask)
    seen = torch.ones(7, 7).tril().bool()
    assert found[:, :, 3, seen[3]].isnan().all()
    others = [0, 1, 2, 4, 5, 6]
    assert_close(found[:, :, others][..., seen[others]], whole[:, :, others][..., seen[others]], rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(found.masked_fill(~seen, 0).sum(), spoiled)
    assert gradient[:, :, 3].isnan().all()


def test_compiled_and_transformed_calls_take_the_way_without_a_backward_of_its_own():
    encoding, where, (q, k, v) = made(), Contiguous(7), tokens(7, 7)
    order, mask = combine_terms(encoding, where).layer(0), Mask(where, where, high=0)

    def loss(q):
        return attention(q, k, v, order, mask).square().sum()

    expected = torch.autograd.grad(loss(q), q)[0]
    assert_close(torch.func.grad(loss)(q), expected)
    term = order.content[0].scores(q, k, 0.5, mask)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(term.sum(), q, create_graph=True)


def network(**options):
    return small_network(Decoder, "cope", {"max_position": 3}, **options)


@pytest.mark.parametrize("key_value_heads", [4, 2, 1])
def test_grouped_queries_caches_padding_and_packing(key_value_heads):
    assert_reads_alike_however_it_is_fed(network(key_value_heads=key_value_heads))


@pytest.mark.parametrize("backend", [None, "reference"])
def test_slots_of_a_memory_are_counted(backend):
    """One layer: slots hold what the tokens were, so that a text in segments is the text itself."""
    decoder = network(layers=1, memory=SegmentRecurrence(40))
    ids = torch.randint(30, (2, 12))
    found = hidden_in_segments(decoder, ids, [5, 4, 3], backend=backend)
    assert_close(found, decoder(ids).hidden, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"head_dim": 0}, "head_dim"), ({"layers": 0}, "layers"), ({"max_position": 0}, "max_position")],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        CoPE(**{"head_dim": D, "layers": 1, **options})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Encoder(9, encoding="cope"), "not defined for encoder.*keys before the query"),
        (lambda: Decoder(9, encoding="cope", memory=LookAheadMemory(4)), "look-ahead memory.*have no count"),
        (
            lambda: build_encoding("cope", width=8, heads=2, layers=1, max_positions=8, use="cross-attention"),
            "another text",
        ),
    ],
)
def test_where_nothing_can_be_counted_it_is_refused(wrong, words):
    with pytest.raises(BadInput, match=words):
        wrong()
