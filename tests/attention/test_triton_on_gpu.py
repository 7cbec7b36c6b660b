"""The Triton kernels on a GPU, with the blocks of the table, against the slow attention in float64."""

from dataclasses import replace

import pytest
import torch
from bias_cases import BIASES, HEADS, masks

from wordorder import Decoder
from wordorder.attention import attention
from wordorder.encodings import Terms, build_encoding
from wordorder.memory import LookAheadMemory
from wordorder.networks import initialise
from wordorder.ops import Contiguous, LowRankBias, ToeplitzBias

pytestmark = pytest.mark.gpu
# of the largest element
BOUND = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def on_gpu(mask):
    """A mask whose tensors lie on the GPU."""
    if isinstance(mask, torch.Tensor):
        return mask.cuda()
    if mask is None or mask.tokens_BS is None:
        return mask
    return replace(mask, tokens_BS=mask.tokens_BS.cuda())


def leaves_of(T, S, channels, dtype):
    q, k, v = (torch.randn(3, HEADS, n, channels, device="cuda").to(dtype) for n in (T, S, S))
    ranks = ((1, channels + 2), (3, 14))  # together the most that the kernels take
    a, e = (torch.randn(b, HEADS, T, rank, device="cuda") / channels**0.5 for b, rank in ranks)
    c, f = (torch.randn(b, HEADS, S, rank, device="cuda") for b, rank in ranks)
    table, matrix = torch.randn(HEADS, T + S - 1, device="cuda"), torch.randn(1, 1, T, S, device="cuda")
    return [q, k, v, a, c, e, f, table, matrix, torch.randn(3, HEADS, T, S, device="cuda")]


