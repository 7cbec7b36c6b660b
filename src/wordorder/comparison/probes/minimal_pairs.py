"""Minimal pairs: test whether a language model gives the grammatical sentence of a pair the higher probability.

Warstadt et al. 2020, "BLiMP", https://arxiv.org/abs/1912.00582. For masked language models the pseudo-log-likelihood:
Salazar et al. 2020, "Masked Language Model Scoring", https://arxiv.org/abs/1910.14659.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wordorder.comparison.probes import probe
from wordorder.comparison.probes.texts import Ids, Window, causal_windows, enclosed, new_tokens, token_losses
from wordorder.data.corpora.lines import read_json_lines, read_rows
from wordorder.data.corpora.read import kind_of
from wordorder.data.examples.masking import IGNORED
from wordorder.data.randomness import counter_hash
from wordorder.errors import BadInput
from wordorder.inference.predict import source_ids
from wordorder.tasks import TASKS, Task
from wordorder.training.recipe.sources import find_source

if TYPE_CHECKING:
    from wordorder.training import Recipe

_DRAW = 0xB1139  # keeps these draws apart from others
ALL = "all pairs"
TIE = 1e-4
"""Largest difference in nats at which two sentences count as equally probable, which is half right: a model without
word order gives two orders of the same words the same probability, but for the rounding of float32."""
_ENDINGS = (".jsonl", ".jsonl.gz")


class Pair(NamedTuple):
    """Two sentences that differ in one thing alone."""

    good: str
    bad: str
    phenomenon: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimalPairs(probe.Probe):
    """A probe of the share of sentence pairs in which the model finds the good sentence more probable."""

    source: str
    """Path of a .jsonl or .jsonl.gz file of pairs; found as data.source is, below WORDORDER_DATA too."""
    pairs_per_paradigm: int = 50
    """Number of pairs drawn of each paradigm, in a way that depends on `seed` alone; BLiMP has 67 of 1,000 pairs each.
    A masked language model reads a sentence once for each of its tokens, so it costs that much more."""
    good: str = "sentence_good"
    """Column of the sentence that should be the more probable."""
    bad: str = "sentence_bad"
    """Column of the sentence that should be the less probable."""
    phenomenon: str = "linguistics_term"
    """Column by whose values accuracy is grouped."""
    paradigm: str = "UID"
    """Column by whose values pairs are drawn; if there is no such column, pairs are drawn by phenomenon."""
    seed: int = 0
    """Seed of the draw."""

    def __post_init__(self) -> None:
        probe.check_at_least("pairs_per_paradigm", self.pairs_per_paradigm, 1)
        probe.check_at_least("seed", self.seed, 0)

    def can_measure(self, task: Task) -> bool:
        return task.masks_tokens or task.running_text

    def faults(self, recipe: Recipe) -> list[str]:
        try:
            self.pairs()
        except BadInput as error:
            return list(error.faults)
        return []

    def axes(self, task: str) -> probe.Axes:
        return probe.Axes(
            title="Minimal pairs",
            x="phenomenon",
            x_kind="label",
            value="accuracy (share of pairs, 0.5 by chance)",
            higher_is_better=True,
            log=False,
            meaning="Share of the pairs of which the model gives the grammatical sentence the higher "
            + ("pseudo-log-likelihood." if TASKS[task].masks_tokens else "probability."),
        )

    def pairs(self) -> list[Pair]:
        """Return the pairs that are drawn, by phenomenon in the order of the file."""
        found, faults = find_source(self.source)
        path = Path(found).expanduser()
        if faults or not path.is_file() or kind_of(path) not in _ENDINGS:
            raise BadInput(
                f"source: {self.source!r} must name a file that ends in {' or '.join(_ENDINGS)}, from the working"
                " directory or from the folder that the variable WORDORDER_DATA names"
            )
        try:
            rows = read_rows(read_json_lines, path)
        except OSError as error:
            raise BadInput(f"source: {path} cannot be read: {error.strerror or error}") from None
        by_paradigm: dict[str, list[Pair]] = {}
        for number, row in enumerate(rows, start=1):
            values = {name: row.get(name) for name in (self.good, self.bad, self.phenomenon)}
            missing = [name for name, value in values.items() if not isinstance(value, str) or not value.strip()]
            if missing:
                raise BadInput(
                    f"source: {path} row {number} has no text in {', '.join(map(repr, missing))}; it has "
                    f"{', '.join(row)}; name the columns by the options good, bad and phenomenon"
                )
            good, bad, phenomenon = (str(value) for value in values.values())
            paradigm = str(row.get(self.paradigm) or phenomenon)
            by_paradigm.setdefault(paradigm, []).append(Pair(good=good, bad=bad, phenomenon=phenomenon))
        drawn: list[Pair] = []
        for number, own in enumerate(by_paradigm.values()):
            order = np.argsort(counter_hash(self.seed, _DRAW, number, np.arange(len(own))), kind="stable")
            drawn += [own[place] for place in sorted(order[: self.pairs_per_paradigm].tolist())]
        return drawn

    def measure(self, trained: probe.Trained) -> probe.Measured:
        pairs = self.pairs()
        texts = [text for pair in pairs for text in (pair.good, pair.bad)]
        ids_of_texts = source_ids(trained.prepared.tokenizer, texts)
        tokens = [np.asarray(ids[1:-1], np.int64) for ids in ids_of_texts]  # without [CLS] and [SEP]
        room = new_tokens(trained)
        kept = [n for n in range(len(pairs)) if max(len(tokens[2 * n]), len(tokens[2 * n + 1])) <= room]
        if not kept:
            raise probe.CannotProbe(
                f"every pair has a sentence of more than the {room} tokens that the model was trained on"
            )
        notes: list[str] = []
        long = len(pairs) - len(kept)
        if long:
            notes.append(f"{long:,} of {len(pairs):,} pairs have a sentence of more than {room} tokens.")
        sentences = [tokens[2 * n + side] for n in kept for side in (0, 1)]
        score = _pseudo_log_likelihood if trained.task.masks_tokens else _log_probability
        scores = np.array(score(trained, sentences)).reshape(-1, 2)
        same = [np.array_equal(sentences[2 * k], sentences[2 * k + 1]) for k in range(len(kept))]
        if any(same):
            notes.append(f"{sum(same):,} pairs look the same to the tokeniser; each counts as half right.")
        ahead = scores[:, 0] - scores[:, 1]
        right = np.where(np.abs(ahead) < TIE, 0.5, ahead > 0)
        return probe.Measured(rows=_rows(right, [pairs[n].phenomenon for n in kept]), notes=notes)


def _rows(right: np.ndarray[tuple[int, ...], np.dtype[np.float64]], phenomena: Sequence[str]) -> list[probe.Row]:
    rows: list[probe.Row] = [{"x": ALL, "value": float(right.mean()), "pairs": len(right)}]
    for name in sorted(set(phenomena)):
        own = right[np.array([phenomenon == name for phenomenon in phenomena])]
        rows.append({"x": name, "value": float(own.mean()), "pairs": len(own)})
    return rows


def _log_probability(trained: probe.Trained, sentences: Sequence[Ids]) -> list[float]:
    """Return the sum of the log-probabilities of each sentence's tokens after the start token, in nats."""
    windows = [causal_windows(trained, ids, max(1, len(ids)))[0] for ids in sentences]
    return [-float(losses.sum()) for losses in token_losses(trained, windows)]


def _pseudo_log_likelihood(trained: probe.Trained, sentences: Sequence[Ids]) -> list[float]:
    """Return for each sentence the sum of its tokens' log-probabilities, each with it alone masked, in nats."""
    mask = trained.prepared.tokenizer.mask_token_id
    assert isinstance(mask, int)  # `load_tokenizer` refuses a tokeniser without
    windows: list[Window] = []
    owners: list[int] = []
    for number, ids in enumerate(sentences):
        for place in range(len(ids)):
            seen, labels = ids.copy(), np.full(len(ids), IGNORED, np.int64)
            seen[place], labels[place] = mask, ids[place]
            windows.append(enclosed(trained, seen, labels))
            owners.append(number)
    totals = np.zeros(len(sentences))
    losses = np.array([np.nansum(window) for window in token_losses(trained, windows)])
    np.subtract.at(totals, np.array(owners, np.int64), losses)
    return totals.tolist()
