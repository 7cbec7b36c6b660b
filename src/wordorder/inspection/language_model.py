"""Measure how a causal language model reads a text: attention by distance, memory by age, and loss by context."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.errors import BadInput
from wordorder.inspection.findings import floats
from wordorder.inspection.maps import first_module, layers_note
from wordorder.memory import LookAheadMemory
from wordorder.networks import Decoder

TOLERANCE = 0.01
"""Share of the perplexity within which a context counts as good as a longer one."""


@dataclass(frozen=True)
class LossByContext:
    """The loss on the same tokens, read with more and more of what stands before them.

    Args:
        contexts: how many tokens were read before the block that the predictions are made in, growing.
        losses: mean negative log-likelihood of the block's tokens, in nats.
        errors: standard error of a loss's difference from the last one, over blocks; 0 for the last.
        tokens: predicted, at each context.
        block: of how many a block is.
    """

    contexts: tuple[int, ...]
    losses: tuple[float, ...]
    errors: tuple[float, ...]
    tokens: int
    block: int

    def effective(self, tolerance: float = TOLERANCE) -> int:
        """Return the least context from which on perplexity stays within a factor 1 + tolerance of that with all of it.

        After Khandelwal et al. 2018, "Sharp nearby, fuzzy far away", https://arxiv.org/abs/1805.04623, who take 1 %.
        """
        limit = self.losses[-1] + math.log1p(tolerance)
        beyond = [number for number, loss in enumerate(self.losses) if loss > limit]
        return self.contexts[beyond[-1] + 1] if beyond else self.contexts[0]


def loss_by_context(
    model: Any,
    token_ids: Tensor | Sequence[int],
    *,
    contexts: Sequence[int] | None = None,
    segment_length: int | None = None,
    block: int = 16,
    blocks: int = 32,
    start_id: int | None = None,
) -> LossByContext:
    """Predict the same tokens with 0, 16, 32, 64 .. tokens before them.

    Blocks of tokens lie evenly over the text. Each is read after c tokens of the text, and each of its tokens predicts
    the next one; so the first prediction of a block knows c + 1 tokens, the last c + block. A model with a memory reads
    the c + block tokens in segments, counted from the end, so that the block ends the last one; a model without reads
    them in one window.

    Args:
        model: a causal language model of this package, or one that is called like it, in evaluation mode.
        token_ids: long (T,), the text.
        contexts: c; None = 0 and block times the powers of two, up to twice what memory and segment hold, or to what
            the model takes at a time, and to half of the text.
        segment_length: for a memory; None = the configuration's.
        block: tokens of a block; at most a segment.
        blocks: how many of them; fewer where they would overlap.
        start_id: put before what a model without a memory reads, as in training, and not counted; None = nothing.

    Raises:
        BadInput: the text is too short, or a loss is not finite.
        ValueError: a context is negative or longer than the text allows, or block or blocks are not positive.
    """
    config, remembers = model.config, getattr(model.config, "memory", "none") != "none"
    ids_T = torch.as_tensor(token_ids, dtype=torch.long, device=model.device)
    length: int = (segment_length or config.segment_length) if remembers else config.max_position_embeddings
    length -= start_id is not None and not remembers
    if block <= 0 or blocks <= 0 or length <= 0:
        raise ValueError(f"block, blocks and segments must be positive, got {block}, {blocks}, {length}")
    block = min(block, length)
    if len(ids_T) < 2 * block + 1:
        raise BadInput(
            f"the text has {len(ids_T)} tokens; {2 * block + 1} or more are needed to vary what stands before"
        )
    if contexts is None:
        most = 2 * (config.memory_length + length) if remembers else length
        contexts = _doubling(block, min(most, len(ids_T) // 2) - block)
    contexts = sorted(set(contexts))
    last = len(ids_T) - 1 - block
    if not contexts or contexts[0] < 0 or contexts[-1] > last:
        raise ValueError(f"contexts must lie in 0 .. {last} for {len(ids_T)} tokens and blocks of {block}")
    count = min(blocks, (last - contexts[-1]) // block + 1)
    starts = [contexts[-1] + (last - contexts[-1]) * number // max(count - 1, 1) for number in range(count)]
    labels_BT = torch.stack([ids_T[s + 1 : s + 1 + block] for s in starts])
    found: list[Tensor] = []
    for context in contexts:
        rows_BS = torch.stack([ids_T[s - context : s + block] for s in starts])
        if start_id is not None and not remembers:
            rows_BS = F.pad(rows_BS, (1, 0), value=start_id)
        found.append(_losses(model, rows_BS, labels_BT, length if remembers else None))
    if not torch.isfinite(torch.stack(found)).all():
        raise BadInput("the model's loss is not a finite number; its weights may have diverged while training")
    differences = [
        (losses_B - found[-1]).std() / math.sqrt(count) if count > 1 else losses_B[0] * 0 for losses_B in found
    ]
    return LossByContext(
        tuple(contexts),
        tuple(float(losses_B.mean()) for losses_B in found),
        tuple(float(error) for error in differences),
        count * block,
        block,
    )


def _doubling(first: int, most: int) -> list[int]:
    found = [0]
    while (step := max(first, 2 * found[-1])) < most:
        found.append(step)
    return [*found, most] if most > 0 else found


def _losses(model: Any, rows_BS: Tensor, labels_BT: Tensor, segment_length: int | None) -> Tensor:
    given = {}
    with torch.no_grad():
        if segment_length is not None:
            # segments are counted from the end of the rows; the first one may be shorter
            ragged = rows_BS.shape[1] % segment_length
            edges = ([0] if ragged else []) + list(range(ragged, rows_BS.shape[1] + 1, segment_length))
            *before, rows_BS = (rows_BS[:, start:end] for start, end in pairwise(edges))
            for segment_BT in before:
                given = {"memory": model.model(segment_BT, **given).memory}
        logits_BTV = model(rows_BS, logits_to_keep=labels_BT.shape[1], **given).logits
    return F.cross_entropy(logits_BTV.double().mT, labels_BT, reduction="none").mean(1)


@dataclass(frozen=True)
class ReadingHabits:
    """The attention of a decoder's tokens by distance, and the change of memory slots by age.

    Args:
        weights_LHO: mean weight that layer l and head h give to the key at a distance of o tokens to the left (0 = the
            token itself), over the tokens that see a key there.
        count_O: how many tokens that was.
        on_memory_LH: mean share of a token's weight that lies on slots of the memory; None where there is none.
        alpha_LHA: of all layers but the last, the mean weight alpha of what a slot of a look-ahead memory knew against
            what it finds when a segment is read, by age: a = 0 is the slot right before the segment. None where there
            is no such memory, or nothing of it was read.
        tokens: whose attention was looked at.
        length: tokens of a segment, or of a window.
        slots: of the memory, at most; 0 = none.
        full: whether every token saw a full memory; also where there is none.
    """

    weights_LHO: Tensor
    count_O: Tensor
    on_memory_LH: Tensor | None
    alpha_LHA: Tensor | None
    tokens: int
    length: int
    slots: int
    full: bool

    @property
    def mean_O(self) -> Tensor:
        """Mean weight over layers and heads, by distance: the utilisation figure of the LaMemo paper."""
        return self.weights_LHO.mean((0, 1))

    @property
    def half_L(self) -> Tensor:
        """Distance within which half of all attention of a layer's tokens lies, per layer."""
        total_LO = (self.weights_LHO.mean(1) * self.count_O).cumsum(-1)
        return (total_LO < 0.5 * total_LO[:, -1:]).sum(-1)


