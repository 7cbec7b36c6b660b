"""What a decoder with a memory promises, whatever the encoding."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from wordorder import ComplexDecoder, ComplexEncoder, Decoder, Encoder, LookAheadMemory, SegmentRecurrence
from wordorder.encodings import CATALOG
from wordorder.memory import Step, check_step

VOCABULARY, WIDTH, HEADS = 23, 16, 2
MEMORIES = pytest.mark.parametrize("kind", [SegmentRecurrence, LookAheadMemory], ids=["recurrence", "look-ahead"])
IN_DECODERS = [
    pytest.param(name, kind, id=f"{name}-{kind.name}")
    for name, encoding in CATALOG.items()
    for kind in (SegmentRecurrence, LookAheadMemory)
    if {"decoder", "memory", "right" if kind.looks_right else "memory"}.isdisjoint(encoding.refused_in)
]


def decoder_of(memory, *, encoding="rope", layers=3, network=Decoder, **sizes):
    settings = {"width": WIDTH, "heads": HEADS, "max_positions": 64, "dropout": 0.0, "attention_dropout": 0.0, **sizes}
    decoder = network(VOCABULARY, layers=layers, encoding=encoding, memory=memory, **settings).double().eval()
    for name, parameter in decoder.named_parameters():
        if parameter.dim() > 1 and "frequency" not in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return decoder


def read(decoder, ids, cuts, valid=None, state=None):
    """The text cut so: states of all tokens, and the last memory."""
    start, found = 0, []
    for count in cuts:
        step = slice(start, start + count)
        output = decoder(ids[:, step], memory=state, key_padding_mask=None if valid is None else ~valid[:, step])
        state, start = output.memory, start + count
        found.append(output.hidden)
    return torch.cat(found, 1), state


def tokens(batch=2, length=20):
    return torch.randint(VOCABULARY, (batch, length))


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "kind"), IN_DECODERS)
def test_no_token_changes_what_stands_before_it(encoding, kind):
    network = ComplexDecoder if encoding.startswith("complex") and kind is LookAheadMemory else Decoder
    decoder, ids, cuts = decoder_of(kind(7), encoding=encoding, network=network), tokens(), (4, 4, 4, 1, 7)
    before, _ = read(decoder, ids, cuts)
    for place in (0, 3, 4, 11, 12, 13, 19):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        after, _ = read(decoder, changed, cuts)
        assert_close(after[:, :place], before[:, :place], rtol=0, atol=1e-12)
        assert (after[:, place] - before[:, place]).abs().max() > 1e-6
        if place == 3:  # it is remembered
            assert (after[:, 4:8] - before[:, 4:8]).abs().max() > 1e-6


@MEMORIES
@pytest.mark.parametrize("encoding", ["none", "rope", "transformer-xl", "t5", "tupe-r", "learned", "sinusoidal"])
def test_a_memory_that_is_masked_off_is_no_memory(encoding, kind):
    decoder, ids = decoder_of(kind(6), encoding=encoding), tokens()
    _, state = read(decoder, ids, (6, 6))
    forgotten = state.reset(torch.tensor([True, True]))
    alone, left = decoder(ids[:, 12:]), decoder(ids[:, 12:], memory=forgotten)
    assert_close(left.hidden, alone.hidden, rtol=0, atol=1e-12)
    one = decoder(ids[:, 12:], memory=state.reset(torch.tensor([False, True])))
    kept = decoder(ids[:, 12:], memory=state)
    assert_close(one.hidden, torch.stack((kept.hidden[0], alone.hidden[1])), rtol=0, atol=1e-12)
    # and so it goes on
    assert_close(
        decoder(ids[:, :5], memory=left.memory).hidden,
        decoder(ids[:, :5], memory=alone.memory).hidden,
        rtol=0,
        atol=1e-12,
    )


@MEMORIES
def test_one_long_segment_is_the_text_without_memory(kind):
    decoder, ids = decoder_of(kind(6), encoding="alibi"), tokens()
    plain = decoder_of(None, encoding="alibi")
    plain.load_state_dict(decoder.state_dict())
    assert_close(decoder(ids).hidden, plain(ids).hidden, rtol=0, atol=1e-12)


@MEMORIES
@pytest.mark.parametrize("encoding", ["none", "rope", "alibi", "transformer-xl", "t5"])
def test_one_layer_reads_a_text_alike_however_it_is_cut(encoding, kind):
    """Segments are then seen through embeddings alone, which are what they are."""
    decoder, ids = decoder_of(kind(30), encoding=encoding, layers=1), tokens()
    whole, _ = read(decoder, ids, (20,))
    for cuts in ((5, 5, 5, 5), (1, 7, 2, 10), (1,) * 20):
        assert_close(read(decoder, ids, cuts)[0], whole, rtol=0, atol=1e-12)


def first_layer_scores(decoder, ids):
    """Scores of the first layer over a whole text, (B, H, T, T), nothing hidden."""
    seen = []
    hook = decoder.layers[0].attention.qkv.register_forward_hook(lambda module, given, out: seen.append(out))
    decoder(ids)
    hook.remove()
    q, k, _ = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in seen[0].chunk(3, -1))
    distance = torch.arange(ids.shape[1]) - torch.arange(ids.shape[1])[:, None]
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)]).double()
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 - slopes[:, None, None] * distance.abs()


@pytest.mark.parametrize("cuts", [(5, 5, 5, 5), (1, 7, 2, 10), (3, 1, 1, 9, 6), (12, 2, 6), (2, 3, 15)])
def test_the_first_layers_normaliser_is_that_of_all_keys_up_to_the_latest_segments_first(cuts):
    decoder, ids = decoder_of(LookAheadMemory(30), encoding="alibi", layers=2), tokens()
    _, state = read(decoder, ids, cuts)
    scores, first = first_layer_scores(decoder, ids), sum(cuts[:-1])
    key, query = torch.arange(20), torch.arange(20)[:, None]
    expected = scores.masked_fill(key > query.clamp(min=first), -torch.inf).logsumexp(-1)
    assert_close(state.slots["normalisers.0"].mT, expected, rtol=0, atol=1e-12)


def test_two_cuts_with_the_last_boundary_in_common_agree():
    decoder, ids = decoder_of(LookAheadMemory(30), encoding="t5", layers=2), tokens()
    states = [read(decoder, ids, cuts)[1] for cuts in ((5, 5, 10), (1, 3, 6, 10), (10, 10))]
    for state in states[1:]:
        assert_close(state.slots["normalisers.0"], states[0].slots["normalisers.0"], rtol=0, atol=1e-12)
        assert_close(state.slots["read_outs.0"], states[0].slots["read_outs.0"], rtol=0, atol=1e-12)


@MEMORIES
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl", "tupe-r", "sinusoidal"])
def test_a_segment_read_in_steps_is_the_segment(encoding, kind):
    decoder, ids = decoder_of(kind(7), encoding=encoding), tokens(2, 17)
    whole, expected = read(decoder, ids, (5, 5, 5, 2))
    state, found = None, []
    for start in range(0, 17, 5):
        segment = decoder.open_segment(state, keep=True)
        piece, done = ids[:, start : start + 5], 0
        while done < piece.shape[1]:
            count = 1 if start % 2 else min(3, piece.shape[1] - done)
            step = decoder.read_segment(segment, piece[:, done : done + count])
            found.append(step.hidden)
            segment, done = step.segment, done + count
        state = segment.close()
    assert_close(torch.cat(found, 1), whole, rtol=0, atol=1e-12)
    assert_close(state.state_dict(), expected.state_dict(), rtol=0, atol=1e-12)


@MEMORIES
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl", "tupe-r", "sinusoidal", "complex-order", "learned"])
def test_a_row_with_padding_is_the_row_alone(encoding, kind):
    """Rows that give a segment fewer tokens, or none, remember and continue as if nothing had been beside them."""
    decoder, ids, cuts = decoder_of(kind(6), encoding=encoding), tokens(3, 17), (5, 5, 4, 3)
    valid = torch.ones(3, 17, dtype=torch.bool)
    valid[1, 3:5] = valid[1, 8:10] = valid[1, 14:] = False
    valid[2, 5:10] = valid[2, 11:14] = False
    together, state = read(decoder, ids, cuts, valid)
    alone_cuts = {0: (5, 5, 4, 3), 1: (3, 3, 4), 2: (5, 1, 3)}
    for row, own_cuts in alone_cuts.items():
        alone, own = read(decoder, ids[row : row + 1][:, valid[row]], own_cuts)
        assert_close(together[row][valid[row]], alone[0], rtol=0, atol=1e-11)
        where = state.valid_BM[row]
        assert int(where.sum()) == min(6, sum(own_cuts))
        assert int(state.position[row]) == sum(own_cuts)
        for name, tensor in own.slots.items():
            assert_close(state.slots[name][row][where], tensor[0], rtol=0, atol=1e-11)


@MEMORIES
def test_waves_are_counted_anew_in_every_segment(kind):
    """A frequency that learns would otherwise turn a wave by its change times all that was read before."""
    decoder, ids = decoder_of(kind(6), encoding="complex-order", network=ComplexDecoder), tokens(2, 11)
    seen = []
    decoder.embedding.register_forward_pre_hook(lambda module, given: seen.append(given[1].index_BT().tolist()))
    _, state = read(decoder, ids, (4, 4))
    segment = decoder.open_segment(state, keep=True)
    for count in (2, 1):
        segment = decoder.read_segment(segment, ids[:, 8 : 8 + count]).segment
    assert seen == [[[0, 1, 2, 3]], [[0, 1, 2, 3]], [[0, 1]], [[2]]]


@MEMORIES
def test_another_memory_length_in_evaluation(kind):
    decoder, ids = decoder_of(kind(8)), tokens(2, 24)
    _, state = read(decoder, ids, (6, 6))
    decoder.memory = kind(3)
    shorter = decoder(ids[:, 12:18], memory=state)
    assert_close(shorter.hidden, decoder(ids[:, 12:18], memory=state.last(3)).hidden, rtol=0, atol=0)
    assert shorter.memory.length == 3
    decoder.memory = kind(50)
    _, grown = read(decoder, ids[:, 12:], (6, 6), state=shorter.memory)
    assert grown.length == 15
    assert_close(decoder(ids, memory=grown).hidden.isfinite().all(), torch.tensor(True))


@MEMORIES
@pytest.mark.parametrize("times", [1, 2, 4])
def test_scores_cost_what_the_paper_says(kind, times):
    """N (M + N) d for the tokens, min(M, N) M d for the slots; in all layers but the last, which nobody would read."""
    segment, width, layers = 16, 32, 3
    memory = times * segment
    decoder = decoder_of(kind(memory), encoding="none", layers=layers, width=width)
    ids = tokens(1, memory + segment)
    _, state = read(decoder, ids, (segment,) * times)
    assert state.length == memory
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        segment_read = decoder.open_segment(state)
        decoder.read_segment(segment_read, ids[:, -segment:], backend="reference")
    operations = counter.get_flop_counts()["Global"]
    products = {str(name): flops for name, flops in operations.items()}
    scores = products["aten.bmm"]  # q.k and weights times values, 2 FLOP per multiplication and addition
    slots = memory * min(memory, segment) * (layers - 1) if kind is LookAheadMemory else 0
    assert scores == 2 * 2 * width * (segment * (memory + segment) * layers + slots)
    linear = sum(flops for name, flops in products.items() if name != "aten.bmm")
    tokens_alone = 2 * width * width * (3 + 1 + 8)  # q, k, v; out; both maps of the feed-forward network
    per_slot = 2 * width * width * 2  # its keys and values
    whole_slot = tokens_alone if kind is LookAheadMemory else per_slot
    assert linear == segment * tokens_alone * layers + memory * (whole_slot * (layers - 1) + per_slot)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl"])
def test_a_long_stream_with_sharp_scores_stays_finite(dtype, encoding):
    decoder = decoder_of(LookAheadMemory(256), encoding=encoding, layers=2)
    with torch.no_grad():
        for layer in decoder.layers:
            layer.attention.qkv.weight[:WIDTH] *= 50  # queries: scores 50 times as large
    decoder, state = decoder.to(dtype), None
    with torch.no_grad():
        for _ in range(32_768 // 512):
            output = decoder(tokens(1, 512), memory=state)
            state = output.memory
            assert output.hidden.isfinite().all()
    assert state.position == 32_768
    assert state.length == 256
    assert state.slots["normalisers.0"].dtype == state.slots["read_outs.0"].dtype == torch.float32
    assert all(tensor.isfinite().all() for tensor in state.slots.values())


@MEMORIES
def test_gradient_checkpointing_changes_nothing(kind):
    decoder, ids = decoder_of(kind(6)), tokens(2, 12)
    decoder.train()
    found = []
    for on in (False, True):
        decoder.gradient_checkpointing = on
        first = decoder(ids[:, :6])
        second = decoder(ids[:, 6:], memory=first.memory)
        gradient = torch.autograd.grad((first.hidden + second.hidden).square().sum(), list(decoder.parameters()))
        found.append((second.hidden, *gradient, *second.memory.state_dict().values()))
    for plain, checkpointed in zip(*found, strict=True):
        assert_close(checkpointed, plain, rtol=0, atol=1e-12)


@MEMORIES
def test_attention_weights_are_those_on_slots_and_tokens(kind):
    decoder, ids = decoder_of(kind(6), encoding="t5"), tokens(2, 12)
    _, state = read(decoder, ids[:, :6], (6,))
    output = decoder(ids[:, 6:], memory=state, return_attentions=True, return_all_hidden=True)
    assert_close(output.hidden, decoder(ids[:, 6:], memory=state).hidden, rtol=0, atol=1e-12)
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, HEADS, 6, 12)] * 3
    assert [tuple(states.shape) for states in output.all_hidden] == [(2, 6, WIDTH)] * 4
    for weights in output.attentions:
        assert_close(weights.sum(-1), torch.ones(2, HEADS, 6).double())
        assert not weights[..., 6:].triu(1).any()


def test_what_makes_no_sense_is_refused():
    decoder, ids = decoder_of(LookAheadMemory(6)), tokens(2, 6)
    state = decoder(ids).memory
    with pytest.raises(ValueError, match="positions cannot be given to a decoder with a memory"):
        decoder(ids, torch.arange(6))
    with pytest.raises(ValueError, match=r"memory must be a Memory, such as .*, or None, got 'look-ahead'"):
        decoder_of("look-ahead")
    with pytest.raises(ValueError, match="memory was given to a network without one"):
        decoder_of(None)(ids, memory=state)
    with pytest.raises(ValueError, match="memory holds 2 rows and the batch 1"):
        decoder(ids[:1], memory=state)
    with pytest.raises(ValueError, match="memory must be of segment-recurrence here, got one of look-ahead"):
        decoder_of(SegmentRecurrence(6))(ids, memory=state)
    with pytest.raises(ValueError, match="memory must be of 5 layers, got one of 3"):
        decoder_of(LookAheadMemory(6), layers=5)(ids, memory=state)
    with pytest.raises(ValueError, match=r"normalisers\.0 is \(2, 6, 2\), and this network needs \(2, 6, 4\)"):
        decoder_of(LookAheadMemory(6), heads=4)(ids, memory=state)
    narrow = decoder_of(SegmentRecurrence(6))(ids).memory
    with pytest.raises(
        ValueError,
        match=r"of another network, or not whole: hidden\.0 is \(2, 6, 16\), and this network needs \(2, 6, 32\)",
    ):
        decoder_of(SegmentRecurrence(6), width=32)(ids, memory=narrow)
    with pytest.raises(ValueError, match="one token at least"):
        decoder(ids[:, :0], memory=state)
    with pytest.raises(
        ValueError, match=r"key_padding_mask must be bool \(batch, tokens\) = \(2, 6\), .* got torch.bool \(2, 5\)"
    ):
        decoder(ids, memory=state, key_padding_mask=torch.zeros(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="memory and cross_attention cannot be combined"):
        Decoder(VOCABULARY, width=16, heads=2, layers=1, cross_attention=True, memory=LookAheadMemory(3))
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        decoder(memory=state)
    with pytest.raises(ValueError, match="token ids must be integers"):
        decoder(torch.arange(6), memory=state)


def test_steps_that_cannot_be_read_are_refused():
    decoder, ids = decoder_of(LookAheadMemory(6)), tokens(2, 6)
    segment = decoder.read_segment(decoder.open_segment(), ids).segment
    with pytest.raises(ValueError, match="open it with keep=True"):
        decoder.read_segment(segment, ids)
    step = Step(decoder.open_segment(), 6, torch.ones(2, 5, dtype=torch.bool), causal=True, encoding=decoder.encoding)
    with pytest.raises(ValueError, match=r"tokens_BT must be \(batch, tokens\) = \(2, 6\), got \(2, 5\)"):
        check_step(step, 2, channels=WIDTH, heads=HEADS)
    encoder = Encoder(VOCABULARY, width=WIDTH, heads=HEADS, layers=1, memory=LookAheadMemory(6))
    segment = encoder.read_segment(encoder.open_segment(keep=True), ids).segment
    with pytest.raises(ValueError, match="must be read in one step"):
        encoder.read_segment(segment, ids)
    decoder.train().gradient_checkpointing = True
    with pytest.raises(ValueError, match="would keep keys twice; pass keep=False"):
        decoder.read_segment(decoder.open_segment(keep=True), ids)


@MEMORIES
def test_padding_where_distances_would_count_it_is_refused(kind):
    decoder, ids = decoder_of(kind(6)), tokens(2, 12)
    left = torch.tensor([[True] * 4, [False, False, True, True]])
    between = torch.tensor([[True, False, True, True]] * 2)
    state = decoder(ids[:, :4], key_padding_mask=~left).memory  # at the beginning of a text nothing stands before it
    ended = decoder(ids[:, 4:8], key_padding_mask=~left.flip(1), memory=state).memory
    with pytest.raises(ValueError, match="pad the tokens of a segment on the right"):
        decoder(ids[:, 8:], key_padding_mask=~left, memory=ended)
    with pytest.raises(ValueError, match="pad the tokens of a segment on the right"):
        decoder(ids[:, :4], key_padding_mask=~between)
    encoder = Encoder(VOCABULARY, width=WIDTH, heads=HEADS, layers=1, memory=kind(6))
    with pytest.raises(ValueError, match="pad the tokens of a segment on the right"):
        encoder(ids[:, 4:8], key_padding_mask=~left, memory=encoder(ids[:, :4]).memory)
    forgotten = ended.reset(torch.tensor([False, True]))
    decoder(ids[:, 8:], key_padding_mask=~left, memory=forgotten)


@pytest.mark.parametrize("network", [Encoder, ComplexEncoder])
def test_same_length_is_for_decoders(network):
    with pytest.raises(ValueError, match="same_length is for decoders"):
        network(VOCABULARY, width=WIDTH, heads=HEADS, layers=1, memory=SegmentRecurrence(4, same_length=True))


def test_a_projection_with_hooks_is_called_whole():
    """Libraries that put weights in place before a module is called, and watch what it gives, must not be passed by."""
    decoder, ids = decoder_of(SegmentRecurrence(6), layers=1), tokens(1, 8)
    expected, _ = read(decoder, ids, (4, 4))
    qkv, seen = decoder.layers[0].attention.qkv, []
    weight = qkv.weight.data
    qkv.weight.data = torch.empty_like(weight)

    def put_in_place(module, given):
        module.weight.data = weight

    def take_away(module, given, output):
        module.weight.data = torch.full_like(weight, torch.nan)
        seen.append(output.shape[1])

    qkv.register_forward_pre_hook(put_in_place)
    qkv.register_forward_hook(take_away)
    found, _ = read(decoder, ids, (4, 4))
    assert_close(found, expected, rtol=0, atol=1e-12)
    assert seen == [4, 8]


@pytest.mark.slow
@MEMORIES
@pytest.mark.parametrize("options", [None, {"sides": "two-vectors", "vectors_per_layer": True}])
def test_every_parameter_has_a_gradient_from_the_first_segment_on(kind, options):
    """Where no slot looks to its right yet, it is 0: without one, DDP would wait for it and fail."""
    decoder = decoder_of(kind(6), encoding="transformer-xl", encoding_options=options)
    decoder(tokens()).hidden.square().sum().backward()
    assert [name for name, parameter in decoder.named_parameters() if parameter.grad is None] == []
    right = [p.grad for name, p in decoder.named_parameters() if name.endswith("_right")]
    assert len(right) == (0 if kind is SegmentRecurrence else 1 if options is None else 2)
    assert not any(gradient.any() for gradient in right)


@pytest.mark.parametrize(("encoding", "more"), [("rope", 0), ("t5", 0), ("transformer-xl", WIDTH)])
def test_look_ahead_adds_no_weights_but_a_vector_for_keys_to_the_right(encoding, more):
    counts = [
        sum(parameter.numel() for parameter in decoder_of(memory, encoding=encoding).parameters())
        for memory in (SegmentRecurrence(8), LookAheadMemory(8))
    ]
    assert counts[1] - counts[0] == more
