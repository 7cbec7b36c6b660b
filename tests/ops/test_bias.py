import pytest
import torch
from torch.testing import assert_close

from wordorder.ops import DenseBias, LowRankBias, SumBias, ToeplitzBias


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5), (5, 1), (3, 7), (63, 63)])
def test_toeplitz_is_one_number_per_diagonal(queries, keys):
    table = torch.randn(2, queries + keys - 1, dtype=torch.float64, requires_grad=True)
    bias = ToeplitzBias(table, queries).dense()
    by_hand = torch.stack(
        [torch.stack([table[:, j - i + queries - 1] for j in range(keys)], -1) for i in range(queries)], -2
    )
    assert_close(bias[0], by_hand, rtol=0, atol=0)
    upstream = torch.randn_like(by_hand)
    ours, hand = (torch.autograd.grad(y, table, upstream)[0] for y in (bias[0], by_hand))
    assert_close(ours, hand, rtol=1e-12, atol=1e-12)


def test_sums_keep_their_structure():
    low, dense = LowRankBias(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)), DenseBias(torch.randn(6, 2, 3, 5))
    toeplitz = ToeplitzBias(torch.randn(2, 7, requires_grad=True), 3)
    total = low + dense + toeplitz
    assert isinstance(total, SumBias)
    assert total.parts() == (low, dense, toeplitz)
    assert_close(total.dense(), low.dense() + dense.dense() + toeplitz.dense())
    assert total.requires_grad
    assert not (low + dense).requires_grad
    with torch.no_grad():
        assert not total.requires_grad


def test_a_sum_may_hide_where_one_of_its_summands_may():
    factors = LowRankBias(torch.ones(1, 2, 3, 1), torch.ones(1, 2, 3, 1))
    assert SumBias(iter((factors, DenseBias(torch.zeros(1, 2, 3, 3))))).may_hide
    assert not SumBias((factors, DenseBias(torch.zeros(1, 2, 3, 3), may_hide=False))).may_hide
