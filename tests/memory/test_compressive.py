"""Compressed slots stay right row by row: in rows of unequal lengths, after a row is forgotten, and after a refusal."""

import copy
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder, Encoder
from wordorder.encodings import CATALOG, register_encoding
from wordorder.memory import CompressiveMemory, MemoryState, SegmentRecurrence

IDS = torch.arange(60).view(2, 30) * 7 % 22 + 1
BOTH = pytest.mark.parametrize("compression", ["convolution", "mean"])


def built(memory, kind=Decoder, **options):
    sizes = {"width": 16, "layers": 2, "heads": 4, "encoding": "rope", "dropout": 0.0, "attention_dropout": 0.0}
    network = kind(23, **{**sizes, **options}, memory=memory).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    return network


def test_texts_without_anything_to_compress_are_those_of_segment_recurrence():
    networks, states = [built(CompressiveMemory(16)), built(SegmentRecurrence(16))], [None, None]
    networks[1].load_state_dict(networks[0].state_dict(), strict=False)
    for cut in ((0, 5), (5, 8), (8, 14)):  # what waits has room for 8 tokens until the last segment ends
        reads = [n(IDS[:, slice(*cut)], memory=s) for n, s in zip(networks, states, strict=True)]
        states = [read.memory for read in reads]
        assert_close(reads[0].hidden, reads[1].hidden, rtol=0, atol=0)


def test_a_text_is_compressed_in_the_same_groups_however_it_is_cut():
    network = built(CompressiveMemory(9, rate=3, compressed=5, compression="mean"), layers=1)
    left = []
    for cuts in ([30], [10, 10, 10], [1] * 30, [7, 1, 1, 13, 8]):
        state = None
        for piece in IDS.split(cuts, dim=1):
            state = network(piece, memory=state).memory
        left.append(state)
        assert state.slots["tokens"][0].tolist() == [3] * 5 + [1] * 3
        assert_close(state.slots["hidden.0"], left[0].slots["hidden.0"], rtol=0, atol=1e-12)
    embedded = network.embedding(IDS)
    expected = torch.cat([embedded[:, 12:27].unflatten(1, (5, 3)).mean(2), embedded[:, 27:]], dim=1)
    assert_close(left[0].slots["hidden.0"], expected, rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize("lengths", [(6, 6, 6, 6), (6, 2, 0, 6), (1, 6, 5, 1), (3, 3, 4, 6)])
def test_a_row_beside_a_longer_one_keeps_its_own_slots(lengths, compression):
    network, state, alone, start = built(CompressiveMemory(7, rate=2, compression=compression)), None, None, 0
    for step, count in enumerate(lengths):
        ids, padding = IDS[:, 6 * step : 6 * step + 6].clone(), torch.zeros(2, 6, dtype=torch.bool)
        ids[1, :count], padding[1, count:] = IDS[1, start : start + count], True
        read = network(ids, memory=state, key_padding_mask=padding)
        state, start = read.memory, start + count
        if count:
            expected = network(ids[1:, :count], memory=alone)
            alone = expected.memory
            assert_close(read.hidden[1, :count], expected.hidden[0], rtol=0, atol=1e-12)
        for name, tensor in alone.slots.items():
            assert_close(state.slots[name][1:, -alone.length :], tensor, rtol=0, atol=1e-12)
        assert state.valid_BM[1].sum() == alone.length


@BOTH
def test_a_row_that_is_forgotten_begins_anew_and_learns_from_its_own_slots(compression):
    network = built(CompressiveMemory(7, rate=2, compression=compression)).train()
    state = network(IDS[:, :9]).memory.reset(torch.tensor([True, False]))
    alone = [None, network(IDS[1:, :9]).memory]
    for cut in ((9, 13), (13, 15), (15, 20), (20, 26)):
        read = network(IDS[:, slice(*cut)], memory=state)
        state, losses = read.memory, []
        for row in range(2):
            single = network(IDS[row : row + 1, slice(*cut)], memory=alone[row])
            alone[row] = single.memory
            assert_close(read.hidden[row], single.hidden[0], rtol=0, atol=1e-12)
            losses += [single.memory_loss] if single.memory_loss is not None and single.memory_loss > 0 else []
            for name, tensor in single.memory.slots.items():
                assert_close(state.slots[name][row, -single.memory.length :], tensor[0], rtol=0, atol=1e-12)
        if compression == "convolution":
            # the mean over the tokens of those rows in which something is compressed
            assert_close(read.memory_loss, sum(losses) / max(len(losses), 1) + read.memory_loss * 0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"key_value_heads": 2}, {"norm_placement": "post", "norm": "rms"}])
@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_every_weight_of_the_memory_has_a_gradient_from_the_first_segment_on(kind, options):
    network, state = built(CompressiveMemory(7, rate=2), kind, **options).train(), None
    for step in range(3):
        read = network(IDS[:, 5 * step : 5 * step + 5], memory=state)
        state = read.memory
        (read.memory_loss + read.hidden.square().sum()).backward()  # of both, as DDP wants
        for parameter in network.parameters():
            assert parameter.grad is not None
    assert all(parameter.grad.any() for parameter in network.memory_weights.parameters())


