"""Read one segment beside a memory: positions, masks and plans of a step, the layers, and the memory after it.

A segment is read in one step (as in training) or in several (as in generation), by the same functions::

    segment = OpenSegment.after(memory, state, layers=len(layers))
    step = SegmentStep(segment, tokens=T)
    plan = plan_step(step, encoding, call)
    read = read_step(layers, x, step, plan)         # and on from read.segment
    state = read.segment.close()

Columns are counted from the oldest slot: slots 0 .. M - 1, tokens from M on. Everything here is a value: a step gives a
new segment, and leaves the one that it was given as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from wordorder.attention import Backend, Call, LayerPlans, Plan, plan_layers
from wordorder.encodings import Composition
from wordorder.memory.look_ahead import LookAheadMemory
from wordorder.memory.state import KeyValues, LayerRecord, Memory, MemoryState
from wordorder.ops import Contiguous, Mask, gather_tokens
from wordorder.ops.execution import method_within, run_layer


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenSegment:
    """A segment that is being read: the memory before it, and what its tokens have left so far.

    Args:
        state: the memory before the segment; None = nothing.
        keep: hold keys and values, for further steps in the same segment.
        tokens: read so far.
        valid_BT: bool, False where one of them is padding; None = none is.
        key_values: by layer, of the slots and of all tokens so far; empty unless ``keep``.
        kept: what the tokens leave for each entry of `MemoryState.slots`, step by step.
        refreshed: entries of the slots that newer tokens have changed.
        alphas: by layer the weight of what a slot knew before this segment, (B, H, M).
    """

    memory: Memory
    layers: int
    state: MemoryState | None = None
    keep: bool = False
    tokens: int = 0
    valid_BT: Tensor | None = None
    key_values: tuple[KeyValues, ...] = ()
    kept: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict[str, tuple[Tensor, ...]])
    refreshed: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    alphas: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])

    @classmethod
    def after(cls, memory: Memory, state: MemoryState | None, *, layers: int, keep: bool = False) -> "OpenSegment":
        """Open a segment after the state that the one before left; raise ValueError where it is another network's."""
        if state is not None and not isinstance(cast("object", state), memory.state_type):
            raise ValueError(f"memory must be a {memory.state_type.__name__} here, got {type(state).__name__}")
        if state is not None and state.layers != layers:
            raise ValueError(f"memory must be of {layers} layers, got one of {state.layers}")
        if state is not None and torch.is_grad_enabled():
            state = state.usable_in_training()
        return cls(memory=memory, layers=layers, state=None if state is None else state.last(memory.length), keep=keep)

    @property
    def slots(self) -> int:
        """Number of slots per row, M."""
        return 0 if self.state is None else self.state.length

    @property
    def position(self) -> int | Tensor:
        """Position of the segment's first token in its text."""
        return 0 if self.state is None else self.state.position

    def valid_keys(self, tokens: int = 0, valid_BT: Tensor | None = None) -> Tensor | None:
        """Return the columns that hold a token, bool (B, M + tokens so far + those of this step); None = all."""
        slots = None if self.state is None else self.state.valid_BM
        return _masks_joined((slots, self.slots), (self.valid_BT, self.tokens), (valid_BT, tokens))

    def reorder(self, rows: Tensor) -> "OpenSegment":
        """Return a segment whose row b continues from row ``rows[b]``, here and before, as in beam search."""

        def of_rows(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows.to(tensor.device))

        def joined(name: str, pieces: tuple[Tensor, ...]) -> tuple[Tensor]:
            """Concatenate the steps, so that many of them cost no more."""
            return (of_rows(torch.cat(pieces, dim=self.memory.state_type.slot_axis(name))),)

        return replace(
            self,
            state=None if self.state is None else self.state.reorder(rows),
            valid_BT=None if self.valid_BT is None else of_rows(self.valid_BT),
            key_values=tuple((of_rows(k), of_rows(v)) for k, v in self.key_values),
            kept={name: joined(name, pieces) for name, pieces in self.kept.items()},
            refreshed={name: of_rows(tensor) for name, tensor in self.refreshed.items()},
            alphas={layer: of_rows(alpha) for layer, alpha in self.alphas.items()},
        )

    def close(self) -> MemoryState:
        """Return the memory after the segment: its last ``memory.length`` slots and tokens."""
        if not self.tokens:
            raise ValueError("a segment without tokens leaves no memory")
        before = {} if self.state is None else {**self.state.slots(), **self.refreshed}
        kind = self.memory.state_type
        slots = {
            name: torch.cat([*([before[name]] if name in before else []), *pieces], dim=kind.slot_axis(name))
            for name, pieces in self.kept.items()
        }
        valid_BS, read_B = self.valid_keys(), None if self.valid_BT is None else self.valid_BT.sum(1)
        entered, entered_B = self.tokens, read_B
        if read_B is not None and self.state is not None:
            # a row that read nothing keeps the number of the segment before
            before = self.state.entered if self.state.entered_B is None else self.state.entered_B
            entered, entered_B = max(self.tokens, self.state.entered), torch.where(read_B == 0, before, read_B)
        state = kind.from_slots(
            _pushed_together(slots, valid_BS, kind),
            position=self.position + (self.tokens if read_B is None else read_B),
            entered=entered,
            valid_BM=None if valid_BS is None else valid_BS.sort(dim=1, stable=True).values,
            entered_B=entered_B,
        )
        return state.last(self.memory.length)


