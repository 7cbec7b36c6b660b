import cmath
import math
from itertools import product

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import LinearScaledRotary, NTKAwareRotary, Rotary, YaRNRotary


def rotary_from_paper(x_BHTD, positions_BT, base, *, frequency=None):
    out, D = torch.empty_like(x_BHTD, dtype=torch.float64), x_BHTD.shape[-1]
    frequency = frequency or (lambda i: base ** (-2 * i / D))
    for (b, t), i in product(np.ndindex(*positions_BT.shape), range(D // 2)):
        pair = torch.complex(x_BHTD[b, :, t, i].double(), x_BHTD[b, :, t, i + D // 2].double())
        turned = pair * cmath.exp(1j * float(positions_BT[b, t]) * frequency(i))
        out[b, :, t, i], out[b, :, t, i + D // 2] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("T", "base"), [(1, 1e4), (63, 1e4), (63, 5e5)])
def test_output_and_gradient_match_the_paper(T, base, dtype):
    x, positions = torch.randn(2, 3, T, 8, dtype=dtype, requires_grad=True), torch.arange(T).expand(2, T) - 5
    ours, paper = Rotary(8, base=base).rotate(x, positions), rotary_from_paper(x, positions, base)
    assert_close(ours, paper.to(dtype))
    upstream = torch.randn(2, 3, T, 8, dtype=dtype)
    assert_close(*(torch.autograd.grad(y, x, upstream.to(y.dtype))[0] for y in (ours, paper)))


def test_scores_depend_on_distance_alone():
    rope, q, k = Rotary(16), torch.randn(1, 1, 5, 16).double(), torch.randn(1, 1, 5, 16).double()
    positions = torch.arange(5)[None]
    here = rope.rotate(q, positions) @ rope.rotate(k, positions).mT
    far = rope.rotate(q, positions + 1000) @ rope.rotate(k, positions + 1000).mT
    assert_close(here, far, rtol=1e-10, atol=1e-10)


def test_linear_scaling_divides_positions():
    x, positions = torch.randn(1, 1, 9, 8).double(), torch.arange(9)[None]
    assert_close(LinearScaledRotary(8, factor=4.0).rotate(x, 4 * positions), Rotary(8).rotate(x, positions))


def test_ntk_keeps_the_fastest_pair_and_divides_the_slowest():
    x, positions = torch.randn(1, 1, 9, 8).double(), torch.arange(9)[None]
    paper = rotary_from_paper(x, positions, None, frequency=lambda i: (1e4 * 4 ** (8 / 6)) ** (-2 * i / 8))
    assert_close(NTKAwareRotary(8, factor=4.0).rotate(x, positions), paper)
    plain, ntk = (r.frequencies(dtype=torch.float64, device=None) for r in (Rotary(8), NTKAwareRotary(8, factor=4.0)))
    assert ntk[0] == plain[0]
    assert_close(ntk[-1], plain[-1] / 4)


@pytest.mark.parametrize(("D", "N", "s"), [(16, 256, 8.0), (16, 40, 2.0), (64, 4096, 16.0)])
def test_yarn_ramps_by_dimension_as_the_published_checkpoints_do(D, N, s):
    x, positions = torch.randn(1, 1, 9, D).double(), torch.arange(9)[None]
    # the pair of r turns: base ** (-2 i / D) * N / (2 pi) = r
    low, high = (D * math.log(N / (2 * math.pi * turns)) / (2 * math.log(1e4)) for turns in (32, 1))
    low, high = max(math.floor(low), 0), min(math.ceil(high), D - 1)

    def frequency(i):
        keep = min(max((high - i) / (high - low), 0), 1)
        return 1e4 ** (-2 * i / D) * (keep + (1 - keep) / s)

    paper = rotary_from_paper(x, positions, None, frequency=frequency) * (0.1 * math.log(s) + 1)
    assert_close(YaRNRotary(D, max_positions=N, factor=s).rotate(x, positions), paper)
    assert_close(YaRNRotary(D, max_positions=8 * N, original_positions=N, factor=s).rotate(x, positions), paper)


@pytest.mark.parametrize(("D", "N", "s"), [(8, 4, 2.0), (64, 512, 4.0), (128, 4096, 16.0)])
def test_yarn_has_the_frequencies_of_transformers(D, N, s):
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    parameters = {"rope_type": "yarn", "rope_theta": 1e4, "factor": s, "original_max_position_embeddings": N}
    config = LlamaConfig(
        hidden_size=2 * D, num_attention_heads=2, max_position_embeddings=int(N * s), rope_parameters=parameters
    )
    theirs, magnitude = rope.ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    yarn = YaRNRotary(D, max_positions=N, factor=s)
    assert_close(yarn.frequencies(dtype=torch.float32, device=None), theirs, rtol=1e-6, atol=0)
    assert yarn.magnitude() == magnitude


def test_yarn_without_slow_pairs_is_finite():
    assert YaRNRotary(8, max_positions=64, alpha=0).frequencies(dtype=torch.float32, device=None).isfinite().all()


def test_yarn_by_turns():
    x, positions, N, s = torch.randn(1, 1, 9, 16).double(), torch.arange(9)[None], 256, 8.0

    def frequency(i):
        w = 1e4 ** (-2 * i / 16)
        gamma = min(max((N * w / (2 * math.pi) - 1) / (32 - 1), 0), 1)
        return (1 - gamma) * w / s + gamma * w

    paper = rotary_from_paper(x, positions, None, frequency=frequency) * (0.1 * math.log(s) + 1)
    assert_close(YaRNRotary(16, max_positions=N, factor=s, ramp="turns").rotate(x, positions), paper)


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: Rotary(7), "head_dim"),
        (lambda: Rotary(8, base=1.0), "base"),
        (lambda: LinearScaledRotary(8, factor=0.5), "factor"),
        (lambda: NTKAwareRotary(2), "head_dim"),
        (lambda: YaRNRotary(8, max_positions=0), "original_positions"),
        (lambda: YaRNRotary(8, max_positions=8, alpha=4, beta=2), "alpha"),
        (lambda: YaRNRotary(8, max_positions=8, ramp="linear"), "ramp"),
        (lambda: Rotary(8).rotate(torch.zeros(1, 1, 2, 6), torch.arange(2)), "head_dim"),
    ],
)
def test_wrong_arguments_are_named(build, word):
    with pytest.raises(ValueError, match=word):
        build()
