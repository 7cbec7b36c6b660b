import pytest
import torch
from complex_cases import DTYPES, agree, bias_of, exact, filled, pair, weight_of
from torch.testing import assert_close

from wordorder.networks import initialise
from wordorder.networks.complex_valued import (
    ComplexFeedForward,
    ComplexLayerNorm,
    ComplexLinear,
    ComplexRMSNorm,
    ModReLU,
    PhaseDropout,
)
from wordorder.ops.complex import split


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", ["complex", "shared", "none"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [((2, 3), 5, 4), ((65,), 64, 66)])
def test_linear(rows, inputs, outputs, shared, bias, dtype):
    layer, z = filled(ComplexLinear(inputs, outputs, shared=shared, bias=bias), dtype), pair(*rows, inputs, dtype=dtype)
    agree(layer, z, exact(z) @ weight_of(layer).T + bias_of(layer), dtype)


def test_sharing_halves_the_weights_and_keeps_the_size_of_outputs():
    full, shared = ComplexLinear(300, 200, bias="none"), ComplexLinear(300, 200, shared=True, bias="none")
    assert sum(p.numel() for p in full.parameters()) == 2 * sum(p.numel() for p in shared.parameters()) == 120_000
    for layer in (full, shared):
        initialise(layer, seed=1, std=0.02)
        variance = (
            exact((layer.weight_real, layer.weight_imag if layer is full else 0 * layer.weight_real)).abs().pow(2)
        )
        assert variance.mean().item() == pytest.approx(0.02**2, rel=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shared", [False, True])
def test_layer_norm_of_each_stream(shared, dtype):
    layer, z = filled(ComplexLayerNorm(7, eps=1e-3, shared=shared), dtype), pair(3, 5, 7, dtype=dtype)
    streams = []
    for part in (0, 1):
        x = z[part].double()
        normal = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-3).sqrt()
        weight, bias = (layer.weight, layer.bias) if shared else (layer.weight[part], layer.bias[part])
        streams.append(normal * weight.double() + bias.double())
    agree(layer, z, exact(streams), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_keeps_every_phase(dtype):
    layer, z = filled(ComplexRMSNorm(7, eps=1e-3), dtype), pair(3, 5, 7, dtype=dtype)
    mean = (exact(z).abs() ** 2).mean(-1, keepdim=True) / 2
    agree(layer, z, exact(z) / (mean + 1e-3).sqrt() * layer.weight.double(), dtype)
    torch.nn.init.constant_(layer.weight, 0.7)
    assert_close(exact(layer(z)).angle(), exact(z).angle(), rtol=1e-4, atol=1e-4)
    turned = exact(z) * torch.exp(torch.tensor(0.8j, dtype=torch.complex128))
    assert_close(exact(layer((turned.real.to(dtype), turned.imag.to(dtype)))).abs(), exact(layer(z)).abs())


def test_modrelu_cuts_the_modulus_and_keeps_the_phase():
    layer, z = filled(ModReLU(7)), pair(3, 5, 7)
    size = exact(z).abs()
    agree(layer, z, exact(z) * (size + layer.bias).relu() / (size + 1e-6), torch.float64)
    zero = torch.zeros(1, 14, requires_grad=True)
    (grad,) = torch.autograd.grad(ModReLU(7)(zero).sum(), zero)
    assert grad.isfinite().all()


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu", "swiglu"])
@pytest.mark.parametrize("nonlinearity", ["split", "modrelu"])
@pytest.mark.parametrize("shared", [False, True])
def test_feed_forward(activation, nonlinearity, shared):
    layer = filled(
        ComplexFeedForward(5, inner=6, activation=activation, nonlinearity=nonlinearity, shared_weights=shared)
    )
    z = pair(2, 3, 5)
    inner = exact(z) @ weight_of(layer.up).T + bias_of(layer.up)
    act = {"gelu": torch.nn.functional.gelu, "relu": torch.relu}.get(activation, torch.nn.functional.silu)
    if nonlinearity == "modrelu":
        inner = inner * (inner.abs() + layer.cut.bias).relu() / (inner.abs() + 1e-6)
    elif activation == "swiglu":
        gate, value = inner.chunk(2, dim=-1)
        inner = torch.complex(act(gate.real) * value.real, act(gate.imag) * value.imag)
    else:
        inner = torch.complex(act(inner.real), act(inner.imag))
    agree(layer, z, inner @ weight_of(layer.down).T + bias_of(layer.down), torch.float64)


def test_dropout_takes_both_parts_and_keeps_the_phase():
    layer, z = PhaseDropout(0.4).train(), torch.randn(50, 40, 20) + 5
    dropped = layer(z)
    real, imag = split(dropped)
    assert ((real == 0) == (imag == 0)).all()
    assert (real == 0).float().mean().item() == pytest.approx(0.4, abs=0.02)
    kept = real != 0
    assert_close(real[kept], split(z)[0][kept] / 0.6)
    assert_close((imag / real)[kept], (split(z)[1] / split(z)[0])[kept])
    assert layer.eval()(z) is z
    assert PhaseDropout(0.0).train()(z) is z
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\], got 1.5"):
        PhaseDropout(1.5)


@pytest.mark.parametrize("layer", [ComplexLinear(4, 2), ModReLU(4), PhaseDropout(0.1)])
def test_complex_tensors_are_refused_with_the_remedy(layer):
    z = torch.randn(2, 3, 4, dtype=torch.complex64)
    for wrong in (z, (z, z)):
        with pytest.raises(ValueError, match=r"z must be \(z.real, z.imag\) .*, got torch.complex64"):
            layer(wrong)


@pytest.mark.parametrize("options", [{}, {"shared": True}])
def test_a_linear_map_names_the_channels_that_it_reads(options):
    layer, z = ComplexLinear(4, 2, **options), torch.randn(2, 3, 4)
    for wrong in (z, (torch.randn(2, 3, 5), torch.randn(2, 3, 5))):
        with pytest.raises(ValueError, match=r"z must have 4 complex channels, .* got \(2, 3, (4|5|10)\)"):
            layer(wrong)


def test_bad_arguments():
    with pytest.raises(ValueError, match="outputs must be positive, got 0"):
        ComplexLinear(3, 0)
    with pytest.raises(ValueError, match="bias must be one of complex, shared, none, got True"):
        ComplexLinear(3, 2, bias=True)
    with pytest.raises(ValueError, match="nonlinearity must be one of split, modrelu, got 'crelu'"):
        ComplexFeedForward(3, inner=2, nonlinearity="crelu")
    with pytest.raises(ValueError, match="activation must be one of gelu, relu, silu, swiglu, got 'tanh'"):
        ComplexFeedForward(3, inner=2, activation="tanh")
