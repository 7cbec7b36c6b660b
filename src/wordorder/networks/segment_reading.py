"""Reading a segment beside a memory: plans in window coordinates, then the layers, slots and tokens together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from wordorder.attention import HybridPlan, Plan
from wordorder.encodings import HybridOrder, Order
from wordorder.memory import LookAheadMemory, LookAheadSegment, Memory, MemoryState, Plans, RecurrentSegment, Segment
from wordorder.networks.multi_head import Recall
from wordorder.ops import Contiguous, Positions, Visibility


def open_segment(memory: Memory, state: MemoryState | None, *, layers: int, keep: bool = False) -> Segment:
    """A segment about to be read.

    Args:
        memory: the network's.
        state: what earlier segments left; None = nothing.
        layers: of the network.
        keep: hold keys and values, so that the segment can be read in several steps.

    Raises:
        ValueError: the state is of another memory, or of another number of layers.
    """
    if isinstance(memory, LookAheadMemory):
        return LookAheadSegment(state, layers=layers, length=memory.length, keep=keep, epsilon=memory.epsilon)
    return RecurrentSegment(state, layers=layers, length=memory.length, keep=keep)


@dataclass(frozen=True)
class Step:
    """One step of reading a segment: what is known of it before the layers run.

    Positions are those of the window: the oldest slot stands at 0, whatever was read before it. So tables do not have
    to grow with the text, angles stay small, and what depends on distance stays a Toeplitz matrix, since the slots of
    every row are pushed up against its tokens.

    Args:
        segment: what is read.
        tokens: of this step, T.
        valid_BT: bool, False where one of them is padding; None = none is.
        causal: tokens see only what stands before them; else the segment must be read in one step.
        by_place: the network reads a table by the places of the window: those must then not count slots that hold
            nothing, so that a row with such slots has places of its own. What depends on distance alone is spared that.
    """

    segment: Segment
    tokens: int
    valid_BT: Tensor | None = None
    causal: bool = True
    by_place: bool = False

    @property
    def first(self) -> int | Tensor:
        """Where column 0 stands in the window: before its beginning in rows whose first columns hold nothing."""
        valid_BS = self.segment.valid_keys(self.tokens, self.valid_BT) if self.by_place else None
        return 0 if valid_BS is None else -valid_BS.int().argmax(dim=1)

    @property
    def window(self) -> Contiguous:
        """The tokens' positions in the window."""
        return Contiguous(self.tokens, self.first + self.segment.slots + self.segment.tokens)

    @property
    def in_text(self) -> Contiguous:
        """The tokens' positions in their texts; padding on the left, where there is any, stands before position 0."""
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
        """The tokens' positions in the window, row by row, the oldest slot that holds a token being 0."""
        valid_BS = self.segment.valid_keys()
        if valid_BS is None and self.valid_BT is None:
            return self.window
        held_B = self.segment.slots + self.segment.tokens if valid_BS is None else valid_BS.sum(1)
        return Contiguous(self.tokens, held_B - self._leading_B())

    def _leading_B(self) -> int | Tensor:
        """How much padding stands before the first token of this step, row by row."""
        return 0 if self.valid_BT is None else self.valid_BT.int().argmax(dim=1)

    @property
    def keys(self) -> int:
        """Slots, tokens of earlier steps and of this one."""
        return self.segment.slots + self.segment.tokens + self.tokens

    def mask(self, memory: Memory) -> Visibility:
        """Which columns the tokens see."""
        within = memory.length if not isinstance(memory, LookAheadMemory) and memory.same_length else None
        valid_BS = self.segment.valid_keys(self.tokens, self.valid_BT)
        return Visibility(self.window, Contiguous(self.keys, self.first), self.causal, valid_BS, within=within)

    def look_ahead_window(self) -> slice:
        """The columns that slots look at: in a causal network those that came after their last look, up to one token.

        Those are what entered with the previous segment after its first token, which was seen then, and the first token
        of this one. Otherwise all tokens of the segment.
        """
        slots, state = self.segment.slots, self.segment.state
        if not self.causal:
            return slice(slots, slots + self.tokens)
        return slice(max(slots - (state.entered if state else 0) + 1, 1), slots + 1)

    def look_ahead_mask(self, memory: LookAheadMemory) -> Visibility:
        """Which columns of the window the slots see."""
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
        return Visibility(query, key, valid_BS=valid_BJ, ahead=self.causal and not memory.full)


