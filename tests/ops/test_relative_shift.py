import pytest
import torch
from torch.testing import assert_close

from wordorder.ops import RelativeBias, RelativeKeyBias, relative_shift


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 4), (4, 1), (2, 2), (5, 3), (7, 7), (3, 9)])
def test_every_number_stands_under_its_key_and_sends_its_gradient_back(T, S):
    product = torch.randn(2, 3, T, T + S - 1, dtype=torch.float64, requires_grad=True)
    ours = relative_shift(product, S)
    slow = torch.stack([torch.stack([product[..., i, j - i + T - 1] for j in range(S)], -1) for i in range(T)], -2)
    assert torch.equal(ours, slow)
    upstream = torch.randn_like(slow)
    ours_grad, slow_grad = (torch.autograd.grad(y, product, upstream)[0] for y in (ours, slow))
    assert_close(ours_grad, slow_grad, rtol=0, atol=0)


def test_the_shift_is_a_view():
    product = torch.randn(2, 3, 5, 11)
    assert relative_shift(product, 7).untyped_storage().data_ptr() == product.untyped_storage().data_ptr()


@pytest.mark.parametrize("T", [2, 5])
def test_the_shift_can_be_traced_at_every_length(T):
    def square(x):
        return relative_shift(x, x.shape[-2]).square()

    compiled = torch.compile(square, backend="eager", dynamic=True, fullgraph=True)
    for length in (T, T + 1):
        x = torch.randn(2, length, 2 * length - 1)
        assert torch.equal(compiled(x), square(x))


@pytest.mark.parametrize(("first", "count"), [(0, 8), (0, 3), (5, 3), (2, 4)])
def test_a_bias_of_some_distances_is_0_at_all_others(first, count):
    T, S = 4, 5
    query, rows = torch.randn(2, 3, T, 6), torch.randn(1, 3, count, 6)
    dense = RelativeBias(query, rows, S, first=first).dense()
    for i in range(T):
        for j in range(S):
            row = j - i + T - 1 - first
            expected = (query[:, :, i] * rows[:, :, row]).sum(-1) if 0 <= row < count else torch.zeros(2, 3)
            assert_close(dense[:, :, i, j], expected)


@pytest.mark.parametrize(("first", "count"), [(0, 8), (0, 3), (5, 3), (2, 4)])
def test_a_bias_that_keys_meet_is_the_same_from_the_other_side(first, count):
    T, S = 4, 5
    key, rows = torch.randn(2, 3, S, 6), torch.randn(1, 3, count, 6)
    bias = RelativeKeyBias(key, rows, T, first=first)
    assert (bias.queries, bias.keys, bias.first) == (T, S, first)
    assert bias.to(torch.float64).dense().dtype == torch.float64
    dense = bias.dense()
    for i in range(T):
        for j in range(S):
            row = i - j + S - 1 - first
            expected = (key[:, :, j] * rows[:, :, row]).sum(-1) if 0 <= row < count else torch.zeros(2, 3)
            assert_close(dense[:, :, i, j], expected)


@pytest.mark.parametrize(("T", "S"), [(9, 14), (14, 9), (20, 20), (1, 30), (30, 1)])
@pytest.mark.parametrize("far", [1, 3])
@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize("side", ["both", "left", "right"])
def test_with_constant_vectors_it_is_the_same(T, S, far, shift, side):
    zero = T - 1 - shift
    first, stop = {"both": (0, T + S - 1), "left": (0, max(zero + 1, 1)), "right": (max(zero, 0), T + S - 1)}[side]
    distance = torch.arange(T + S - 1)[first:stop] - zero
    rows = torch.randn(1, 3, 2 * far + 1, 6, dtype=torch.float64)[:, :, distance.clamp(-far, far) + far]
    query = torch.randn(2, 3, T, 6, dtype=torch.float64)
    bias = RelativeBias(query, rows, S, first=first, edges=(zero - far, zero + far))
    expected = RelativeBias(query, rows, S, first=first).dense()
    assert_close(bias.dense(), expected)
    near = bias.between(zero - far + 1, zero + far).dense()
    i, j = torch.arange(T)[:, None], torch.arange(S)
    is_near = (j - i + shift).abs() < far
    assert_close(near, expected.masked_fill(~is_near, 0))
    for edge, is_far in ((0, j - i + shift <= -far), (1, j - i + shift >= far)):
        if not 0 <= bias.edges[edge] < T + S - 1:
            continue
        constant = bias.constant(edge)
        filled = torch.zeros(2, 3, T, dtype=torch.float64) if constant is None else constant
        assert_close(filled[..., None].expand(-1, -1, -1, S)[..., is_far], expected[..., is_far])


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"T \+ S - 1 = 8 distances, got 9"):
        relative_shift(torch.zeros(4, 9), 5)
    for first, count in ((-1, 3), (6, 3), (0, 9)):
        with pytest.raises(ValueError, match="do not lie within the 8 distances of 4 queries and 5 keys"):
            RelativeBias(torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, count, 2), 5, first=first)
        with pytest.raises(ValueError, match="do not lie within the 8 distances"):
            RelativeKeyBias(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, count, 2), 4, first=first)
