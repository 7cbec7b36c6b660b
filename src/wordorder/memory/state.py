"""The base classes of memories of earlier segments, and of the states that they keep between two segments."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, NamedTuple, NotRequired, Self, TypedDict, Unpack

import torch
from torch import Tensor

from wordorder.errors import BadInput

KeyValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (B, G, S, D)."""


class RefreshedSlots(NamedTuple):
    """The slots' read-outs after a layer has refreshed them, old and new merged, cut off from the graph.

    Read-outs are (B, H, M, E); their log-sum-exp and the weight alpha of the old ones are (B, H, M).
    """

    read_out: Tensor
    normaliser: Tensor
    alpha: Tensor


class LayerRecord(NamedTuple):
    """The record that the self-attention of one layer leaves of a step; a field that nobody asked for is None.

    Keys and values are those of the slots and of all tokens so far. The read-out, (B, H, T, E), is what the tokens'
    attention found, cut off from the graph, in at least float32, with its log-sum-exp, (B, H, T).
    """

    key_values: KeyValues | None = None
    read_out: Tensor | None = None
    normaliser: Tensor | None = None
    slots: RefreshedSlots | None = None


@dataclass(frozen=True)
class Memory(ABC):
    """The base of memories of earlier segments, which networks are built with: how many slots, and what they keep.

    Args:
        length: most slots, M: tokens that are kept; positive.

    Raises:
        ValueError: length is not a positive whole number, or a switch of a subclass is not True or False.
    """

    name: ClassVar[Literal["segment-recurrence", "look-ahead"]]
    state_type: ClassVar[type["MemoryState"]]
    """Type of the state that the memory keeps."""

    length: int

    def __post_init__(self) -> None:
        if type(self.length) is not int:
            raise ValueError(f"length must be a whole number, got {self.length!r}")
        if self.length <= 0:
            raise ValueError(f"length must be positive, got {self.length}; for no memory pass memory=None")
        for field in fields(self):  # of the subclasses too: "no", from a file, would count as true
            value = getattr(self, field.name)
            if type(field.default) is bool and type(value) is not bool:
                raise ValueError(f"{field.name} must be True or False, got {value!r}")

    @property
    def within(self) -> int | None:
        """Largest number of keys that a token sees, itself included; None = all that are there."""
        return None

    @abstractmethod
    def with_slots(self, layer: int, x_BTC: Tensor, state: "MemoryState") -> Tensor:
        """Return what layer ``layer`` reads in a segment's first step: the tokens' states, behind the slots'."""

    @abstractmethod
    def kept(self, layer: int, x_BTC: Tensor, record: LayerRecord) -> dict[str, Tensor]:
        """Return what the tokens of a step leave in layer ``layer``, by the names of `MemoryState.slots`.

        Args:
            layer: from 0.
            x_BTC: the tokens' states that the layer reads (with slots before them where they came with them).
            record: of the layer.
        """


class MemoryMeta(TypedDict):
    """Fields of a state beside its slots: their places in the texts, and which hold a token; see `MemoryState`."""

    position: int | Tensor
    entered: int
    valid_BM: NotRequired[Tensor | None]
    entered_B: NotRequired[Tensor | None]


