"""The state that memories keep between two segments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops import gather_tokens


@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """The slots of a memory, the oldest first, for a batch of texts that are read side by side.

    A state is a value: nothing changes it, reading a segment gives a new one. It is cut off from the graph that made
    it. In a row that has fewer tokens behind it than others, the valid slots are the last ones.

    Args:
        kind: name of the memory.
        layers: number of layers of the network.
        slots: every tensor that holds something per slot, by name, (B, M, ...); see the memory's class.
        position: where the next token of a text stands, counted from the beginning of the text: a number for all rows,
            or long (B,).
        entered: slots that the last segment filled, at most, in any row; those of a row that read nothing in it were
            filled by an earlier one.
        valid_BM: bool, False where a slot holds nothing; None = all hold a token.
        entered_B: slots that the last segment filled, row by row, long (B,); None = ``entered`` in all of them.
    """

    kind: str
    layers: int
    slots: dict[str, Tensor]
    position: int | Tensor
    entered: int
    valid_BM: Tensor | None = None
    entered_B: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of slots per row, M, valid or not."""
        return next(iter(self.slots.values())).shape[1]

    @property
    def batch(self) -> int:
        """Number of rows, B."""
        return next(iter(self.slots.values())).shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the slots."""
        return next(iter(self.slots.values())).device

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
        if torch.compiler.is_compiling() or not any(tensor.is_inference() for tensor in self.slots.values()):
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

    def columns(self, index: slice | Tensor) -> Self:
        """Return a state with these slots only: a slice, or their numbers, long (M,) for all rows or (B, M) by row."""
        length = self.length
        if isinstance(index, slice) and len(range(length)[index]) == length:
            return self

        def of_slots(tensor: Tensor) -> Tensor:
            if isinstance(index, Tensor) and index.dim() == 2:
                return gather_tokens(tensor, index.to(tensor.device), 1)
            if isinstance(index, Tensor):
                return tensor.index_select(1, index.to(tensor.device))
            return tensor[:, index].clone()  # a view would hold on to what is left out

        slots = {name: of_slots(tensor) for name, tensor in self.slots.items()}
        slots_left = next(iter(slots.values())).shape[1]
        return replace(
            self,
            slots=slots,
            valid_BM=None if self.valid_BM is None else of_slots(self.valid_BM),
            entered=min(self.entered, slots_left),
            entered_B=None if self.entered_B is None else self.entered_B.clamp(max=slots_left),
        )

    def last(self, length: int) -> Self:
        """Return a state with the newest slots only.

        Args:
            length: how many; more than there are leaves all.

        Raises:
            ValueError: negative.
        """
        if length < 0:
            raise ValueError(f"length must not be negative, got {length}")
        return self.columns(slice(max(self.length - length, 0), None))

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
        numbers = {"position": self.position, "entered": self.entered, "layers": self.layers}
        found = {name: n if isinstance(n, Tensor) else torch.tensor(n) for name, n in numbers.items()}
        rows = {"valid": self.valid_BM, "entered_rows": self.entered_B}
        found |= {name: tensor for name, tensor in rows.items() if tensor is not None}
        found |= {f"slots.{name}": tensor for name, tensor in self.slots.items()}
        return {f"{self.kind}.{name}": tensor.contiguous() for name, tensor in found.items()}

    @staticmethod
    def from_state_dict(tensors: Mapping[str, Tensor]) -> "MemoryState":
        """Return the state that `state_dict` wrote; whether it is whole is seen where a network reads on from it.

        Raises:
            ValueError: entries are not of one kind, or one that every kind has is missing.
        """
        kinds = {name.partition(".")[0] for name in tensors}
        if len(kinds) != 1:
            raise ValueError(
                f"a state of memory has entries of one kind, got {sorted(kinds) or 'no entries'}; pass what state_dict"
                " gave"
            )
        entries = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
        slots = {name[6:]: entries.pop(name) for name in [*entries] if name.startswith("slots.")}
        missing = {"position", "entered", "layers"} - set(entries)
        if missing or not slots:
            raise ValueError(f"the state of memory lacks {', '.join(sorted(missing)) or 'slots'}")
        position = entries["position"]
        return MemoryState(
            kind=kinds.pop(),
            layers=int(entries["layers"]),
            slots=slots,
            position=int(position) if position.dim() == 0 else position,
            entered=int(entries["entered"]),
            valid_BM=entries.get("valid"),
            entered_B=entries.get("entered_rows"),
        )

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a state with every tensor changed."""
        rows = {"position": self.position, "valid_BM": self.valid_BM, "entered_B": self.entered_B}
        changed = {name: change(t) for name, t in rows.items() if isinstance(t, Tensor)}
        return replace(self, slots={name: change(tensor) for name, tensor in self.slots.items()}, **changed)