def check_step(step: Step, batch: int, *, channels: int, heads: int) -> None:
    """Refuse tokens, padding or a memory that do not fit together.

    Padding before a text, and after the tokens of a segment, is harmless; between them distances would count it, and
    those of later segments would not.

    Args:
        step: what is to be read.
        batch: rows of the tokens.
        channels: of the network.
        heads: of the network.

    Raises:
        ValueError: there are no tokens; they are not the first of a segment that keeps no keys, or whose tokens see
            each other on both sides; the padding is not one value for each, or stands between tokens of a text, slots
            of memory included (looked at on the CPU only); or the memory is of other rows or another network.
    """
    if not step.tokens:
        raise ValueError("a segment must have one token at least, got none; leave it out")
    if step.segment.tokens and not step.segment.keep:
        raise ValueError("a segment is read in several steps only if it keeps keys; open it with keep=True")
    if step.segment.tokens and not step.causal:
        raise ValueError("a segment whose tokens see each other on both sides (an encoder's) must be read in one step")
    if step.valid_BT is not None and step.valid_BT.shape != (batch, step.tokens):
        given = tuple(step.valid_BT.shape)
        raise ValueError(f"the padding mask must be (batch, tokens) = {(batch, step.tokens)}, got {given}")
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
class SegmentRead:
    """What a network makes of a segment that it reads in one step.

    Args:
        hidden: final states of the tokens, (B, T, C).
        all_hidden: embeddings and every layer's output, if asked for; the last one is ``hidden``.
        attentions: every layer's weights on slots and tokens, (B, H, T, M + T), if asked for.
        memory: for the next segment.
    """

    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None
    attentions: tuple[Tensor, ...] | None
    memory: MemoryState


Prepare = Callable[[Positions, Positions], Order | HybridOrder]
MakePlan = Callable[..., Plan | HybridPlan]


@dataclass(frozen=True)
class StepPlans:
    """`Plans` of one step for all layers; arguments as there."""

    start: int
    tokens: Plan | HybridPlan
    slots: Plan | HybridPlan | None = None
    window: slice | None = None

    def layer(self, index: int) -> Plans:
        """The plans as layer ``index`` (from 0) sees them."""
        slots = None if self.slots is None else self.slots.layer(index)
        return Plans(self.start, self.tokens.layer(index), slots, self.window)


def plans_of(step: Step, memory: Memory, prepare: Prepare, make_plan: MakePlan) -> StepPlans:
    """Word order and masks of a step, prepared once for all layers.

    Args:
        step: what is read.
        memory: the network's.
        prepare: gives the order of queries and keys.
        make_plan: puts an order and a mask together; ``return_lse`` says whether normalisers are wanted.
    """
    mask, ahead = step.mask(memory), isinstance(memory, LookAheadMemory)
    plan = make_plan(prepare(mask.query, mask.key), mask, return_lse=ahead)
    if not isinstance(memory, LookAheadMemory) or step.segment.tokens or not step.segment.slots:
        return StepPlans(step.segment.tokens, plan)
    look = step.look_ahead_mask(memory)
    order = prepare(look.query, look.key)
    if memory.full:
        order = order.all_keys_to_the_right()
    return StepPlans(step.segment.tokens, plan, make_plan(order, look, return_lse=True), step.look_ahead_window())


def run_step(
    step: Step,
    plans: StepPlans,
    layers: nn.ModuleList,
    x_BTC: Tensor,
    run_layer: Callable[..., Tensor],
    *,
    return_all_hidden: bool = False,
    return_attentions: bool = False,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The tokens' states after the last layer; before each layer, if asked for; attention weights, if asked for.

    Args:
        step: what is read.
        plans: of `plans_of`.
        layers: of the network.
        x_BTC: the tokens' embeddings.
        run_layer: `Stack.run_layer`.
        return_all_hidden: also give what each layer read of the tokens.
        return_attentions: also give the weights that tokens give to slots and tokens.
    """
    all_hidden: list[Tensor] = []
    attentions: list[Tensor] = []
    for index, layer in enumerate(layers):
        if return_all_hidden:
            all_hidden.append(x_BTC[:, -step.tokens :])
        x_BTC = step.segment.enter(index, x_BTC)
        recall = Recall(step.segment, index, plans.layer(index), step.tokens)
        if return_attentions:
            weights = cast("Any", layer).attention_weights(x_BTC, recall)
            attentions.append(cast(Tensor, weights[0] if isinstance(weights, tuple) else weights))
        x_BTC = run_layer(layer, x_BTC, recall)
    step.segment.advance(step.tokens, step.valid_BT)
    return x_BTC, all_hidden, attentions