def test_it_learns_only_in_training():
    network = built(CompressiveMemory(7, rate=2))
    state = network(IDS[:, :9]).memory
    assert network(IDS[:, 9:18], memory=state).memory_loss is None
    network.train()
    with torch.no_grad():
        assert network(IDS[:, 9:18], memory=state).memory_loss is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpointing_and_autocast_change_nothing_but_rounding(dtype):
    network, losses = built(CompressiveMemory(8, rate=2)).float().train(), []
    state = network(IDS[:, :9]).memory
    for checkpointed in (False, True):
        network.gradient_checkpointing = checkpointed
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            read = network(IDS[:, 9:18], memory=state)
        (read.hidden.float().square().mean() + read.memory_loss).backward()
        losses.append((read.memory_loss, network.memory_weights[0].weight.grad))
    assert_close(losses[0], losses[1], rtol=0, atol=0)
    exact = network.double()(IDS[:, 9:18], memory=state).memory_loss
    assert_close(losses[0][0].double(), exact, rtol=0.1 if dtype == torch.bfloat16 else 1e-4, atol=0)


def test_a_network_begins_with_the_mean():
    network, mean = (
        Decoder(23, width=16, layers=2, heads=2, encoding="none", memory=CompressiveMemory(7, rate=2, compression=how))
        for how in ("convolution", "mean")
    )
    network, mean, states = network.eval(), mean.eval(), [None, None]
    mean.load_state_dict(network.state_dict(), strict=False)
    for step in range(3):
        reads = [n(IDS[:, 7 * step : 7 * step + 7], memory=s) for n, s in zip((network, mean), states, strict=True)]
        states = [read.memory for read in reads]
        assert_close(reads[0].hidden, reads[1].hidden, rtol=0, atol=1e-5)


def test_what_changes_the_input_of_layers_is_on_both_sides_of_the_loss(monkeypatch):
    """A text of one token is compressed without loss, whatever a layer adds to its input."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "contribution")
    from convolution import Convolution

    register_encoding("convolution", Convolution)
    try:
        network = built(CompressiveMemory(8, rate=2), encoding="convolution", layers=1)
        network.memory_weights[0].draw_parameters(0.0)
        torch.nn.init.normal_(network.encoding.parts["convolution"].weights[0].weight)
        ids = torch.full((1, 12), 5)
        read = network.train()(ids, memory=network(ids).memory)
        assert 0 <= read.memory_loss < 1e-10
    finally:
        del CATALOG["convolution"]


def test_a_segment_that_is_read_in_steps_is_not_learned_from():
    network = built(CompressiveMemory(7, rate=2)).train()
    state = network(IDS[:, :9]).memory
    segment = network.open_segment(state, keep=True)
    for t in range(9, 12):
        read = network.read_segment(segment, IDS[:, t : t + 1])
        segment = read.segment
        assert read.loss is None


def test_a_copy_of_an_open_segment_has_the_weights_of_the_network():
    network = built(CompressiveMemory(7, rate=2))
    with torch.no_grad():
        segment = network.read_segment(network.open_segment(keep=True), IDS[:, :9]).segment
    copied = copy.deepcopy(segment)
    assert copied.weights is network.memory_weights
    assert copied.keys[0].k is not segment.keys[0].k
    for name, tensor in segment.close().slots.items():
        assert_close(copied.close().slots[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize(("length", "options"), [(15, {}), (16, {"rate": 4}), (1, {"compressed": 2})])
def test_its_cost_is_counted_at_its_fullest(length, options):
    from wordorder.cost import cost
    from wordorder.models import build_config

    sizes = {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "encoding": "rope"}
    flops = []
    for memory, of_memory in (("compressive", options), ("segment-recurrence", {})):
        memory = {"memory": memory, "memory_length": 16, "segment_length": length, "memory_options": of_memory}
        flops.append(
            cost(build_config("decoder", **sizes, **memory), "causal-lm", length=length)["forward_flops_per_token"]
        )
    assert 0.6 < flops[0] / flops[1] < 1.6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_of_another_dtype_than_the_network(dtype):
    network = built(CompressiveMemory(8, rate=2)).to(dtype).train()
    state = network(IDS[:, :9]).memory
    network.memory_weights.float()
    assert network(IDS[:, 9:18], memory=state).memory_loss.isfinite()


@pytest.mark.parametrize(
    ("other", "change"),
    [
        (CompressiveMemory(11, rate=2, compressed=3), lambda state: state),
        (CompressiveMemory(7, rate=3, compressed=3), lambda state: state),
        (CompressiveMemory(7, rate=2, compressed=2), lambda state: state),
        (CompressiveMemory(7, rate=2, compressed=3), lambda state: state.last(4)),
    ],
    ids=["length", "rate", "compressed", "cut"],
)
def test_a_state_of_other_sizes_is_refused(other, change):
    state = built(CompressiveMemory(7, rate=2, compressed=3))(IDS[:, :20]).memory
    state = MemoryState.from_state_dict(state.state_dict())
    with pytest.raises(ValueError, match="another length, rate or number of compressed slots"):
        built(other)(IDS[:, 20:], memory=change(state))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 1}, "rate must be a whole number of 2 or more, got 1"),
        ({"rate": 2.0}, "got 2.0"),
        ({"compressed": 0}, r"compressed must be a whole number in 1 \.\. length - rate = 7 - 3, got 0$"),
        ({"compressed": 5}, "got 5"),
        ({"rate": 7}, r"1 \.\. length - rate = 7 - 7, got 3 \(half of length\)"),
        ({"compression": "max"}, "compression must be 'convolution' or 'mean', got 'max'"),
        ({"same_length": True}, "same_length would hide the oldest slots"),
    ],
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        CompressiveMemory(7, **options)
