import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from wordorder.ops import complex as cx

BOUND = {torch.float64: 1e-12, torch.float32: 1e-6}
DTYPES = [torch.float64, torch.float32]


def parts(*shape, dtype=torch.float64):
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2))


def exact(z):
    """The complex128 number of a pair, through which gradients reach the pair."""
    return torch.complex(z[0].double(), z[1].double())


def pair_of(z):
    return z if isinstance(z, tuple) else (z.real, z.imag) if z.is_complex() else (z,)


def agree(ours, paper, leaves, dtype):
    """Outputs, and every gradient against a random upstream, to the bound times the largest element."""
    ours, paper = pair_of(ours), pair_of(paper)
    upstream = [torch.randn_like(y) for y in paper]
    grads = [
        torch.autograd.grad(ys, leaves, [u.to(y.dtype) for u, y in zip(upstream, ys, strict=True)])
        for ys in (ours, paper)
    ]
    for a, b in zip((*ours, *grads[0]), (*paper, *grads[1]), strict=True):
        assert a.dtype == dtype
        assert_close(a.double(), b.double(), rtol=0, atol=BOUND[dtype] * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_multiply_conjugate_and_modulus(dtype):
    z, w = parts(3, 5, dtype=dtype), parts(3, 5, dtype=dtype)
    agree(cx.multiply(z, w), exact(z) * exact(w), [*z, *w], dtype)
    agree(cx.conjugate(z), exact(z).conj().resolve_conj() * 1, list(z), dtype)
    agree(cx.modulus(z), exact(z).abs(), list(z), dtype)


def test_modulus_at_zero_and_at_the_ends_of_the_range():
    real = torch.tensor([0.0, 3.0, 0.0, 1e-40, 3e38, -0.0], requires_grad=True)
    imag = torch.tensor([0.0, 4.0, -2.0, 0.0, 0.0, 0.0], requires_grad=True)
    size = cx.modulus((real, imag))
    assert_close(size, torch.tensor([0.0, 5.0, 2.0, 1e-40, 3e38, 0.0]))
    grads = torch.autograd.grad(size.sum(), [real, imag])
    assert_close(grads[0], torch.tensor([0.0, 0.6, 0.0, 1.0, 1.0, 0.0]))
    assert_close(grads[1], torch.tensor([0.0, 0.8, -1.0, 0.0, 0.0, 0.0]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["gauss", "block", "outer"])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [((1,), 1, 1), ((3, 5), 7, 4), ((), 2, 3), ((0, 4), 3, 2)])
def test_linear_and_every_gradient_match_complex128(form, rows, inputs, outputs, dtype):
    z, weight, bias = (parts(*size, dtype=dtype) for size in ((*rows, inputs), (outputs, inputs), (outputs,)))
    paper = exact(z) @ exact(weight).T + exact(bias)
    if paper.numel():
        ours = cx.split(cx.stacked_linear(cx.stack(z), weight, bias, form=form))
        agree(ours, paper, [*z, *weight, *bias], dtype)
        without = cx.split(cx.stacked_linear(cx.stack(z), weight, form=form))
        agree(without, exact(z) @ exact(weight).T, [*z, *weight], dtype)
    else:
        assert cx.split(cx.stacked_linear(cx.stack(z), weight, bias, form=form))[0].shape == paper.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_real_weight_acts_on_both_streams(dtype):
    z, weight = parts(2, 5, 7, dtype=dtype), torch.randn(4, 7, dtype=dtype, requires_grad=True)
    for bias in (None, parts(4, dtype=dtype), torch.randn(4, dtype=dtype, requires_grad=True)):
        ours = cx.split(cx.stacked_real_linear(cx.stack(z), weight, bias))
        leaves = [] if bias is None else list(bias) if isinstance(bias, tuple) else [bias]
        offset = 0 if bias is None else exact(bias) if isinstance(bias, tuple) else (1 + 1j) * bias
        agree(ours, exact(z) @ weight.to(torch.complex128).T + offset, [*z, weight, *leaves], dtype)


@pytest.mark.parametrize("form", ["gauss", "block", "outer"])
def test_linear_without_all_gradients(form):
    z, weight = parts(5, 7), parts(4, 7)
    for leaves in (z, weight, (z[0],), (weight[1],)):
        frozen = [x if any(x is leaf for leaf in leaves) else x.detach() for x in (*z, *weight)]
        ours = cx.split(cx.stacked_linear(cx.stack((frozen[0], frozen[1])), (frozen[2], frozen[3]), form=form))
        agree(ours, exact(z) @ exact(weight).T, list(leaves), torch.float64)


def test_halves_that_are_not_contiguous():
    wide, weight = torch.randn(6, 30, dtype=torch.float64, requires_grad=True), parts(4, 7)
    ours = cx.split(cx.stacked_linear(wide[:, 1:29:2], weight, form="gauss"))
    agree(ours, exact(cx.split(wide[:, 1:29:2])) @ exact(weight).T, [wide, *weight], torch.float64)
    stacked = wide.expand(3, 6, 30).transpose(0, 1)[..., 2:16]
    ours = cx.split(cx.stacked_linear(stacked, weight, form="gauss"))
    agree(ours, exact(cx.split(stacked)) @ exact(weight).T, [wide, *weight], torch.float64)


@pytest.mark.parametrize(
    ("device", "dtype", "sizes", "traced", "form"),
    [
        ("cpu", torch.float32, (1024, 512, 512), False, "gauss"),
        ("cpu", torch.float64, (64, 64, 64), False, "gauss"),
        ("cpu", torch.float32, (1024, 512, 512), True, "block"),
        ("cpu", torch.bfloat16, (1024, 512, 512), False, "block"),
        ("cpu", torch.float32, (63, 512, 512), False, "block"),
        ("cpu", torch.float32, (1024, 512, 63), False, "block"),
        ("cpu", torch.float32, (1, 512, 512), False, "outer"),
        ("cuda", torch.float32, (1024, 512, 512), False, "block"),
        ("cuda", torch.bfloat16, (4, 512, 512), False, "outer"),
    ],
)
def test_choice_of_the_form(device, dtype, sizes, traced, form):
    rows, inputs, outputs = sizes
    chosen = cx.choose_linear_form(device, dtype, rows=rows, inputs=inputs, outputs=outputs, traced=traced)
    assert chosen == form


@pytest.mark.parametrize(("form", "products"), [("gauss", 9), ("block", 12), ("outer", 12)])
def test_real_products_of_a_training_step(form, products):
    z, weight = torch.randn(4, 10, requires_grad=True), parts(3, 5, dtype=torch.float32)
    with FlopCounterMode(display=False) as counter:
        cx.stacked_linear(z, weight, form=form).sum().backward()
    assert counter.get_total_flops() == products * 2 * 4 * 5 * 3


def test_the_chosen_form_under_autocast_and_function_transforms():
    z, weight = torch.randn(64, 128), (torch.randn(64, 64), torch.randn(64, 64))
    with torch.autocast("cpu", torch.bfloat16):
        low = cx.stacked_linear(z, weight)
    assert low.dtype == torch.bfloat16
    assert_close(low.float(), cx.stacked_linear(z, weight), rtol=0.05, atol=0.5)
    per_row = torch.func.vmap(torch.func.grad(lambda row: cx.stacked_linear(row, weight).square().sum()))(z)
    together = torch.func.grad(lambda rows: cx.stacked_linear(rows, weight).square().sum())(z)
    assert_close(per_row, together, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_match_complex128(dtype):
    q, k = parts(2, 3, 5, 4, dtype=dtype), parts(2, 3, 7, 4, dtype=dtype)
    agree(cx.modulus_scores(q, k), (exact(q) @ exact(k).conj().transpose(-1, -2)).abs(), [*q, *k], dtype)


def test_scores_know_distance():
    def wave(positions):
        angle = positions[:, None] * torch.tensor([1.0, 0.3, 0.02], dtype=torch.float64)
        return angle.cos(), angle.sin()

    here, there = torch.arange(5.0, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64) + 40
    assert_close(cx.modulus_scores(wave(here), wave(here)), cx.modulus_scores(wave(there), wave(there)))


def test_gradients_of_scores_at_exact_zero_are_finite():
    q, k = parts(1, 4, 3), parts(1, 4, 3)
    with torch.no_grad():
        for part in (*q, *k):
            part[0, 1] = 0
    grads = torch.autograd.grad(cx.modulus_scores(q, k).sum(), [*q, *k])
    assert all(grad.isfinite().all() for grad in grads)
    assert all((grad[0, 1] == 0).all() for grad in grads)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gauss", "block", "outer"])
def test_linear_has_second_derivatives_in_every_form(form):
    z, weight, bias = parts(2, 3, 4), parts(5, 4), parts(5)

    def stacked(x, y, a, b, *c):
        return cx.stacked_linear(cx.stack((x, y)), (a, b), c or None, form=form)

    for leaves in ((*z, *weight, *bias), (*z, *weight)):
        assert torch.autograd.gradcheck(stacked, leaves)
        assert torch.autograd.gradgradcheck(stacked, leaves)
