import pytest
import torch
from torch.testing import assert_close

from wordorder.ops import pool


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_pooling_sees_tokens_only(kind):
    x = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1]]).bool()
    rows = [x[b][valid[b]] for b in range(4)]
    by_hand = torch.stack([{"mean": r.mean(0), "first": r[0], "last": r[-1]}[kind] for r in rows])
    ours = pool(kind, x, key_padding_mask=~valid)
    assert_close(ours, by_hand)
    upstream = torch.randn_like(by_hand)
    assert_close(*(torch.autograd.grad(y, x, upstream)[0] for y in (ours, by_hand)))
    assert_close(pool(kind, x), pool(kind, x, key_padding_mask=torch.zeros(4, 5, dtype=torch.bool)))


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_a_text_without_tokens_is_zero_even_where_padding_is_not_a_number(kind):
    x = torch.full((2, 3, 4), torch.nan)
    x[1, 1] = 2.0
    valid = torch.tensor([[False, False, False], [False, True, False]])
    assert pool(kind, x, key_padding_mask=~valid).tolist() == [[0.0] * 4, [2.0] * 4]


def test_unknown_pooling_is_named():
    with pytest.raises(ValueError, match="pooling must be one of mean, first, last, got 'max'"):
        pool("max", torch.zeros(1, 1, 1))
