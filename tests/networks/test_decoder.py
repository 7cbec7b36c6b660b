from unittest.mock import patch

import pytest
import torch
from network_cases import FROM_PAPER, NAMES, SIZES, assert_gradients_close, decoder, padded, texts
from seq2seq_from_paper import transform
from torch.testing import assert_close

from wordorder import Decoder, Encoder
from wordorder.encodings import Composition
from wordorder.memory import LookAheadMemory, SegmentRecurrence
from wordorder.networks import KeyValueCache
from wordorder.ops import Contiguous, Packed


@pytest.mark.parametrize("lengths", [(1, 1), (40, 27)])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("name", FROM_PAPER)
def test_decoder_and_every_gradient_match_the_equations(name, placement, lengths):
    network, batch = decoder(name, norm_placement=placement), texts(*lengths)
    style = {"heads": 4, "layers": 2, "encoding": name, "placement": placement, "causal": True}
    weights = dict(network.named_parameters())
    paper = torch.cat([transform(weights, text, **style) for text in batch])
    for side in ("left", "right"):
        ids, valid, positions = padded(batch, side)
        ours = network(ids, positions, key_padding_mask=~valid).hidden[valid]
        assert_close(ours, paper, rtol=1e-12, atol=1e-12, msg=lambda text, side=side: f"{side}: {text}")
        assert_gradients_close(network, ours, paper, 1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_shapes_and_dtypes(name, dtype):
    network = decoder(name, dtype=dtype, std=0.02)
    for length in (1, 63):
        hidden = network(torch.randint(40, (2, length))).hidden
        assert hidden.shape == (2, length, 24)
        assert hidden.dtype == dtype
        assert hidden.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_token_by_token_equals_all_at_once(name, dtype, bound):
    network, ids = decoder(name, dtype=dtype).eval(), torch.randint(40, (2, 11))
    whole = network(ids).hidden
    for steps in ([1] * 11, [4, 1, 1, 5]):
        cache, parts = KeyValueCache(), []
        for chunk in ids.split(steps, 1):
            parts.append(network(chunk, cache=cache).hidden)
        assert cache.length == 11
        assert_close(torch.cat(parts, 1), whole, rtol=0, atol=bound * whole.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_left_padded_token_by_token_equals_each_text_alone(name):
    network, batch = decoder(name).eval(), texts(9, 4, 1)
    ids, valid, positions = padded(batch, "left")
    cache, parts = KeyValueCache(), []
    for start, stop in ((0, 6), (6, 7), (7, 8), (8, 9)):
        where = Contiguous(stop - start, positions.offset + start)
        parts.append(network(ids[:, start:stop], where, key_padding_mask=~valid[:, :stop], cache=cache).hidden)
    alone = torch.cat([network(text[None]).hidden[0] for text in batch])
    assert_close(torch.cat(parts, 1)[valid], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(name, side):
    network, batch = decoder(name), texts(9, 4, 1)
    ids, valid, positions = padded(batch, side)
    alone = torch.cat([network(text[None]).hidden[0] for text in batch])
    assert_close(network(ids, positions, key_padding_mask=~valid).hidden[valid], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_packed_equals_separate(name):
    network, batch = decoder(name), texts(7, 1, 12)
    position = torch.cat([torch.arange(len(text)) for text in batch])[None]
    sequence = torch.cat([torch.full((len(text),), i) for i, text in enumerate(batch)])[None]
    packed = network(torch.cat(batch)[None], Packed(position, sequence)).hidden[0]
    assert_close(packed, torch.cat([network(text[None]).hidden[0] for text in batch]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [2, 63])
def test_no_token_sees_what_comes_after_it(name, length):
    network, ids = decoder(name), torch.randint(40, (1, length))
    changed = ids.clone()
    changed[:, length // 2 :] = (changed[:, length // 2 :] + 1) % 40
    before, after = network(ids).hidden, network(changed).hidden
    assert_close(before[:, : length // 2], after[:, : length // 2], rtol=0, atol=1e-14)
    assert not torch.allclose(before[:, length // 2], after[:, length // 2])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("length", [2, 63])
def test_fast_backend_equals_the_reference_with_every_gradient(name, dtype, bound, length):
    network, batch = decoder(name, dtype=dtype), texts(length, length // 2)
    ids, valid, positions = padded(batch, "right")
    fast, slow = (
        network(ids, positions, key_padding_mask=~valid, backend=b).hidden[valid] for b in (None, "reference")
    )
    assert_close(fast, slow, rtol=bound, atol=bound)
    assert_gradients_close(network, fast, slow, bound)


@pytest.mark.parametrize("name", ["none", "rope", "alibi", "t5", "shaw", "sinusoidal"])
@pytest.mark.parametrize("length", [1, 70])
def test_texts_longer_than_max_positions(name, length):
    network, ids = decoder(name, max_positions=8), torch.randint(40, (1, length))
    assert network(ids).hidden.shape == (1, length, 24)


@pytest.mark.parametrize("name", ["rope", "shaw", "t5", "alibi", "rope+t5", "transformer-xl", "kerple", "sandwich"])
def test_relative_encodings_know_distance_alone(name):
    network, ids = decoder(name), torch.randint(40, (2, 11))
    here, there = (network(ids, Contiguous(11, offset)).hidden for offset in (0, 60))
    assert_close(here, there, rtol=1e-9, atol=1e-9)


def test_causality_alone_tells_order():
    network, ids = decoder("none", std=0.5), torch.randperm(39)[None, :6] + 1
    swapped = ids[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(network(ids).hidden[0, 1], network(swapped).hidden[0, 1])


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name):
    first, second = decoder(name), Decoder(40, encoding=name, **SIZES).double().eval()
    assert not second.load_state_dict(first.state_dict()).missing_keys
    ids = torch.randint(40, (2, 11))
    assert_close(second(ids).hidden, first(ids).hidden, rtol=0, atol=0)
    assert not list(first.buffers())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_order_is_prepared_once_per_forward(checkpointing):
    network = decoder("tupe-r", layers=3).train()
    network.gradient_checkpointing = checkpointing
    with patch.object(Composition, "terms", autospec=True, side_effect=Composition.terms) as calls:
        network(torch.randint(40, (2, 7))).hidden.sum().backward()
    assert calls.call_count == 1


@pytest.mark.parametrize("name", ["tupe-r", "shaw", "rope"])
def test_gradient_checkpointing_changes_nothing(name):
    network, ids = decoder(name).train(), torch.randint(40, (2, 7))
    weights, grads = list(network.parameters()), []
    for network.gradient_checkpointing in (False, True):
        grads.append(torch.autograd.grad(network(ids).hidden.pow(2).sum(), weights, allow_unused=True))
    for plain, checkpointed in zip(*grads, strict=True):
        assert (plain is None) == (checkpointed is None)
        if plain is not None:
            assert_close(plain, checkpointed, rtol=0, atol=0)


@pytest.mark.parametrize("key_value_heads", [2, 1])
@pytest.mark.parametrize("name", ["rope", "t5", "shaw", "tupe-r"])
def test_grouped_queries_with_a_cache(name, key_value_heads):
    network, ids = decoder(name, key_value_heads=key_value_heads, norm="rms", activation="swiglu"), texts(6)[0][None]
    cache = KeyValueCache()
    parts = [network(ids[:, t : t + 1], cache=cache).hidden for t in range(6)]
    assert_close(torch.cat(parts, 1), network(ids).hidden, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cached", [False, True])
def test_weights_on_request(cached):
    network, ids = decoder("tupe-r"), torch.randint(40, (2, 7))
    cache = KeyValueCache() if cached else None
    if cached:
        network(ids, cache=cache)
    output = network(ids, cache=cache, return_all_hidden=True, return_attentions=True)
    keys = 14 if cached else 7
    assert [h.shape for h in output.all_hidden] == [(2, 7, 24)] * 3
    assert_close(output.all_hidden[-1], output.hidden)
    assert output.cross_attentions is None
    for weights in output.attentions:
        assert weights.shape == (2, 4, 7, keys)
        assert_close(weights.sum(-1), torch.ones(2, 4, 7, dtype=torch.float64))
        assert (weights.triu(keys - 6) == 0).all()
    whole = network(torch.cat([ids, ids], 1)).hidden[:, 7:] if cached else network(ids).hidden
    assert_close(output.hidden, whole)
    assert cache is None or cache.length == 14


def test_a_reordered_cache_goes_on_from_other_rows():
    network, (ids, more) = decoder("rope"), (torch.randint(40, (3, 5)), torch.randint(40, (3, 2)))
    cache, rows = KeyValueCache(), torch.tensor([2, 0, 0])
    network(ids, cache=cache)
    cache.reorder(rows)
    whole = network(torch.cat([ids[rows], more], 1)).hidden[:, 5:]
    assert_close(network(more, cache=cache).hidden, whole, rtol=1e-10, atol=1e-10)


def test_weights_are_shared_by_name_with_the_other_encodings():
    first, second = (dict(decoder(name).named_parameters()) for name in ("tupe-a", "tupe-r"))
    assert set(first) < set(second)


def fill(network):
    cache = KeyValueCache()
    network(torch.zeros(1, 3).long(), cache=cache)
    return cache


def checkpointed():
    network = Decoder(9).train()
    network.gradient_checkpointing = True
    return network


IDS = torch.zeros(1, 2).long()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Decoder(0), "vocabulary"),
        (lambda: Decoder(9, layers=0), "layers"),
        (lambda: Decoder(9, encoding="tupe"), "did you mean 'tupe-"),
        (lambda: Decoder(9, encoding="learned", max_positions=4)(torch.zeros(1, 5).long()), "max_positions=4"),
        (lambda: Decoder(9)(), "exactly one of input_ids and inputs_embeds"),
        (lambda: Decoder(9)(torch.zeros(5).long()), "integers"),
        (lambda: Decoder(9)(torch.full((1, 5), 9)), "0 .. 8, got 9"),
        (lambda: Decoder(9)(IDS, source=torch.zeros(1, 3, 256)), "without cross-attention"),
        (lambda: Decoder(9, cross_attention=True)(IDS), "source must be given"),
        (lambda: Decoder(9, cross_attention=True)(IDS, source=torch.zeros(1, 3, 8)), r"\(1, tokens, 256\)"),
        (lambda: Decoder(9)(IDS, torch.arange(2), cache=fill(Decoder(9))), "Contiguous"),
        (lambda: Decoder(9)(IDS, torch.arange(2), cache=KeyValueCache()), "Contiguous, got Arbitrary"),
        (
            lambda: Decoder(9)(IDS, key_padding_mask=torch.zeros(1, 2, dtype=torch.bool), cache=fill(Decoder(9))),
            r"\(batch, tokens\) = \(1, 5\), the 3 tokens of the cache included, True = padding, got .* \(1, 2\)",
        ),
        (
            lambda: Decoder(9, cross_attention=True)(
                IDS, source=torch.zeros(1, 3, 256), source_padding_mask=torch.zeros(1, 2, dtype=torch.bool)
            ),
            r"source_padding_mask must be bool \(batch, tokens\) = \(1, 3\), .* got torch.bool \(1, 2\)",
        ),
        (lambda: checkpointed()(IDS, cache=KeyValueCache()), "checkpointing"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


@pytest.mark.parametrize("memory", [None, LookAheadMemory(6)], ids=["no-memory", "look-ahead"])
def test_a_tied_head_gives_logits_by_the_table_of_embeddings(memory):
    sizes = {"width": 24, "heads": 4, "layers": 2, "encoding": "rope", "memory": memory, "dropout": 0.0}
    network, plain = Decoder(40, tied_head=True, **sizes).double().eval(), Decoder(40, **sizes).double().eval()
    plain.load_state_dict(network.state_dict())  # no weights of its own
    ids = torch.randint(40, (2, 7))
    read = network(ids)
    assert plain(ids).logits is None
    assert_close(read.logits, plain(ids).hidden @ plain.embedding.weight.T)
    (gradient,) = torch.autograd.grad(read.logits[..., 3].sum(), network.embedding.weight)
    assert (gradient.abs().sum(1) > 0).tolist() == [row == 3 or row in ids for row in range(40)]
    if memory is None:
        cache = KeyValueCache()
        steps = [network(ids[:, t : t + 1], cache=cache).logits for t in range(7)]
        assert_close(torch.cat(steps, 1), read.logits)


class NoTable(torch.nn.Module):
    def __init__(self, num_embeddings, embedding_dim):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim


def test_a_tied_head_needs_a_table_that_fits():
    sizes = {"width": 24, "heads": 4, "encoding": "rope", "tied_head": True}
    with pytest.raises(ValueError, match=r"tied_head needs a table .* = \(40, 24\), and .* has none"):
        Decoder(40, embedding=NoTable(40, 24), **sizes)
    shared = {"encoding": "complex-order", "encoding_options": {"amplitude": "word-sharing"}}
    with pytest.raises(ValueError, match=r"= \(40, 24\), and .* has one of \(1, 24\)"):
        Decoder(40, **sizes | shared)


@pytest.mark.parametrize("memory", [SegmentRecurrence(16), LookAheadMemory(16)], ids=["recurrence", "look-ahead"])
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_a_table_that_the_memory_would_fill_is_refused_when_the_network_is_built(kind, memory):
    sizes = {"width": 24, "heads": 4, "layers": 2, "memory": memory}
    with pytest.raises(ValueError, match=r"max_positions=16 must hold the memory's 16 slots and .*'learned'"):
        kind(40, encoding="learned", max_positions=16, **sizes)
    kind(40, encoding="learned", max_positions=17, **sizes)
    kind(40, encoding="rope", max_positions=16, **sizes)


def test_an_embedding_that_is_given_keeps_its_weights():
    vectors = torch.arange(80.0).view(10, 8)
    given = torch.nn.Embedding.from_pretrained(vectors.clone(), padding_idx=2)
    network = Decoder(10, width=8, layers=1, heads=2, encoding="rope", embedding=given)
    assert torch.equal(network.embedding.weight, vectors)
    assert not network.embedding.weight.requires_grad


def test_an_embedding_that_does_not_fit_is_refused():
    sizes = {"width": 8, "layers": 1, "heads": 2, "encoding": "rope"}
    for given, found in ((torch.nn.Embedding(10, 4), "10 and 4"), (torch.nn.Linear(8, 8), "None and None")):
        with pytest.raises(ValueError, match=f"num_embeddings and embedding_dim 10 and 8, .* got {found}"):
            Decoder(10, embedding=given, **sizes)
    for kind in (Decoder, Encoder):
        with pytest.raises(ValueError, match=r"padding_idx must lie in 0 .. 9, got -1"):
            kind(10, padding_idx=-1, **sizes)


@pytest.mark.parametrize("field", ["feedforward", "key_value_heads"])
def test_a_size_of_zero_is_no_default(field):
    with pytest.raises(ValueError, match=f"{field} must be positive, got {field}=0|{field} must be positive, got 0"):
        Decoder(10, width=8, heads=2, encoding="rope", **{field: 0})


@pytest.mark.parametrize("field", ["dropout", "attention_dropout"])
def test_a_rate_outside_its_range_is_refused_when_the_network_is_built(field):
    with pytest.raises(ValueError, match=rf"{field} must lie in \[0, 1\), got 1.5"):
        Decoder(10, width=8, heads=2, encoding="rope", **{field: 1.5})
