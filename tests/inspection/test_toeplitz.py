import math

import pytest
import torch
from torch.testing import assert_close

from wordorder.inspection.toeplitz import toeplitz_split


def toeplitz_from_definition(table_W, size):
    """B[i, j] = b[j - i], written out."""
    out = torch.empty(size, size, dtype=table_W.dtype)
    for i in range(size):
        for j in range(size):
            out[i, j] = table_W[j - i + size - 1]
    return out


MASKS = {
    "none": lambda t, s: None,
    "without row and column 0": lambda t, s: (
        torch.ones(t, s).tril(s).bool() & (torch.arange(s) > 0)[None, :] & (torch.arange(t) > 0)[:, None]
    ),
    "random": lambda t, s: torch.rand(t, s) < 0.6,
    "causal": lambda t, s: torch.ones(t, s).tril().bool(),
    "nothing": lambda t, s: torch.zeros(t, s, dtype=torch.bool),
}
SHAPES = [(1, 1), (2, 2), (7, 7), (10, 10), (5, 9), (9, 4)]


def split_from_definition(values, mask):
    """Diagonal means and energies by loops."""
    queries, keys = values.shape
    table, part, rest = {}, 0.0, 0.0
    for distance in range(1 - queries, keys):
        seen = [
            values[i, i + distance].item() for i in range(queries) if 0 <= i + distance < keys and mask[i, i + distance]
        ]
        mean = sum(seen) / len(seen) if seen else 0.0
        table[distance] = (mean, len(seen), math.sqrt(sum((x - mean) ** 2 for x in seen) / len(seen)) if seen else 0.0)
        part += len(seen) * mean**2
        rest += sum((x - mean) ** 2 for x in seen)
    return table, part, rest


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask_kind", list(MASKS))
def test_the_best_toeplitz_part_is_the_mean_of_each_diagonal(shape, mask_kind):
    values, mask = torch.randn(2, *shape, dtype=torch.float64) + 0.5, MASKS[mask_kind](*shape)
    split = toeplitz_split(values, mask_TS=mask)
    counted = torch.ones(shape, dtype=torch.bool) if mask is None else mask
    for head in range(2):
        table, part, rest = split_from_definition(values[head], counted)
        for name, index in (("table_HW", 0), ("spread_HW", 2)):
            wanted = torch.tensor([row[index] for row in table.values()], dtype=torch.float64)
            assert_close(getattr(split, name)[head], wanted, rtol=0, atol=1e-12)
        assert split.count_W.tolist() == [row[1] for row in table.values()]
        assert split.part_energy_H[head].item() == pytest.approx(part, abs=1e-12)
        assert split.rest_energy_H[head].item() == pytest.approx(rest, abs=1e-12)
        share = split.share_H[head].item()
        assert share == pytest.approx(part / (part + rest)) if part + rest else math.isnan(share)
    assert_close(split.part_HTS + split.rest_HTS, values * counted, rtol=0, atol=1e-12)
    assert not split.row_constant_HT.any()


