"""Length extrapolation: the loss on texts that are read in longer pieces than in training.

Press, Smith and Lewis 2022 (ALiBi), https://arxiv.org/abs/2108.12409, Sec. 2 and 4: perplexity of one text at lengths
from that of training up, in windows that do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wordorder.comparison.probes import probe
from wordorder.comparison.probes import texts as reading
from wordorder.data.examples.datasets import LabelledExamples
from wordorder.errors import BadInput
from wordorder.inference.saved_model import load_model
from wordorder.tasks import TASKS
from wordorder.tasks.task import LabelledOptions, perplexity_of
from wordorder.training.loop.carried_memory import CarriedMemory, has_memory

if TYPE_CHECKING:
    from wordorder.training import Recipe

ALL, BEYOND = "all tokens", "tokens beyond the training length"
FEWEST_TEXTS = 30
"""Minimum number of texts for an accuracy: fewer would say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation(probe.Probe):
    """A probe of how well a model reads pieces of text that are longer than those that it was trained on."""

    factors: tuple[int, ...] = (2, 4, 8, 16)
    """Lengths, in multiples of data.length; data.length itself is always measured too."""
    tokens: int = 16384
    """Tokens of running text that are read at each length, the same ones each time; at least the greatest length."""
    texts: int = 400
    """For classification, the most texts that are read, of those longer than data.length, spread evenly."""

    def __post_init__(self) -> None:
        probe.check_different("factors", self.factors)
        probe.check_at_least("tokens", self.tokens, 1)
        probe.check_at_least("texts", self.texts, FEWEST_TEXTS)

    def faults(self, recipe: Recipe) -> list[str]:
        pairs = isinstance(recipe.task, LabelledOptions) and recipe.task.pair_column
        return ["pairs of texts have no one length; leave the probe out"] if pairs else []

    def axes(self, task: str) -> probe.Axes:
        labelled = TASKS[task].labels is not None
        what = "accuracy of texts read up to this length" if labelled else "perplexity of the same text"
        return probe.Axes(
            title="Length extrapolation",
            x="tokens read at a time (the first length is that of training)",
            x_kind="number",
            value="accuracy (share of texts)" if labelled else "perplexity per predicted token",
            higher_is_better=labelled,
            log=not labelled,
            meaning=f"Trained at one length, evaluated at multiples of it: {what}, in windows that do not overlap.",
        )

    def measure(self, trained: probe.Trained) -> probe.Measured:
        return (_classified if trained.task.labels == "class" else _language)(self, trained)


def _readable(trained: probe.Trained, factors: Sequence[int]) -> tuple[list[int], list[str]]:
    from wordorder.models import check_length  # loads transformers, which reading results does not need

    assert trained.recipe.data.length is not None  # reading a recipe fills it in
    found: list[int] = []
    for factor in sorted(factors):
        try:
            check_length(trained.model.config, trained.recipe.data.length * factor)
        except BadInput as error:
            return found, _up_to(found, error, "it cannot read longer texts than it was trained on")
        found.append(factor)
    return found, []


def _up_to(found: Sequence[int], error: BadInput, otherwise: str) -> list[str]:
    """Return a note on how far a model was measured and why no further; CannotProbe if it was not."""
    reason, _, _ = error.faults[0].partition(";")  # the remedy is for a recipe, not for this model
    if not found:
        raise probe.CannotProbe(f"{otherwise}: {reason}") from None
    return [f"Models of which this is true are measured up to {found[-1]} times the training length: {reason}."]


def _usable(options: Extrapolation, unit: int, there: int) -> tuple[list[int], list[str]]:
    factors = [factor for factor in sorted(options.factors) if factor * unit <= there]
    if not factors:
        raise probe.CannotProbe(f"the text has {there:,} tokens, less than twice the training length")
    left_out = ", ".join(str(factor) for factor in sorted(options.factors) if factor not in factors)
    note = f"Lengths of {left_out} times that of training are left out: the text has {there:,} tokens in all."
    return factors, [note] if left_out else []


def _language(options: Extrapolation, trained: probe.Trained) -> probe.Measured:
    masks = trained.task.masks_tokens
    if not masks and has_memory(trained.model.config):
        return _with_memory(options, trained)
    readable, notes = _readable(trained, options.factors)
    text, unit = reading.text_of(trained), reading.new_tokens(trained)
    factors, left_out = _usable(options, unit, len(text))
    whole = reading.blocks(text, factors[-1] * unit, options.tokens)  # for every arm the same, whatever it can read
    masked = [reading.masked_block(trained, block, unit, number) for number, block in enumerate(whole)] if masks else []

    def windows(length: int) -> list[reading.Window]:
        if not masks:
            return [window for block in whole for window in reading.causal_windows(trained, block, length)]
        return [
            reading.enclosed(trained, seen[start : start + length], labels[start : start + length])
            for seen, labels in masked
            for start in range(0, len(seen), length)
        ]

    rows: list[probe.Row] = []
    for factor in (1, *(factor for factor in factors if factor in readable)):
        losses = reading.token_losses(trained, windows(factor * unit))
        x = factor * int(trained.recipe.data.length or 0)
        rows.append(_perplexity(x, ALL, losses))
        beyond = [window[masks + unit :] for window in losses]  # after [CLS]
        if any(np.isfinite(window).any() for window in beyond):
            rows.append(_perplexity(x, BEYOND, beyond))
    return probe.Measured(rows=rows, notes=[*left_out, *notes])


