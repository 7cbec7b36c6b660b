"""Decoders with a memory against an implementation written from the equations, token by token."""

import pytest
import torch
from memory_from_paper import Kept, SlowDecoder
from torch.testing import assert_close

from wordorder import Decoder, LookAheadMemory, SegmentRecurrence
from wordorder.memory import CompressiveMemory, FirstTokensRecurrence, SameLayerRecurrence

LAYERS, HEADS, WIDTH, VOCABULARY = 3, 2, 8, 11
EQUAL, RAGGED = (4, 4, 4, 4), (4, 2, 5, 1)


def decoder_of(memory, *, encoding="transformer-xl", pre=True, layers=LAYERS, **options):
    decoder = Decoder(
        VOCABULARY,
        width=WIDTH,
        layers=layers,
        heads=HEADS,
        encoding=encoding,
        encoding_options=options or None,
        norm_placement="pre" if pre else "post",
        dropout=0.0,
        attention_dropout=0.0,
        memory=memory,
    ).double()
    for parameter in decoder.parameters():  # nothing may hide behind a zero, a one or a small number
        torch.nn.init.normal_(parameter, std=0.4)
    return decoder


def gradients_of(loss, decoder):
    return torch.autograd.grad(loss, list(decoder.parameters()), allow_unused=True)


def gradients(outputs, upstream, decoder):
    loss = sum((output * up).sum() for output, up in zip(outputs, upstream, strict=True))
    found = gradients_of(loss, decoder)
    return {n: g for (n, _), g in zip(decoder.named_parameters(), found, strict=True)}


def assert_parity(decoder, slow_read, cuts, check_state):
    """Outputs, states and every gradient of both, over all segments of a text."""
    ids = torch.randint(VOCABULARY, (2, sum(cuts)))
    state, kept, start = None, [Kept(), Kept()], 0
    outputs, slow_outputs = [], []
    for count in cuts:
        read = decoder(ids[:, start : start + count], memory=state)
        state = read.memory
        rows = [slow_read(ids[row, start : start + count].tolist(), kept[row]) for row in range(2)]
        kept = [after for _, after in rows]
        outputs.append(read.hidden)
        slow_outputs.append(torch.stack([hidden for hidden, _ in rows]))
        assert_close(outputs[-1], slow_outputs[-1], rtol=0, atol=1e-10)
        assert state.length == len(kept[0].places)
        assert state.position == start + count
        check_state(state, kept)
        start += count
    upstream = [torch.randn_like(output) for output in outputs]
    ours, slow = gradients(outputs, upstream, decoder), gradients(slow_outputs, upstream, decoder)
    for name, gradient in slow.items():
        if gradient is None:
            assert ours[name] is None or not ours[name].any(), name
        else:
            assert_close(ours[name], gradient, rtol=0, atol=1e-10 * max(1, float(gradient.abs().max())), msg=name)
    return ours


def check_recurrence(state, kept):
    for layer in range(LAYERS):
        slow = torch.stack([torch.stack(row.hidden[layer]) for row in kept])
        assert_close(state.slots[f"hidden.{layer}"], slow, rtol=0, atol=1e-10)


def check_look_ahead(state, kept):
    assert_close(
        state.slots["embeddings"], torch.stack([torch.stack(row.embeddings) for row in kept]), rtol=0, atol=1e-10
    )
    assert len(state.slots) == 1 + 2 * len(kept[0].read_outs)
    for layer in range(len(kept[0].read_outs)):
        slow = torch.stack([torch.stack(row.read_outs[layer]) for row in kept])
        assert_close(state.slots[f"read_outs.{layer}"], slow, rtol=0, atol=1e-10)
        slow_lse = torch.stack([torch.stack(row.normalisers[layer]) for row in kept])
        assert_close(state.slots[f"normalisers.{layer}"], slow_lse, rtol=0, atol=1e-10)


CUTS = pytest.mark.parametrize(
    ("length", "cuts"),
    [(2, EQUAL), (4, EQUAL), (9, EQUAL), (2, RAGGED), (4, RAGGED), (9, RAGGED)],
    ids=["2-equal", "4-equal", "9-equal", "2-ragged", "4-ragged", "9-ragged"],
)


@pytest.mark.slow
@CUTS
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl"])
def test_segment_recurrence_is_that_of_the_equations(encoding, length, cuts):
    decoder = decoder_of(SegmentRecurrence(length), encoding=encoding)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=True, encoding=encoding)
    assert_parity(decoder, lambda tokens, kept: slow.recurrent(tokens, kept, length), cuts, check_recurrence)


@pytest.mark.slow
@CUTS
@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl"])
def test_same_layer_recurrence_is_that_of_the_equations(encoding, pre, length, cuts):
    decoder = decoder_of(SameLayerRecurrence(length), encoding=encoding, pre=pre)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=pre, encoding=encoding)

    def read(tokens, kept):
        return slow.recurrent(tokens, kept, length, same_layer=True)

    assert_parity(decoder, read, cuts, check_recurrence)


@pytest.mark.slow
@CUTS
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl"])
def test_first_tokens_stay_and_the_others_move_up_to_them(encoding, length, cuts):
    first = length // 2
    decoder = decoder_of(FirstTokensRecurrence(length, first=first), encoding=encoding)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=True, encoding=encoding)

    def read(tokens, kept):
        return slow.recurrent(tokens, kept, length, first_tokens=first)

    assert_parity(decoder, read, cuts, check_recurrence)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["mean", "convolution"])