def compare(made, bias, mask, dtype):
    upstream = torch.randn(*made[0].shape[:3], made[2].shape[-1], device="cuda")
    found = []
    for backend, wide in (("triton", None), ("reference", torch.float64)):
        leaves = [x.detach().to(wide or x.dtype).requires_grad_() for x in made]
        terms = Terms(made[0].shape[-1] ** -0.5, BIASES[bias](*leaves))
        wanted = leaves[:3] + list(terms.bias.tensors if terms.bias else ())
        out = attention(*leaves[:3], terms, mask, backend=backend)
        found.append([out, *torch.autograd.grad(out, wanted, upstream.to(out.dtype))])
    # of one pair the gradients of q and k are 0 in exact arithmetic: a difference of two sums about 1
    least = 1.0 if made[0].shape[2] == 1 else 1e-3
    for ours, exact in zip(*found, strict=True):
        assert (ours.double() - exact).abs().max() <= BOUND[dtype] * exact.abs().max().clamp(min=least)


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("mask", list(masks(1, 1)))
@pytest.mark.parametrize("bias", ["none", "low rank + toeplitz", "everything"])
def test_every_mask(dtype, mask, bias):
    compare(leaves_of(200, 213, 64, dtype), bias, on_gpu(masks(200, 213)[mask]), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels", [16, 32, 80, 128])
@pytest.mark.parametrize("T", [1, 63, 513])
def test_every_width_and_length(dtype, channels, T):
    compare(leaves_of(T, T, channels, dtype), "low rank + toeplitz", on_gpu(masks(T, T)["causal and padded"]), dtype)


def test_wide_heads_without_gradients():
    q, k, v = (torch.randn(2, 2, 300, 256, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    terms = Terms(1 / 16, ToeplitzBias(torch.randn(2, 599, device="cuda"), 300))
    with torch.no_grad():
        ours, slow = (attention(q, k, v, terms, backend=backend) for backend in ("triton", "reference"))
    assert (ours - slow).abs().max() <= 2e-2 * slow.abs().max()


def test_grouped_heads():
    q, k, v = (torch.randn(2, heads, 200, 64, device="cuda", dtype=torch.bfloat16) for heads in (6, 2, 2))
    made = [x.requires_grad_() for x in (q, k, v)]
    found = [
        torch.autograd.grad(attention(*made, is_causal=True, backend=backend).square().sum(), made)
        for backend in ("triton", "reference")
    ]
    for ours, slow in zip(*found, strict=True):
        assert (ours - slow).abs().max() <= 2e-2 * slow.abs().max()


def test_dropout_is_the_same_in_both_passes():
    q, k = (torch.randn(2, 2, 128, 64, device="cuda", requires_grad=True) for _ in range(2))
    v = torch.eye(128, device="cuda")[:, :64].expand(2, 2, 128, 64).clone().requires_grad_()
    torch.manual_seed(0)
    first = attention(q, k, v, dropout=0.3, backend="triton")
    torch.manual_seed(0)
    again = attention(q, k, v, dropout=0.3, backend="triton")
    assert torch.equal(first, again)
    kept = first.detach() > 0
    weights = (q @ k.mT / 8).softmax(-1)[..., :64]
    slow = weights * kept / 0.7
    for ours, exact in zip(
        torch.autograd.grad(first.square().sum(), [q, k]), torch.autograd.grad(slow.square().sum(), [q, k]), strict=True
    ):
        assert (ours - exact).abs().max() <= 1e-4 * exact.abs().max()


def test_deterministic_algorithms_repeat_the_gradient_of_a_table():
    q, k, v = (torch.randn(4, 4, 1000, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    table = torch.randn(4, 1999, device="cuda", requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        terms = Terms(0.125, ToeplitzBias(table, 1000))
        found = [
            torch.autograd.grad(attention(q, k, v, terms, backend="triton").float().square().sum(), table)[0]
            for _ in range(3)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_compiled_without_a_graph_break():
    encoding = build_encoding("tupe-r", width=128, heads=2, layers=1, max_positions=200, use="encoder")
    initialise(encoding, seed=0, std=0.3)
    encoding.cuda()
    leaves = [torch.randn(2, 2, 200, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def step(q, k, v):
        return attention(q, k, v, encoding.prepare(Contiguous(200), device=q.device), backend="triton")

    wanted = [*leaves, *encoding.parameters()]
    ours = torch.autograd.grad(torch.compile(step, fullgraph=True)(*leaves).float().square().sum(), wanted)
    plain = torch.autograd.grad(step(*leaves).float().square().sum(), wanted)
    for one, other in zip(ours, plain, strict=True):
        assert (one - other).abs().max() <= 2e-2 * other.abs().max()


def test_a_look_ahead_memory():
    network = Decoder(
        50,
        width=128,
        heads=2,
        layers=2,
        max_positions=400,
        encoding="transformer-xl",
        memory=LookAheadMemory(length=64),
    )
    network = network.cuda().eval()
    segments, found = [torch.randint(5, 50, (2, n), device="cuda") for n in (60, 128, 33)], []
    for backend in (None, "reference"):
        network.zero_grad()
        memory, outputs = None, []
        for ids in segments:
            step = network(ids, memory=memory, backend=backend)
            memory, outputs = step.memory, [*outputs, step.hidden]
        torch.cat(outputs, 1).square().mean().backward()
        found.append([*outputs, *(p.grad for p in network.parameters() if p.grad is not None)])
    for ours, slow in zip(*found, strict=True):
        assert (ours - slow).abs().max() <= 1e-4 * slow.abs().max().clamp(min=1e-4)


def test_memory_grows_with_the_length():
    peaks = []
    for N in (8192, 16384):
        leaves = [torch.randn(1, 2, N, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        factors = [torch.randn(1, 2, N, 66, device="cuda", requires_grad=True) for _ in range(2)]
        table = torch.randn(2, 2 * N - 1, device="cuda", requires_grad=True)
        terms = Terms(0.125, LowRankBias(*factors) + ToeplitzBias(table, N))
        attention(*leaves, terms, backend="triton").sum().backward()
        torch.cuda.reset_peak_memory_stats()
        attention(*leaves, terms, backend="triton").sum().backward()
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 2.2 * peaks[0]