def reading_habits(
    model: nn.Module, token_ids: Tensor | Sequence[int], *, length: int, start_id: int | None = None
) -> ReadingHabits:
    """Let a decoder read a text, and measure its attention by distance and its slots by age.

    A model with a memory reads it in segments; those before the memory is full are read and not counted, if there are
    any after them, so that every token that counts sees as many slots. A model without one reads windows, in which a
    token sees what stands before it there: far distances have few tokens.

    Args:
        model: anything that contains a `Decoder` of this package; it should be in evaluation mode.
        token_ids: long (T,), the text.
        length: tokens of a segment, or of a window.
        start_id: put before every window of a model without a memory, as in training; None = nothing.

    Raises:
        BadInput: the model has no decoder of this package.
        ValueError: there is no token, length is not positive, or the model cannot take as many tokens at a time.
    """
    decoder = first_module(model, Decoder)
    if decoder is None:
        raise BadInput(f"{type(model).__name__} has no decoder of this package, so there is nothing to watch")
    memory, device = decoder.memory, next(decoder.parameters()).device
    ids_T = torch.as_tensor(token_ids, dtype=torch.long, device=device)
    if length <= 0 or not len(ids_T):
        raise ValueError(f"length must be positive and the text have a token, got {length} and {len(ids_T)} tokens")
    pieces = [ids_T[start : start + length] for start in range(0, len(ids_T), length)]
    if len(pieces) > 1 and len(pieces[-1]) < length:
        pieces.pop()
    watch = _Watch(decoder, length)
    with torch.no_grad():
        if memory is None:
            start_1 = ids_T.new_tensor([] if start_id is None else [start_id])
            for piece in pieces:
                output = decoder(torch.cat((start_1, piece))[None], return_attentions=True)
                watch.count(output.attentions, within=None)
            return watch.habits()
        warming, state = -(-memory.reach // length), None
        watch.full = len(pieces) > warming
        for number, piece in enumerate(pieces):
            counts = number >= warming or len(pieces) <= warming
            read = decoder.read_segment(decoder.open_segment(state), piece[None], return_attentions=counts)
            if counts:
                watch.count(read.attentions, within=memory.window)
                watch.count_alphas(read.segment.notes, read.segment.slot_count)
            state = read.segment.close()
    return watch.habits()


class _Watch:
    def __init__(self, decoder: Decoder, length: int) -> None:
        self.memory, self.length, self.tokens, self.full = decoder.memory, length, 0, True
        self.slots = 0 if decoder.memory is None else decoder.memory.length
        layers, heads, device = len(decoder.layers), decoder.heads, next(decoder.parameters()).device

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        farthest = self.slots + length + 1  # a window may have a token more at its beginning
        self.weights_LHO, self.count_O = zeros(layers, heads, farthest), zeros(farthest)
        self.on_memory_LH = zeros(layers, heads)
        self.alpha_LHA, self.count_A = zeros(max(layers - 1, 0), heads, self.slots), zeros(self.slots)

    def count(self, attentions: Sequence[Tensor], *, within: int | None) -> None:
        """Add weights (1, H, T, S) of every layer; keys at a distance of ``within`` or more are not seen."""
        queries, keys = attentions[0].shape[2:]
        column = torch.arange(keys, device=self.count_O.device)
        distance_TS = (column[keys - queries :, None] - column).flatten()
        seen = (distance_TS >= 0) & (distance_TS < (keys if within is None else within))
        distance_P = distance_TS[seen]
        self.count_O.index_add_(0, distance_P, torch.ones_like(distance_P, dtype=self.count_O.dtype))
        for layer, weights in enumerate(attentions):
            wide_HTS = weights[0].to(self.weights_LHO.dtype)
            self.weights_LHO[layer].index_add_(1, distance_P, wide_HTS.flatten(1)[:, seen])
            self.on_memory_LH[layer] += wide_HTS[..., : keys - queries].sum((1, 2))
        self.tokens += queries

    def count_alphas(self, notes: Mapping[str, Tensor], slots: int) -> None:
        for layer in range(len(self.alpha_LHA)):
            if (alpha := notes.get(f"alpha.{layer}")) is not None:
                self.alpha_LHA[layer, :, :slots] += alpha[0].flip(-1).to(self.alpha_LHA.dtype)
        self.count_A[:slots] += 1

    def habits(self) -> ReadingHabits:
        reached, aged = int((self.count_O > 0).sum()), int((self.count_A > 0).sum())
        alpha_LHA = (self.alpha_LHA[..., :aged] / self.count_A[:aged]).cpu()
        return ReadingHabits(
            (self.weights_LHO[..., :reached] / self.count_O[:reached]).cpu(),
            self.count_O[:reached].cpu(),
            (self.on_memory_LH / self.tokens).cpu() if self.slots else None,
            alpha_LHA if alpha_LHA.numel() and isinstance(self.memory, LookAheadMemory) else None,
            self.tokens,
            self.length,
            self.slots,
            self.full,
        )


@dataclass(frozen=True)
class LanguageModelInspection:
    """Findings on a causal language model that read a text.

    Args:
        habits: attention by distance, and look-ahead memory by age.
        notes: what is not there and why, one sentence each.
    """

    habits: ReadingHabits
    context: LossByContext
    notes: tuple[str, ...]

    def answers(self) -> list[str]:
        """Say in sentences how far the model looks, what that is worth, and how old slots change."""
        context, habits = self.context, self.habits
        found = [
            f"Effective context: {context.effective()} tokens before a block of {context.block}; with them perplexity"
            f" is within {TOLERANCE:.0%} of that with {context.contexts[-1]}"
        ]
        if habits.on_memory_LH is not None:
            found.append(f"{float(habits.on_memory_LH.mean()):.1%} of the attention lies on slots of the memory")
        if habits.alpha_LHA is not None:
            alpha_A = habits.alpha_LHA.mean((0, 1))
            found.append(
                f"A slot right before a segment keeps {float(alpha_A[0]):.1%} of what it knew, one that is"
                f" {len(alpha_A)} tokens old {float(alpha_A[-1]):.1%}"
            )
        return found


def inspect_language_model(
    model: Any, token_ids: Tensor | Sequence[int], *, length: int | None = None, start_id: int | None = None
) -> LanguageModelInspection:
    """Let a causal language model read a text, and measure its attention, its context and its memory.

    Args:
        model: a `WordOrderDecoderForCausalLM` in evaluation mode.
        token_ids: long (T,), the text.
        length: tokens of a segment, or of a window of a model without a memory; None = the configuration's
            segment_length, or the most that the model takes.
        start_id: put before what a model without a memory reads, as in training; None = nothing.

    Raises:
        BadInput: the text is too short, or the model cannot take as many tokens at a time.
    """
    from wordorder.models import check_length

    config = model.config
    remembers = config.memory != "none"
    started = start_id is not None and not remembers
    if length is None:
        length = int(config.segment_length if remembers else config.max_position_embeddings - started)
    if length < 1:
        raise BadInput(f"length must be at least 1, got {length}")
    check_length(config, length + started)
    context = loss_by_context(
        model, token_ids, segment_length=length if remembers else None, start_id=start_id if started else None
    )
    habits = reading_habits(model, token_ids, length=length, start_id=start_id)
    return LanguageModelInspection(habits, context, (*layers_note(model), *_notes(habits, config)))


def _notes(habits: ReadingHabits, config: Any) -> list[str]:
    found: list[str] = []
    if not habits.full and (config.memory != "look-ahead" or habits.alpha_LHA is not None):
        found.append("The memory was never full, the text is too short: what was read with fewer slots counts too.")
    if not habits.slots:
        return ["The model has no memory: it sees a window by itself, and far distances have few tokens."]
    if habits.alpha_LHA is None:
        why = (
            "only in look-ahead memory do slots read on"
            if config.memory != "look-ahead"
            else "a network of one layer has no slots that anything reads after they changed"
            if config.num_hidden_layers == 1
            else "the text is no longer than one segment"
        )
        found.append(f"No weights by age of slots: {why}.")
    if config.memory_kept().reach > habits.slots:
        found.append("Some slots stand for several tokens: distances count slots.")
    return found


def language_model_numbers(inspection: LanguageModelInspection) -> dict[str, Any]:
    """Return all numbers but those of each head by distance and age, for JSON."""
    habits, context = inspection.habits, inspection.context
    alpha, on_memory = habits.alpha_LHA, habits.on_memory_LH
    return {
        "length": habits.length,
        "memory_length": habits.slots,
        "notes": list(inspection.notes),
        "answers": inspection.answers(),
        "attention": {
            "tokens": habits.tokens,
            "count_by_distance": floats(habits.count_O),
            "mean_by_distance": floats(habits.mean_O),
            "by_layer_and_distance": floats(habits.weights_LHO.mean(1)),
            "half_within_by_layer": floats(habits.half_L),
            "share_on_memory_by_layer_and_head": None if on_memory is None else floats(on_memory),
        },
        "alpha_by_layer_and_age": None if alpha is None else floats(alpha.mean(1)),
        "context": {
            "block": context.block,
            "tokens": context.tokens,
            "before": list(context.contexts),
            "loss": list(context.losses),
            "standard_error_of_difference_from_last": list(context.errors),
            "effective": context.effective(),
            "tolerance": TOLERANCE,
        },
    }
