"""One segment while it is read: the slots before it, the keys so far, and what will be the memory after it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

import torch
from torch import Tensor

from wordorder.attention import Plan
from wordorder.memory.look_ahead import LookAheadMemory, LookAheadState
from wordorder.memory.segment_recurrence import RecurrenceState, SegmentRecurrence
from wordorder.memory.state import MemoryState
from wordorder.ops import merge_read_outs

Memory = SegmentRecurrence | LookAheadMemory


class Attend(Protocol):
    """Attention as a network's layer computes it, dropout included."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, plan: Plan, *, return_lse: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Output (B, H, T, E), and the log-sum-exp (B, H, T) if asked for."""
        ...


@dataclass(frozen=True)
class Plans:
    """Word order and masks of one step through the layers.

    Args:
        start: tokens of the segment that were read before this step.
        tokens: of the step's tokens over all keys.
        slots: of the slots over the keys of their look-ahead window; None = there are none that look in this step.
        window: columns of the keys that the slots look at.
    """

    start: int
    tokens: Plan
    slots: Plan | None = None
    window: slice | None = None


class Segment(ABC):
    """A segment that is being read, in one step (as in training) or in several (as in generation).

    Columns are counted from the oldest slot: slots 0 .. M - 1, tokens from M on.

    Args:
        state: the memory before the segment; None = nothing.
        layers: of the network.
        length: most slots of the memory after it.
        keep: hold keys and values, for further steps in the same segment.

    Raises:
        ValueError: the state is another memory's, or another network's.
    """

    state_type: ClassVar[type[MemoryState]]

    def __init__(self, state: MemoryState | None, *, layers: int, length: int, keep: bool) -> None:
        if state is not None and not isinstance(state, self.state_type):
            raise ValueError(f"memory must be a {self.state_type.__name__} here, got {type(state).__name__}")
        self.state = None if state is None else state.last(length)
        self.layers, self.length, self.keep = layers, length, keep
        self.slots = 0 if self.state is None else self.state.length
        self.tokens = 0
        self.valid_BT: Tensor | None = None
        """Which of the tokens read so far are tokens; None = all."""
        self.key_values: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def position(self) -> int | Tensor:
        """Where the segment's first token stands in its text."""
        return 0 if self.state is None else self.state.position

    @abstractmethod
    def enter(self, layer: int, x_BTC: Tensor) -> Tensor:
        """What layer ``layer`` reads: in the first step the slots' states, then the tokens'."""

    @abstractmethod
    def asking(self, layer: int, tokens: int, start: int) -> int:
        """How many of the last rows of what a layer reads ask.

        Args:
            layer: from 0.
            tokens: of this step; they do.
            start: tokens that were read before this step.
        """

    @abstractmethod
    def mix(self, layer: int, plans: Plans, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """What the rows that ask find, (B, H, rows, E); k and v are those of this step's rows."""

    @abstractmethod
    def read(self) -> Mapping[str, Sequence[Tensor]]:
        """What the tokens leave for each entry of the state, in the order of the steps."""

    def before(self) -> dict[str, Tensor]:
        """What the slots leave."""
        return {} if self.state is None else self.state.slots()

    def all_keys(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the slots and of all tokens so far."""
        if layer in self.key_values:
            held = self.key_values[layer]
            k, v = torch.cat((held[0], k), dim=2), torch.cat((held[1], v), dim=2)
        if self.keep:
            self.key_values[layer] = k, v
        return k, v

    def valid_keys(self, tokens: int = 0, valid_BT: Tensor | None = None) -> Tensor | None:
        """Which columns hold a token, bool (B, M + tokens so far + those of this step); None = all.

        Args:
            tokens: of this step.
            valid_BT: which of them are tokens; None = all.
        """
        slots = None if self.state is None else self.state.valid_BM
        return _masks_joined((slots, self.slots), (self.valid_BT, self.tokens), (valid_BT, tokens))

    def advance(self, tokens: int, valid_BT: Tensor | None) -> None:
        """Take note that a step is over.

        Args:
            tokens: how many were read in it.
            valid_BT: which of them are tokens; None = all.
        """
        self.valid_BT = _masks_joined((self.valid_BT, self.tokens), (valid_BT, tokens))
        self.tokens += tokens

    def reorder(self, index_B: Tensor) -> None:
        """Row b goes on from what row ``index_B[b]`` has read, in this segment and before, as beam search wants it.

        Args:
            index_B: long, rows of the present batch; of any number.
        """
        self.state = None if self.state is None else self.state.reorder(index_B)
        self.valid_BT = None if self.valid_BT is None else _rows(self.valid_BT, index_B)
        self.key_values = {n: (_rows(k, index_B), _rows(v, index_B)) for n, (k, v) in self.key_values.items()}

    def close(self) -> MemoryState:
        """The memory after the segment: its last ``length`` slots and tokens.

        Raises:
            ValueError: nothing was read.
        """
        if not self.tokens:
            raise ValueError("a segment without tokens leaves no memory")
        before, kind = self.before(), self.state_type
        slots = {
            name: torch.cat([*([before[name]] if name in before else []), *pieces], dim=kind.slot_axis(name))
            for name, pieces in self.read().items()
        }
        valid_BS, read_B = self.valid_keys(), None if self.valid_BT is None else self.valid_BT.sum(1)
        entered, entered_B = self._entered(read_B)
        state = kind.from_slots(
            _pushed_together(slots, valid_BS, kind),
            position=self.position + (self.tokens if read_B is None else read_B),
            entered=entered,
            valid_BM=None if valid_BS is None else valid_BS.sort(dim=1, stable=True).values,
            entered_B=entered_B,
        )
        return state.last(self.length)

    def _entered(self, read_B: Tensor | None) -> tuple[int, Tensor | None]:
        """How many slots the segment filled; a row that read nothing is left as the segment before left it."""
        if read_B is None or self.state is None:
            return self.tokens, read_B
        before = self.state.entered if self.state.entered_B is None else self.state.entered_B
        return max(self.tokens, self.state.entered), torch.where(read_B == 0, before, read_B)


class RecurrentSegment(Segment):
    """A segment of `SegmentRecurrence`: slots are states of earlier tokens, which give keys and values."""

    state_type = RecurrenceState

    def __init__(self, state: MemoryState | None, *, layers: int, length: int, keep: bool) -> None:
        super().__init__(state, layers=layers, length=length, keep=keep)
        self.hidden: list[list[Tensor]] = [[] for _ in range(layers)]
        if self.state is not None and len(self.before()) != layers:
            raise ValueError(f"memory must be of {layers} layers, got one of {len(self.before())}")

    def enter(self, layer: int, x_BTC: Tensor) -> Tensor:
        """In the first step the slots' states before the tokens'."""
        self.hidden[layer].append(x_BTC.detach())
        if self.tokens or not self.slots:
            return x_BTC
        return torch.cat((cast(RecurrenceState, self.state).hidden[layer].type_as(x_BTC), x_BTC), dim=1)

    def asking(self, layer: int, tokens: int, start: int) -> int:
        """The tokens ask, slots never do."""
        del layer, start
        return tokens

    def mix(self, layer: int, plans: Plans, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """Attention of the tokens to slots and tokens."""
        return attend(q, *self.all_keys(layer, k, v), plans.tokens)[0]

    def read(self) -> dict[str, list[Tensor]]:
        """What each layer read of the tokens."""
        return {f"hidden.{layer}": pieces for layer, pieces in enumerate(self.hidden)}

    def reorder(self, index_B: Tensor) -> None:
        """As for every segment, and what each layer read; its steps become one, so that many of them cost no more."""
        super().reorder(index_B)
        if self.tokens:
            self.hidden = [[_rows(torch.cat(pieces, dim=1), index_B)] for pieces in self.hidden]


class LookAheadSegment(Segment):
    """A segment of `LookAheadMemory`: in its first step the slots are refreshed and go through the layers beside it.

    Args:
        state: as in `Segment`, and so the next three.
        layers: see there.
        length: see there.
        keep: see there.
        epsilon: of `LookAheadMemory`.
    """

    state_type = LookAheadState

    def __init__(
        self, state: MemoryState | None, *, layers: int, length: int, keep: bool, epsilon: float = 0.0
    ) -> None:
        super().__init__(state, layers=layers, length=length, keep=keep)
        self.epsilon = epsilon
        self.embeddings: list[Tensor] = []
        # by the column at which a step began, so that a layer that is run again (checkpointing) leaves nothing twice
        self.read_outs: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in range(layers - 1)]
        self.refreshed: dict[int, tuple[Tensor, Tensor]] = {}
        self.alphas: dict[int, Tensor] = {}
        """Per layer the weight of what a slot knew before this segment, (B, H, M)."""
        if self.state is not None and len(cast(LookAheadState, self.state).read_outs) != layers - 1:
            held = len(cast(LookAheadState, self.state).read_outs) + 1
            raise ValueError(f"memory must be of {layers} layers, got one of {held}")

    def enter(self, layer: int, x_BTC: Tensor) -> Tensor:
        """In the first step, the first layer reads the slots' embeddings before the tokens'; later ones have both."""
        if layer:
            return x_BTC
        self.embeddings.append(x_BTC.detach())
        if self.tokens or not self.slots:
            return x_BTC
        return torch.cat((cast(LookAheadState, self.state).embeddings.type_as(x_BTC), x_BTC), dim=1)

    def asking(self, layer: int, tokens: int, start: int) -> int:
        """Slots ask too, in the first step, but for the last layer, whose slots nobody would read."""
        return tokens if layer == self.layers - 1 or start else self.slots + tokens

    def mix(self, layer: int, plans: Plans, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """Attention of the tokens to slots and tokens; in the first step, also that of the slots to their window."""
        k, v = self.all_keys(layer, k, v)
        if layer == self.layers - 1:
            return attend(q, k, v, plans.tokens)[0]
        slots = 0 if plans.start else self.slots
        mixed, lse = attend(q[:, :, slots:], k, v, plans.tokens, return_lse=True)
        assert lse is not None
        self.read_outs[layer][plans.start] = _kept(mixed), lse.detach()
        if not slots:
            return mixed
        return torch.cat((self._refresh(layer, plans, q[:, :, :slots], k, v, attend), mixed), dim=2)

    def _refresh(self, layer: int, plans: Plans, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """The slots' read-outs, old and new ones merged, (B, H, M, E)."""
        state = cast(LookAheadState, self.state)
        old, old_lse = state.read_outs[layer], state.normalisers[layer]
        assert plans.slots is not None
        assert plans.window is not None
        new, new_lse = attend(q, k[:, :, plans.window], v[:, :, plans.window], plans.slots, return_lse=True)
        assert new_lse is not None
        merged, lse, alpha = merge_read_outs(old, old_lse, new, new_lse, epsilon=self.epsilon)
        self.refreshed[layer] = merged.detach(), lse.detach()
        self.alphas[layer] = alpha.detach()
        return merged.type_as(v)

    def before(self) -> dict[str, Tensor]:
        """The slots' embeddings, and what they have found by now."""
        found = super().before()
        for layer, (read_out, lse) in self.refreshed.items():
            found |= {f"read_outs.{layer}": read_out, f"normalisers.{layer}": lse}
        return found

    def read(self) -> dict[str, list[Tensor]]:
        """What the first layer read of the tokens, and what their attention found."""
        found = {"embeddings": self.embeddings}
        for layer, steps in enumerate(self.read_outs):
            found[f"read_outs.{layer}"] = [read_out for read_out, _ in steps.values()]
            found[f"normalisers.{layer}"] = [lse for _, lse in steps.values()]
        return found

    def reorder(self, index_B: Tensor) -> None:
        """As for every segment, and what was found; its steps become one, so that many of them cost no more."""
        super().reorder(index_B)
        self.refreshed = {n: (_rows(r, index_B), _rows(lse, index_B)) for n, (r, lse) in self.refreshed.items()}
        self.alphas = {layer: _rows(alpha, index_B) for layer, alpha in self.alphas.items()}
        if self.tokens:
            self.embeddings = [_rows(torch.cat(self.embeddings, dim=1), index_B)]
            for layer, steps in enumerate(self.read_outs):
                read_outs, normalisers = zip(*steps.values(), strict=True)
                joined = torch.cat(read_outs, dim=2), torch.cat(normalisers, dim=2)
                self.read_outs[layer] = {0: (_rows(joined[0], index_B), _rows(joined[1], index_B))}


def _rows(tensor: Tensor, index_B: Tensor) -> Tensor:
    return tensor.index_select(0, index_B.to(tensor.device))


def _kept(read_out: Tensor) -> Tensor:
    """As it is kept: without a graph, in at least float32, since it is merged again and again."""
    return read_out.detach().to(torch.promote_types(read_out.dtype, torch.float32))


def _masks_joined(*parts: tuple[Tensor | None, int]) -> Tensor | None:
    """Masks of so many columns each as one, None standing for all True; None where all of them are."""
    given = next((mask for mask, _ in parts if mask is not None), None)
    if given is None:
        return None
    full = [given.new_ones(given.shape[0], count) if mask is None else mask for mask, count in parts]
    return torch.cat(full, dim=1)


def _pushed_together(slots: dict[str, Tensor], valid_BS: Tensor | None, kind: type[MemoryState]) -> dict[str, Tensor]:
    """Each row's valid columns moved to the end, in their order: nothing then stands between slots and new tokens."""
    if valid_BS is None:
        return slots
    column_BS = valid_BS.int().argsort(dim=1, stable=True)
    pushed: dict[str, Tensor] = {}
    for name, tensor in slots.items():
        axis = kind.slot_axis(name)
        index = column_BS.view(column_BS.shape[0], *(-1 if a == axis else 1 for a in range(1, tensor.dim())))
        pushed[name] = tensor.gather(axis, index.expand_as(tensor))
    return pushed
