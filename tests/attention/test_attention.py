import math
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from wordorder import Encoder
from wordorder.attention import Call, attend, attention, attention_weights, plan_attention
from wordorder.encodings import T5, ALiBi, Terms, build_encoding
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Contiguous, DenseBias, Mask, ToeplitzBias

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contribution"))
from row_by_row import RowByRow

WITH_DROPOUT = ["reference", "sdpa", "kept-tiles", "recomputed-tiles"]
ON_CPU = [*WITH_DROPOUT, pytest.param(RowByRow(), id="row-by-row")]
"""The last one is a file of somebody else."""
TOLERANCE = {torch.float64: (1e-12, 1e-12), torch.float32: (1e-5, 1e-5), torch.bfloat16: (2e-2, 2e-2)}


def attention_by_loops(q, k, v, scale, bias, visible):
    """Row by row in float64; returns output and log-sum-exp."""
    q, k, v, bias = (x.double() for x in (q, k, v, bias))
    B, H, T, _ = q.shape
    out, lse = [], []
    for b in range(B):
        for h in range(H):
            for i in range(T):
                seen = [j for j in range(k.shape[2]) if visible[b, 0, i, j]]
                if not seen:
                    out.append((q[b, h, i] * 0).sum() * v[b, h, 0])
                    lse.append(torch.tensor(-math.inf, dtype=torch.float64))
                    continue
                scores = torch.stack(
                    [scale * (q[b, h, i] * k[b, h, j]).sum() + bias[b % len(bias), h, i, j] for j in seen]
                )
                top = scores.max().detach()
                weight = (scores - top).exp()
                out.append(sum(w * v[b, h, j] for w, j in zip(weight, seen, strict=True)) / weight.sum())
                lse.append(top + weight.sum().log())
    return torch.stack(out).view(B, H, T, -1), torch.stack(lse).view(B, H, T)


def inputs(T, S, dtype, seed=0):
    torch.manual_seed(seed)
    shapes = [(2, 3, T, 8), (2, 3, S, 8), (2, 3, S, 5), (1, 3, T, S)]
    q, k, v, bias = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    visible = torch.rand(2, 1, T, S) < 0.7
    visible[0, 0, T // 2] = False  # a query that sees nothing
    visible[1, 0, 0] = True
    return q, k, v, bias, visible


def plan_for(q, k, order, mask, backend):
    return plan_attention(order, mask, Call.of(q, k), backend=backend)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (13, 13), (9, 4)])
def test_output_and_gradients_match_the_equation(backend, dtype, T, S):
    q, k, v, bias, visible = inputs(T, S, dtype)
    ours = attention(q, k, v, Terms(0.3, DenseBias(bias)), visible, backend=backend)
    loops, _ = attention_by_loops(q, k, v, 0.3, bias, visible)
    rtol, atol = TOLERANCE[dtype]
    assert_close(ours.double(), loops, rtol=rtol, atol=atol)
    upstream = torch.randn_like(loops).to(dtype)
    ours_grads, loop_grads = (torch.autograd.grad(y, [q, k, v, bias], upstream.to(y.dtype)) for y in (ours, loops))
    for ours_grad, loop_grad in zip(ours_grads, loop_grads, strict=True):
        bound = atol * max(1.0, loop_grad.double().abs().max().item())
        assert_close(ours_grad.double(), loop_grad.double(), rtol=0, atol=bound)


