"""Proposition 1 of TUPE: what the relative term can say, and why the absolute term cannot say it."""

import torch
from torch.testing import assert_close

from wordorder.encodings import T5, TUPE
from wordorder.networks import initialise
from wordorder.ops import Contiguous


def test_any_toeplitz_matrix_is_g_d_g_star():
    """B[i, j] = b[j - i] is a corner of the circulant matrix of size 2n of b, which the Fourier transform diagonalises.

    G[j, k] = exp(i pi (j + 1) k / n) / sqrt(2n) for j < n, k < 2n.
    """
    n = 7
    b = torch.randn(2 * n - 1, dtype=torch.complex128)  # b[-(n-1)] ... b[n-1]
    i = torch.arange(n)
    circulant = torch.cat((b[n - 1 :], b[:1], b[: n - 1]))  # b[0] ... b[n-1], any number, b[-(n-1)] ... b[-1]
    diagonal = torch.fft.ifft(circulant, norm="forward")
    angles = torch.pi * (i[:, None] + 1).double() * torch.arange(2 * n) / n
    g = torch.exp(1j * angles) / (2 * n) ** 0.5
    assert_close(g @ diagonal.diag() @ g.mH, b[(i - i[:, None]) + n - 1])


def test_the_relative_term_has_full_rank_and_the_absolute_one_that_of_a_head():
    length, heads, width = 40, 4, 32
    absolute = TUPE(width, heads=heads, max_positions=length, cls="none", projection_bias=False).double()
    relative = T5(heads, scale=1.0).double()
    for encoding in (absolute, relative):
        initialise(encoding, seed=1, std=0.5)
    ranks = [
        torch.linalg.matrix_rank(encoding(Contiguous(length), Contiguous(length)).dense()[0])
        for encoding in (absolute, relative)
    ]
    assert ranks[0].tolist() == heads * [width // heads]
    assert ranks[1].tolist() == heads * [length]


def test_the_relative_term_cannot_tell_far_positions_apart_and_the_absolute_one_can():
    length, far = 300, 128
    relative, absolute = T5(2, scale=1.0).double(), TUPE(16, heads=2, max_positions=length, cls="none").double()
    for encoding in (absolute, relative):
        initialise(encoding, seed=1, std=0.5)
    first_query = [
        encoding(Contiguous(1), Contiguous(length)).dense()[0, :, 0, far:] for encoding in (relative, absolute)
    ]
    assert (first_query[0] == first_query[0][:, :1]).all()
    assert [head.unique().numel() for head in first_query[1]] == 2 * [length - far]
