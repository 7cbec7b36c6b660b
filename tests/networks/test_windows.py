"""Layers with a window, against networks that are given nothing but the tokens of the window."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from network_cases import IN_ENCODERS, NAMES, SIZES, assert_gradients_close, decoder, padded, seq2seq, shaken, texts
from torch.testing import assert_close

from wordorder import Encoder, LookAheadMemory, Positional, SegmentRecurrence
from wordorder.attention import Call, attend, attention, plan_attention
from wordorder.encodings import Terms, build_encoding
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed, ToeplitzBias

WINDOW = 4
READ_BESIDE = ("shift",)
"""Encodings by which a token in the window has read tokens outside of it."""


def encoder(encoding, *, dtype=torch.float64, **options):
    return shaken(Encoder(40, encoding=encoding, **{**SIZES, **options})).to(dtype)


def seen_alone(network, ids, *, sides):
    """For each token the state that it has where the network reads its window and nothing else."""
    states = []
    for t in range(ids.shape[1]):
        first, last = max(t - WINDOW + 1, 0), min(t + (WINDOW - 1 if sides == 2 else 0), ids.shape[1] - 1)
        read = network(ids[:, first : last + 1], Contiguous(last + 1 - first, first)).hidden
        states.append(read[:, t - first])
    return torch.stack(states, 1)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in READ_BESIDE])
def test_a_layer_of_a_decoder_sees_its_window_alone(name):
    network, plain = (decoder(encoding, layers=1) for encoding in (f"{name}@{WINDOW}", name))
    plain.load_state_dict(network.state_dict())
    ids = torch.randint(1, 40, (2, 11))
    ours, slow = network(ids).hidden, seen_alone(plain, ids, sides=1)
    assert_close(ours, slow, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(ours, plain(ids).hidden)
    upstream = torch.randn_like(ours)
    ours, slow = (
        torch.autograd.grad((y * upstream).sum(), list(n.parameters()), allow_unused=True)
        for y, n in ((ours, network), (slow, plain))
    )
    for first, second in zip(ours, slow, strict=True):
        assert (first is None) == (second is None)
        if first is not None:
            assert_close(first, second, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [name for name in IN_ENCODERS if name not in READ_BESIDE])
def test_a_layer_of_an_encoder_sees_its_window_on_both_sides(name, side):
    network, plain = (encoder(encoding, layers=1) for encoding in (f"{name}@{WINDOW}", name))
    plain.load_state_dict(network.state_dict())
    rows = texts(13, 6, 1)
    ids, valid, positions = padded(rows, side)
    ours = network(ids, positions, key_padding_mask=~valid).hidden
    slow = torch.cat([seen_alone(plain, text[None], sides=2)[0] for text in rows])
    assert_close(ours[valid], slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoding", ["rope@3", "t5@3", "rope@3,none@2"])
def test_what_is_further_than_all_windows_together_changes_nothing(encoding):
    """Two layers reach back by the sum of both windows, each less the token itself."""
    reach = 2 + (1 if "," in encoding else 2)
    network, ids = decoder(encoding), torch.randint(1, 40, (1, 12))
    other = ids.clone()
    other[0, 2] = ids[0, 2] % 38 + 1
    same = (network(ids).hidden == network(other).hidden).all(-1)[0]
    assert same.tolist() == [t < 2 or t > 2 + reach for t in range(12)]


@pytest.mark.parametrize(
    "encoding", ["rope@3*1,none", "t5@3,rope", "tupe-r@5,rope@2", "transformer-xl@3,cope", "xpos@4"]
)
def test_token_by_token_packed_and_padded_as_at_once(encoding):
    network, rows = decoder(encoding), texts(9, 5)
    alone = [network(text[None]).hidden[0] for text in rows]

    cache = KeyValueCache()
    steps = [network(rows[0][None, t : t + 1], cache=cache).hidden[0] for t in range(9)]
    assert_close(torch.cat(steps), alone[0], rtol=1e-10, atol=1e-10)

    place = torch.cat([torch.arange(len(text)) for text in rows])
    sequence = torch.cat([torch.full((len(text),), n) for n, text in enumerate(rows)])
    packed = network(torch.cat(rows)[None], Packed(place[None], sequence[None])).hidden[0]
    assert_close(packed, torch.cat(alone), rtol=1e-10, atol=1e-10)

    ids, valid, positions = padded(rows, "left")
    assert_close(
        network(ids, positions, key_padding_mask=~valid).hidden[valid], torch.cat(alone), rtol=1e-10, atol=1e-10
    )


def test_positions_decide_what_is_near_not_places_in_the_row():
    network, ids, shuffled = encoder("rope@3"), torch.randint(1, 40, (1, 9)), torch.randperm(9)
    scattered = network(ids[:, shuffled], Arbitrary(shuffled[None])).hidden
    assert_close(scattered, network(ids).hidden[:, shuffled], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["none", "rope", "t5", "alibi", "kerple", "transformer-xl", "cope", "fire", "pope"])
def test_segments_are_one_text_where_memory_holds_the_window(name):
    """Segment recurrence with as many slots as a window reaches back equals attention over the whole text."""
    ids, cuts = torch.randint(1, 40, (2, 23)), (0, 5, 6, 13, 23)
    plain = decoder(f"{name}@{WINDOW}")
    network = decoder(f"{name}@{WINDOW}", memory=SegmentRecurrence(WINDOW - 1))
    assert {*network.state_dict()} == {*plain.state_dict()}
    network.load_state_dict(plain.state_dict())
    read, state = [], None
    for start, stop in pairwise(cuts):
        segment = network(ids[:, start:stop], memory=state)
        read.append(segment.hidden)
        state = segment.memory
    assert_close(torch.cat(read, 1), plain(ids).hidden, rtol=1e-10, atol=1e-10)


def test_an_encoder_decoder_has_windows_in_both_halves_and_none_between_them():
    network = seq2seq("t5@3")
    ids, target = torch.randint(1, 40, (2, 9)), torch.randint(1, 40, (2, 7))
    other = ids.clone()
    other[:, 0] = ids[:, 0] % 38 + 1
    states, changed = (network.encoder(x).hidden for x in (ids, other))
    assert_close(states[:, 5:], changed[:, 5:], rtol=0, atol=0)
    assert not torch.equal(states[:, 4], changed[:, 4])
    assert not torch.allclose(network(ids, target).hidden[:, -1], network(other, target).hidden[:, -1])


@pytest.mark.parametrize("backend", ["reference", "sdpa", "kept-tiles", "recomputed-tiles"])
@pytest.mark.parametrize("causal", [True, False])
def test_every_backend_hides_what_is_beyond_the_window(backend, causal):
    leaves = [torch.randn(2, 3, 70, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    table = torch.randn(3, 139, dtype=torch.float64, requires_grad=True)
    where = Contiguous(70)
    distance = torch.arange(70) - torch.arange(70)[:, None]
    visible = (distance > -20) & (distance <= 0 if causal else distance < 20)
    terms = Terms(0.3, ToeplitzBias(table, 70), window=20, positions=(where, where))
    mask = Mask(where, where, high=0 if causal else None)
    outputs = [
        attend(*leaves, plan_attention(terms, mask, Call.of(*leaves), backend=backend))[0],
        attention(*leaves, Terms(0.3, terms.bias), visible, backend="reference"),
        attention(*leaves, terms, mask.dense(), backend="reference"),
    ]
    upstream = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad((y * upstream).sum(), [*leaves, table]) for y in outputs]
    for other in (1, 2):
        assert_close(outputs[0], outputs[other], rtol=1e-10, atol=1e-10)
        assert_close(gradients[0], gradients[other], rtol=1e-10, atol=1e-10)


def test_kinds_with_the_same_bias_and_window_share_what_is_written_out():
    network, x = encoder("t5@3,t5+rope@3,t5@4,t5", layers=4), torch.randn(1, 9, 24, dtype=torch.float64)
    plans = network.plan(Contiguous(9), x)
    first, second, third, fourth = map(plans.layer, range(4))
    assert first.prepared is second.prepared
    assert len({id(plan.prepared) for plan in (first, third, fourth)}) == 3
    for index in (-1, 4):
        with pytest.raises(BadInput, match=r"from 0 \.\. 3, got"):
            plans.layer(index)
    assert first.terms.query_moves == ()
    assert second.terms.query_moves != ()


def test_a_window_in_a_network_of_ones_own():
    ids = torch.randn(2, 9, 24)
    attended = []
    for encoding in ("rope@3", "rope"):
        positional = Positional(encoding, width=24, heads=4, layers=1, causal=True)
        q, k, v = (x.view(2, 9, 4, 6).transpose(1, 2) for x in (ids, ids.cos(), ids.sin()))
        attended.append(positional.prepare(positional.embed(ids)).attend(0, q, k, v))
    windowed, plain = attended
    assert_close(windowed[:, :, :3], plain[:, :, :3])
    assert not torch.allclose(windowed[:, :, 3:], plain[:, :, 3:])


def test_it_compiles_whole():
    network, ids = encoder("rope@3,t5", dtype=torch.float32), torch.randint(1, 40, (2, 9))
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    assert_close(compiled(ids).hidden, network(ids).hidden, rtol=1e-4, atol=1e-5)
    assert_gradients_close(network, compiled(ids).hidden, network(ids).hidden, 1e-4)


def test_windows_without_a_meaning_are_refused():
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(BadInput, match="a window of 3 tokens needs positions: pass a Mask"):
        attention(q, q, q, Terms(1.0, window=3))
    windowed = build_encoding("rope@3", width=16, heads=2, layers=1, max_positions=9)
    assert_close(
        attention(q, q, q, windowed),
        attention(
            q, q, q, replace(windowed.prepare(5).layer(0), window=None), Mask(Contiguous(5), Contiguous(5), -2, 2)
        ),
    )
    with pytest.raises(BadInput, match="a window of 1 token lets memory slots see nothing"):
        decoder("rope@1", memory=LookAheadMemory(3))
    assert decoder("rope@1", memory=SegmentRecurrence(3))(torch.tensor([[1, 2]])).hidden.isfinite().all()


WINDOWED = ["rope@3,none", "t5@3,t5@5", "tupe-r@4", "fox@3", "rope@1,none", "learned+shaw@4", "relative-logits@5"]
WINDOWED += ["transformer-xl@3,cope@4", "complex-order+rope@2", "path@3,rope+path", "pope@4,pope", "dape@3,none"]


@pytest.mark.parametrize("cuts", [[1] * 13, [5, 1, 1, 4, 2], [9, 4]], ids=str)
@pytest.mark.parametrize("encoding", WINDOWED)
def test_a_cache_keeps_the_keys_of_the_window_alone(encoding, cuts):
    network, ids, cache = decoder(encoding, layers=2), torch.randint(1, 40, (3, 13)), KeyValueCache()
    whole = network(ids, return_attentions=True)
    steps = [network(piece, cache=cache, return_attentions=True) for piece in ids.split(cuts, 1)]
    assert_close(torch.cat([step.hidden for step in steps], 1), whole.hidden, rtol=0, atol=1e-10)
    for layer, (last, weights) in enumerate(zip(steps[-1].attentions, whole.attentions, strict=True)):
        window = network.encoding.kind_of(layer).window
        assert cache.tokens(layer) == cache.length == 13
        assert cache.key_count(layer) == (13 if window is None else window - 1)
        assert_close(last, weights[:, :, -cuts[-1] :], rtol=0, atol=1e-10)
    rows = torch.tensor([2, 0])
    cache.reorder(rows)
    further = torch.randint(1, 40, (2, 2))
    both = network(torch.cat((ids[rows], further), 1)).hidden
    assert_close(network(further, cache=cache).hidden, both[:, 13:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoding", ["rope@3,none", "tupe-a@4", "learned+t5@3"])
def test_rows_padded_on_the_left_keep_their_windows_too(encoding):
    network, ids, cache = decoder(encoding, layers=2), torch.randint(1, 40, (2, 9)), KeyValueCache()
    offset, padding = torch.tensor([0, -3]), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :3] = True
    whole = network(ids, Contiguous(9, offset), key_padding_mask=padding).hidden
    for t in range(9):
        seen = padding[:, : t + 1]
        step = network(ids[:, t : t + 1], Contiguous(1, offset + t), key_padding_mask=seen, cache=cache).hidden
        assert_close(step[~padding[:, t]], whole[:, t : t + 1][~padding[:, t]], rtol=0, atol=1e-10)
    assert cache.key_count(0) == network.encoding.kind_of(0).window - 1


def test_with_gaps_between_tokens_nothing_is_dropped():
    network, ids = decoder("rope@3", layers=1), torch.randint(1, 40, (1, 6))
    where = torch.tensor([[0, 2, 3, 7, 8, 9]])
    whole, cache = network(ids, Arbitrary(where)).hidden, KeyValueCache()
    for t in range(6):
        at = {"positions": where[:, t : t + 1], "key_positions": where[:, : t + 1]}
        assert_close(network(ids[:, t : t + 1], **at, cache=cache).hidden, whole[:, t : t + 1], rtol=0, atol=1e-10)
    assert cache.key_count(0) == 6
    dropped = KeyValueCache()
    assert dropped.key_count(0) == 0
    network(ids, cache=dropped)
    keys = torch.arange(7)
    with pytest.raises(BadInput, match="the cache has dropped keys of layer 0"):
        network(ids[:, :1], keys[6:], key_positions=keys, cache=dropped)


def test_in_a_network_of_ones_own_too():
    positional = Positional("t5@3,rope", width=16, heads=2, layers=2, causal=True).double()
    x, (q, k, v), cache = torch.randn(2, 9, 16).double(), torch.randn(3, 2, 2, 9, 8).double(), positional.cache()
    whole = positional.prepare(x)
    expected = [whole.attend(layer, q, k, v) for layer in range(2)]
    for new in (slice(0, 4), slice(4, 5), slice(5, 9)):
        step = positional.prepare(x[:, new], cache=cache)
        for layer in range(2):
            found = step.attend(layer, q[:, :, new], k[:, :, new], v[:, :, new])
            assert_close(found, expected[layer][:, :, new], rtol=0, atol=1e-10)
    assert [cache.key_count(layer) for layer in range(2)] == [2, 9]