def fit_by_lstsq(values, mask):
    """The nearest sum of a Toeplitz matrix and row constants, from one indicator per diagonal and row."""
    queries, keys = values.shape
    where = [(i, j) for i in range(queries) for j in range(keys) if mask[i, j]]
    design = torch.zeros(len(where), queries + queries + keys - 1, dtype=torch.float64)
    for line, (i, j) in enumerate(where):
        design[line, i] = design[line, queries + j - i + queries - 1] = 1
    wanted = torch.tensor([values[i, j].item() for i, j in where], dtype=torch.float64)
    fitted = design @ torch.linalg.lstsq(design, wanted, driver="gelsd").solution
    out = torch.zeros_like(values)
    for (i, j), value in zip(where, wanted - fitted, strict=True):
        out[i, j] = value
    return out


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask_kind", ["none", "without row and column 0", "random", "causal"])
def test_up_to_row_constants_it_is_the_least_squares_fit(shape, mask_kind):
    values, mask = torch.randn(2, *shape, dtype=torch.float64), MASKS[mask_kind](*shape)
    split = toeplitz_split(values, mask_TS=mask, up_to_row_constants=True)
    counted = torch.ones(shape, dtype=torch.bool) if mask is None else mask
    for head in range(2):
        rest = fit_by_lstsq(values[head], counted) if counted.any() else torch.zeros_like(values[head])
        assert_close(split.rest_HTS[head], rest, rtol=0, atol=1e-9)
        centred = torch.zeros_like(rest)
        for i in range(shape[0]):
            if counted[i].any():
                centred[i, counted[i]] = values[head, i, counted[i]] - values[head, i, counted[i]].mean()
        whole = centred.square().sum().item()
        assert split.part_energy_H[head].item() + split.rest_energy_H[head].item() == pytest.approx(whole, abs=1e-9)
        assert_close(split.part_HTS[head] + split.rest_HTS[head], centred, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mask_kind", ["none", "without row and column 0"])
def test_the_fit_holds_the_map_together(mask_kind):
    values, mask = torch.randn(3, 12, 12, dtype=torch.float64), MASKS[mask_kind](12, 12)
    split = toeplitz_split(values, mask_TS=mask, up_to_row_constants=True)
    counted = torch.ones(12, 12, dtype=torch.bool) if mask is None else mask
    fitted = torch.stack([toeplitz_from_definition(row, 12) for row in split.table_HW])
    rebuilt = fitted + split.row_constant_HT[..., None] + split.rest_HTS
    assert_close(rebuilt[:, counted], values[:, counted], rtol=0, atol=1e-9)
    assert (split.table_HW * split.count_W).sum(-1).abs().max() < 1e-9  # the free constant: mean 0
    assert split.rest_HTS.sum(-1).abs().max() < 1e-9
    for head in range(3):
        table, _, _ = split_from_definition(split.rest_HTS[head], counted)
        assert max(abs(mean) for mean, _, _ in table.values()) < 1e-9


@pytest.mark.parametrize("size", [3, 10, 63])
def test_row_constants_neither_make_nor_hide_a_relative_term(size):
    relative = toeplitz_from_definition(torch.randn(2 * size - 1, dtype=torch.float64), size)[None]
    constants = 100 * torch.randn(1, size, 1, dtype=torch.float64)
    seen = toeplitz_split(relative + constants, up_to_row_constants=True)
    assert seen.share_H.item() == pytest.approx(1, abs=1e-12)
    assert seen.spread_HW.max() < 1e-9
    # what the fit avoids: with constants in, or rows centred first, a relative term does not look like one
    assert toeplitz_split(relative + constants).share_H.item() < 0.9
    assert toeplitz_split(relative - relative.mean(-1, keepdim=True)).share_H.item() < 1 - 1e-3
    noise = torch.randn(1, size, size, dtype=torch.float64)
    shares = [toeplitz_split(x, up_to_row_constants=True).share_H for x in (noise, noise + constants)]
    assert_close(*shares, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("size", "times"), [(4, 4000), (40, 100)])
def test_random_numbers_have_a_share_of_two_over_n(size, times):
    shares = toeplitz_split(torch.randn(times, size, size), up_to_row_constants=True)
    share = shares.part_energy_H.sum() / (shares.part_energy_H.sum() + shares.rest_energy_H.sum())
    assert share.item() == pytest.approx(2 / size, rel=0.03)


def test_what_does_not_count_may_hold_anything():
    values = torch.randn(1, 6, 6)
    mask = torch.rand(6, 6) < 0.7
    clean = toeplitz_split(values, mask_TS=mask, up_to_row_constants=True)
    spoilt = toeplitz_split(values.masked_fill(~mask, torch.nan), mask_TS=mask, up_to_row_constants=True)
    assert_close(clean.rest_HTS, spoilt.rest_HTS, rtol=0, atol=0)
    assert not clean.part_HTS[:, ~mask].any()
    assert not clean.rest_HTS[:, ~mask].any()


@pytest.mark.parametrize(
    ("values", "mask", "said"),
    [
        (torch.zeros(3, 3), None, r"real \(heads, T, S\), got torch.float32 \(3, 3\)"),
        (torch.zeros(1, 3, 3, dtype=torch.complex64), None, "real .* got torch.complex64"),
        (torch.zeros(1, 3, 3, dtype=torch.long), None, "real .* got torch.int64"),
        (torch.full((1, 3, 3), torch.inf), None, "finite"),
        (torch.full((1, 3, 3), torch.nan), None, "finite"),
        (
            torch.zeros(1, 3, 3),
            torch.ones(3, 4, dtype=torch.bool),
            r"mask must be bool \(3, 3\), got torch.bool \(3, 4\)",
        ),
        (torch.zeros(1, 3, 3), torch.ones(3, 3), r"mask must be bool \(3, 3\), got torch.float32"),
    ],
)
def test_what_is_no_map_is_refused(values, mask, said):
    with pytest.raises(ValueError, match=said):
        toeplitz_split(values, mask_TS=mask)
