"""An encoding on the input of layers, one file of somebody else: and what carries its rows."""

import sys
from pathlib import Path

import pytest
import torch
from network_cases import decoder, padded, shaken, texts
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import DynamicCache

from wordorder import Decoder, Encoder, LookAheadMemory, MultiheadAttention, Positional, SegmentRecurrence, attention
from wordorder.encodings import CATALOG, build_encoding, register_encoding
from wordorder.errors import BadInput
from wordorder.memory import SameLayerRecurrence
from wordorder.models import WordOrderDecoderConfig, WordOrderDecoderForCausalLM
from wordorder.networks import KeyValueCache, check_encoding
from wordorder.ops import Contiguous, Packed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contribution"))
from convolution import Convolution

IDS = torch.arange(40).view(2, 20) % 39 + 1
PATTERNS = ["convolution", "rope+convolution", "fox+convolution", "convolution@5,none+convolution", "none,convolution"]
PATTERNS += ["rope+shift", "shift@5,convolution+t5"]


@pytest.fixture(autouse=True)
def registered():
    register_encoding("convolution", Convolution)
    yield
    del CATALOG["convolution"]


def reference(x_BTC, weights_MC, reach):
    """x[t] + sum_m w[m] x[t - m] for m up to reach, then m from -1 down, written from the equation."""
    out_BTC = x_BTC.clone()
    for t in range(x_BTC.shape[1]):
        for row, m in enumerate([*range(1, reach + 1), *range(-1, -reach - 1, -1)][: len(weights_MC)]):
            if 0 <= t - m < x_BTC.shape[1]:
                out_BTC[:, t] += weights_MC[row] * x_BTC[:, t - m]
    return out_BTC


@pytest.mark.parametrize("use", ["encoder", "decoder"])
@pytest.mark.parametrize("reach", [1, 3])
def test_every_check_of_an_encoding_finds_nothing(use, reach):
    findings = check_encoding(Convolution, use=use, options={"reach": reach})
    assert [finding.message for finding in findings if finding.kind != "information"] == []
    assert any("word order is visible" in finding.message for finding in findings)


@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_layers_attend_to_what_the_equation_gives_with_every_gradient(kind):
    network = shaken(kind(40, width=24, layers=2, heads=4, encoding="convolution", dropout=0.0)).double()
    changed = []
    for layer in network.layers:
        layer.attention.qkv.register_forward_pre_hook(lambda _, args: changed.append(args[0]))
    read = []
    for layer in network.layers:
        layer.attention.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    network(IDS)
    convolution = network.encoding.parts["convolution"]
    for x_BTC, ours_BTC, weights in zip(read, changed, convolution.weights, strict=True):
        expected_BTC = reference(x_BTC, weights.weight, 3)
        assert_close(ours_BTC, expected_BTC, rtol=0, atol=1e-12)
        leaves, upstream = (x_BTC, weights.weight), torch.randn_like(x_BTC)
        ours, theirs = (torch.autograd.grad(y, leaves, upstream, retain_graph=True) for y in (ours_BTC, expected_BTC))
        assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("chunks", [[1] * 20, [2, 1, 9, 1, 7], [17, 3]])
def test_a_cache_keeps_the_rows_that_later_tokens_read(name, chunks):
    network, cache = decoder(name), KeyValueCache()
    steps = [network(ids, cache=cache).hidden for ids in IDS.split(chunks, 1)]
    assert_close(torch.cat(steps, 1), network(IDS).hidden, rtol=0, atol=1e-10)
    assert {rows.shape[1] for rows in cache._input.values()} == {3}


def test_beams_and_padded_rows_keep_their_own_rows():
    network, cache = decoder("rope+convolution"), KeyValueCache()
    ids, valid, where = padded(texts(9, 5), "left")
    network(ids, where, key_padding_mask=~valid, cache=cache)
    cache.reorder(torch.tensor([1, 0, 1]))
    later = torch.tensor([[3, 4], [5, 6], [7, 8]])
    rows = torch.tensor([1, 0, 1])
    positions = Contiguous(2, where.offset[rows] + 9)
    padding = F.pad(~valid[rows], (0, 2))
    out = network(later, positions, key_padding_mask=padding, cache=cache).hidden
    for row, source in enumerate(rows):
        alone = torch.cat((ids[source][valid[source]], later[row]))[None]
        assert_close(out[row], network(alone).hidden[0, -2:], rtol=0, atol=1e-10)


