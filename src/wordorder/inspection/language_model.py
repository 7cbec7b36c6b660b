"""Findings of `wordorder inspect` on a causal language model, typed, and as JSON can hold them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wordorder.errors import BadInput
from wordorder.inspection.context import LossByContext, loss_by_context
from wordorder.inspection.correlation import layers_note
from wordorder.inspection.findings import floats
from wordorder.inspection.reading import ReadingHabits, reading_habits

TOLERANCE = 0.01
"""Share of the perplexity within which a context counts as good as a longer one."""


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
        effective = context.effective(TOLERANCE)
        found = [
            f"Effective context: {effective} tokens before a block of {context.block}; with them perplexity is within"
            f" {TOLERANCE:.0%} of that with {context.contexts[-1]}"
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
    if length is None:
        length = int(config.segment_length if remembers else config.max_position_embeddings - (start_id is not None))
    if length < 1:
        raise BadInput(f"length must be at least 1, got {length}")
    check_length(config, length + (0 if remembers or start_id is None else 1))
    context = loss_by_context(
        model, token_ids, segment_length=length if remembers else None, start_id=None if remembers else start_id
    )
    habits = reading_habits(model, token_ids, length=length, start_id=start_id)
    return LanguageModelInspection(habits, context, (*layers_note(model), *_notes(habits, config)))


def _notes(habits: ReadingHabits, config: Any) -> list[str]:
    if not habits.slots:
        return ["The model has no memory: it sees a window by itself, and far distances have few tokens."]
    notes: list[str] = []
    if habits.alpha_LHA is None:
        why = (
            "only look-ahead memory changes its slots"
            if config.memory != "look-ahead"
            else "a network of one layer has no slots that anything reads after they changed"
            if config.num_hidden_layers == 1
            else "the text is no longer than one segment"
        )
        notes.append(f"No weights by age of slots: {why}.")
    elif habits.alpha_LHA.shape[-1] < habits.slots:
        notes.append("The text is shorter than the memory, which was never full.")
    return notes


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
            "effective": context.effective(TOLERANCE),
            "tolerance": TOLERANCE,
        },
    }
