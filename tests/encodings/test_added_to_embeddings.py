import math

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import Learned, Sinusoidal
from wordorder.ops import Contiguous


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("length", "base", "scale"), [(1, 1e4, 1.0), (63, 1e4, 6**0.5), (63, 100.0, 2.5)])
def test_sines_match_the_paper(length, base, scale, dtype):
    x = torch.randn(2, length, 6, dtype=dtype, requires_grad=True)
    positions = torch.stack([torch.arange(length), torch.arange(length) + 11])
    paper = torch.empty(2, length, 6, dtype=torch.float64)
    for b in range(2):
        for t in range(length):
            for i in range(3):
                angle = int(positions[b, t]) / base ** (2 * i / 6)
                paper[b, t, 2 * i], paper[b, t, 2 * i + 1] = math.sin(angle), math.cos(angle)
    given = {} if scale == 6**0.5 else {"embedding_scale": scale}  # the paper's factor is the default
    ours = Sinusoidal(6, base=base, **given)(x, positions)
    assert_close(ours, (paper + scale * x.double()).to(dtype))
    upstream = torch.randn_like(ours)
    assert_close(torch.autograd.grad(ours, x, upstream)[0], upstream * scale)


def test_learned_adds_the_row_of_the_position_and_trains_it():
    learned, x = Learned(4, max_positions=10).double(), torch.randn(2, 3, 4).double()
    positions = torch.tensor([[0, 9, 4], [4, 4, 1]])
    ours = learned(x, positions)
    for b in range(2):
        for t in range(3):
            assert_close(ours[b, t], x[b, t] + learned.table.weight[positions[b, t]])
    upstream = torch.randn_like(ours)
    gradient = torch.autograd.grad(ours, learned.table.weight, upstream)[0]
    assert_close(gradient[4], upstream[0, 2] + upstream[1, 0] + upstream[1, 1])
    assert_close(learned(x, Contiguous(3, 2)), x + learned.table.weight[2:5])


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: Sinusoidal(5), "width"),
        (lambda: Sinusoidal(4, base=0.5), "base"),
        (lambda: Sinusoidal(4, embedding_scale=0), "embedding_scale"),
        (lambda: Sinusoidal(4)(torch.zeros(1, 2, 6), torch.arange(2)), "width"),
        (lambda: Learned(0, max_positions=4), "width"),
        (lambda: Learned(4, max_positions=0), "max_positions"),
        (lambda: Learned(4, max_positions=4)(torch.zeros(1, 5, 4), Contiguous(5)), "max_positions=4"),
    ],
)
def test_wrong_arguments_are_named(build, word):
    with pytest.raises(ValueError, match=word):
        build()