MEMORIES = [SegmentRecurrence(7), SameLayerRecurrence(7), LookAheadMemory(7)]


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: memory.name)
@pytest.mark.parametrize("name", ["convolution", "t5+convolution", "rope+shift"])
def test_a_segment_in_steps_is_a_segment_at_once(memory, name):
    network = decoder(name, memory=memory)
    state = network(IDS[:, :9]).memory
    whole = network(IDS[:, 9:], memory=state)
    segment, steps = network.open_segment(state, keep=True), []
    for number, ids in enumerate(IDS[:, 9:].split([1, 2, 1, 7], 1)):
        turned = number % 2  # every step leaves the two rows in the other order
        read = network.read_segment(segment, ids.flip(0) if turned else ids)
        segment = read.segment.reorder(torch.tensor([1, 0]))
        steps.append(read.hidden.flip(0) if turned else read.hidden)
    assert_close(torch.cat(steps, 1), whole.hidden, rtol=0, atol=1e-10)
    closed = segment.close()
    for name, slots in whole.memory.slots.items():
        assert_close(closed.slots[name], slots, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_slots_come_before_the_tokens(kind):
    options = {"width": 24, "layers": 1, "heads": 4, "encoding": "t5+convolution", "dropout": 0.0}
    network = shaken(kind(40, memory=SegmentRecurrence(7), **options)).double()
    rows = []
    network.layers[0].attention.register_forward_pre_hook(lambda _, args: rows.append(args[0]))
    changed = []
    network.layers[0].attention.qkv.register_forward_pre_hook(lambda _, args: changed.append(args[0]))
    network(IDS[:, 9:], memory=network(IDS[:, :9]).memory)
    projected = changed[-1] if len(changed) > 1 else None
    weights = network.encoding.parts["convolution"].weights[0].weight
    if projected is not None:  # where slots have no queries, qkv is not called as a module
        assert_close(projected, reference(rows[1], weights, 3), rtol=0, atol=1e-12)
    assert rows[1].shape[1] == 7 + 11


def test_generate_with_a_cache_of_hugging_face_and_assisted_equals_without():
    for name in ("convolution", "fox+convolution", "rope+shift"):
        config = WordOrderDecoderConfig(
            vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, encoding=name
        )
        model = shaken(WordOrderDecoderForCausalLM(config)).eval().double()
        ids, options = IDS[:1], {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
        plain = model.generate(ids, use_cache=False, **options)
        assert torch.equal(plain, model.generate(ids, **options))
        assert torch.equal(plain, model.generate(ids, prompt_lookup_num_tokens=3, **options))
        padded_left = {"attention_mask": (torch.arange(20) >= torch.tensor([[0], [3]])).long(), "num_beams": 3}
        for how in ({"num_beams": 3}, padded_left):
            assert torch.equal(
                model.generate(IDS, use_cache=False, **how, **options), model.generate(IDS, **how, **options)
            )


def test_a_cache_that_was_filled_without_the_rows_is_refused():
    sizes = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    model, other = (
        WordOrderDecoderForCausalLM(WordOrderDecoderConfig(**sizes, encoding=name)).eval()
        for name in ("convolution", "none")
    )
    cache = other(IDS, use_cache=True).past_key_values
    with pytest.raises(BadInput, match="filled without the input of layers"):
        model(IDS, past_key_values=cache)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_network_of_ones_own_changes_its_layers_input(causal, side):
    positional = Positional("rope+convolution", width=24, heads=4, layers=2, causal=causal).double()
    _, valid, where = padded(texts(9, 5), side)
    x, weights = torch.randn(2, 9, 24).double(), positional.encoding.parts["convolution"].weights[1].weight
    order = positional.prepare(x, positions=where, key_padding_mask=~valid)
    for row in range(2):
        ours = order.input(1, x)[row, valid[row]]
        assert_close(ours, reference(x[row, valid[row]][None], weights, 3)[0], rtol=0, atol=1e-12)
    assert order.input(0, x).shape == x.shape


def test_token_by_token_in_a_network_of_ones_own():
    positional = Positional("convolution", width=16, heads=2, layers=1, causal=True).double()
    x, w = torch.randn(2, 9, 16).double(), torch.randn(3, 16, 16).double()

    def step(x, cache=None):
        order = positional.prepare(x, cache=cache)
        qkv = [(order.input(0, x) @ w[0]).unflatten(-1, (2, 8)).transpose(1, 2)]
        return order.attend(0, *(qkv * 3))

    whole, cache = step(x), positional.cache()
    steps = [step(chunk, cache) for chunk in x.split([2, 1, 1, 5], 1)]
    assert_close(torch.cat(steps, 2), whole, rtol=0, atol=1e-12)


def test_what_is_forgotten_or_given_twice_is_refused():
    positional = Positional("convolution", width=16, heads=2, layers=2, causal=True)
    x, q = torch.randn(2, 9, 16), torch.randn(2, 2, 9, 8)
    with pytest.raises(BadInput, match=r"order\.input\(layer, x\)"):
        positional.prepare(x).attend(0, q, q, q)
    order = positional.prepare(x, cache=positional.cache())
    order.input(0, x)
    with pytest.raises(BadInput, match="has taken the input of layer 0"):
        order.input(0, x)
    with pytest.raises(BadInput, match=r"2 rows of 9 tokens, got \(2, 8, 16\)"):
        order.input(1, x[:, 1:])
    with pytest.raises(BadInput, match="layer must lie between 0 and 1"):
        order.input(2, x)
    plain = Positional("rope", width=16, heads=2, layers=1)
    assert plain.prepare(x).input(0, x) is x


@pytest.mark.parametrize("float_mask", [False, True])
def test_torchs_attention_with_it_equals_a_changed_input(float_mask):
    ours = MultiheadAttention(16, 2, batch_first=True, encoding="convolution").double()
    theirs = nn.MultiheadAttention(16, 2, batch_first=True).double()
    theirs.load_state_dict({name: w for name, w in ours.state_dict().items() if "encoding" not in name})
    x, padding = torch.randn(2, 9, 16).double(), torch.arange(9)[None] >= torch.tensor([[9], [6]])
    mask = torch.zeros(2, 9).double().masked_fill(padding, -torch.inf) if float_mask else padding
    weights = ours.encoding.parts["convolution"].weights[0].weight
    changed = reference(x.masked_fill(padding[..., None], 0), weights, 3)
    expected = theirs(changed, changed, changed, key_padding_mask=padding)[0]
    assert_close(ours(x, x, x, key_padding_mask=mask)[0][~padding], expected[~padding], rtol=0, atol=1e-12)
    with pytest.raises(BadInput, match="one tensor as query, key and value"):
        ours(x, x, x.clone())
    with pytest.raises(BadInput, match="causal=True"):
        ours(x, x, x, attn_mask=torch.ones(9, 9).triu(1).bool())


def test_rows_that_need_not_be_neighbours_are_refused():
    network, gaps = decoder("rope+convolution"), torch.arange(20)[None].expand(2, 20)
    with pytest.raises(BadInput, match="positions of single tokens may leave gaps"):
        network(IDS, gaps)
    cache, packed = KeyValueCache(), Packed(gaps, torch.zeros_like(gaps))
    network(IDS, cache=cache)
    later = Packed(torch.cat((gaps, gaps + 20), 1), torch.zeros(2, 40, dtype=torch.long))
    with pytest.raises(BadInput, match="Packed without a cache"):
        network(IDS, packed, key_positions=later, cache=cache)
    positional, x = Positional("convolution", width=16, heads=2, layers=1, causal=True), torch.randn(2, 4, 16)
    order = positional.prepare(x, positions=Contiguous(4, 5), key_positions=Contiguous(9))
    with pytest.raises(BadInput, match="pass a cache in place of key_positions"):
        order.input(0, x)


def test_a_mask_with_a_hole_in_a_cache_of_hugging_face_is_refused():
    config = WordOrderDecoderConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, encoding="rope+convolution"
    )
    model, cache, mask = WordOrderDecoderForCausalLM(config).eval(), DynamicCache(), torch.ones_like(IDS)
    mask[1, 8:11] = 0
    model(IDS[:, :11], attention_mask=mask[:, :11], past_key_values=cache, use_cache=True)
    with pytest.raises(BadInput, match="no padding between its tokens"):
        model(IDS[:, 11:], attention_mask=mask, past_key_values=cache, use_cache=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convolution", "shift"])
def test_it_compiles_without_a_break(name):
    network = decoder(name).float()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    assert_close(compiled(IDS).hidden, network(IDS).hidden, rtol=1e-4, atol=1e-5)


def test_attention_alone_does_not_see_the_input_of_layers():
    encoding = build_encoding("convolution", width=16, heads=2, layers=1, max_positions=9)
    q = torch.randn(1, 2, 9, 8)
    with pytest.raises(BadInput, match="acts on the input of layers"):
        attention(q, q, q, encoding)
