import pytest
import torch

from wordorder.encodings import build_encoding
from wordorder.ops import Arbitrary, Contiguous, Mask, Packed, as_positions, shift_between
from wordorder.ops.positions import check_within_table, distances_BTS, table_rows


def test_index_of_each_kind():
    assert Contiguous(3).index_BT().tolist() == [[0, 1, 2]]
    assert Contiguous(3, 5).index_BT().tolist() == [[5, 6, 7]]
    assert Contiguous(3, torch.tensor([0, -2])).index_BT().tolist() == [[0, 1, 2], [-2, -1, 0]]
    packed = Packed(torch.tensor([[0, 1, 0]]), torch.tensor([[0, 0, 1]]))
    assert packed.length == 3
    assert packed.index_BT().tolist() == [[0, 1, 0]]


def test_shift_is_known_only_where_distance_depends_on_columns_alone():
    offsets = torch.tensor([0, -2])
    assert shift_between(Contiguous(3, 4), Contiguous(7, 0)) == -4
    assert shift_between(Contiguous(3, offsets), Contiguous(3, offsets)) == 0
    assert shift_between(Contiguous(3, offsets), Contiguous(3, offsets.clone())) is None
    assert shift_between(Arbitrary(torch.zeros(1, 3).long()), Contiguous(3)) is None


def test_distances_are_key_minus_query():
    assert distances_BTS(Contiguous(2, 3), Contiguous(5)).tolist() == [[[-3, -2, -1, 0, 1], [-4, -3, -2, -1, 0]]]


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(3, dtype=torch.bool), torch.zeros(2, 2, 2).long()])
def test_positions_must_be_integers_with_one_or_two_axes(wrong):
    with pytest.raises(ValueError, match="positions must be"):
        as_positions(wrong)


@pytest.mark.parametrize(
    "positions", [Contiguous(9), Contiguous(1, 8), Arbitrary(torch.tensor([[8]])), Contiguous(3, torch.tensor([6]))]
)
def test_the_end_of_a_table_names_the_limit_and_the_remedy(positions):
    with pytest.raises(ValueError, match=r"max_positions=8.*max_position_embeddings"):
        check_within_table(positions, 8)


def test_negative_positions_are_refused_unless_they_are_padding():
    with pytest.raises(ValueError, match="negative"):
        check_within_table(Arbitrary(torch.tensor([[-1, 0]])), 8)
    assert table_rows(Contiguous(4, torch.tensor([-2, 0])), 8, None).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    assert table_rows(Contiguous(3, 5), 8, None).tolist() == [[5, 6, 7]]
    assert table_rows(Contiguous(3, 4), 8, None, first_row=1).tolist() == [[5, 6, 7]]


def test_a_mask_is_the_product_of_its_conditions():
    assert Mask(Contiguous(4), Contiguous(4)).dense() is None
    assert Mask(Contiguous(4), Contiguous(4)).hides_nothing
    packed = Packed(torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0, 0, 1, 1]]))
    valid = torch.tensor([[True, True, True, False]])
    seen = Mask(packed, packed, high=0, tokens_BS=valid).dense()
    assert seen is not None
    assert seen[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    assert Mask(Contiguous(4), Contiguous(4), high=0).is_plain_causal
    assert not Mask(packed, packed, high=0).is_plain_causal


@pytest.mark.parametrize("kind", ["contiguous", "offsets", "packed", "arbitrary"])
def test_a_band_goes_by_position(kind):
    index = torch.tensor([[0, 1, 2, 3], [-2, -1, 0, 1]])
    where = {
        "contiguous": Contiguous(4, 5),
        "offsets": Contiguous(4, torch.tensor([0, -2])),
        "packed": Packed(index, torch.zeros_like(index)),
        "arbitrary": Arbitrary(index),
    }[kind]
    ahead = Mask(where, where, low=1)
    assert ahead.dense()[0, 0].int().tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]
    near = Mask(where, where, low=-1, high=0)
    assert near.dense()[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    both = Mask(where, where, low=-1, high=2)
    assert both.dense()[0, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert Mask(where, where, high=0).windowed(2) == near
    assert both.windowed(2) == Mask(where, where, low=-1, high=1)
    assert both.windowed(9) == both
    assert ahead.windowed(3) == Mask(where, where, low=1, high=2)
    assert not ahead.hides_nothing
    assert not ahead.is_plain_causal
    assert not near.is_plain_causal


def test_memory_looks_ahead_from_its_own_positions():
    """Three slots, and the keys 1 .. 3 of the window."""
    seen = Mask(Contiguous(3), Contiguous(3, 1), low=1).dense()
    assert seen[0, 0].int().tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 1]]


def test_a_band_without_a_distance_is_refused():
    with pytest.raises(ValueError, match="low must be at most high, or there is nothing to see; got 1 and 0"):
        Mask(Contiguous(4), Contiguous(4), low=1, high=0)


@pytest.mark.parametrize("positions", [[0, 1, 2], range(3), True, 3.0])
def test_positions_that_are_no_tensor_are_refused(positions):
    with pytest.raises(ValueError, match=r"positions must be a tensor of integers, .* got (list|range|bool|float)"):
        as_positions(positions)


def test_a_length_that_is_no_whole_number_is_refused():
    with pytest.raises(ValueError, match=r"length must be a whole number of tokens, got 5\.0"):
        Contiguous(5.0)


def test_queries_and_keys_are_of_as_many_rows():
    two, three = (as_positions(torch.arange(5).repeat(rows, 1)) for rows in (2, 3))
    encoding = build_encoding("t5", width=32, heads=4, layers=1, max_positions=16)
    with pytest.raises(
        ValueError, match="positions and key_positions must have as many rows as each other, or 1, got 2 and 3"
    ):
        encoding.prepare(two, three)
    with pytest.raises(ValueError, match="query and key must have as many rows as each other, or 1, got 3 and 2"):
        Mask(three, two)
    Mask(three, Contiguous(5))


def test_a_table_is_not_looked_at_under_a_transform():
    positions = torch.arange(5).repeat(4, 1)
    rows = torch.func.vmap(lambda row: table_rows(as_positions(row), 6, None))(positions)
    assert torch.equal(rows[2, 0], torch.arange(5))


def test_offsets_in_tensors_are_never_compared():
    left, right = (Contiguous(4, torch.tensor([0, -2])) for _ in range(2))
    assert not Mask(left, right, high=0).is_plain_causal
    assert Mask(left, left, high=0).is_plain_causal  # the same tensor: the same positions
    assert Mask(Contiguous(4, 2), Contiguous(4, 2), high=0).is_plain_causal
    assert not Mask(Contiguous(1, 3), Contiguous(4), high=0).is_plain_causal


def test_packed_and_other_positions_cannot_be_told_apart():
    packed = Packed(torch.zeros(1, 4).long(), torch.zeros(1, 4).long())
    with pytest.raises(ValueError, match="both be Packed"):
        Mask(Contiguous(4), packed)
