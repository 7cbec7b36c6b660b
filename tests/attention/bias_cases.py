"""Masks and biases of every kind, and a backend's output and gradients against the slow attention in float64."""

import torch

from wordorder.attention import attention
from wordorder.encodings import Terms
from wordorder.ops import Contiguous, DenseBias, LowRankBias, Mask, Packed, ToeplitzBias

# float64 1e-12, float32 2e-6, bfloat16 2e-2 of the largest element
BOUND = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2}
HEADS, CHANNELS = 2, 16


def masks(T, S):
    """By name: who sees whom among T queries and S keys of three examples."""
    query, key = Contiguous(T, S - T), Contiguous(S)
    right, left = torch.ones(3, S, dtype=torch.bool), torch.ones(3, S, dtype=torch.bool)
    right[0, S - S // 3 :] = False
    right[1] = False  # fully masked
    left[0, : S // 3] = False
    left[2, : S // 5] = False
    packed = [Packed(torch.arange(n)[None].expand(3, -1), torch.arange(n).expand(3, -1) // 7) for n in (T, S)]
    some = torch.rand(3, 1, T, S, generator=torch.Generator().manual_seed(0)) < 0.7
    some[1, :, : T // 2 + 1] = False
    return {
        "all": None,
        "padded on the right": Mask(query, key, tokens_BS=right),
        "padded on the left": Mask(query, key, tokens_BS=left),
        "causal": Mask(query, key, high=0),
        "causal and padded": Mask(query, key, high=0, tokens_BS=right),
        "causal by offsets": Mask(
            Contiguous(T, torch.tensor([0, -3, 2])), Contiguous(S, torch.tensor([0, -3, 2])), high=0
        ),
        "packed": Mask(*packed),
        "ahead": Mask(Contiguous(T), Contiguous(S, max(0, T - S + 1)), low=1),
        "ahead and padded": Mask(Contiguous(T, 2), Contiguous(S), low=1, tokens_BS=left),
        "within": Mask(query, key, low=-8, high=0, tokens_BS=right),
        "window on both sides": Mask(query, key, low=-8, high=8, tokens_BS=left),
        "tensor": some,
        "tensor per head": some.expand(-1, HEADS, -1, -1).clone(),
    }


def tensors(T, S, dtype):
    """Queries, keys, values in the layout of a network, and what biases are made of."""
    q, k, v = (torch.randn(3, n, HEADS, c).transpose(1, 2) for n, c in ((T, CHANNELS), (S, CHANNELS), (S, 11)))
    factors = 0.6 * torch.randn(1, HEADS, T, 5), 0.6 * torch.randn(1, HEADS, S, 5)
    own = 0.6 * torch.randn(3, HEADS, T, 2), 0.6 * torch.randn(3, HEADS, S, 2)
    table, matrix = 0.6 * torch.randn(HEADS, T + S - 1), 0.6 * torch.randn(1, 1, T, S)
    per_example = 0.6 * torch.randn(3, HEADS, T, S)
    return [x.to(dtype) for x in (q, k, v, *factors, *own, table, matrix, per_example)]


BIASES = {
    "none": lambda q, k, v, a, c, e, f, t, m, x: None,
    "low rank": lambda q, k, v, a, c, e, f, t, m, x: LowRankBias(a, c),
    "toeplitz": lambda q, k, v, a, c, e, f, t, m, x: ToeplitzBias(t, q.shape[2]),
    "low rank + toeplitz": lambda q, k, v, a, c, e, f, t, m, x: LowRankBias(a, c) + ToeplitzBias(t, q.shape[2]),
    "per example": lambda q, k, v, a, c, e, f, t, m, x: LowRankBias(e, f) + DenseBias(x),
    "everything": lambda q, k, v, a, c, e, f, t, m, x: (
        LowRankBias(a, c) + ToeplitzBias(t, q.shape[2]) + DenseBias(m) + LowRankBias(e, f)
    ),
}


def run(made, bias, mask, backend, upstream, *, return_lse=False, dtype=None):
    """Output, log-sum-exp if asked for, and the gradient of everything that the bias and the call are made of."""
    leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in made]
    order = Terms(0.3, BIASES[bias](*leaves))
    got = attention(*leaves[:3], order, mask, backend=backend, return_lse=return_lse)
    outputs = list(got) if return_lse else [got]
    if return_lse:
        outputs[1] = outputs[1].masked_fill(outputs[1] == -torch.inf, 0)
    used = leaves[:3] + list(order.bias.tensors if order.bias else ())
    gradients = torch.autograd.grad(outputs, used, [u.to(y.dtype) for u, y in zip(upstream, outputs, strict=False)])
    return [*outputs, *gradients]


def assert_within(ours, exact, dtype, least=0.0):
    """Within the bound of the dtype, of the largest element; what is exactly 0 is a difference of numbers about 1."""
    largest = max(exact.abs().max().item(), least)
    assert (ours.double() - exact).abs().max().item() <= BOUND[dtype] * (largest if largest > 1e-9 else 3.0)


def assert_equal_to_the_slow_one(made, bias, mask, backend, return_lse=False):
    T = made[0].shape[2]
    upstream = [torch.randn(3, HEADS, T, 11).to(made[0].dtype), torch.randn(3, HEADS, T)]
    fast = run(made, bias, mask, backend, upstream, return_lse=return_lse)
    slow = run(made, bias, mask, "reference", upstream, return_lse=return_lse, dtype=torch.float64)
    for ours, exact in zip(fast, slow, strict=True):
        assert_within(ours, exact, made[0].dtype)
