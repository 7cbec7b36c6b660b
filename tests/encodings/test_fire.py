import math

import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder, LookAheadMemory, SegmentRecurrence
from wordorder.encodings import FIRE, build_encoding
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, DenseBias, Packed

SIZES = {"width": 8, "heads": 2, "layers": 2, "max_positions": 9}


def from_paper(fire, query, key):
    """Sec. 3 of the paper, pair by pair; keys to the right as the docstring says."""
    c, longest = fire.c.abs(), fire.threshold.abs() * fire.first_threshold
    rows = []
    for i in query:
        for j in key:
            later = longest if longest.item() > max(i, j) else torch.full_like(longest, max(i, j))
            share = (c * abs(i - j) + 1).log() / (c * later + 1).log()
            if fire.bidirectional and j > i:
                share = -share
            neurons = [
                torch.clamp(fire.inner_weight[m] * share + fire.inner_bias[m], min=0)
                for m in range(len(fire.inner_bias))
            ]
            rows.append(fire.outer_weight @ torch.cat(neurons))
    return torch.stack(rows, -1).view(-1, len(query), len(key))


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(
    ("options"),
    [
        {"first_threshold": 6.5, "bidirectional": False},
        {"first_threshold": 6.5, "bidirectional": True, "first_c": 0.7},
        {"inner": 5},
    ],
)
def test_output_and_every_gradient_match_the_paper(options, length):
    fire = FIRE(3, **options).double()
    bias = fire(Contiguous(length), Contiguous(length))
    assert isinstance(bias, DenseBias)
    assert not bias.may_hide
    ours, paper = bias.dense()[0], from_paper(fire, range(length), range(length))
    assert_close(ours, paper, rtol=1e-12, atol=1e-12)
    upstream, weights = torch.randn_like(paper), dict(fire.named_parameters())
    grads = [torch.autograd.grad(y, list(weights.values()), upstream, allow_unused=True) for y in (ours, paper)]
    for name, ours_grad, paper_grad in zip(weights, *grads, strict=True):
        paper_grad = torch.zeros_like(ours_grad) if paper_grad is None else paper_grad
        assert_close(ours_grad, paper_grad, rtol=1e-11, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_computed_in_float32(dtype):
    fire = FIRE(2).to(dtype)
    bias = fire(Contiguous(63), Contiguous(63), dtype=dtype).dense()
    assert bias.dtype == torch.float32
    exact = FIRE(2).double()
    exact.load_state_dict({name: value.double() for name, value in fire.state_dict().items()})
    assert_close(bias.double(), exact(Contiguous(63), Contiguous(63)).dense(), rtol=1e-5, atol=1e-5)


def test_shares_stay_between_minus_one_and_one_however_long_the_text():
    fire = FIRE(1, inner=2, first_threshold=7.0).double()
    with torch.no_grad():  # f(x) = relu(x) - relu(-x) = x
        fire.inner_weight.copy_(torch.tensor([1.0, -1.0]))
        fire.inner_bias.zero_()
        fire.outer_weight.copy_(torch.tensor([[1.0, -1.0]]))
    share = fire(Contiguous(5, 990), Contiguous(1000)).dense()[0, 0]
    assert share.abs().max() <= 1
    assert share[2, 0] == 1  # the first token, from anywhere beyond the threshold
    assert (share[0, 991:] < 0).all()
    short = fire(Contiguous(6), Contiguous(6)).dense()[0, 0]
    assert_close(short, -short.T)
    assert_close(short[4, 1].item(), math.log1p(0.3) / math.log1p(0.7), rtol=1e-6, atol=0)


def test_positions_count_and_not_how_they_are_given():
    fire = FIRE(2, first_threshold=3.0)
    whole = fire(Contiguous(9), Contiguous(9)).dense()
    assert_close(fire(Contiguous(4, 5), Contiguous(9)).dense(), whole[:, :, 5:])
    where = Contiguous(9, torch.tensor([-3, 0]))
    padded = fire(where, where).dense()
    assert_close(padded[1:], whole)
    assert_close(padded[0, :, 3:, 3:], whole[0, :, :6, :6])
    assert padded.isfinite().all()
    packed = Packed(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([[0, 0, 0, 1, 1]]))
    assert_close(fire(packed, packed).dense()[0, :, 3:, 3:], whole[0, :, :2, :2])
    given = Arbitrary(torch.arange(9)[None])
    assert_close(fire(given, given).dense(), whole)
    assert not torch.allclose(fire(Contiguous(4, 5), Contiguous(4, 5)).dense(), whole[:, :, :4, :4])  # not Toeplitz


def test_it_starts_as_the_authors_code_whatever_the_networks_rule():
    holder = torch.nn.ModuleList([FIRE(8, first_c=0.25)])
    initialise(holder, seed=1, std=0.02)
    fire = holder[0]
    assert fire.c.item() == 0.25
    assert fire.threshold.item() == 1
    assert 0.7 < fire.inner_weight.abs().max() <= 1
    assert 0.9 / math.sqrt(32) < fire.outer_weight.abs().max() <= 1 / math.sqrt(32)
    before = fire.outer_weight.clone()
    initialise(holder, seed=1, std=0.5)
    assert torch.equal(fire.outer_weight, before)


@pytest.mark.parametrize("name", ["c", "threshold"])
def test_a_zero_gives_no_nan(name):
    fire = FIRE(2)
    with torch.no_grad():
        fire.get_parameter(name).zero_()
    bias = fire(Contiguous(5), Contiguous(5)).dense()
    assert bias.isfinite().all()
    bias.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in fire.parameters())


