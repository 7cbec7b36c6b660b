import pytest
import torch
from torch.testing import assert_close

from wordorder.ops import merge_read_outs


def read(scores, values):
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("sharpness", [1.0, 200.0])
def test_two_reads_become_one_with_its_gradients(dtype, bound, sharpness):
    scores = (sharpness * torch.randn(2, 3, 5, 9, dtype=dtype)).requires_grad_()
    values = torch.randn(2, 3, 9, 4, dtype=dtype, requires_grad=True)
    parts = read(scores[..., :6], values[..., :6, :]), read(scores[..., 6:], values[..., 6:, :])
    merged, lse, alpha = merge_read_outs(*parts[0], *parts[1])
    whole, whole_lse = read(scores, values)
    assert_close(merged, whole, rtol=bound, atol=bound)
    assert_close(lse, whole_lse, rtol=bound, atol=bound)
    assert_close(alpha, scores.softmax(-1)[..., :6].sum(-1), rtol=0, atol=100 * bound)
    up, up_lse = torch.randn_like(merged), torch.randn_like(lse)
    ours = torch.autograd.grad((merged * up).sum() + (lse * up_lse).sum(), (scores, values))
    theirs = torch.autograd.grad((whole * up).sum() + (whole_lse * up_lse).sum(), (scores, values))
    for our, their in zip(ours, theirs, strict=True):
        assert_close(our, their, rtol=0, atol=100 * bound)


def test_a_set_without_a_key_weighs_nothing():
    old, new = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    none = -torch.inf
    old_lse = torch.tensor([1.0, none, 2.0, none], requires_grad=True)
    new_lse = torch.tensor([none, 1.0, 3.0, none], requires_grad=True)
    merged, lse, alpha = merge_read_outs(old, old_lse, new, new_lse)
    assert_close(alpha[[0, 1, 3]], torch.tensor([1.0, 0.0, 1.0]))
    assert_close(merged[[0, 1, 3]], torch.stack((old[0], new[1], old[3])))
    assert lse.tolist() == pytest.approx([1.0, 1.0, 3.31326, none])
    (merged.sum() + lse[:3].sum()).backward()
    for tensor in (old, new, old_lse, new_lse):
        assert tensor.grad.isfinite().all()


def test_no_overflow_and_at_least_float32():
    old, new = torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.bfloat16)
    merged, lse, alpha = merge_read_outs(old, torch.tensor([3e4, -3e4]), new, torch.tensor([-3e4, 3e4]))
    assert merged.dtype == lse.dtype == alpha.dtype == torch.float32
    assert_close(merged, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert_close(lse, torch.tensor([3e4, 3e4]))


def test_epsilon_is_that_of_the_papers_code():
    old, new, d, m = torch.randn(7, 3), torch.randn(7, 3), torch.randn(7), torch.randn(7)
    larger = torch.maximum(d, m)
    a, b = (d - larger).exp(), (m - larger).exp()
    alpha = a / (a + b + 1e-2)
    merged, lse, ours = merge_read_outs(old, d, new, m, epsilon=1e-2)
    assert_close(ours, alpha)
    assert_close(merged, alpha[:, None] * old + (1 - alpha[:, None]) * new)
    assert_close(lse, torch.logaddexp(d, m))
