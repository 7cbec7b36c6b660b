"""Far and near parts on a GPU, by torch's own kernels, against the slow attention in float64."""

import pytest
import torch
from bias_cases import HEADS

from wordorder.attention import attention
from wordorder.encodings import Terms
from wordorder.ops import Contiguous, LowRankBias, Mask, ToeplitzBias

pytestmark = pytest.mark.gpu
BOUND = {torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}
"""Of the largest element."""
FAR = 50


def made(T, S, channels, rank, dtype):
    shapes = [(3, HEADS, n, channels) for n in (T, S, S)] + [(1, HEADS, n, rank) for n in (T, S)]
    tensors = [torch.randn(*shape, device="cuda") for shape in shapes]
    return (
        [x.to(dtype) for x in tensors[:3]],
        [0.3 * x for x in tensors[3:]],
        torch.randn(HEADS, 2 * FAR + 1, device="cuda"),
    )


def run(backend, qkv, factors, numbers, mask, wide, **how):
    leaves = [x.detach().to(wide or x.dtype).requires_grad_() for x in (*qkv, *factors, numbers)]
    T, S = leaves[0].shape[2], leaves[1].shape[2]
    zero = T - 1 - (mask.key.offset - mask.query.offset)
    column_W = (torch.arange(T + S - 1, device="cuda") - zero).clamp(-FAR, FAR) + FAR
    table = ToeplitzBias(leaves[5][:, column_W], T, may_hide=False, edges=(zero - FAR, zero + FAR))
    terms = Terms(leaves[0].shape[-1] ** -0.5, LowRankBias(*leaves[3:5]) + table)
    torch.manual_seed(3)
    output, lse = attention(*leaves[:3], terms, mask, backend=backend, return_lse=True, **how)
    upstream = torch.randn(output.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    total = (output * upstream.to(output.dtype)).sum() + lse.masked_fill(lse == -torch.inf, 0).sum()
    return [output, *torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("channels", [24, 64, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("T", "S"), [(400, 400), (130, 333)])
def test_output_and_every_gradient(dtype, channels, causal, padded, T, S):
    tokens = torch.ones(3, S, dtype=torch.bool, device="cuda")
    tokens[0, S - S // 3 :], tokens[1, : S // 4] = False, False
    mask = Mask(Contiguous(T, S - T), Contiguous(S), high=0 if causal else None, tokens_BS=tokens if padded else None)
    qkv, factors, numbers = made(T, S, channels, 16, dtype)
    fast = run("far-and-near", qkv, factors, numbers, mask, None)
    slow = run("reference", qkv, factors, numbers, mask, torch.float64)
    for ours, exact in zip(fast, slow, strict=True):
        assert (ours.double() - exact).abs().max() <= BOUND[dtype] * exact.abs().max()


def test_dropout_drops_as_much_as_it_says_and_is_drawn_anew():
    T, dropout = 256, 0.25
    (q, k, _), factors, numbers = made(T, T, T, 0, torch.float32)
    v = torch.eye(T, device="cuda").expand(3, HEADS, -1, -1)
    mask = Mask(Contiguous(T), Contiguous(T))
    first, second = (run("far-and-near", (q, k, v), factors, numbers, mask, None, dropout=dropout)[0] for _ in range(2))
    assert torch.equal(first, second)  # of one seed
    assert abs((first == 0).float().mean() - dropout) < 0.01