@dataclass(frozen=True)
class SegmentStep:
    """One step of reading a segment: positions and masks, known before the layers run.

    Positions are those of the window: the oldest slot is at 0, whatever was read before it. So tables do not have to
    grow with the text, angles stay small, and what depends on distance stays a Toeplitz matrix, since the slots of
    every row are pushed up against its tokens.

    Args:
        segment: before the step.
        tokens: of this step, T.
        valid_BT: bool, False where one of them is padding; None = none is.
        causal: tokens see only themselves and earlier tokens; else the segment must be read in one step.
        position_dependent: the network reads a table by the window's positions: those must then not count slots that
            hold nothing, so that a row with such slots has positions of its own. Encodings that depend on distance
            alone are spared that.
    """

    segment: OpenSegment
    tokens: int
    valid_BT: Tensor | None = None
    causal: bool = True
    position_dependent: bool = False

    @property
    def first(self) -> int | Tensor:
        """Position of column 0 in the window; negative in rows with leading empty slots."""
        valid_BS = self.segment.valid_keys(self.tokens, self.valid_BT) if self.position_dependent else None
        return 0 if valid_BS is None else -valid_BS.int().argmax(dim=1)

    @property
    def window(self) -> Contiguous:
        """The tokens' positions in the window."""
        return Contiguous(self.tokens, self.first + self.segment.slots + self.segment.tokens)

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
        read_B = self.segment.tokens if self.segment.valid_BT is None else self.segment.valid_BT.sum(1)
        return Contiguous(self.tokens, read_B - self._leading_B())

    @property
    def in_table(self) -> Contiguous:
        """The tokens' positions in the window, row by row, the oldest slot that holds a token being at 0."""
        valid_BS = self.segment.valid_keys()
        if valid_BS is None and self.valid_BT is None:
            return self.window
        held_B = self.segment.slots + self.segment.tokens if valid_BS is None else valid_BS.sum(1)
        return Contiguous(self.tokens, held_B - self._leading_B())

    def _leading_B(self) -> int | Tensor:
        """Return how many columns of padding come before the first token of this step, row by row."""
        return 0 if self.valid_BT is None else self.valid_BT.int().argmax(dim=1)

    @property
    def keys(self) -> int:
        """Number of keys: slots, tokens of earlier steps and of this one."""
        return self.segment.slots + self.segment.tokens + self.tokens

    @property
    def reads_slots(self) -> bool:
        """True if the slots go through the layers in this step: in the first one of a segment, if there are any."""
        return not self.segment.tokens and self.segment.slots > 0

    def mask(self) -> Mask:
        """Return the mask of the tokens over slots and tokens."""
        valid_BS = self.segment.valid_keys(self.tokens, self.valid_BT)
        key = Contiguous(self.keys, self.first)
        within = self.segment.memory.within
        low, high = None if within is None else 1 - within, 0 if self.causal else None
        return Mask(self.window, key, low, high, valid_BS)

    def look_ahead_window(self) -> slice:
        """Return the columns that slots look at.

        In a causal network they are what entered with the previous segment after its first token, which was seen then,
        and the first token of this one; else all tokens of the segment.
        """
        slots, state = self.segment.slots, self.segment.state
        if not self.causal:
            return slice(slots, slots + self.tokens)
        return slice(max(slots - (state.entered if state else 0) + 1, 1), slots + 1)

    def look_ahead_mask(self, *, full: bool) -> Mask:
        """Return the mask of the slots over the columns of their window: those to the right, or all of them."""
        window, state = self.look_ahead_window(), self.segment.state
        valid_BS = self.segment.valid_keys(self.tokens, self.valid_BT)
        valid_BJ = None if valid_BS is None else valid_BS[:, window]
        if self.causal and state is not None and state.entered_B is not None:
            # rows that took in less have seen more of the window before
            first_B = self.segment.slots - state.entered_B + 1
            fresh_BJ = torch.arange(window.start, window.stop, device=first_B.device) >= first_B[:, None]
            valid_BJ = fresh_BJ if valid_BJ is None else valid_BJ & fresh_BJ.to(valid_BJ.device)
        if valid_BJ is not None and self.valid_BT is not None:
            # a row without a token here is left as it is; it looks when the next one comes
            valid_BJ = valid_BJ & self.valid_BT.any(1, keepdim=True)
        query = Contiguous(self.segment.slots, self.first)
        key = Contiguous(window.stop - window.start, self.first + window.start)
        return Mask(query, key, low=1 if self.causal and not full else None, tokens_BS=valid_BJ)


