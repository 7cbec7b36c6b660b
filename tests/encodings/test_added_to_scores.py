import bisect

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import T5, ALiBi, Shaw, build_encoding
from wordorder.ops import Arbitrary, Contiguous, DenseBias, ToeplitzBias

FIRST_DISTANCE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("length", [1, 2, 63, 160])
def test_t5_matches_the_paper_with_gradient(length, scale):
    t5 = T5(3, scale=scale).double()
    ours = t5(Contiguous(length), Contiguous(length)).dense()[0]
    index = [
        [bisect.bisect_right(FIRST_DISTANCE, abs(j - i)) - 1 + 16 * (j > i) for j in range(length)]
        for i in range(length)
    ]
    paper = scale * t5.table.weight[torch.tensor(index)].permute(2, 0, 1)
    assert_close(ours, paper, rtol=0, atol=0)
    upstream = torch.randn_like(paper)
    ours_grad, paper_grad = (torch.autograd.grad(y, t5.table.weight, upstream)[0] for y in (ours, paper))
    assert_close(ours_grad, paper_grad, rtol=1e-12, atol=1e-12)


def test_t5_is_as_strong_beside_divided_scores_as_the_papers_beside_undivided_ones():
    distance, table = torch.arange(-9, 10), torch.randn(32, 3)
    plain, ours = T5(3, scale=1.0), T5(3, head_dim=16)
    plain.table.weight.data = ours.table.weight.data = table
    assert_close(ours.at_distance(distance), 4.0 * plain.at_distance(distance))
    built = build_encoding("t5", width=64, heads=4, layers=1, max_positions=8).parts["t5"]
    assert built.scale == 4.0
    assert build_encoding("tupe-r", width=64, heads=4, layers=1, max_positions=8).parts["tupe"].relative.scale == 1.0


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (4, [2**-2, 2**-4, 2**-6, 2**-8]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),  # the authors' rule for heads that are no power of two
    ],
)
def test_alibi_matches_the_paper(heads, slopes):
    ours = ALiBi(heads)(Contiguous(7), Contiguous(7)).dense()[0]
    for h in range(heads):
        for i in range(7):
            for j in range(7):
                assert ours[h, i, j].item() == pytest.approx(-slopes[h] * abs(i - j))


def test_alibi_is_exact_in_float64():
    ours = ALiBi(12)(Contiguous(2), Contiguous(2), dtype=torch.float64).dense()[0, :, 0, 1]
    slopes = [2 ** -(h + 1) for h in range(8)] + [2 ** -(h + 0.5) for h in range(4)]
    assert_close(ours, -torch.tensor(slopes, dtype=torch.float64), rtol=1e-15, atol=0)


def test_what_makes_a_distance_term_zero():
    t5 = T5(2, head_dim=4)
    for parameter in t5.zero_init_parameters():
        parameter.data.zero_()
    assert (t5(Contiguous(9), Contiguous(9)).dense() == 0).all()
    assert ALiBi(2).zero_init_parameters() == ()


@pytest.mark.parametrize("encoding", [T5(2, scale=1.0), ALiBi(2)])
def test_distance_terms_are_toeplitz_where_positions_are_contiguous(encoding):
    toeplitz = encoding(Contiguous(4, 3), Contiguous(7))
    assert isinstance(toeplitz, ToeplitzBias)
    given = Arbitrary(torch.arange(3, 7)[None]), Arbitrary(torch.arange(7)[None])
    dense = encoding(*given)
    assert isinstance(dense, DenseBias)
    assert_close(toeplitz.dense(), dense.dense())


@pytest.mark.parametrize(("length", "max_distance"), [(1, 3), (9, 3), (63, 16)])
def test_shaw_matches_the_paper_with_gradient(length, max_distance):
    shaw = Shaw(5, layers=2, max_distance=max_distance).double()
    q = torch.randn(2, 3, length, 5, dtype=torch.float64, requires_grad=True)
    term = shaw(Contiguous(length), Contiguous(length)).layer(1)
    ours = term.scores(q, q, 0.3, None)
    table = shaw.tables[1].weight
    paper = torch.stack(
        [
            torch.stack(
                [
                    0.3 * q[:, :, i] @ table[min(max(j - i, -max_distance), max_distance) + max_distance]
                    for j in range(length)
                ],
                -1,
            )
            for i in range(length)
        ],
        -2,
    )
    assert_close(ours, paper, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(paper)
    for ours_grad, paper_grad in zip(
        *(torch.autograd.grad(y, [q, table], upstream) for y in (ours, paper)), strict=True
    ):
        assert_close(ours_grad, paper_grad, rtol=1e-12, atol=1e-12)
    scattered = torch.randint(40, (2, length))
    free = shaw(Arbitrary(scattered), Arbitrary(scattered)).layer(0).scores(q, q, 1.0, None)
    b, i, j = 1, length // 2, length - 1
    row = int((scattered[b, j] - scattered[b, i]).clamp(-max_distance, max_distance)) + max_distance
    assert_close(free[b, :, i, j], q[b, :, i] @ shaw.tables[0].weight[row])


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: T5(0, scale=1.0), "heads"),
        (lambda: T5(2), "pass head_dim"),
        (lambda: T5(2, head_dim=0), "head_dim"),
        (lambda: T5(2, scale=0.0), "scale"),
        (lambda: T5(2, scale=float("nan")), "scale"),
        (lambda: T5(2, scale=1.0, buckets=5), "buckets"),
        (lambda: T5(2, scale=1.0, max_distance=4), "max_distance"),
        (lambda: ALiBi(0), "heads"),
        (lambda: Shaw(0, layers=1), "head_dim"),
        (lambda: Shaw(4, layers=0), "layers"),
        (lambda: Shaw(4, layers=1, max_distance=0), "max_distance"),
    ],
)
def test_wrong_arguments_are_named(build, word):
    with pytest.raises(ValueError, match=word):
        build()
