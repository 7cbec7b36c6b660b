"""What far-and-near does on a GPU, on a CPU: slow operators of torch's names and signatures stand in for the GPU's.

They refuse what the GPU's refuse, and draw dropout. What is left to be tested on a GPU is that torch's own are right.
"""

import math

import pytest
import torch
from bias_cases import HEADS
from test_far_and_near import BIASES, BOUND, FAR, assert_exact, masks, outputs_and_gradients, table_of
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from wordorder.attention import Call, attend, attention, plan_attention
from wordorder.attention.backends import far_and_near
from wordorder.attention.backends.far_and_near import FarAndNear, band, kernels, near, passes, regions
from wordorder.encodings import Terms
from wordorder.ops import Contiguous, LowRankBias, Mask, ToeplitzBias

KERNELS = {"flash": kernels.FlashOnGPU, "efficient": kernels.EfficientOnGPU}


def weights_of(q, k, is_causal, scale, lse=None):
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = scale * q.to(wide) @ k.to(wide).transpose(-1, -2)
    if is_causal:
        assert q.shape[2] == k.shape[2], "FlashAttention aligns a triangle of other lengths at its end"
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    lse = scores.logsumexp(-1) if lse is None else lse
    return (scores - lse[..., None]).exp(), lse


def check(*tensors):
    for tensor in tensors:
        assert tensor.dim() == 4
        assert tensor.stride(-1) == 1
        assert tensor.shape[-1] == tensors[0].shape[-1] <= 256
        assert tensor.shape[-1] % 8 == 0


def kept(weights, dropout, seed):
    if not dropout:
        return torch.ones_like(weights)
    generator = torch.Generator().manual_seed(int(seed))
    return (torch.rand(weights.shape, generator=generator) >= dropout).to(weights.dtype) / (1 - dropout)


def forward(q, k, v, dropout, is_causal, scale):
    check(q, k, v)
    weights, lse = weights_of(q, k, is_causal, scale)
    seed = torch.randint(2**40, ())
    return ((weights * kept(weights, dropout, seed)) @ v.to(weights.dtype)).to(q.dtype), lse, seed


def backward(do, q, k, v, output, lse, dropout, is_causal, seed, scale):
    check(do, q, k, v, output)
    weights, _ = weights_of(q, k, is_causal, scale, lse)
    do, q, k, v, output = (x.to(weights.dtype) for x in (do, q, k, v, output))
    keep = kept(weights, dropout, seed)
    dv = (weights * keep).transpose(-1, -2) @ do
    ds = weights * (keep * (do @ v.transpose(-1, -2)) - (do * output).sum(-1, keepdim=True))
    return scale * ds @ k, scale * ds.transpose(-1, -2) @ q, dv


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    output, lse, seed = forward(q, k, v, dropout_p, is_causal, scale)
    nothing = torch.empty(0)
    return output, lse, nothing, nothing, q.shape[2], k.shape[2], seed, nothing, nothing