def check_step(step: SegmentStep, batch: int, *, channels: int, heads: int) -> None:
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
    if step.valid_BT is not None and step.valid_BT.shape != (batch, step.tokens):
        given = tuple(step.valid_BT.shape)
        raise ValueError(f"valid_BT must be (batch, tokens) = {(batch, step.tokens)}, got {given}")
    if step.segment.state is not None:
        _check_state(step.segment.state, batch, channels=channels, heads=heads)
    # reading a mask on a GPU would stop the stream, and in a compiled graph would break it
    if step.valid_BT is None or step.valid_BT.device.type != "cpu" or torch.compiler.is_compiling():
        return
    valid_BS = step.segment.valid_keys(step.tokens, step.valid_BT)
    assert valid_BS is not None
    begins_B = (valid_BS[:, 1:] & ~valid_BS[:, :-1]).sum(1) + valid_BS[:, 0]
    if (begins_B > 1).any():
        raise ValueError(
            "padding stands between tokens of a text, or between what memory holds of it and its next token; pad the"
            " tokens of a segment on the right"
        )


def _check_state(state: MemoryState, batch: int, *, channels: int, heads: int) -> None:
    if state.batch != batch:
        raise ValueError(f"memory holds {state.batch} rows and the batch {batch}; reorder the memory, or begin anew")
    slots = state.slots()
    found = next(iter(slots.values())).shape[-1], {t.shape[1] for n, t in slots.items() if state.slot_axis(n) == 2}
    if found[0] != channels or found[1] - {heads}:
        of_heads = f" and {', '.join(map(str, found[1]))} heads" if found[1] else ""
        raise ValueError(
            f"memory is of a network with {found[0]} channels{of_heads}, and this one has {channels} and {heads}; pass"
            " what this network returned"
        )


@dataclass(frozen=True)
class StepPlan:
    """Encoding and masks of one step, put together for all layers."""

    tokens: LayerPlans
    """The plan of the step's tokens over all keys."""
    slots: LayerPlans | None = None
    """The plan of the slots over the keys of their look-ahead window; None = no slots are refreshed in this step."""


def plan_step(
    step: SegmentStep, encoding: Composition, call: Call, *, backend: str | Backend | None = None
) -> StepPlan:
    """Prepare the encoding at the step's positions, and plan attention with its masks.

    Args:
        call: of the tokens' queries and of all keys.
        backend: forced, as in `plan_layers`.
    """
    memory, mask = step.segment.memory, step.mask()
    terms = encoding.terms(mask.query, mask.key, dtype=call.dtype, device=call.device)
    looks_ahead = isinstance(memory, LookAheadMemory)
    call = replace(call, return_lse=looks_ahead)
    tokens = plan_layers(terms, mask, call, backend=backend)
    if not looks_ahead or not step.reads_slots:
        return StepPlan(tokens)
    mask = step.look_ahead_mask(full=memory.full)
    terms = encoding.terms(mask.query, mask.key, dtype=call.dtype, device=call.device)
    if memory.full:
        terms = terms.right_only()
    call = replace(call, queries=mask.query.length, keys=mask.key.length)
    return StepPlan(tokens, plan_layers(terms, mask, call, backend=backend))


@dataclass(frozen=True)
class SlotRefresh:
    """The plan, the window and the read-outs with which a layer refreshes the slots of a look-ahead memory."""

    plan: Plan
    """The plan of the slots over the keys of their window."""
    window: slice
    """Columns of those keys."""
    read_out: Tensor
    """Read-outs of the slots so far, (B, H, M, E)."""
    normaliser: Tensor
    """The log-sum-exp that belongs to it, (B, H, M)."""
    memory: LookAheadMemory


@dataclass(frozen=True)
class MemoryView:
    """A step of a segment as the self-attention of one layer sees it.

    Args:
        plan: of the tokens over all keys.
        tokens: of this step, T; they are the last rows of what the layer reads, slots may be before them.
        queries: how many of the last rows have queries, and come out of the layer.
        held: keys and values of the slots and of earlier steps' tokens, where they were kept.
        keep_keys: record keys and values, for the next step.
        keep_read_outs: record what the tokens' attention found, with its log-sum-exp.
        refresh: of the slots among the queries; None = there are none.
    """

    plan: Plan
    tokens: int
    queries: int
    held: KeyValues | None = None
    keep_keys: bool = False
    keep_read_outs: bool = False
    refresh: SlotRefresh | None = None


