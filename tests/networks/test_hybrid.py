"""Networks whose layers have different encodings, against plain stacks of each encoding, layer by layer."""

from functools import partial
from itertools import pairwise
from unittest.mock import patch

import pytest
import torch
from memory_from_paper import Kept, SlowDecoder
from network_cases import assert_gradients_close, decoder, padded, seq2seq, shaken, texts
from torch.testing import assert_close

from wordorder import ComplexEncoder, Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.attention import LayerStep, Source, attend
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache
from wordorder.ops import Contiguous, Packed

LAYERS = 4
HYBRIDS = [
    "rope*3,none",
    "rope+tupe-a,none,tupe-a",
    "shaw,none,shaw+t5",
    "learned+rope,learned",
    "tupe-r,tupe-a",
    "complex-order+alibi,complex-order",
    "transformer-xl,rope,none,transformer-xl+t5",
    "rope,rope-ntk",
    "deberta,none",
    "pope,rope,pope+t5",
    "dape,none,dape+rope",
]
WITH_TABLES = {"shaw", "transformer-xl", "deberta", "cope", "pope", "dape"}
"""Encodings with weights for each layer; the hybrids here have at most one of them in a layer."""


def encoder(encoding, *, dtype=torch.float64, layers=LAYERS, **options):
    sizes = {"width": 24, "heads": 4, "max_positions": 80, "dropout": 0.0, "attention_dropout": 0.0}
    return shaken(Encoder(40, encoding=encoding, layers=layers, **{**sizes, **options}), std=0.2).to(dtype)


def names_by_layer(encoding):
    pattern = []
    for text in encoding.split(","):
        name, _, count = text.partition("*")
        pattern += [name] * int(count or 1)
    return [pattern[layer % len(pattern)] for layer in range(LAYERS)]


def plain_stacks(network, encoding):
    """For each layer a network with this layer's encoding in all layers, made of the same modules, and which of the
    tables or maps by layer is this layer's: they are counted over the layers that have them."""
    names, found = names_by_layer(encoding), []
    options = {"cross_attention": network.cross_attention} if isinstance(network, Decoder) else {}
    for layer, name in enumerate(names):
        plain = type(network)(40, width=24, heads=4, max_positions=80, layers=LAYERS, encoding=name, **options)
        plain = plain.to(next(network.parameters()).dtype).eval()
        plain.layers, plain.embedding = network.layers, network.embedding
        for key, part in zip(plain.encoding.parts, network.encoding.parts_of(layer), strict=True):
            assert type(part) is type(plain.encoding.parts[key])
            plain.encoding.parts[key] = part
        mine = WITH_TABLES & set(name.split("+"))
        found.append((plain, sum(bool(mine & set(other.split("+"))) for other in names[:layer])))
    return found


def by_hand(network, encoding, ids, *, positions=None, valid=None, source=None):
    stacks = plain_stacks(network, encoding)
    x, where = stacks[0][0].embed(ids, None, positions)
    causal = isinstance(network, Decoder)
    mask = None if valid is None else ~valid
    for layer, (plain, table) in enumerate(stacks):
        plan = plain.plan(where, x, key_padding_mask=mask, causal=causal, backend="reference")
        x, _ = network.layers[layer](x, LayerStep(plan.layer(table), source=source))
    return network.finish(x)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("encoding", HYBRIDS)
def test_an_encoder_equals_its_layers_one_by_one_with_every_gradient(encoding, side):
    network = encoder(encoding)
    ids, valid, positions = padded(texts(13, 6, 1), side)
    ours = network(ids, positions, key_padding_mask=~valid).hidden
    slow = by_hand(network, encoding, ids, positions=positions, valid=valid)
    assert_close(ours[valid], slow[valid], rtol=1e-12, atol=1e-12)
    assert_gradients_close(network, ours[valid], slow[valid], 1e-12)


@pytest.mark.parametrize("encoding", [*HYBRIDS, "cope,rope", "xpos,none"])
def test_a_decoder_equals_its_layers_one_by_one_with_every_gradient(encoding):
    network, ids = decoder(encoding, layers=LAYERS), torch.randint(1, 40, (2, 13))
    ours, slow = network(ids).hidden, by_hand(network, encoding, ids)
    assert_close(ours, slow, rtol=1e-12, atol=1e-12)
    assert_gradients_close(network, ours, slow, 1e-12)


@pytest.mark.parametrize("encoding", ["rope*3,none", "rope+tupe-a,none,tupe-a", "shaw,none,shaw+t5"])
def test_an_encoder_decoder_equals_its_layers_one_by_one_with_every_gradient(encoding):
    network = seq2seq(encoding, layers=LAYERS, decoder_layers=LAYERS)
    ids, valid, _ = padded(texts(9, 4), "right")
    target = torch.randint(1, 40, (2, 7))
    ours = network(ids, target, source_padding_mask=~valid).hidden
    states = by_hand(network.encoder, encoding, ids, valid=valid)
    x, where = network.decoder.embed(target, None, None)
    plan = network.decoder.plan_cross_attention(where, x, states, source_padding_mask=~valid).plan
    slow = by_hand(network.decoder, encoding, target, source=Source(states, plan))
    assert_close(ours, slow, rtol=1e-12, atol=1e-12)
    assert_gradients_close(network, ours, slow, 1e-12)