@pytest.mark.parametrize("backend", [backend for backend in ON_CPU if backend != "sdpa"])
@pytest.mark.parametrize("T", [1, 13])
def test_log_sum_exp_and_its_gradient_match_the_equation(T, backend):
    q, k, v, bias, visible = inputs(T, 7, torch.float64)
    out, lse = attention(q, k, v, Terms(0.3, DenseBias(bias)), visible, return_lse=True, backend=backend)
    loop_out, loop_lse = attention_by_loops(q, k, v, 0.3, bias, visible)
    assert_close(out, loop_out)
    assert_close(lse, loop_lse)
    assert lse[0, 0, T // 2] == -math.inf
    upstream = torch.randn_like(lse)
    finite = lse.isfinite()
    ours, loops = (
        torch.autograd.grad(y[finite].sum() + (y[finite] * upstream[finite]).sum(), [q, k, bias])
        for y in (lse, loop_lse)
    )
    for ours_grad, loop_grad in zip(ours, loops, strict=True):
        assert_close(ours_grad, loop_grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_query_that_sees_nothing_gives_zero_and_sends_no_gradient(backend):
    q, k, v, bias, _ = inputs(4, 5, torch.float32)
    blind = torch.zeros(2, 1, 4, 5, dtype=torch.bool)
    out = attention(q, k, v, Terms(0.3, DenseBias(bias)), blind, backend=backend)
    assert (out == 0).all()
    for gradient in torch.autograd.grad(out.sum() + out.pow(2).sum(), [q, k, v, bias]):
        assert (gradient == 0).all()


def test_log_sum_exp_is_float32_for_bfloat16():
    q, k, v, _, _ = inputs(4, 5, torch.bfloat16)
    out, lse = attention(q, k, v, return_lse=True)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)


def test_autocast_does_not_lower_the_scores():
    q, k, v, _, _ = inputs(4, 5, torch.float32)
    _, exact = attention(q, k, v, return_lse=True)
    with torch.autocast("cpu", torch.bfloat16):
        _, lse = attention(q, k, v, return_lse=True)
    assert lse.dtype == torch.float32
    assert_close(lse, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["none", "rope", "t5", "shaw", "tupe-r", "learned+t5"])
def test_causal_hides_the_future(name):
    encoding = build_encoding(name, width=24, heads=3, layers=1, max_positions=32, use="decoder")
    initialise(encoding, seed=0, std=0.5)
    order = encoding.prepare(Contiguous(9)).layer(0)
    q, k, v = (torch.randn(2, 3, 9, 8) for _ in range(3))
    mask = Mask(Contiguous(9), Contiguous(9), high=0)
    before = attention(q, k, v, order, mask)
    assert_close(before, attention(q, k, v, order, mask, backend="reference"))
    k[:, :, 5:], v[:, :, 5:] = 100.0, 100.0
    assert_close(attention(q, k, v, order, mask)[:, :, :5], before[:, :, :5], rtol=0, atol=0)


def test_grouped_keys_serve_several_query_heads():
    q, k, v = torch.randn(2, 6, 4, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    out = attention(q, k, v)
    for h in range(6):
        assert_close(
            out[:, h : h + 1], attention(q[:, h : h + 1], k[:, h // 3 : h // 3 + 1], v[:, h // 3 : h // 3 + 1])
        )


def test_weights_are_those_that_mix_the_values():
    q, k, v, bias, visible = inputs(6, 7, torch.float64)
    plan = plan_for(q, k, Terms(0.3, DenseBias(bias)), visible, "reference")
    assert_close(attention_weights(q, k, plan) @ v, attend(q, k, v, plan)[0])


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_mask_may_have_any_number_of_axes(backend):
    q, k, v, _, visible = inputs(6, 7, torch.float64)
    full = visible[:1, :, :1].expand(2, 1, 6, 7)
    expected = attention(q, k, v, mask=full, backend="reference")
    for mask in (visible[0, 0, 0], visible[0, :, :1], visible[:1, :, :1]):
        assert_close(attention(q, k, v, mask=mask, backend=backend), expected)
    assert_close(attention(q, k, v, dropout=0.999999, backend="recomputed-tiles").isfinite().all(), torch.tensor(True))


def test_dropout_drops_weights_and_keeps_their_mean():
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4000, 4), torch.ones(1, 1, 4000, 4)
    for backend in WITH_DROPOUT:
        torch.manual_seed(0)
        out = attention(q, k, v, dropout=0.5, backend=backend)
        assert 0.9 < out.mean() < 1.1
        assert not (out == 1).all()


def test_plain_causal_attention_needs_no_mask():
    mask = Mask(Contiguous(5), Contiguous(5), high=0)
    q = torch.zeros(1, 2, 5, 8)
    plan = plan_for(q, q, Terms(0.3), mask, "sdpa")
    assert plan.prepared == (None, True)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda q, k, v: attention(q[0], k, v), "q must be"),
        (lambda q, k, v: attention(q, k[:, :, :2], v), "q must be"),
        (lambda q, k, v: attention(q, k[:, :2], v[:, :2]), "dividing"),
        (lambda q, k, v: attention(q, k, v, mask=torch.zeros(4, 5)), "boolean"),
        (lambda q, k, v: attention(q, k, v, backend="flash"), "backend must be one of"),
        (lambda q, k, v: attention(q, k, v, backend=["sdpa"]), "or a Backend, got"),
        (lambda q, k, v: attention(q, k, v, backend=RowByRow), "or a Backend, got"),
        (lambda q, k, v: attention(q, k, v, backend="sdpa", return_lse=True), "log-sum-exp"),
        (lambda q, k, v: attention(q, k, v, dropout=1.0), "dropout"),
        (lambda q, k, v: attention(q, k, v.double()), "one dtype"),
        (lambda q, k, v: attention(q, k, v, backend="flex"), "CUDA"),
        (lambda q, k, v: attention(q.half(), k.half(), v.half(), backend="kept-tiles"), "bfloat16"),
    ],
)
def test_wrong_arguments_are_named(call, word):
    with pytest.raises(ValueError, match=word):
        call(*inputs(4, 5, torch.float32)[:3])


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("queries", [1, 5])
def test_a_bias_of_other_sizes_is_refused_whatever_the_backend(backend, queries):
    q, k, v, _, _ = inputs(4, 5, torch.float32)
    for bias in (
        ToeplitzBias(torch.randn(3, queries + 4), queries),
        DenseBias(torch.randn(1, 3, queries + 1, 5)),
        ToeplitzBias(torch.randn(2, 8), 4),
        DenseBias(torch.randn(3, 1, 4, 5)),
    ):
        with pytest.raises(BadInput, match="does not fit 2 examples, 3 heads, 4 queries and 5 keys"):
            attention(q, k, v, bias, backend=backend)
        with torch.no_grad(), pytest.raises(BadInput, match="does not fit"):
            attention(q, k, v, bias)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("shape", [(1, 3, 1, 5), (2, 1, 4, 1)])
