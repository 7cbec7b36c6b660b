"""FlexAttention: the plain function on the CPU shows what is computed; speed and gradients need a GPU."""

import pytest
import torch
from torch.testing import assert_close

from wordorder.attention import attention
from wordorder.encodings import Terms, build_encoding
from wordorder.networks import initialise
from wordorder.ops import Contiguous, Mask, Packed

quiet = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def example(N, name="tupe-r", device="cpu", dtype=torch.float32, channels=16, std=0.3):
    encoding = build_encoding(name, width=2 * channels, heads=2, layers=1, max_positions=N, use="encoder")
    initialise(encoding, seed=0, std=std)
    encoding.to(device)
    q, k, v = (torch.randn(2, 2, N, channels, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    valid = torch.arange(N, device=device) < torch.tensor([[N], [N - N // 3]], device=device)
    where = Contiguous(N)
    rows = torch.arange(N, device=device).expand(2, -1)
    packed = Packed(rows, rows // 7)
    masks = {
        "all": None,
        "padded": Mask(where, where, tokens_BS=valid),
        "causal": Mask(where, where, high=0, tokens_BS=valid),
        "packed": Mask(packed, packed),
        "ahead": Mask(where, where, low=1),
        "within": Mask(where, where, low=-8, high=0, tokens_BS=valid),
        "window on both sides": Mask(where, where, low=-8, high=8, tokens_BS=valid),
        "tensor": (torch.rand(2, 1, N, N, device=device) < 0.8) | torch.eye(N, device=device, dtype=torch.bool),
    }
    return encoding, (q, k, v), masks


@quiet
@pytest.mark.parametrize("name", ["tupe-a", "tupe-r", "t5", "alibi", "rope", "rope+tupe-a"])
@pytest.mark.parametrize("mask", ["all", "padded", "causal", "packed", "ahead", "within", "tensor"])
@pytest.mark.parametrize("N", [1, 37])
def test_output_equals_the_slow_one(name, mask, N):
    encoding, leaves, masks = example(N, name)
    q, k, v = (leaf.detach() for leaf in leaves)  # on a CPU FlexAttention refuses tensors that could want a gradient
    with torch.no_grad():
        order = encoding.prepare(Contiguous(N))
        ours = attention(q, k, v, order, masks[mask], backend="flex")
        assert_close(ours, attention(q, k, v, order, masks[mask], backend="reference"), rtol=1e-5, atol=1e-5)


def compare_gradients(backend, mask, N, device):
    """Hold a backend in bfloat16 to the slow one: five roundings of at most 2 ** -8, of the largest element.

    With weights of 0.05 a bias is about 1, as scores are. At 0.3 it reaches 46 on 128 channels, which bfloat16 rounds
    by up to 0.125: a weight is then off by 13% in every backend, and no gradient is wrong.
    """
    encoding, leaves, masks = example(N, device=device, dtype=torch.bfloat16, channels=64, std=0.05)
    names = ["output", "q", "k", "v", *(name for name, _ in encoding.named_parameters())]
    upstream, results = torch.randn_like(leaves[0]), []
    for chosen in (backend, "reference"):
        bias = encoding.prepare(Contiguous(N), device=torch.device(device))
        out = attention(*leaves, bias, masks[mask], backend=chosen)
        values = [out, *torch.autograd.grad(out, [*leaves, *encoding.parameters()], upstream)]
        results.append(dict(zip(names, values, strict=True)))
    ours, slow = results
    # one number added to all scores of a query changes nothing: this gradient is 0 in exact arithmetic, a sum of
    # T x S terms that cancel, and only as near to 0 as the sums of the queries' bias, of the same size, are exact
    (zero,) = (name for name in names if name.endswith("key_projection.bias"))
    size_of = {name: value.abs().max() for name, value in slow.items()}
    size_of[zero] = size_of[zero.replace("key_", "query_")]
    for name in names:
        assert (ours[name] - slow[name]).abs().max() <= 2e-2 * size_of[name], name


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("mask", ["all", "padded", "causal"])
@pytest.mark.parametrize("N", [63, 200, 513])
def test_gradients_on_a_gpu_equal_the_slow_ones(backend, mask, N):
    compare_gradients(backend, mask, N, "cuda")


@pytest.mark.parametrize("mask", ["all", "padded", "causal"])
def test_gradients_in_bfloat16_equal_the_slow_ones_on_a_cpu_too(mask):
    compare_gradients("sdpa", mask, 63, "cpu")


@pytest.mark.gpu
def test_memory_on_a_gpu_grows_with_the_length():
    peaks = []
    for N in (4096, 8192):
        encoding, leaves, _ = example(N, device="cuda", dtype=torch.bfloat16, channels=64)
        order: Terms = encoding.prepare(Contiguous(N), device=torch.device("cuda"))
        attention(*leaves, order, backend="flex").sum().backward()
        torch.cuda.reset_peak_memory_stats()
        attention(
            *leaves, encoding.prepare(Contiguous(N), device=torch.device("cuda")), backend="flex"
        ).sum().backward()
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 2.5 * peaks[0]