def _perplexity(x: int, group: str, losses: Sequence[reading.Losses]) -> probe.Row:
    loss = reading.mean_loss(losses)
    count = int(sum(np.isfinite(window).sum() for window in losses))
    return {"x": x, "value": perplexity_of(loss), "group": group, "loss": loss, "tokens": count}


def _with_memory(options: Extrapolation, trained: probe.Trained) -> probe.Measured:
    """Measure a model with a memory: segments stay as in training, segment and memory together are multiplied."""
    segment, slots = trained.recipe.segment_length, int(trained.model.config.memory_length)
    reach = segment + slots
    text = reading.text_of(trained)
    factors, notes = _usable(options, reach, len(text))
    whole = reading.blocks(text, factors[-1] * reach, options.tokens)
    rows: list[probe.Row] = []
    for number, factor in enumerate((1, *factors)):
        try:
            model = load_model(trained.model_dir, memory_length=factor * reach - segment, segment_length=segment)
        except BadInput as error:
            longer = factors[: max(0, number - 1)]
            notes += _up_to(longer, error, "it cannot read with a longer memory than in training")
            break
        losses = _read_on(trained, model.to(trained.device).eval(), whole, segment)
        rows.append(_perplexity(factor * reach, ALL, losses))
    return probe.Measured(rows=rows, notes=notes)


def _read_on(trained: probe.Trained, model: Any, whole: list[reading.Ids], segment: int) -> list[reading.Losses]:
    rows = np.stack(
        [np.stack(reading.causal_windows(trained, block, len(block))[0]) for block in whole]
    )  # (pieces, 2, T)
    losses: list[reading.Losses] = []
    # eight pieces beside each other: their memory is what grows with the length
    for few in (rows[first : first + 8] for first in range(0, len(rows), 8)):
        carried = CarriedMemory()
        for start in range(0, few.shape[2], segment):
            read, labels = torch.as_tensor(few[:, :, start : start + segment]).to(trained.device).unbind(1)
            output = model(**carried.put_in({"input_ids": read}))
            carried.take(output)
            losses.append(reading.losses_at(output.logits, labels))
    return [piece.reshape(-1) for piece in losses]


def _classified(options: Extrapolation, trained: probe.Trained) -> probe.Measured:
    length, unit = int(trained.recipe.data.length or 0), reading.new_tokens(trained)
    tokens = trained.prepared.reported
    examples: LabelledExamples = trained.examples
    assert tokens is not None
    sizes = tokens.sizes
    owners, first = np.unique(examples.documents, return_index=True)
    labelled = zip(owners.tolist(), examples.labels[first].tolist(), strict=True)
    long = [(int(owner), int(label)) for owner, label in labelled if sizes[owner] > unit]
    if len(long) < FEWEST_TEXTS:
        raise probe.CannotProbe(
            f"only {len(long)} of {len(owners):,} texts are longer than data.length {length}; at least {FEWEST_TEXTS}"
            " are needed"
        )
    readable, table = _readable(trained, options.factors)
    step = max(1, len(long) // options.texts)
    chosen = long[::step][: options.texts]
    longest = max(int(sizes[owner]) for owner, _ in chosen)
    # a length beyond which no text goes on would repeat the one before it
    every = (1, *sorted(options.factors))
    factors = [1, *(factor for before, factor in pairwise(every) if before * unit < longest)]
    left_out = [factor for factor in options.factors if factor not in factors]
    notes = [f"{len(chosen)} texts are longer than data.length {length}; they are read up to each length."]
    if left_out:
        notes.append(f"Lengths of {', '.join(map(str, sorted(left_out)))} times that of training: no text is so long.")
    rows: list[probe.Row] = []
    for factor in (factor for factor in factors if factor in (1, *readable)):
        read = [np.asarray(tokens.document(owner)[: factor * unit], np.int64) for owner, _ in chosen]
        if trained.prepared.tokenizer.num_special_tokens_to_add(pair=False):
            read = [reading.enclosed(trained, ids, ids)[0] for ids in read]
        value = reading.accuracy(trained, read, [label for _, label in chosen])
        rows.append({"x": factor * length, "value": value, "texts": len(chosen)})
    return probe.Measured(rows=rows, notes=[*notes, *table])