@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("encoding", ["rope", "transformer-xl"])
@pytest.mark.parametrize(
    ("sizes", "cuts"),
    [((5, 2, 2), EQUAL), ((4, 1, 3), EQUAL), ((9, 3, 2), EQUAL), ((5, 2, 3), RAGGED), ((7, 4, 2), (9, 1, 1, 6, 2))],
    ids=["5-equal", "4-equal", "9-equal", "5-ragged", "7-ragged"],
)
def test_old_tokens_are_compressed_as_in_the_paper(encoding, pre, compression, sizes, cuts):
    length, coarse, rate = sizes
    memory = CompressiveMemory(length, rate=rate, compressed=coarse, compression=compression)
    decoder = decoder_of(memory, encoding=encoding, pre=pre)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=pre, encoding=encoding)

    def read(tokens, kept):
        return slow.recurrent(tokens, kept, length, compress=(rate, length - coarse, coarse))

    assert_parity(decoder, read, cuts, check_recurrence)


@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize(("sizes", "cuts"), [((5, 2, 2), EQUAL), ((7, 4, 2), (6, 1, 1, 6, 2)), ((8, 2, 3), RAGGED)])
def test_the_convolution_alone_learns_from_the_attention_reconstruction_loss(pre, sizes, cuts):
    length, coarse, rate = sizes
    decoder = decoder_of(CompressiveMemory(length, rate=rate, compressed=coarse), pre=pre)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=pre, encoding="transformer-xl")
    ids = torch.randint(VOCABULARY, (2, sum(cuts)))
    state, kept, losses = None, [Kept(), Kept()], []
    for piece in ids.split(cuts, dim=1):
        read = decoder(piece, memory=state)
        state, compress = read.memory, (rate, length - coarse, coarse)
        kept = [slow.recurrent(piece[row].tolist(), kept[row], length, compress=compress)[1] for row in range(2)]
        losses.append((read.memory_loss, torch.as_tensor(sum(after.loss for after in kept) / 2)))
        assert_close(*losses[-1], rtol=0, atol=1e-10, check_dtype=False)
    ours, expected = (sum(loss for loss in column) for column in zip(*losses, strict=True))
    weights = dict(decoder.memory_weights.named_parameters(prefix="memory_weights"))
    expected = torch.autograd.grad(expected, list(weights.values()))
    for (name, weight), gradient in zip(decoder.named_parameters(), gradients_of(ours, decoder), strict=True):
        if name not in weights:
            assert gradient is None, name
            continue
        slow_gradient = expected[[*weights].index(name)]
        assert slow_gradient.any()
        assert weight is weights[name]
        assert_close(gradient, slow_gradient, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [SegmentRecurrence, LookAheadMemory], ids=lambda kind: kind.name)
def test_a_sink_counts_once_in_what_slots_have_read(kind):
    decoder = decoder_of(kind(4), encoding="transformer-xl+softmax-sink")
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=True, encoding="transformer-xl")
    read, check = (
        (slow.recurrent, check_recurrence) if kind is SegmentRecurrence else (slow.look_ahead, check_look_ahead)
    )
    assert_parity(decoder, lambda tokens, kept: read(tokens, kept, 4), RAGGED, check)


@pytest.mark.parametrize("length", [2, 5])
def test_every_token_sees_as_many_keys_with_same_length(length):
    decoder = decoder_of(SegmentRecurrence(length, same_length=True), pre=False)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=False, encoding="transformer-xl")

    def read(tokens, kept):
        return slow.recurrent(tokens, kept, length, same_length=True)

    assert_parity(decoder, read, RAGGED, check_recurrence)


@pytest.mark.slow
@CUTS
@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("rope", {}),
        ("transformer-xl", {}),
        ("transformer-xl", {"sides": "signed"}),
        ("transformer-xl", {"sides": "two-vectors"}),
    ],
    ids=["rope", "disentangled", "signed", "two-vectors"],
)
def test_look_ahead_memory_is_that_of_the_equations(encoding, options, length, cuts):
    decoder = decoder_of(LookAheadMemory(length), encoding=encoding, **options)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=True, encoding=encoding, **options)
    assert_parity(decoder, lambda tokens, kept: slow.look_ahead(tokens, kept, length), cuts, check_look_ahead)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 4, 9])
@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
def test_full_look_ahead_with_the_codes_epsilon(pre, length):
    decoder = decoder_of(LookAheadMemory(length, full=True, epsilon=1e-6), pre=pre, clamp=3)
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=pre, encoding="transformer-xl", clamp=3)

    def read(tokens, kept):
        return slow.look_ahead(tokens, kept, length, full=True, epsilon=1e-6)

    assert_parity(decoder, read, EQUAL, check_look_ahead)


@pytest.mark.slow
@CUTS
@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_look_ahead_with_a_fixed_alpha(alpha, length, cuts):
    decoder = decoder_of(LookAheadMemory(length, alpha=alpha))
    slow = SlowDecoder(decoder, layers=LAYERS, heads=HEADS, pre=True, encoding="transformer-xl")

    def read(tokens, kept):
        return slow.look_ahead(tokens, kept, length, fixed=alpha)

    assert_parity(decoder, read, cuts, check_look_ahead)


def test_gradient_stops_at_what_is_kept_and_flows_through_what_is_refreshed():
    decoder = decoder_of(LookAheadMemory(4))
    ids = torch.randint(VOCABULARY, (1, 8))
    first = decoder(ids[:, :4])
    right = decoder.encoding.parts["transformer_xl"].position_bias_right
    assert not torch.autograd.grad(first.hidden.sum(), right)[0].any()  # 0, as in the reference code
    assert not any(tensor.requires_grad for tensor in first.memory.slots.values())
    second = decoder(ids[:, 4:], memory=first.memory)
    assert torch.autograd.grad(second.hidden.square().sum(), right)[0].abs().min() > 0
