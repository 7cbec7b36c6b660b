"""Read one segment beside a memory: positions, masks and plans of a step, the layers, and the memory after it.

A segment is read in one step (as in training) or in several (as in generation), by the same functions::

    segment = Segment.after(memory, state, layers=len(layers))
    step = Step(segment, T, tokens_BT, causal, encoding).planned(call)
    read = read_step(layers, x, step)               # and on from read.segment
    state = read.segment.close()

Columns are counted from the oldest slot: slots 0 .. M - 1, tokens from M on. Everything here is a value: a step gives a
new segment, and leaves the one that it was given as it is.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wordorder.attention import Backend, Call, Keys, LayerPlans, Record, plan_layers
from wordorder.encodings import Composition
from wordorder.memory.memory import Memory
from wordorder.memory.state import MemoryState
from wordorder.ops import Contiguous, Mask, gather_tokens
from wordorder.ops.execution import run_layer


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """A segment that is being read: the memory before it, and what its tokens have left so far.

    Args:
        state: the memory before the segment; None = nothing.
        keep: hold keys and values, for further steps in the same segment.
        tokens: read so far.
        tokens_BT: bool, False where one of them is padding; None = none is.
        keys: by layer, of the slots and of all tokens so far; empty unless ``keep``.
        input_rows: by layer, the last ones of its input (`Record.input_rows`); empty unless ``keep``.
        left: what the tokens leave for each entry of the memory's slots, step by step.
        refreshed: entries of the slots that newer tokens have changed.
        notes: what the memory tells of its layers, for inspection.
        weights: those of the memory (`Memory.weights`), from the network that reads.
    """

    memory: Memory
    layers: int
    state: MemoryState | None = None
    slot_count: int = field(init=False)
    """Number of slots per row, M: those of the state."""
    keep: bool = False
    tokens: int = 0
    tokens_BT: Tensor | None = None
    keys: tuple[Keys, ...] = ()
    input_rows: tuple[Tensor | None, ...] = ()
    left: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict[str, tuple[Tensor, ...]])
    refreshed: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    notes: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    weights: nn.Module | None = None

    @classmethod
    def after(cls, memory: Memory, state: MemoryState | None, *, layers: int, keep: bool = False) -> "Segment":
        """Open a segment after the state that the one before left; raise ValueError where it is another network's."""
        if state is not None and not isinstance(state, MemoryState):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"memory must be a MemoryState, got {type(state).__name__}")
        if state is not None and state.kind != memory.name:
            raise ValueError(f"memory must be of {memory.name} here, got one of {state.kind}")
        if state is not None and state.layers != layers:
            raise ValueError(f"memory must be of {layers} layers, got one of {state.layers}")
        if state is not None and torch.is_grad_enabled():
            state = state.usable_in_training()
        return cls(memory=memory, layers=layers, state=None if state is None else memory.fitted(state), keep=keep)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot_count", 0 if self.state is None else self.state.length)

    @property
    def position(self) -> int | Tensor:
        """Position of the segment's first token in its text."""
        return 0 if self.state is None else self.state.position

    def valid_keys(self, tokens: int = 0, tokens_BT: Tensor | None = None) -> Tensor | None:
        """Return the columns that hold a token, bool (B, M + tokens so far + those of this step); None = all."""
        slots = None if self.state is None else self.state.valid_BM
        return _masks_joined((slots, self.slot_count), (self.tokens_BT, self.tokens), (tokens_BT, tokens))

    def reorder(self, rows: Tensor) -> "Segment":
        """Return a segment whose row b continues from row ``rows[b]``, here and before, as in beam search."""

        def of_rows(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows.to(tensor.device))

        return replace(
            self,
            state=None if self.state is None else self.state.reorder(rows),
            tokens_BT=None if self.tokens_BT is None else of_rows(self.tokens_BT),
            keys=tuple(keys.rows(rows.to(keys.k.device)) for keys in self.keys),
            input_rows=tuple(None if x_BKC is None else of_rows(x_BKC) for x_BKC in self.input_rows),
            # in one piece, so that many steps cost no more
            left={name: (of_rows(torch.cat(pieces, dim=1)),) for name, pieces in self.left.items()},
            refreshed={name: of_rows(tensor) for name, tensor in self.refreshed.items()},
            notes={name: of_rows(tensor) for name, tensor in self.notes.items()},
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Segment":
        """Return a copy with the same weights: those of the network, which go on learning."""
        copied = {
            f.name: copy.deepcopy(getattr(self, f.name), memo) for f in fields(self) if f.init and f.name != "weights"
        }
        return replace(self, **copied)

    def close(self) -> MemoryState:
        """Return the memory after the segment: those of its slots and tokens that the memory keeps."""
        if not self.tokens:
            raise ValueError("a segment without tokens leaves no memory")
        before = {} if self.state is None else {**self.state.slots, **self.refreshed}
        slots = {
            name: torch.cat([*([before[name]] if name in before else []), *pieces], dim=1)
            for name, pieces in self.left.items()
        }
        valid_BS, read_B = self.valid_keys(), None if self.tokens_BT is None else self.tokens_BT.sum(1)
        entered, entered_B = self.tokens, read_B
        if read_B is not None and self.state is not None:
            # a row that read nothing keeps the number of the segment before
            filled = self.state.entered if self.state.entered_B is None else self.state.entered_B
            entered, entered_B = max(self.tokens, self.state.entered), torch.where(read_B == 0, filled, read_B)
        state = MemoryState(
            kind=self.memory.name,
            layers=self.layers,
            slots=_pushed_together(slots, valid_BS),
            position=self.position + (self.tokens if read_B is None else read_B),
            entered=entered,
            valid_BM=None if valid_BS is None else valid_BS.sort(dim=1, stable=True).values,
            entered_B=entered_B,
        )
        return self.memory.kept(state, self)


@dataclass(frozen=True)
class Step:
    """One step of reading a segment: positions and masks, known before the layers run.

    Positions are those of the window: the oldest slot is at 0, whatever was read before it. So tables do not have to
    grow with the text, angles stay small, and what depends on distance stays a Toeplitz matrix, since the slots of
    every row are pushed up against its tokens. Of the four that a step knows, ``in_text`` counts from a text's
    beginning, ``in_segment`` from the segment's, ``window`` and ``in_table`` from the oldest slot.

    Args:
        segment: before the step.
        tokens: of this step, T.
        tokens_BT: bool, False where one of them is padding; None = none is.
        causal: tokens see only themselves and earlier tokens; else the segment must be read in one step.
        learning: a training step, in which the weights of the memory learn: the segment is read at once.
        encoding: of the network. Where attention reads a table by the window's positions, those must not count slots
            that hold nothing, so that a row with such slots has positions of its own; others are spared that.
        call: of the tokens; None until it is `planned`.
        backend: forced.
        plans: of the tokens over slots and tokens.
        prepared: what the memory needs beside them.
    """

    segment: Segment
    tokens: int
    tokens_BT: Tensor | None
    causal: bool
    encoding: Composition
    learning: bool = False
    call: Call | None = None
    backend: str | Backend | None = None
    plans: LayerPlans | None = None
    prepared: Any = None

    @cached_property
    def first(self) -> int | Tensor:
        """Position of column 0 in the window; negative in rows with leading empty slots."""
        valid_BS = self.segment.valid_keys(self.tokens, self.tokens_BT) if self.encoding.position_dependent else None
        return 0 if valid_BS is None else -valid_BS.int().argmax(dim=1)

    @property
    def window(self) -> Contiguous:
        """The tokens' positions in the window."""
        return Contiguous(self.tokens, self.first + self.segment.slot_count + self.segment.tokens)

    @property
    def in_text(self) -> Contiguous:
        """The tokens' positions in their texts; padding on the left, where there is any, is before position 0."""
        return Contiguous(self.tokens, self.segment.position + self.in_segment.offset)

    @property
    def in_segment(self) -> Contiguous:
        """The tokens' positions in the segment, for embeddings that are waves over positions.

        A frequency that learns cannot be carried far: what moves it by d turns the wave at position p by p d, so that
        after some thousand tokens every update would draw a new phase. The papers' language model counts anew in every
        segment too; slots keep the phases they had.
        """
        read_B = self.segment.tokens if self.segment.tokens_BT is None else self.segment.tokens_BT.sum(1)
        return Contiguous(self.tokens, read_B - self._leading_B())

    @property
    def in_table(self) -> Contiguous:
        """The tokens' positions in the window, row by row, the oldest slot that holds a token being at 0."""
        valid_BS = self.segment.valid_keys()
        if valid_BS is None and self.tokens_BT is None:
            return self.window
        held_B = self.segment.slot_count + self.segment.tokens if valid_BS is None else valid_BS.sum(1)
        return Contiguous(self.tokens, held_B - self._leading_B())

    def _leading_B(self) -> int | Tensor:
        """Return how many columns of padding come before the first token of this step, row by row."""
        return 0 if self.tokens_BT is None else self.tokens_BT.int().argmax(dim=1)

    @property
    def keys(self) -> int:
        """Number of keys: slots, tokens of earlier steps and of this one."""
        return self.segment.slot_count + self.segment.tokens + self.tokens

    @cached_property
    def reads_slots(self) -> bool:
        """True if the slots go through the layers in this step: in the first one of a segment, if there are any."""
        return not self.segment.tokens and self.segment.slot_count > 0

    def mask(self) -> Mask:
        """Return the mask of the tokens over slots and tokens."""
        valid_BS = self.segment.valid_keys(self.tokens, self.tokens_BT)
        key = Contiguous(self.keys, self.first)
        window = self.segment.memory.window
        low, high = None if window is None else 1 - window, 0 if self.causal else None
        return Mask(self.window, key, low, high, valid_BS)

    def plan(self, mask: Mask, *, right_only: bool = False, sinks: bool = True) -> LayerPlans:
        """Plan attention with a mask, at its positions.

        Args:
            right_only: every key counts as one to the right.
            sinks: have those of the encoding; False where the result is merged with one that has them.
        """
        assert self.call is not None
        terms = self.encoding.terms(mask.query, mask.key, dtype=self.call.dtype, device=self.call.device)
        call = replace(self.call, queries=mask.query.length, keys=mask.key.length)
        terms = terms.right_only() if right_only else terms
        terms = terms if sinks else terms.without_sinks()
        return plan_layers(terms, mask, call, backend=self.backend, trusted=self.encoding.trusted)

    def planned(self, call: Call, *, backend: str | Backend | None = None) -> "Step":
        """Return the step with the plan of its tokens, and with what its memory prepares, for all layers.

        Args:
            call: of the tokens' queries and of all keys.
            backend: forced, as in `plan_layers`.
        """
        memory = self.segment.memory
        step = replace(self, call=replace(call, return_lse=memory.needs_lse(self.segment.layers)), backend=backend)
        step = replace(step, plans=step.plan(step.mask()))
        return replace(step, prepared=memory.prepare(step))

    def arguments(self, layer: int) -> dict[str, Any]:
        """Return the arguments of the `LayerStep` of layer ``layer`` in which tokens attend to slots and tokens."""
        assert self.plans is not None
        segment = self.segment
        input_rows = segment.input_rows[layer] if segment.input_rows else None
        return {
            "plan": self.plans.layer(layer),
            "extend": segment.keys[layer].then if segment.keys else None,
            "extend_input": None if input_rows is None else partial(_behind, input_rows),
            "queries": self.tokens if self.reads_slots else None,
            "keep": segment.keep,
        }


def check_step(step: Step, batch: int, *, channels: int, heads: int) -> None:
    """Refuse tokens, padding or a memory that do not fit together.

    Padding before a text, and after the tokens of a segment, is harmless; between them distances would count it, and
    those of later segments would not (looked at on the CPU only).
    """
    if not step.tokens:
        raise ValueError("a segment must have one token at least, got none; leave it out")
    if step.segment.tokens and not step.segment.keep:
        raise ValueError("a segment is read in several steps only if it keeps keys; open it with keep=True")
    if step.segment.tokens and not step.causal:
        raise ValueError("a segment whose tokens see each other on both sides (an encoder's) must be read in one step")
    if step.tokens_BT is not None and step.tokens_BT.shape != (batch, step.tokens):
        shape = tuple(step.tokens_BT.shape)
        raise ValueError(f"tokens_BT must be (batch, tokens) = {(batch, step.tokens)}, got {shape}")
    if step.segment.state is not None:
        _check_state(step, step.segment.state, batch, channels=channels, heads=heads)
    # reading a mask on a GPU would stop the stream, and in a compiled graph would break it
    if step.tokens_BT is None or step.tokens_BT.device.type != "cpu" or torch.compiler.is_compiling():
        return
    valid_BS = step.segment.valid_keys(step.tokens, step.tokens_BT)
    assert valid_BS is not None
    begins_B = (valid_BS[:, 1:] & ~valid_BS[:, :-1]).sum(1) + valid_BS[:, 0]
    if (begins_B > 1).any():
        raise ValueError(
            "padding stands between tokens of a text, or between what memory holds of it and its next token; pad the"
            " tokens of a segment on the right"
        )


def _check_state(step: Step, state: MemoryState, batch: int, *, channels: int, heads: int) -> None:
    if state.batch != batch:
        raise ValueError(f"memory holds {state.batch} rows and the batch {batch}; reorder the memory, or begin anew")
    shapes = step.segment.memory.slot_shapes(state.layers, channels=channels, heads=heads)
    shapes = {name: (batch, state.length, *shape) for name, shape in shapes.items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.slots.items()}
    if found != shapes:
        name = next(name for name in sorted({*found, *shapes}) if found.get(name) != shapes.get(name))
        raise ValueError(
            f"memory is of another network, or not whole: {name} is {found.get(name)}, and this network needs"
            f" {shapes.get(name)}; pass what this network returned"
        )


class SegmentRead(NamedTuple):
    """The result of one step: what the layers return, and the segment after the step.

    Attributes:
        attentions: each layer's weights on slots and tokens, (B, H, T, M + tokens so far), if asked for.
        loss: what the weights of the memory learn from, summed over the layers; None = nothing.
    """

    hidden: Tensor
    segment: Segment
    all_hidden: tuple[Tensor, ...] = ()
    attentions: tuple[Tensor, ...] = ()
    loss: Tensor | None = None


def read_step(
    layers: Iterable[nn.Module],
    x_BTC: Tensor,
    step: Step,
    *,
    checkpointed: bool = False,
    return_all_hidden: bool = False,
    return_attentions: bool = False,
) -> SegmentRead:
    """Run the layers over the tokens of a step that is `planned`, and over the slots before them where those take part.

    Each layer is called with rows and a `LayerStep`, and returns rows and a `Record`.
    """
    segment, memory = step.segment, step.segment.memory
    all_hidden: list[Tensor] = []
    attentions: list[Tensor] = []
    left, refreshed, notes = dict(segment.left), dict(segment.refreshed), dict(segment.notes)
    keys: list[Keys] = []
    input_rows: list[Tensor | None] = []
    losses: list[Tensor] = []
    for index, layer in enumerate(layers):
        if return_all_hidden:
            all_hidden.append(x_BTC[:, -step.tokens :])
        tokens_BTC = x_BTC
        if step.reads_slots:
            x_BTC = memory.rows(index, x_BTC, step)
        record: Record
        layer_step = memory.layer_step(index, step, weights=return_attentions)
        x_BTC, record = run_layer(layer, x_BTC, layer_step, checkpointed=checkpointed)
        for name, piece in memory.leaves(index, tokens_BTC, x_BTC, record, step).items():
            if piece.shape[1] != step.tokens:
                raise ValueError(
                    f"{memory}: `leaves` of layer {index} gave {piece.shape[1]} rows of {name} for {step.tokens}"
                    " tokens; give one for each, and choose those that stay in `survivors`"
                )
            left[name] = (*left.get(name, ()), piece)
        refreshed |= memory.refreshed(index, record, step)
        notes |= {f"{name}.{index}": note for name, note in record.left.items() if name in memory.noted}
        keys += [] if record.keys is None else [record.keys]
        input_rows += [record.input_rows] if segment.keep else []
        attentions += [] if record.weights is None else [record.weights]
        losses += [] if record.loss is None else [record.loss]
    after = replace(
        segment,
        tokens=segment.tokens + step.tokens,
        tokens_BT=_masks_joined((segment.tokens_BT, segment.tokens), (step.tokens_BT, step.tokens)),
        keys=tuple(keys),
        input_rows=tuple(input_rows),
        left=left,
        refreshed=refreshed,
        notes=notes,
    )
    loss = torch.stack([loss.to(x_BTC.device) for loss in losses]).sum() if losses else None
    return SegmentRead(x_BTC, after, tuple(all_hidden), tuple(attentions), loss)


def _behind(earlier_BKC: Tensor, x_BTC: Tensor, _count: int) -> Tensor:
    return torch.cat((earlier_BKC, x_BTC), dim=1)


def _masks_joined(*parts: tuple[Tensor | None, int]) -> Tensor | None:
    """Join masks, each of so many columns, into one; None stands for all True, and is returned if all are None."""
    masks = [mask for mask, _ in parts if mask is not None]
    if not masks:
        return None
    full = [masks[0].new_ones(len(masks[0]), count) if mask is None else mask for mask, count in parts]
    return torch.cat(full, dim=1)


def _pushed_together(slots: dict[str, Tensor], valid_BS: Tensor | None) -> dict[str, Tensor]:
    """Move each row's valid columns to the end, in their order, so that nothing is between slots and new tokens."""
    if valid_BS is None:
        return slots
    column_BS = valid_BS.int().argsort(dim=1, stable=True)
    return {name: gather_tokens(tensor, column_BS, 1) for name, tensor in slots.items()}
