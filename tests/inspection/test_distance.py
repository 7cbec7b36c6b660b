import math

import pytest
import torch
from torch.testing import assert_close

from wordorder.inspection import distance_profile, toeplitz_share
from wordorder.ops import ToeplitzBias


def toeplitz(size, heads=2):
    table = torch.randn(heads, 2 * size - 1)
    return table, ToeplitzBias(table, size).dense()[0]


def test_a_profile_is_mean_spread_and_count_of_each_diagonal():
    values = torch.randn(2, 5, 5, dtype=torch.float64)
    profile = distance_profile(values, up_to_row_constants=False)
    assert profile.distances_W.tolist() == list(range(-4, 5))
    for column, distance in enumerate(range(-4, 5)):
        diagonal = torch.stack([torch.diagonal(head, distance) for head in values])
        assert profile.count_W[column] == diagonal.shape[1]
        assert_close(profile.mean_HW[:, column], diagonal.mean(-1))
        assert_close(profile.spread_HW[:, column], diagonal.std(-1, correction=0))


def test_a_profile_without_cls_does_not_see_row_and_column_0():
    values = torch.randn(2, 6, 6)
    spoilt = values.clone()
    spoilt[:, 0], spoilt[:, :, 0] = 1e3, -1e3
    with_cls, without = distance_profile(spoilt), distance_profile(spoilt, skip_first=True)
    assert without.distances_W.tolist() == list(range(-4, 5))
    inner = distance_profile(values[:, 1:, 1:])
    assert_close(without.mean_HW, inner.mean_HW)
    assert_close(without.spread_HW, inner.spread_HW)
    assert with_cls.spread_HW.max() > 100 > without.spread_HW.max()


def test_a_relative_term_has_its_table_as_profile_whatever_is_added_to_rows():
    table, values = toeplitz(7)
    profile = distance_profile(values + 10 * torch.randn(2, 7, 1))
    difference = profile.mean_HW - table
    assert_close(difference, difference[:, :1].expand(-1, 13), rtol=0, atol=1e-5)  # up to one constant
    assert profile.spread_HW.max() < 1e-5
    assert distance_profile(values + 10 * torch.randn(2, 7, 1), up_to_row_constants=False).spread_HW.max() > 1


def test_the_share_is_that_of_the_map_with_every_row_constant_allowed():
    size = 40
    _, relative = toeplitz(size)
    relative = relative - relative.mean(-1, keepdim=True)
    noise = torch.randn(2, size, size)
    noise = noise - noise.mean(-1, keepdim=True)
    mixed = toeplitz_share(3 * relative + noise + 50 * torch.randn(2, size, 1))
    seen = 9 * relative.square().sum() / (9 * relative.square().sum() + noise.square().sum())
    # of the noise, 2 / N looks like a relative term too
    assert mixed.share == pytest.approx(seen.item() + 0.1 * 2 / size, abs=0.02)
    assert mixed.chance == 2 / size
    assert mixed.plain_share_H.max() < 0.6
    assert_close(mixed.rms_H**2, (3 * relative + noise).double().square().mean((-1, -2)), rtol=1e-4, atol=0)


def test_heads_count_by_their_energy():
    _, relative = toeplitz(12, heads=1)
    noise = torch.randn(1, 12, 12)
    found = toeplitz_share(torch.cat((1e-3 * relative, noise)))
    assert found.share_H[0] > 0.999
    assert found.share == pytest.approx(found.share_H[1].item(), abs=1e-4)


def test_what_stands_in_row_and_column_0_does_not_count():
    _, values = toeplitz(8)
    values[:, 0], values[:, :, 0] = 7.0, -7.0
    assert toeplitz_share(values).share < 0.9
    found = toeplitz_share(values, skip_first=True)
    assert found.share == pytest.approx(1)
    assert found.chance == 2 / 7


@pytest.mark.parametrize("noise", [0, 1e-7])
@pytest.mark.parametrize("size", [0, 1e4])
def test_a_map_that_softmax_does_not_see_has_no_share(size, noise):
    """Constants of rows, exact or as far as single precision goes."""
    values = size * torch.randn(2, 5, 1, dtype=torch.float64) * (1 + noise * torch.randn(2, 5, 5, dtype=torch.float64))
    found = toeplitz_share(values)
    assert math.isnan(found.share)
    assert found.share_H.isnan().all()
    assert not found.rms_H.any()


def test_a_silent_head_does_not_spoil_the_others():
    _, relative = toeplitz(6, heads=1)
    found = toeplitz_share(torch.cat((relative, torch.zeros(1, 6, 6))))
    assert found.share == pytest.approx(1)
    assert found.share_H[1].isnan()


def test_one_matrix_without_heads_is_one_head():
    values = torch.randn(5, 5)
    assert_close(toeplitz_share(values).share_H, toeplitz_share(values[None]).share_H)
    assert distance_profile(values).mean_HW.shape == (1, 9)


@pytest.mark.parametrize("size", [1, 2])
def test_tiny_maps_do_not_break(size):
    found = toeplitz_share(torch.randn(2, size, size), skip_first=True)
    assert math.isnan(found.share)
    assert math.isnan(found.chance)
    assert len(distance_profile(torch.randn(2, size, size), skip_first=True).distances_W) == size - 1


@pytest.mark.parametrize("function", [distance_profile, toeplitz_share])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 3, 3)])
def test_what_is_no_square_map_is_refused(function, shape):
    with pytest.raises(ValueError, match="values must be"):
        function(torch.zeros(shape))


def test_what_is_not_finite_is_refused():
    for function in (distance_profile, toeplitz_share):
        with pytest.raises(ValueError, match="finite"):
            function(torch.full((2, 3, 3), torch.nan))