def flash_backward(
    do, q, k, v, output, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    assert lse.is_contiguous()
    assert (max_q, max_k) == (q.shape[2], k.shape[2])
    return tuple(x.to(q.dtype) for x in backward(do, q, k, v, output, lse, dropout_p, is_causal, seed, scale))


def efficient(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    assert attn_bias is None
    assert compute_log_sumexp
    output, lse, seed = forward(q, k, v, dropout_p, is_causal, scale)
    return output, torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=torch.inf), seed, torch.empty(0)


def efficient_backward(
    do, q, k, v, attn_bias, output, lse, seed, offset, dropout_p, grad_input_mask, is_causal=False, *, scale=None
):
    assert attn_bias is None or attn_bias.numel() == 0
    assert lse.is_contiguous()
    assert lse.shape[-1] == 32 * math.ceil(q.shape[2] / 32)
    assert grad_input_mask == [True, True, True, False]
    lse = lse[..., : q.shape[2]]
    gradients = backward(do, q, k, v, output, lse, dropout_p, is_causal, seed, scale)
    return *(x.to(q.dtype) for x in gradients), torch.empty(0)


@pytest.fixture(params=list(KERNELS))
def gpu(request, monkeypatch):
    """Take a GPU's kernel and blocks, here of a few rows and heads, on the CPU."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention", flash, "CPU")
    library.impl("_scaled_dot_product_flash_attention_backward", flash_backward, "CPU")
    library.impl("_scaled_dot_product_efficient_attention", efficient, "CPU")
    library.impl("_scaled_dot_product_efficient_attention_backward", efficient_backward, "CPU")
    monkeypatch.setattr(passes, "kernel_of", lambda device, dtype: KERNELS[request.param]())
    monkeypatch.setattr(
        regions,
        "near_keys",
        lambda mask, low, high, call: band.Band(low, high, call.queries, call.keys, mask.tokens_BS, call.device),
    )
    monkeypatch.setattr(band, "ROWS", 8)
    monkeypatch.setattr(near, "MOST_SCORES", 2000)
    monkeypatch.setattr(FarAndNear, "refusal", lambda self, call: None)
    yield request.param
    library._destroy()


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("bias", list(BIASES))
@pytest.mark.parametrize("mask", list(masks(1, 1)))
@pytest.mark.parametrize(("T", "S"), [(41, 41), (13, 40), (40, 13), (5, 5), (1, 30)])
def test_output_and_every_gradient(gpu, dtype, bias, mask, T, S):
    seen, return_lse = masks(T, S)[mask], (T + len(mask)) % 2 == 0
    fast = outputs_and_gradients("far-and-near", (dtype, dtype), T, S, bias, seen, return_lse=return_lse)
    slow = outputs_and_gradients("reference", (dtype, torch.float64), T, S, bias, seen, return_lse=return_lse)
    assert_exact(fast, slow, dtype)


@pytest.mark.parametrize("mask", ["all", "causal", "padded on the left"])
def test_dropout_is_the_same_in_both_passes(gpu, mask):
    """Values that are the identity show what was dropped; autograd over those weights gives the gradients."""
    T, dropout = 40, 0.3
    seen, dtype = masks(T, T)[mask], torch.float64
    q, k = (torch.randn(3, HEADS, T, 6, dtype=dtype, requires_grad=True) for _ in range(2))
    numbers, a, c = (
        (0.5 * torch.randn(*shape, dtype=dtype)).requires_grad_()
        for shape in ((HEADS, 2 * FAR + 1), (1, HEADS, T, 3), (1, HEADS, T, 3))
    )
    v = torch.eye(T, dtype=dtype).expand(3, HEADS, -1, -1).clone().requires_grad_()
    upstream = torch.randn(3, HEADS, T, T, dtype=dtype)
    terms = Terms(0.4, LowRankBias(a, c) + table_of(numbers, T, T, seen))
    dropped = attention(q, k, v, terms, seen, backend="far-and-near", dropout=dropout)
    whole = attention(q, k, v, terms, seen, backend="reference")
    is_kept = dropped != 0
    assert abs(is_kept.sum() / (whole != 0).sum() - (1 - dropout)) < 0.03
    assert_close(dropped, whole * is_kept / (1 - dropout))
    near_part = (torch.arange(T) - torch.arange(T)[:, None]).abs() < FAR
    for part in (near_part, ~near_part):
        seen_there = (whole != 0) & part
        assert 0.6 < (is_kept & seen_there).sum() / seen_there.sum() < 0.8
    leaves = [q, k, numbers, a, c]
    *ours, of_values = torch.autograd.grad(dropped, [*leaves, v], upstream, retain_graph=True)
    assert_close(of_values, dropped.transpose(-1, -2) @ upstream)
    exact = torch.autograd.grad(whole * is_kept / (1 - dropout), leaves, upstream)
    for gradient, expected in zip(ours, exact, strict=True):
        assert_close(gradient, expected, rtol=0, atol=1e-12 * max(1.0, expected.abs().max().item()))


VIEWS = {"view", "slice", "select", "unsqueeze", "expand", "transpose", "as_strided", "unfold", "detach", "alias"}
VIEWS |= {"_unsafe_view", "squeeze", "permute", "split", "_reshape_alias"}


class Counting(TorchDispatchMode):
    """Counts the operators that a GPU would be sent: all but views."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.__name__.split(".")[0] not in VIEWS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("rank", "causal", "most"),
    [(0, True, (52, 64)), (0, False, (67, 97)), (64, True, (65, 85)), (64, False, (80, 124))],
)
def test_operators_of_a_planned_layer(gpu, monkeypatch, rank, causal, most):
    """Forward and backward in bfloat16, table and factors included: what a GPU's host has to do, printed."""
    monkeypatch.setattr(band, "ROWS", 128)
    monkeypatch.setattr(near, "MOST_SCORES", 2**28)
    T = 1024  # one head: a GPU takes all heads at once, a CPU as many as it has threads
    q, k, v = (torch.randn(1, 1, T, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    where, distance = Contiguous(T), torch.arange(1 - T, T).clamp(-127, 127) + 127
    numbers, factors = torch.randn(1, 255), [torch.randn(1, 1, T, rank, requires_grad=True) for _ in range(2)]
    table = ToeplitzBias(numbers[:, distance].requires_grad_(), T, may_hide=False, edges=(T - 128, T + 126))
    terms = Terms(0.125, LowRankBias(*factors) + table if rank else table)
    plan = plan_attention(
        terms, Mask(where, where, high=0 if causal else None), Call.of(q, k, v), backend="far-and-near"
    )
    with Counting() as forward_pass:
        output, _ = attend(q, k, v, plan)
    with Counting() as backward_pass:
        torch.autograd.grad(output, [q, k, v, table.table_HW], torch.ones_like(output))
    counts = forward_pass.count, backward_pass.count
    print(f"operators of a layer: {counts[0]} forward, {counts[1]} backward")
    assert counts[0] <= most[0]
    assert counts[1] <= most[1]


def call_on_gpu(**facts):
    sizes = {"batch": 1, "heads": 4, "queries": 4096, "keys": 4096, "head_dim": 64, "dtype": torch.bfloat16}
    known = {"reach": 255, "bias": "learned", "training": True, "gpu": "sm_90"}
    return Call(**{**sizes, **known, **facts}, device=torch.device("cuda"))


@pytest.mark.parametrize(
    "facts", [{}, {"dropout": 0.1}, {"dtype": torch.float16}, {"dtype": torch.float32}, {"rank": 64}]
)
def test_what_it_can_do_on_a_gpu_is_not_chosen_before_it_is_measured(facts):
    call = call_on_gpu(**facts)
    assert FarAndNear().refusal(call) is None
    assert not FarAndNear().at_home(call)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"dtype": torch.float64}, "bfloat16, float16 or float32 on a GPU"),
        ({"gpu": "sm_75"}, "of compute capability 8.0 or later"),
        ({"gpu": "gfx942"}, "of compute capability 8.0 or later"),
        ({"rank": 193}, "heads of at most 256 channels on sm_90, those of low rank and one for"),
        ({"rank": 192, "return_lse": True}, "included, got 257"),
        ({"rank": 129, "gpu": "sm_89"}, "heads of at most 192 channels on sm_89"),
        ({"content": True, "dtype": torch.float32}, "no terms by content on a GPU"),
        ({"reach": None}, "constant beyond a distance or of low rank, and no window"),
    ],
)
def test_what_it_cannot_do_on_a_gpu_is_refused(facts, words):
    refusal = FarAndNear().refusal(call_on_gpu(**facts))
    assert refusal is not None
    assert words in refusal


def test_operators_that_a_version_of_torch_does_not_have_are_named(monkeypatch):
    monkeypatch.setattr(far_and_near, "OPERATORS", {"cuda": "_no_such_operator"})
    assert f"an operator for cuda that torch {torch.__version__} does not have" in FarAndNear().refusal(call_on_gpu())
