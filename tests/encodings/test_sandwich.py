import numpy as np
import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import Sandwich
from wordorder.ops import Contiguous, DenseBias, Packed, ToeplitzBias


def from_paper(heads, length, dimensions, base):
    """The sinusoidal vectors themselves, and their inner products."""
    waves = np.array([base ** (-2 * m / dimensions) for m in range(1, dimensions // 2 + 1)])
    vectors = np.stack([np.concatenate((np.sin(p * waves), np.cos(p * waves))) for p in range(length)])
    product = vectors @ vectors.T - dimensions / 2
    return torch.from_numpy(np.stack([product / (8 * n / heads) for n in range(1, heads + 1)]))


@pytest.mark.parametrize("length", [1, 2, 63])
@pytest.mark.parametrize(("heads", "dimensions", "base"), [(1, 128, 1e4), (6, 10, 1e4), (4, 128, 500.0)])
def test_it_matches_the_paper(heads, dimensions, base, length):
    sandwich = Sandwich(heads, dimensions=dimensions, base=base)
    bias = sandwich(Contiguous(length), Contiguous(length), dtype=torch.float64)
    assert isinstance(bias, ToeplitzBias)
    assert not bias.may_hide
    paper = from_paper(heads, length, dimensions, base)
    assert_close(bias.dense()[0], paper, rtol=0, atol=1e-11)
    narrow = sandwich(Contiguous(length), Contiguous(length), dtype=torch.bfloat16).dense()[0]
    assert narrow.dtype == torch.float32
    assert_close(narrow.double(), paper, rtol=0, atol=1e-4)
    assert not list(sandwich.parameters())


def test_any_positions_are_those_of_distances():
    sandwich = Sandwich(2)
    whole = sandwich(Contiguous(9), Contiguous(9)).dense()
    assert_close(whole, whole.transpose(-1, -2))
    assert_close(sandwich(Contiguous(4, 5), Contiguous(9)).dense(), whole[:, :, 5:])
    padded = sandwich(Contiguous(9, torch.tensor([-3, 0])), Contiguous(9, torch.tensor([-3, 0])))
    assert isinstance(padded, DenseBias)
    assert_close(padded.dense(), whole.expand(2, -1, -1, -1))
    packed = Packed(torch.tensor([[0, 1, 2, 0, 1]]), torch.tensor([[0, 0, 0, 1, 1]]))
    assert_close(sandwich(packed, packed).dense()[0, :, 3:, 3:], whole[0, :, :2, :2])


def test_the_nearest_counts_most_and_the_first_head_sees_the_shortest_way():
    table = Sandwich(4).at_distance(torch.arange(3000), torch.float64)
    assert (table[:, 0] == 0).all()
    assert (table[:, 1:] < 0).all()
    assert (table[0, 1:] < table[3, 1:]).all()
    assert_close(table[0], 4 * table[3])
    decades = table[3, [4, 16, 64, 256, 1024]].diff()
    assert decades.std() < 0.25 * decades.mean().abs()  # about equal steps: a logarithm


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"heads": 0}, "heads must be positive, got 0"),
        ({"dimensions": 7}, "dimensions must be positive and even, got 7"),
        ({"dimensions": 0}, "dimensions must be positive and even, got 0"),
        ({"base": 1.0}, "base must be greater than 1"),
    ],
)
def test_wrong_arguments_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        Sandwich(**{"heads": 2, **options})