def view_of(step: SegmentStep, plan: StepPlan, layer: int) -> MemoryView:
    """Return the step as layer ``layer`` (from 0) sees it."""
    segment, memory = step.segment, step.segment.memory
    # the last layer's slots would be read by nobody
    refreshed = memory if isinstance(memory, LookAheadMemory) and layer < segment.layers - 1 else None
    refresh = None
    if refreshed is not None and plan.slots is not None:
        assert segment.state is not None
        slots = segment.state.slots()
        old = slots[f"read_outs.{layer}"], slots[f"normalisers.{layer}"]
        refresh = SlotRefresh(plan.slots.layer(layer), step.look_ahead_window(), *old, refreshed)
    return MemoryView(
        plan=plan.tokens.layer(layer),
        tokens=step.tokens,
        queries=step.tokens + (segment.slots if refresh else 0),
        held=segment.key_values[layer] if segment.key_values else None,
        keep_keys=segment.keep,
        keep_read_outs=refreshed is not None,
        refresh=refresh,
    )


class StepRead(NamedTuple):
    """The result of one step: what the layers return, and the segment after the step.

    Attributes:
        attentions: each layer's weights on slots and tokens, (B, H, T, M + tokens so far), if asked for.
    """

    hidden: Tensor
    segment: OpenSegment
    all_hidden: tuple[Tensor, ...] = ()
    attentions: tuple[Tensor, ...] = ()


def read_step(
    layers: Iterable[nn.Module],
    x_BTC: Tensor,
    step: SegmentStep,
    plan: StepPlan,
    *,
    checkpointed: bool = False,
    return_all_hidden: bool = False,
    return_attentions: bool = False,
) -> StepRead:
    """Run the layers over the tokens of a step, and over the slots before them where those take part.

    Each layer is called with rows and a `MemoryView`, and returns rows and a `LayerRecord`.
    """
    segment, memory = step.segment, step.segment.memory
    all_hidden: list[Tensor] = []
    attentions: list[Tensor] = []
    kept, refreshed, alphas = dict(segment.kept), dict(segment.refreshed), dict(segment.alphas)
    key_values: list[KeyValues] = []
    for index, layer in enumerate(layers):
        if return_all_hidden:
            all_hidden.append(x_BTC[:, -step.tokens :])
        read_BTC = x_BTC
        if step.reads_slots:
            assert segment.state is not None
            x_BTC = memory.with_slots(index, x_BTC, segment.state)
        view = view_of(step, plan, index)
        if return_attentions:
            attentions.append(method_within(layer, "attention_weights")(x_BTC, view)[0])
        record: LayerRecord
        x_BTC, record = run_layer(layer, x_BTC, view, checkpointed=checkpointed)
        for name, piece in memory.kept(index, read_BTC, record).items():
            kept[name] = (*kept.get(name, ()), piece)
        if record.key_values is not None:
            key_values.append(record.key_values)
        if record.slots is not None:
            refreshed |= {
                f"read_outs.{index}": record.slots.read_out,
                f"normalisers.{index}": record.slots.normaliser,
            }
            alphas[index] = record.slots.alpha
    after = replace(
        segment,
        tokens=segment.tokens + step.tokens,
        valid_BT=_masks_joined((segment.valid_BT, segment.tokens), (step.valid_BT, step.tokens)),
        key_values=tuple(key_values),
        kept=kept,
        refreshed=refreshed,
        alphas=alphas,
    )
    return StepRead(x_BTC, after, tuple(all_hidden), tuple(attentions))


def _masks_joined(*parts: tuple[Tensor | None, int]) -> Tensor | None:
    """Join masks, each of so many columns, into one; None stands for all True, and is returned if all are None."""
    given = next((mask for mask, _ in parts if mask is not None), None)
    if given is None:
        return None
    full = [given.new_ones(given.shape[0], count) if mask is None else mask for mask, count in parts]
    return torch.cat(full, dim=1)


def _pushed_together(slots: dict[str, Tensor], valid_BS: Tensor | None, kind: type[MemoryState]) -> dict[str, Tensor]:
    """Move each row's valid columns to the end, in their order, so that nothing is between slots and new tokens."""
    if valid_BS is None:
        return slots
    column_BS = valid_BS.int().argsort(dim=1, stable=True)
    return {name: gather_tokens(tensor, column_BS, kind.slot_axis(name)) for name, tensor in slots.items()}