@dataclass(frozen=True, kw_only=True)
class MemoryState(ABC):
    """The slots of a memory, the oldest first, for a batch of texts that are read side by side.

    A state is a value: nothing changes it, reading a segment gives a new one. It is cut off from the graph that made
    it. In a row that has fewer tokens behind it than others, the valid slots are the last ones.

    Args:
        position: where the next token of a text stands, counted from the beginning of the text: a number for all rows,
            or long (B,).
        entered: slots that the last segment filled, at most, in any row.
        valid_BM: bool, False where a slot holds nothing; None = all hold a token.
        entered_B: slots that the last segment filled, row by row, long (B,); None = ``entered`` in all of them.
    """

    kind: ClassVar[str]
    """Name of the memory."""

    position: int | Tensor
    entered: int
    valid_BM: Tensor | None = None
    entered_B: Tensor | None = None

    @abstractmethod
    def slots(self) -> dict[str, Tensor]:
        """Return every tensor that holds something per slot, by name; rows first, slots on the axis of `slot_axis`."""

    @classmethod
    @abstractmethod
    def from_slots(cls, slots: Mapping[str, Tensor], **meta: Unpack[MemoryMeta]) -> Self:
        """Return the state made of these tensors, named as in `slots`.

        Raises:
            ValueError: a tensor is missing or unknown.
        """

    @staticmethod
    def slot_axis(name: str) -> int:
        """Return the axis of a tensor of `slots` that counts slots."""
        del name
        return 1

    @property
    @abstractmethod
    def layers(self) -> int:
        """Number of layers of the network."""

    @property
    def length(self) -> int:
        """Number of slots per row, M, valid or not."""
        name, tensor = next(iter(self.slots().items()))
        return tensor.shape[self.slot_axis(name)]

    @property
    def batch(self) -> int:
        """Number of rows, B."""
        return next(iter(self.slots().values())).shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the slots."""
        return next(iter(self.slots().values())).device

    def detach(self) -> Self:
        """Return the state itself: states are cut off from the graph when they are made."""
        return self

    def to(self, device: torch.device | str | None, *, non_blocking: bool = False) -> Self:
        """Return the state on another device; None = where it is (accelerate asks so where it knows of none).

        Raises:
            BadInput: of something else, such as a dtype: slots keep theirs, and positions are whole numbers.
        """
        if device is None:
            return self
        if not isinstance(device, torch.device | str | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"a state moves to a device, such as 'cuda', got {device}; its dtypes stay as they are")
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def usable_in_training(self) -> Self:
        """Return a state that autograd can read: what `torch.inference_mode` made is copied."""
        if torch.compiler.is_compiling() or not any(tensor.is_inference() for tensor in self.slots().values()):
            return self
        return self._each(torch.clone)

    def reorder(self, rows: Tensor) -> Self:
        """Return a state whose row b continues from row ``rows[b]`` (long, of any number), as in beam search.

        Raises:
            ValueError: of another shape or dtype, or (looked at on the CPU only) there is no such row.
        """
        if rows.dim() != 1 or rows.dtype not in (torch.int64, torch.int32):
            given = f"{rows.dtype} {tuple(rows.shape)}"
            raise ValueError(f"rows to go on from must be whole numbers (rows,), got {given}")
        if rows.device.type == "cpu" and rows.numel() and not torch.compiler.is_compiling():
            low, high = (int(end) for end in rows.aminmax())
            if low < 0 or high >= self.batch:
                raise ValueError(f"rows to go on from must lie in 0 .. {self.batch - 1}, got {low} .. {high}")
        rows = rows.to(self.device)
        return self._each(lambda tensor: tensor.index_select(0, rows))

    def __getitem__(self, row: int) -> Self:
        """Return the state of one row, as a batch of one; transformers' pipelines take batches apart in this way.

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= row < self.batch:
            raise IndexError(f"row must lie in 0 .. {self.batch - 1}, got {row}")
        return self.reorder(torch.tensor([row]))

    def last(self, length: int) -> Self:
        """Return a state with the newest slots only.

        Args:
            length: how many; more than there are leaves all.

        Raises:
            ValueError: negative.
        """
        if length < 0:
            raise ValueError(f"length must not be negative, got {length}")
        first = self.length - length
        if first <= 0:
            return self
        # copies, for a view would hold on to what is left out
        kept = {name: t.narrow(self.slot_axis(name), first, length).clone() for name, t in self.slots().items()}
        valid = None if self.valid_BM is None else self.valid_BM[:, first:]
        entered = min(self.entered, length)
        entered_B = None if self.entered_B is None else self.entered_B.clamp(max=length)
        return replace(self.with_slots(kept), valid_BM=valid, entered=entered, entered_B=entered_B)

    def reset(self, rows: Tensor) -> Self:
        """Return a state in which these rows have forgotten everything: what they read next begins a new text.

        Args:
            rows: bool (B,), True = forget.

        Raises:
            ValueError: of another shape or dtype.
        """
        if rows.shape != (self.batch,) or rows.dtype != torch.bool:
            raise ValueError(f"rows must be bool ({self.batch},), got {rows.dtype} {tuple(rows.shape)}")
        rows = rows.to(self.device)
        shape = self.batch, self.length
        valid_BM = torch.ones(shape, dtype=torch.bool, device=self.device) if self.valid_BM is None else self.valid_BM

        def forgotten(value: int | Tensor) -> Tensor:
            whole = value if isinstance(value, Tensor) else torch.full(rows.shape, value, device=rows.device)
            return whole.to(rows.device).masked_fill(rows, 0)

        return replace(
            self,
            position=forgotten(self.position),
            valid_BM=valid_BM & ~rows[:, None],
            entered_B=forgotten(self.entered if self.entered_B is None else self.entered_B),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything as tensors by name, for safetensors or torch.save; `from_state_dict` reads it."""
        numbers = {"position": self.position, "entered": self.entered}
        found = {name: n if isinstance(n, Tensor) else torch.tensor(n) for name, n in numbers.items()}
        rows = {"valid": self.valid_BM, "entered_rows": self.entered_B}
        found |= {name: tensor for name, tensor in rows.items() if tensor is not None}
        return {f"{self.kind}.{name}": t.contiguous() for name, t in {**found, **self.slots()}.items()}

    @staticmethod
    def from_state_dict(tensors: Mapping[str, Tensor]) -> "MemoryState":
        """Return the state that `state_dict` wrote, of whatever kind.

        Raises:
            ValueError: it is of no known kind, or entries are missing or unknown.
        """
        kinds = {kind.kind: kind for kind in MemoryState.__subclasses__()}
        found = {name.partition(".")[0] for name in tensors}
        if len(found) != 1 or not found <= set(kinds):
            raise ValueError(
                f"a state of memory has entries of one kind, {' or '.join(sorted(kinds))}, got"
                f" {sorted(found) or 'no entries'}; pass what state_dict gave"
            )
        kind = kinds[found.pop()]
        entries = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
        missing = {"position", "entered"} - set(entries)
        if missing:
            raise ValueError(f"the state of memory lacks {', '.join(sorted(missing))}")
        position, entered = entries.pop("position"), entries.pop("entered")
        valid, entered_rows = entries.pop("valid", None), entries.pop("entered_rows", None)
        return kind.from_slots(
            entries,
            position=int(position) if position.dim() == 0 else position,
            entered=int(entered),
            valid_BM=valid,
            entered_B=entered_rows,
        )

    def with_slots(self, slots: Mapping[str, Tensor]) -> Self:
        """Return the same state with these tensors in place of those of `slots`."""
        return self.from_slots(
            slots, position=self.position, entered=self.entered, valid_BM=self.valid_BM, entered_B=self.entered_B
        )

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a state with every tensor changed."""
        moved = self.with_slots({name: change(tensor) for name, tensor in self.slots().items()})
        rows = {"position": self.position, "valid_BM": self.valid_BM, "entered_B": self.entered_B}
        return replace(moved, **{name: change(t) for name, t in rows.items() if isinstance(t, Tensor)})
