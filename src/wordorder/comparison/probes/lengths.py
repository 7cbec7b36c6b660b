"""Accuracy by the length of a text, on generated tasks (`data.source = "task:NAME"`).

After Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy", https://arxiv.org/abs/2207.02098, who train on
short strings and draw the accuracy on longer ones by their length.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordorder.comparison.probes.probe import Axes, Measured, Probe, Row, Trained
from wordorder.comparison.probes.texts import TOKENS_PER_BATCH
from wordorder.data.examples.collate import CollateLanes
from wordorder.data.examples.lanes import RunningText
from wordorder.data.examples.masking import IGNORED
from wordorder.data.examples.order import KeyedExamples
from wordorder.data.generated import GENERATED, lengths_of
from wordorder.tasks import Task
from wordorder.training.loop.carried_memory import CarriedMemory, has_memory

if TYPE_CHECKING:
    from wordorder.training import Recipe

TOKENS, EXACT = "tokens", "exact match"
_PARTS = 8

Counts = npt.NDArray[np.int64]
"""Shape (texts, 2): of each text's answer the tokens that are predicted right, and all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Probe):
    """A probe of the share of right answers by the length of the text, as the generated task counts it."""

    measures_answers: ClassVar[bool] = True

    bins: tuple[int, ...] = ()
    """The longest length of each bin, ascending; texts beyond the last one are left out. None given: the lengths of the
    test in eight bins of about the same width, or one each where they are fewer."""

    def __post_init__(self) -> None:
        if min(self.bins, default=1) < 1 or list(self.bins) != sorted(set(self.bins)):
            raise ValueError(f"bins must be different whole numbers of at least 1, ascending, got {list(self.bins)}")

    def can_measure(self, task: Task[Any]) -> bool:
        return task.labels == "class" or task.translates or task.running_text

    def faults(self, recipe: Recipe) -> list[str]:
        if recipe.data.generated is None:
            return [f"needs a generated task, data.source task:NAME, got {recipe.data.source}; leave it out"]
        return []

    def axes(self, task: str) -> Axes:
        return Axes(
            title="Accuracy by length",
            x="length of the text, up to",
            x_kind="number",
            value="share that is right",
            higher_is_better=True,
            log=False,
            meaning="Share of the answers that are right, by the length of the text; of answers of several tokens also "
            "the share of their tokens, each after the right ones before it.",
        )

    def measure(self, trained: Trained) -> Measured:
        lengths = np.array(trained.prepared.reported_lengths)
        counts = _in_lanes(trained) if isinstance(trained.examples, RunningText) else _by_example(trained)
        uppers = self._uppers(trained)
        bin_of = np.searchsorted(uppers, lengths)  # of a length beyond the last bin their number
        rows: list[Row] = []
        for number, upper in enumerate(uppers):
            right, there = counts[(bin_of == number) & (counts[:, 1] > 0)].T
            if not len(there):
                continue
            shares = {EXACT: float((right == there).mean())}
            if (counts[:, 1] > 1).any():
                shares[TOKENS] = float(right.sum() / there.sum())
            rows += [{"x": upper, "value": share, "group": g, "texts": len(there)} for g, share in shares.items()]
        beyond = int((bin_of == len(uppers)).sum())
        return Measured(rows=rows, notes=[f"{beyond} texts are longer than {uppers[-1]}."] if beyond else [])

    def _uppers(self, trained: Trained) -> list[int]:
        if self.bins:
            return list(self.bins)
        data = trained.recipe.data
        assert data.generated is not None  # else `faults` has refused it
        low, high = lengths_of(GENERATED[data.generated], data)["test"]
        edges = np.linspace(low - 1, high, 1 + min(_PARTS, high - low + 1))
        return np.round(edges[1:]).astype(int).tolist()


def _by_example(trained: Trained) -> Counts:
    examples, task = trained.examples, trained.task
    counts = np.zeros((len(trained.prepared.reported_lengths), 2), np.int64)
    for numbers in _batches(examples.lengths):
        batch = trained.prepared.collate(examples.__getitems__(numbers))
        there = {name: value.to(trained.device) for name, value in batch.items()}
        logits, labels = trained.model(**there).logits, there["labels"]
        if task.labels is not None:
            logits, labels = logits[:, None], labels[:, None]
        elif not task.translates:
            logits, labels = logits[:, :-1], labels[:, 1:]
        chosen = labels != IGNORED
        right = (logits.argmax(-1) == labels) & chosen
        counts[numbers] = torch.stack((right.sum(1), chosen.sum(1)), dim=1).cpu().numpy()
    return counts


def _batches(lengths: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    batch: list[int] = []
    for number in np.argsort(lengths, kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[number] > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(number)
    yield batch


def _in_lanes(trained: Trained) -> Counts:
    """Count the answers of texts that are read in lanes, with the memory carried, as they are scored after training."""
    text: RunningText = trained.examples.in_segments(trained.recipe.segment_length)
    places = copy(text)  # its tokens are their own numbers in the text
    places.tokens, places.predicted = (
        replace(text.tokens, ids=np.arange(len(text.ids), dtype=np.int32), path=None),
        None,
    )
    assert text.predicted is not None
    right = np.zeros(len(text.ids), np.bool_)
    carries, collate = has_memory(trained.model.config), trained.prepared.collate
    assert isinstance(collate, CollateLanes)
    windows = max(1, TOKENS_PER_BATCH // text.length)
    streams: list[tuple[KeyedExamples, KeyedExamples, int]] = [(text.windows(), places.windows(), windows)]
    if carries:
        both = zip(text.scoring_lanes(), places.scoring_lanes(), strict=True)
        streams = [(lanes, numbered, lanes.rows) for lanes, numbered in both]
    for dataset, numbered, rows in streams:
        carried = CarriedMemory(carries=carries)
        for start in range(0, len(dataset), rows):
            numbers = list(range(start, min(start + rows, len(dataset))))
            there = {n: v.to(trained.device) for n, v in collate(dataset.__getitems__(numbers)).items()}
            labels: Tensor = there.pop("shift_labels")
            output = trained.model(**carried.put_in(there))
            carried.take(output)
            where = collate(numbered.__getitems__(numbers))["shift_labels"]
            hit = (output.logits.argmax(-1) == labels) & (labels != IGNORED)
            right[where[hit.cpu()].numpy()] = True
    # one token of each document is predicted
    return np.stack((right[text.predicted], np.ones(int(text.predicted.sum()))), axis=1).astype(np.int64)
