import pytest
import torch
from torch.testing import assert_close

from wordorder import Decoder, LookAheadMemory, SegmentRecurrence
from wordorder.errors import BadInput
from wordorder.memory import MemoryState


def look_ahead_state(batch=3, slots=4, layers=2, **given):
    shapes = LookAheadMemory(4).slot_shapes(layers + 1, channels=6, heads=2)
    tensors = {name: torch.randn(batch, slots, *shape) for name, shape in shapes.items()}
    return MemoryState(kind="look-ahead", layers=layers + 1, slots=tensors, **{"position": 9, "entered": 3, **given})


def recurrence_state(batch=3, slots=4, layers=2, **given):
    tensors = {f"hidden.{layer}": torch.randn(batch, slots, 6) for layer in range(layers)}
    return MemoryState(
        kind="segment-recurrence", layers=layers, slots=tensors, **{"position": 9, "entered": 3, **given}
    )


STATES = pytest.mark.parametrize("make", [look_ahead_state, recurrence_state])


def assert_same(ours, theirs):
    assert (ours.kind, ours.layers) == (theirs.kind, theirs.layers)
    assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


@STATES
@pytest.mark.parametrize("rows", [{}, {"position": torch.tensor([3, 9, 9]), "entered_B": torch.tensor([1, 3, 3])}])
def test_a_state_goes_through_a_safetensors_file(make, rows, tmp_path):
    from safetensors.torch import load_file, save_file

    valid = {"valid_BM": torch.tensor([[0, 1, 1, 1]] * 3).bool()} if rows else {}
    state = make(**rows, **valid)
    save_file(state.state_dict(), tmp_path / "memory.safetensors")
    read = MemoryState.from_state_dict(load_file(tmp_path / "memory.safetensors"))
    assert_same(read, state)
    assert read.entered == 3
    assert read.length == 4
    assert read.batch == 3


@STATES
def test_beams_take_their_rows_along(make):
    state = make(position=torch.tensor([3, 6, 9]), valid_BM=torch.rand(3, 4) > 0.5, entered_B=torch.tensor([1, 2, 3]))
    chosen = state.reorder(torch.tensor([2, 2, 0, 1]))
    assert chosen.position.tolist() == [9, 9, 3, 6]
    assert chosen.entered_B.tolist() == [3, 3, 1, 2]
    for name, tensor in chosen.slots.items():
        assert_close(tensor, state.slots[name][[2, 2, 0, 1]])
    with pytest.raises(ValueError, match=r"rows to go on from must lie in 0 \.\. 2, got -1 \.\. 3"):
        state.reorder(torch.tensor([3, -1]))
    with pytest.raises(ValueError, match=r"rows to go on from must be whole numbers \(rows,\), got torch.bool \(3,\)"):
        state.reorder(torch.tensor([True, False, True]))


@STATES
def test_the_newest_slots(make):
    state = make(valid_BM=torch.tensor([[False, True, True, True]] * 3), entered_B=torch.tensor([0, 2, 3]))
    newest = state.last(2)
    assert newest.length == 2
    assert newest.entered == 2
    assert newest.entered_B.tolist() == [0, 2, 2]
    assert newest.valid_BM.all()
    for name, tensor in newest.slots.items():
        assert_close(tensor, state.slots[name][:, 2:])
    assert state.last(9) is state
    with pytest.raises(ValueError, match="length must not be negative, got -1"):
        state.last(-1)


@STATES
def test_rows_forget(make):
    state = make().reset(torch.tensor([False, True, False]))
    assert state.position.tolist() == [9, 0, 9]
    assert state.entered_B.tolist() == [3, 0, 3]
    assert state.valid_BM.tolist() == [[True] * 4, [False] * 4, [True] * 4]
    with pytest.raises(ValueError, match=r"rows must be bool \(3,\), got torch.int64 \(3,\)"):
        state.reset(torch.tensor([0, 1, 0]))


def test_another_kind_or_a_missing_entry_is_refused():
    tensors = look_ahead_state().state_dict()
    with pytest.raises(ValueError, match=r"one kind, got \['elsewhere', 'look-ahead'\]"):
        MemoryState.from_state_dict({**tensors, "elsewhere.position": torch.tensor(1)})
    with pytest.raises(ValueError, match="lacks position"):
        MemoryState.from_state_dict({k: t for k, t in tensors.items() if k != "look-ahead.position"})
    network = Decoder(9, width=6, layers=3, heads=2, memory=LookAheadMemory(4))
    broken = MemoryState.from_state_dict({k: t for k, t in tensors.items() if k != "look-ahead.slots.normalisers.1"})
    with pytest.raises(ValueError, match=r"not whole: normalisers\.1 is None, and this network needs \(3, 4, 2\)"):
        network(torch.ones(3, 2, dtype=torch.long), memory=broken)
    with pytest.raises(ValueError, match="got no entries; pass what state_dict gave"):
        MemoryState.from_state_dict({})
    names = MemoryState(kind="mine", layers=1, slots={"position": torch.ones(2, 3, 4)}, position=5, entered=1)
    assert_same(MemoryState.from_state_dict(names.state_dict()), names)
    with pytest.raises(ValueError, match="lacks slots"):
        MemoryState.from_state_dict(
            {f"look-ahead.{name}": torch.tensor(1) for name in ("position", "entered", "layers")}
        )


@STATES
def test_a_state_moves_to_a_device_and_to_nothing_else(make):
    state = make()
    assert_same(state.to("cpu"), state)
    with pytest.raises(BadInput, match=r"a state moves to a device, such as 'cuda', got torch\.bfloat16"):
        state.to(torch.bfloat16)


@pytest.mark.parametrize("memory", [SegmentRecurrence, LookAheadMemory])
def test_a_memory_without_slots_is_refused(memory):
    with pytest.raises(ValueError, match="length must be positive, got 0; for no memory pass memory=None"):
        memory(0)
    with pytest.raises(ValueError, match="epsilon must not be negative, got -1"):
        LookAheadMemory(3, epsilon=-1)
    with pytest.raises(ValueError, match="epsilon must not be negative, got nan"):
        LookAheadMemory(3, epsilon=float("nan"))
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1, got 2"):
        LookAheadMemory(3, alpha=2)


@pytest.mark.parametrize("memory", [LookAheadMemory, SegmentRecurrence])
@pytest.mark.parametrize("length", [1.5, "32", True])
def test_a_length_that_is_no_whole_number_is_refused(memory, length):
    with pytest.raises(ValueError, match=f"length must be a whole number, got {length!r}"):
        memory(length)


@pytest.mark.parametrize(("memory", "switch"), [(LookAheadMemory, "full"), (SegmentRecurrence, "same_length")])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_a_switch_that_is_neither_true_nor_false_is_refused(memory, switch, value):
    with pytest.raises(ValueError, match=f"{switch} must be True or False, got {value!r}"):
        memory(4, **{switch: value})


@pytest.mark.parametrize("make", [look_ahead_state, recurrence_state])
def test_one_row_is_a_batch_of_one_and_there_is_no_other(make):
    state = make()
    rows = list(state)
    assert [row.batch for row in rows] == [1, 1, 1]
    for name, slots in rows[1].slots.items():
        assert torch.equal(slots[0], state.slots[name][1])
    with pytest.raises(IndexError, match=r"row must lie in 0 \.\. 2, got 3"):
        state[3]