@pytest.mark.parametrize("encoding", ["rope", "tupe-r", "shaw"])
def test_a_pattern_of_one_part_is_the_plain_stack(encoding):
    plain, repeated = encoder(encoding), encoder(f"{encoding},{encoding}")
    ids = torch.randint(1, 40, (2, 9))
    assert list(plain.state_dict()) == list(repeated.state_dict())
    assert_close(plain(ids).hidden, repeated(ids).hidden, rtol=0, atol=0)
    hybrid = encoder(f"{encoding}*3,none")
    shared = set(hybrid.state_dict())
    assert shared <= set(plain.state_dict())
    # drawn by name and seed: what both have in common begins alike
    assert all(torch.equal(hybrid.state_dict()[key], plain.state_dict()[key]) for key in shared)


@pytest.mark.parametrize("encoding", HYBRIDS)
def test_packed_equals_separate(encoding):
    network, parts = encoder(encoding), texts(7, 1, 12)
    position = torch.cat([torch.arange(len(text)) for text in parts])[None]
    sequence = torch.cat([torch.full((len(text),), i) for i, text in enumerate(parts)])[None]
    packed = network(torch.cat(parts)[None], Packed(position, sequence)).hidden[0]
    assert_close(packed, torch.cat([network(text[None]).hidden[0] for text in parts]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoding", [*HYBRIDS, "cope,rope", "xpos,none"])
def test_cached_steps_equal_the_whole_text(encoding):
    network = decoder(encoding, layers=LAYERS)
    ids, valid, positions = padded(texts(11, 7), "left")
    whole, cache, pieces = network(ids, positions, key_padding_mask=~valid).hidden, KeyValueCache(), []
    for start, stop in pairwise((0, 5, 6, 11)):
        step = Contiguous(stop - start, positions.offset + start)
        pieces.append(network(ids[:, start:stop], step, key_padding_mask=~valid[:, :stop], cache=cache).hidden)
    assert_close(torch.cat(pieces, 1)[valid], whole[valid], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoding", HYBRIDS)
def test_layers_written_again_in_the_backward_pass_change_nothing(encoding):
    network, ids = encoder(encoding, attention_dropout=0.0), torch.randint(1, 40, (2, 9))
    plain = network(ids).hidden
    network.gradient_checkpointing = True
    assert_gradients_close(network, network(ids).hidden, plain, 1e-12)


def test_each_kind_of_layer_goes_to_the_backend_that_is_best_for_it():
    network = encoder("rope*3,tupe-r", dtype=torch.float32, max_positions=160)
    plan = network.plan(Contiguous(160), torch.randn(1, 160, 24))
    assert [plan.layer(index).backend.name for index in range(4)] == ["sdpa", "sdpa", "sdpa", "kept-tiles"]
    causal = decoder("rope*3,tupe-r", layers=4).plan(Contiguous(9), torch.randn(1, 9, 24), causal=True)
    assert [causal.layer(index).prepared.is_causal for index in range(4)] == [True] * 3 + [False]
    assert causal.layer(0).prepared.mask_BHTS is None


def test_kinds_with_the_same_bias_share_what_is_written_out():
    network, x = encoder("rope+tupe-a,tupe-a,none,shaw"), torch.randn(1, 9, 24, dtype=torch.float64)
    plan = network.plan(Contiguous(9), x)
    first, second, third, fourth = (plan.layer(index) for index in range(4))
    assert first.prepared.mask_BHTS is second.prepared.mask_BHTS is not None
    assert first.terms.moves
    assert not second.terms.moves
    assert third.prepared.mask_BHTS is None
    assert fourth.terms.content
    # a bias that one layer reads is not written out for it, one that several read is
    x = torch.randn(1, 160, 24, dtype=torch.float64)
    names = "none*3,tupe-a", "none*2,rope+tupe-a,tupe-a"
    one, two = (encoder(name, max_positions=160).plan(Contiguous(160), x) for name in names)
    assert type(one.layer(3).prepared.bias).__name__ == "LowRankBias"
    assert two.layer(2).prepared is two.layer(3).prepared
    assert type(two.layer(2).prepared.bias).__name__ == "DenseBias"


@pytest.mark.parametrize("encoding", ["rope+tupe-a,none,tupe-a", "shaw,none,shaw+t5"])
def test_attention_weights_are_those_of_each_layer(encoding):
    network, ids = encoder(encoding), torch.randint(1, 40, (2, 9))
    read = network(ids, return_attentions=True, return_all_hidden=True)
    for layer, (plain, table) in enumerate(plain_stacks(network, encoding)):
        plan = plain.plan(Contiguous(9), read.hidden, backend="reference").layer(table)
        expected = network.layers[layer](read.all_hidden[layer], LayerStep(plan, weights=True))[1].weights
        assert_close(read.attentions[layer], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_compiled_as_one_graph():
    network = encoder("rope+tupe-a,none,shaw,tupe-a", dtype=torch.float32)
    compiled, ids = torch.compile(network, fullgraph=True, backend="aot_eager"), torch.randint(1, 40, (2, 9))
    assert_close(compiled(ids).hidden, network(ids).hidden, rtol=1e-4, atol=1e-5)
    assert_gradients_close(network, compiled(ids).hidden, network(ids).hidden, 1e-4)


class SlowHybrid(SlowDecoder):
    """The equations with another encoding in each layer; maps by layer are counted over the layers that have them."""

    def __init__(self, network, by_layer, **options):
        super().__init__(network, layers=len(by_layer), encoding=None, **options)
        self.by_layer = by_layer

    def score(self, layer, *rest, **options):
        self.encoding = self.by_layer[layer]
        return super().score(self.by_layer[:layer].count(self.encoding), *rest, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding",
    ["transformer-xl,rope,none", "rope,none,transformer-xl", "none,transformer-xl", "transformer-xl@3,rope@2,rope"],
)
@pytest.mark.parametrize(
    "memory", [SegmentRecurrence(5), LookAheadMemory(5), LookAheadMemory(5, full=True)], ids=["xl", "lamemo", "full"]
)
def test_a_memory_equals_the_equations_layer_by_layer(encoding, memory):
    names = encoding.split(",")
    by_layer = [names[layer % len(names)].partition("@")[0] for layer in range(3)]
    windows = [float(names[layer % len(names)].partition("@")[2] or "inf") for layer in range(3)]
    network = Decoder(
        11, width=8, layers=3, heads=2, encoding=encoding, dropout=0.0, attention_dropout=0.0, memory=memory
    ).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    ahead = isinstance(memory, LookAheadMemory)
    sides = "disentangled" if ahead else "signed"
    slow = SlowHybrid(network, by_layer, heads=2, pre=True, sides=sides, windows=windows)
    ids, state, kept, start = torch.randint(11, (2, 12)), None, [Kept(), Kept()], 0
    ours, theirs = [], []
    for count in (4, 3, 5):
        read = network(ids[:, start : start + count], memory=state)
        state = read.memory
        tokens = ids[:, start : start + count].tolist()
        read_slowly = partial(slow.look_ahead, full=memory.full) if ahead else slow.recurrent
        rows = [read_slowly(row, held, 5) for row, held in zip(tokens, kept, strict=True)]
        kept = [after for _, after in rows]
        ours.append(read.hidden)
        theirs.append(torch.stack([hidden for hidden, _ in rows]))
        start += count
    assert_close(torch.cat(ours, 1), torch.cat(theirs, 1), rtol=0, atol=1e-10)
    assert_gradients_close(network, torch.cat(ours, 1), torch.cat(theirs, 1), 1e-10)


@pytest.mark.parametrize("memory", [SegmentRecurrence(6), LookAheadMemory(6)], ids=["xl", "lamemo"])
@pytest.mark.parametrize("encoding", ["rope*3,none", "rope+tupe-a,none,tupe-a", "transformer-xl,rope"])
def test_a_segment_in_steps_equals_the_segment(encoding, memory):
    network, ids = decoder(encoding, layers=LAYERS, memory=memory), torch.randint(1, 40, (2, 14))
    before = network(ids[:, :7]).memory
    whole = network(ids[:, 7:], memory=before)
    segment, pieces = network.open_segment(before, keep=True), []
    for start, stop in pairwise((7, 10, 11, 14)):
        step = network.read_segment(segment, ids[:, start:stop])
        pieces.append(step.hidden)
        segment = step.segment
    assert_close(torch.cat(pieces, 1), whole.hidden, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(segment.close().slots.values(), whole.memory.slots.values(), strict=True):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_an_encoder_remembers_too():
    network, ids = encoder("rope,none,t5", memory=LookAheadMemory(5)), torch.randint(1, 40, (2, 12))
    first = network(ids[:, :6])
    second = network(ids[:, 6:], memory=first.memory)
    assert len(network.encoding.kinds) == 3
    changed = network(ids[:, 6:], memory=network(ids[:, :6].flip(1)).memory)
    assert not torch.allclose(second.hidden, changed.hidden)


def test_complex_layers_take_turns_too():
    network = ComplexEncoder(40, width=12, heads=2, layers=4, encoding="complex-order+rope,complex-order", dropout=0.0)
    ids = torch.randint(1, 40, (2, 7))
    calls = []
    original = attend

    def noted(q, k, v, plan, *rest, **options):
        calls.append(plan.terms.moves)
        return original(q, k, v, plan, *rest, **options)

    with patch("wordorder.networks.multi_head.attend", noted):
        assert network(ids).hidden.shape == (2, 7, 12)
    assert calls == [True, False, True, False]


def test_what_cannot_differ_by_layer_is_refused():
    for build in (Encoder, Decoder):
        with pytest.raises(BadInput, match="a pattern of 4 layers, and the network has 2"):
            build(40, width=24, heads=4, layers=2, encoding="rope*3,none")
        with pytest.raises(BadInput, match="'learned' acts on embeddings, before the first layer"):
            build(40, width=24, heads=4, layers=2, encoding="learned,rope")
