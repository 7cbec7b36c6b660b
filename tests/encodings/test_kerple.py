import math
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import KERPLELog, KERPLEPower
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, DenseBias, Packed, ToeplitzBias

BOTH = pytest.mark.parametrize("kind", [KERPLELog, KERPLEPower])


def from_paper(kind, raw, length):
    """Eq. by eq., entry by entry; raw numbers to r as the docstrings say, without torch's softplus or sigmoid."""
    heads = len(raw["raw_r1"])
    rows = []
    for h, i, j in product(range(heads), range(length), range(length)):
        r1, far = (1 + raw["raw_r1"][h].exp()).log(), abs(i - j)
        if kind is KERPLELog:
            r2 = (1 + raw["raw_r2"][h].exp()).log()
            rows.append(-r1 * (1 + r2 * far).log())
        else:
            r2 = 2 / (1 + (-raw["raw_r2"][h]).exp())
            rows.append(-r1 * (r2 * math.log(far)).exp() if far else 0 * r1)
    return torch.stack(rows).view(heads, length, length)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("length", [1, 2, 63])
@pytest.mark.parametrize("heads", [1, 3])
def test_output_and_gradient_match_the_paper(kind, heads, length):
    kerple = kind(heads).double()
    raw = dict(kerple.named_parameters())
    bias = kerple(Contiguous(length), Contiguous(length))
    assert isinstance(bias, ToeplitzBias)
    assert not bias.may_hide
    paper = from_paper(kind, raw, length)
    assert_close(bias.dense()[0], paper, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(paper)
    pairs = zip(
        *(torch.autograd.grad(y, list(raw.values()), upstream, allow_unused=True) for y in (bias.dense()[0], paper)),
        strict=True,
    )
    for ours_grad, paper_grad in pairs:
        paper_grad = torch.zeros_like(ours_grad) if paper_grad is None else paper_grad
        assert_close(ours_grad, paper_grad, rtol=1e-11, atol=1e-11)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_computed_in_float32(kind, dtype):
    kerple = kind(2).to(dtype)
    bias = kerple(Contiguous(63), Contiguous(63), dtype=dtype).dense()
    assert bias.dtype == torch.float32
    exact = kind(2).double()
    exact.load_state_dict({name: value.double() for name, value in kerple.state_dict().items()})
    assert_close(bias.double(), exact(Contiguous(63), Contiguous(63)).dense(), rtol=2e-6, atol=2e-6)


@BOTH
def test_it_starts_in_the_papers_ranges_and_stays_positive(kind):
    kerple = kind(500)
    first = kerple.kernel_H(torch.float32)
    ends = {KERPLELog: (2, 1), KERPLEPower: (1, 2)}[kind]
    for r_H, end in zip(first, ends, strict=True):
        assert 0.009 < r_H.min() < 0.1
        assert end - 0.1 < r_H.max() <= end
    again = torch.nn.ModuleList([kind(500)])
    initialise(again, seed=3)
    drawn = again[0].kernel_H(torch.float32)
    initialise(again, seed=3, std=0.5)  # ranges of its own, whatever the network's
    assert all(torch.equal(a, b) for a, b in zip(drawn, again[0].kernel_H(torch.float32), strict=True))
    assert not torch.equal(drawn[0], first[0])
    with torch.no_grad():
        for parameter in kerple.parameters():
            parameter.sub_(30)
    assert all((r_H > 0).all() for r_H in kerple.kernel_H(torch.float32))
    with torch.no_grad():
        for parameter in kerple.parameters():
            parameter.add_(90)
    assert kind is KERPLELog or (kerple.kernel_H(torch.float32)[1] <= 2).all()


@BOTH
def test_any_positions_are_those_of_distances(kind):
    kerple = kind(2)
    whole = kerple(Contiguous(9), Contiguous(9)).dense()
    assert_close(kerple(Contiguous(4, 5), Contiguous(9)).dense(), whole[:, :, 5:])
    padded = kerple(Contiguous(9, torch.tensor([-3, 0])), Contiguous(9, torch.tensor([-3, 0])))
    assert isinstance(padded, DenseBias)
    assert_close(padded.dense(), whole.expand(2, -1, -1, -1))
    position = torch.tensor([[0, 1, 2, 0, 1]])
    packed = Packed(position, torch.tensor([[0, 0, 0, 1, 1]]))
    assert_close(kerple(packed, packed).dense(), kerple(Arbitrary(position), Arbitrary(position)).dense())
    assert_close(kerple(packed, packed).dense()[0, :, 3:, 3:], whole[0, :, :2, :2])


@BOTH
def test_the_further_the_less(kind):
    table = kind(4).at_distance(torch.arange(2000))
    assert (table[:, 0] == 0).all()
    assert (table.diff() < 0).all()


@BOTH
@pytest.mark.parametrize("heads", [0, -2])
def test_wrong_arguments_are_named(kind, heads):
    with pytest.raises(ValueError, match=f"heads must be positive, got {heads}"):
        kind(heads)


@pytest.mark.parametrize("kind", [KERPLELog, KERPLEPower])
def test_second_derivatives_are_finite_at_distance_0(kind):
    kernel = kind(2).double()
    initialise(kernel, seed=0)
    parameters = tuple(kernel.parameters())
    bias = kernel(Contiguous(5), Contiguous(5)).dense()
    gradients = torch.autograd.grad(bias.square().sum(), parameters, create_graph=True)
    sum(gradient.square().sum() for gradient in gradients).backward()
    assert all(parameter.grad.isfinite().all() for parameter in parameters)