def test_what_makes_it_zero_and_can_be_learned_from():
    fire = FIRE(2)
    for parameter in fire.zero_init_parameters():
        parameter.data.zero_()
    bias = fire(Contiguous(9), Contiguous(9)).dense()
    assert (bias == 0).all()
    bias.square().sum().backward()
    upstream = torch.randn_like(bias)
    assert torch.autograd.grad(fire(Contiguous(9), Contiguous(9)).dense(), fire.outer_weight, upstream)[0].any()


def test_sides_are_told_apart_where_keys_to_the_right_are_seen():
    assert build_encoding("fire", **SIZES, use="encoder").parts["fire"].bidirectional
    assert not build_encoding("fire", **SIZES, use="decoder").parts["fire"].bidirectional
    assert (
        build_encoding("fire", **SIZES, use="decoder", with_memory=True, looks_right=True).parts["fire"].bidirectional
    )


@pytest.mark.parametrize("kind", [SegmentRecurrence, LookAheadMemory])
def test_with_a_memory_rows_with_padding_read_as_if_alone(kind):
    options = {"first_threshold": 2.0}  # so that places count from the third token on
    decoder = Decoder(19, **SIZES, encoding="fire", encoding_options=options, memory=kind(4), dropout=0.0).eval()
    decoder = decoder.double()
    ids = torch.randint(19, (2, 9))
    valid = torch.ones(2, 3, dtype=torch.bool)
    valid[1, 2] = False
    state = None
    for start in (0, 3, 6):
        output = decoder(ids[:, start : start + 3], memory=state, key_padding_mask=~valid)
        state = output.memory
    alone_state = None
    for start in (0, 3, 6):
        alone = decoder(ids[1:, start : start + 2], memory=alone_state)
        alone_state = alone.memory
    assert_close(output.hidden[1:, :2], alone.hidden, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"heads": 0}, "heads must be positive, got 0"),
        ({"inner": 0}, "inner must be positive"),
        ({"first_c": 0.0}, "first_c must be positive"),
        ({"first_threshold": -1.0}, "first_threshold must be positive, got -1.0"),
    ],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        FIRE(**{"heads": 2, **options})
