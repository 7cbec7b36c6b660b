import pytest
import torch
from complex_cases import DTYPES, agree, bias_of, exact, filled, pair, weight_of

from wordorder.papers.complex_order import ComplexConvolution


def convolved(layer, z):
    weight, z, size = weight_of(layer), exact(z), layer.weight_real.shape[2]
    windows = [z[:, t : t + size] for t in range(z.shape[1] - size + 1)]
    return torch.stack([torch.einsum("bkc,fck->bf", window, weight) for window in windows], dim=1) + bias_of(layer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", ["complex", "shared"])
@pytest.mark.parametrize(("length", "inputs", "filters"), [(7, 5, 4), (3, 5, 4), (63, 22, 64)])
def test_convolution(length, inputs, filters, bias, dtype):
    layer = filled(ComplexConvolution(inputs, filters, 3, bias=bias), dtype)
    z = pair(2, length, inputs, dtype=dtype)
    agree(layer, z, convolved(layer, z), dtype)


def test_initial_filters():
    ours = ComplexConvolution(300, 128, 4)
    assert weight_of(ours).abs().pow(2).mean().item() == pytest.approx(2 / 1200, rel=0.01)


def test_a_complex_tensor_is_refused_with_the_remedy():
    z = torch.randn(2, 3, 4, dtype=torch.complex64)
    with pytest.raises(ValueError, match=r"z must be \(z.real, z.imag\) .*, got torch.complex64"):
        ComplexConvolution(4, 2, 1)(z)