def test_a_dense_bias_of_one_query_or_key_is_that_of_all(backend, shape):
    q, k, v, _, _ = inputs(4, 5, torch.float64)
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    found = [attention(q, k, v, DenseBias(b), backend=backend) for b in (bias, bias.expand(-1, -1, 4, 5))]
    assert_close(*found, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(found[0])
    gradients = (torch.autograd.grad((out * upstream).sum(), (q, k, v, bias)) for out in found)
    assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_an_encoding_for_other_heads_is_refused():
    q = torch.randn(2, 4, 5, 16)
    for encoding, words in (
        (ALiBi(1), "ALiBi is for 1 heads, got q of 4"),
        (T5(8, head_dim=16), "T5 is for 8 heads, got q of 4"),
        (T5(4, head_dim=8), "heads of 8 channels, got q of 16"),
        *(
            (build_encoding(name, width=32, heads=4, layers=1, max_positions=8), "heads of 8 channels, got q of 16")
            for name in ("none", "t5", "rope")
        ),
    ):
        with pytest.raises(BadInput, match=words):
            attention(q, q, q, encoding)
    prepared = build_encoding("tupe-r", width=32, heads=4, layers=1, max_positions=8).prepare(5)
    with pytest.raises(BadInput, match="heads of 8 channels, got q of 16"):
        attention(q, q, q, prepared)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own, in jvp
def test_torch_func_and_tangents_run_on_a_cpu():
    encoder = Encoder(20, width=16, heads=2, layers=1, encoding="t5").eval().double()
    x, tangent = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)

    def loss(x):
        return encoder(inputs_embeds=x).hidden.square().sum()

    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    assert_close(torch.func.grad(loss)(x), gradient)
    assert_close(torch.func.jvp(loss, (x,), (tangent,))[1], (gradient * tangent).sum())


def test_second_derivatives_are_those_of_the_reference_alone():
    q, k, v, _, _ = inputs(4, 5, torch.float64)
    bias = ToeplitzBias(torch.randn(3, 8, dtype=torch.float64, requires_grad=True), 4)
    (gradient,) = torch.autograd.grad(
        attention(q, k, v, bias, backend="reference").square().sum(), q, create_graph=True
    )
    assert torch.autograd.grad(gradient.square().sum(), bias.table_HW)[0].isfinite().all()
    out = attention(q, k, v, bias, backend="recomputed-tiles").square().sum()
    with pytest.raises(RuntimeError, match="take backend='reference', or set"):
        torch.autograd.grad(out, q, create_graph=True)


def test_the_package_can_be_called_by_the_folder_s_name():
    import wordorder

    q, k, v, _, _ = inputs(4, 5, torch.float32)
    assert_close(wordorder.attention(q, k, v), attention(q, k, v))
