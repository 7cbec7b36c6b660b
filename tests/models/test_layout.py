import pytest
import torch
from torch.testing import assert_close

from wordorder.models.layout import cached_layout, layout_of
from wordorder.ops import Contiguous, Packed


def test_without_a_mask_positions_count_from_zero():
    layout = layout_of((2, 4), None, None)
    assert layout.positions == Contiguous(4)
    assert layout.valid_BT is None
    assert layout.column_BT is None


def test_a_mask_turns_every_text_to_the_first_columns_and_back():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
    layout = layout_of((4, 4), mask, None)
    columns = torch.arange(4).expand(4, 4)
    assert layout.turn(columns).tolist() == [[2, 3, 0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [1, 3, 0, 2]]
    assert layout.valid_BT.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    x = torch.randn(4, 4, 3)
    assert_close(layout.turn_back(layout.turn(x)), x, rtol=0, atol=0)
    square = torch.randn(4, 2, 4, 4)
    turned = torch.stack([square[b][:, layout.column_BT[b]][:, :, layout.column_BT[b]] for b in range(4)])
    assert_close(layout.turn_back(turned, axes=(2, 3)), square, rtol=0, atol=0)


def test_position_ids_alone_begin_a_packed_sequence_at_each_zero():
    positions = layout_of((1, 6), None, torch.tensor([[0, 1, 2, 0, 1, 0]])).positions
    assert isinstance(positions, Packed)
    assert positions.sequence_BT.tolist() == [[1, 1, 1, 2, 2, 3]]
    assert positions.position_BT.tolist() == [[0, 1, 2, 0, 1, 0]]


def test_a_mask_does_not_open_packed_sequences_to_each_other():
    layout = layout_of((2, 3), torch.tensor([[1, 1, 1], [1, 1, 0]]), torch.tensor([[5, 0, 2]]))
    assert isinstance(layout.positions, Packed)
    assert layout.positions.position_BT.tolist() == [[5, 0, 2], [5, 0, 2]]
    assert layout.positions.sequence_BT.tolist() == [[0, 1, 1], [0, 1, 1]]
    assert layout.valid_BT.int().tolist() == [[1, 1, 1], [1, 1, 0]]


def test_equal_sequence_ids_allow_any_positions():
    positions = layout_of((1, 3), None, torch.tensor([[2, 0, 1]]), torch.zeros(1, 3).long()).positions
    assert positions.position_BT.tolist() == [[2, 0, 1]]
    assert positions.sequence_BT.tolist() == [[0, 0, 0]]


def test_sequence_ids_count_positions_from_each_first_token():
    positions = layout_of((1, 5), None, None, torch.tensor([[7, 7, 3, 3, 3]])).positions
    assert isinstance(positions, Packed)
    assert positions.position_BT.tolist() == [[0, 1, 0, 1, 2]]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((torch.ones(2, 1, 3, 3), None, None), "attention_mask"),
        ((torch.ones(2, 4), None, None), "attention_mask"),
        ((None, torch.zeros(3, 3).long(), None), "position_ids"),
        ((None, torch.zeros(2, 3), None), "integers"),
        ((None, None, torch.zeros(1, 3).long()), "sequence_ids"),
    ],
)
def test_wrong_shapes_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        layout_of((2, 3), *arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_mask_of_floats_is_one_of_ones_and_zeros(dtype):
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    added = (1 - mask.to(dtype)) * -1e9  # 0 = token
    for read in (lambda mask: layout_of((2, 3), mask, None), lambda mask: cached_layout((2, 1), 2, mask, None)):
        assert_close(read(mask.to(dtype)).valid_BT, read(mask).valid_BT)
        assert_close(read(added == 0).valid_BT, read(mask).valid_BT)
        for wrong in (added, added.clamp(min=-1), mask.to(dtype) / 2, added.masked_fill(added != 0, float("nan"))):
            with pytest.raises(ValueError, match=r"attention_mask must be 1 for a token .* got .*attention_mask == 0"):
                read(wrong)
