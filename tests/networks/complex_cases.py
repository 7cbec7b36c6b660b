"""Complex layers beside formulas in complex128: what the tests of several of them share."""

import torch
from torch.testing import assert_close

from wordorder.ops.complex import split, stack

DTYPES = {torch.float64: 1e-12, torch.float32: 2e-6}


def pair(*shape, dtype=torch.float64):
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2))


def exact(z):
    return torch.complex(z[0].double(), z[1].double())


def filled(layer, dtype=torch.float64):
    """The layer with every parameter drawn anew, biases and norms included."""
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0.2, 0.5)
    return layer.to(dtype)


def agree(layer, z, paper, dtype):
    """Pair and stacked tensor give what the complex128 formula gives, with every gradient."""
    leaves = [*z, *layer.parameters()]
    upstream = torch.randn_like(paper.real), torch.randn_like(paper.real)
    expected = torch.autograd.grad([paper.real, paper.imag], leaves, upstream)
    for ours in (layer(z), split(layer(stack(z)))):
        found = torch.autograd.grad(ours, leaves, [u.to(dtype) for u in upstream])
        for a, b in zip((*ours, *found), (paper.real, paper.imag, *expected), strict=True):
            assert a.dtype == dtype
            assert_close(a.double(), b.double(), rtol=0, atol=DTYPES[dtype] * max(1.0, b.abs().max().item()))


def weight_of(layer):
    imag = torch.zeros_like(layer.weight_real) if layer.weight_imag is None else layer.weight_imag
    return exact((layer.weight_real, imag))


def bias_of(layer):
    if layer.bias is not None:
        return (1 + 1j) * layer.bias.double()
    return 0 if layer.bias_real is None else exact((layer.bias_real, layer.bias_imag))
