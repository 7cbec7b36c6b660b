"""Exact scores of a model on a data set: sums over all predictions, divided once."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from wordorder.errors import MissingExtra
from wordorder.tasks.task import perplexity_of

IGNORED = -100
_ORDERS = 4  # BLEU counts n-grams of up to this many words, as is common

Combine = Callable[[Tensor], Tensor]


UNITS = "units"
"""Key of a batch with the unit of each row, (B,), or of each label, (B, N); see `KeyedExamples.units_of`."""


class UnitSums:
    """Sums over the predictions of each unit: its losses, in the type `wide`, their number, and how many are `right`.

    Predictions of numbers are not right or wrong.
    """

    def __init__(self, units: int, device: torch.device, wide: torch.dtype, *, right: bool = True) -> None:
        self.losses = torch.zeros(units, dtype=wide, device=device)
        self.counts = torch.zeros(units, dtype=torch.int64, device=device)
        self.right = torch.zeros_like(self.counts) if right else None

    def add(self, units_K: Tensor, losses_K: Tensor, right_K: Tensor | None = None) -> None:
        """Count predictions, each with its unit."""
        self.losses.index_add_(0, units_K, losses_K.to(self.losses.dtype))
        self.counts.index_add_(0, units_K, torch.ones_like(units_K))
        if self.right is not None and right_K is not None:
            self.right.index_add_(0, units_K, right_K.to(torch.int64))

    def reduce(self, add_over_processes: "Combine") -> None:
        self.losses, self.counts = map(add_over_processes, (self.losses, self.counts))
        self.right = None if self.right is None else add_over_processes(self.right)


class Tally(Protocol):
    """Sums over the predictions of a data set, from which the scores follow exactly, whatever the batches."""

    units: UnitSums | None
    """Sums by unit, for a data set whose units `keep_units` told; None: they are not kept."""
    needs_units: bool
    """True if every batch must say its units, also where their sums are not kept."""

    def keep_units(self, units: int) -> None:
        """Keep the sums of each of so many units too; every batch that follows must say its units."""
        ...

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch; `units` has the unit of each row, (B,), or of each label."""
        ...

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        """Combine the counts of all processes.

        `join` gives the rows of all, whose numbers may differ, as one tensor; rows of NaN may lie between.
        """
        ...

    def scores(self) -> dict[str, float]:
        """Return the scores that the class lists."""
        ...


class TokenTally:
    """Tally of predicted tokens: loss in nats per token, accuracy from 0 to 1, perplexity, and their number, tokens.

    Nothing waits for the device before `scores`.
    """

    needs_units = False

    def __init__(self, device: torch.device) -> None:
        # float64: a sum of ten million float32 losses would lose its last three digits. MPS has no float64.
        self.wide = torch.float32 if device.type == "mps" else torch.float64
        self._loss = torch.zeros((), dtype=self.wide, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self.units: UnitSums | None = None

    def keep_units(self, units: int) -> None:
        self.units = UnitSums(units, self._loss.device, self.wide)

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch: a row of logits for each label, or for each that is not -100, in the same order."""
        if units is not None:
            units = units.reshape(*units.shape, *[1] * (labels.ndim - units.ndim)).expand_as(labels).reshape(-1)
        labels = labels.reshape(-1)
        logits = logits.reshape(-1, logits.shape[-1])
        chosen = labels != IGNORED
        if logits.shape[0] == labels.shape[0]:
            logits = logits[chosen]
        self._count_rows(logits, labels[chosen], None if units is None else units[chosen])

    def _count_rows(self, logits: Tensor, labels: Tensor, units: Tensor | None) -> None:
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        right = logits.argmax(dim=-1) == labels
        self._loss += losses.sum(dtype=self.wide)
        self._correct += right.sum()
        self._count += labels.numel()
        if self.units is not None:
            assert units is not None, "keep_units was called: every batch must say its units"
            self.units.add(units, losses, right)

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        self._loss, self._correct, self._count = map(add_over_processes, (self._loss, self._correct, self._count))
        if self.units is not None:
            self.units.reduce(add_over_processes)

    def scores(self) -> dict[str, float]:
        loss, accuracy, count = self._means()
        return {"loss": loss, "accuracy": accuracy, "perplexity": perplexity_of(loss), "tokens": count}

    def _means(self) -> tuple[float, float, int]:
        count = int(self._count)
        if not count:
            return math.nan, math.nan, 0
        return float(self._loss) / count, int(self._correct) / count, count


class NextTokenTally(TokenTally):
    """A `TokenTally` of tokens that are predicted from those before them."""

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch: logits (B, T, V), of which those at one place predict the label (B, T) at the next."""
        if units is not None and units.ndim == labels.ndim:
            units = units[:, 1:]
        super().add(logits[:, :-1], labels[:, 1:], units)

    def add_predictions(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch whose labels (B, T) are shifted already, as those of lanes and windows are."""
        super().add(logits, labels, units)


class AnswerTally(NextTokenTally):
    """A `NextTokenTally` of answers, with exact_match, from 0 to 1, and the number of answers.

    exact_match is the share of the answers that greedy search writes without a fault, with a predicted [SEP].
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._exact = torch.zeros((), dtype=torch.int64, device=device)
        self._answers = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch: logits (B, T, V) and labels (B, T), each row with one answer."""
        super().add(logits, labels, units)
        self._count_answers(logits[:, :-1], labels[:, 1:])

    def add_predictions(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch whose labels (B, T) are shifted already, each of them an answer of one token."""
        super().add_predictions(logits, labels, units)
        self._count_answers(logits.reshape(-1, 1, logits.shape[-1]), labels.reshape(-1, 1))

    def _count_answers(self, logits: Tensor, labels: Tensor) -> None:
        chosen = labels != IGNORED
        wrong = torch.zeros_like(chosen)
        wrong[chosen] = logits[chosen].argmax(dim=-1) != labels[chosen]
        answered = chosen.any(dim=1)
        self._exact += (answered & ~wrong.any(dim=1)).sum()
        self._answers += answered.sum()

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        super().reduce(add_over_processes, join)
        self._exact, self._answers = map(add_over_processes, (self._exact, self._answers))

    def scores(self) -> dict[str, float]:
        answers = int(self._answers)
        exact = int(self._exact) / answers if answers else math.nan
        return {**super().scores(), "exact_match": exact, "answers": answers}


class CausalTally(NextTokenTally):
    """A `NextTokenTally` of running text, with bits_per_character and word_perplexity, which no tokeniser changes.

    bits_per_character is the sum of all losses, in bits, divided by the characters of the text; word_perplexity is exp
    of the sum in nats divided by its words by white space. Every token must be predicted once; the [SEP] after each
    document is too, and counts neither as a character nor as a word. What the tokeniser cannot write ([UNK]) is
    predicted too easily, so compare only where there is none or the same.
    """

    def __init__(self, device: torch.device, *, characters: int, words: int) -> None:
        super().__init__(device)
        self._characters, self._words = characters, words

    def scores(self) -> dict[str, float]:
        nats = float(self._loss) if int(self._count) else math.nan
        return {
            **super().scores(),
            "bits_per_character": nats / math.log(2) / max(self._characters, 1),
            "word_perplexity": perplexity_of(nats / max(self._words, 1)),
        }


class ClassTally(TokenTally):
    """Tally of classified texts: loss in nats, accuracy, macro_f1, matthews_correlation, f1 (`positive` one of two).

    F1 and Matthews' correlation are scikit-learn's: classes that are neither among the labels nor the predictions are
    left out of macro-F1, and an undefined correlation is 0. The number of texts is `examples`.
    """

    def __init__(self, device: torch.device, classes: int, *, positive: int = 1) -> None:
        super().__init__(device)
        self._classes, self._positive = classes, positive
        # One row for each text: the table of all pairs of classes would be 3 GB for 20,000.
        self._rows = [torch.zeros(0, 2, device=device)]  # label, predicted; float32 holds whole numbers below 2^24

    def _count_rows(self, logits: Tensor, labels: Tensor, units: Tensor | None) -> None:
        super()._count_rows(logits, labels, units)
        self._rows.append(torch.stack((labels, logits.argmax(dim=-1)), dim=1).float())

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        super().reduce(add_over_processes, join)
        rows = join(torch.cat(self._rows))
        self._rows = [rows[~rows[:, 0].isnan()]]  # the others are padding

    def scores(self) -> dict[str, float]:
        from sklearn import metrics

        library: Any = metrics  # it has no types
        loss, accuracy, count = self._means()
        # One pair for each cell of the confusion matrix, weighed by its count: the same sums as one for each text.
        rows: npt.NDArray[np.int64] = torch.cat(self._rows).long().cpu().numpy()
        pairs, times = np.unique(rows, axis=0, return_counts=True)
        label, prediction = pairs[:, 0], pairs[:, 1]
        counted = {"sample_weight": times}
        result = {"loss": loss, "accuracy": accuracy}
        if count:
            result["macro_f1"] = float(library.f1_score(label, prediction, average="macro", **counted))
            if self._classes == 2:
                result["f1"] = float(
                    library.f1_score(label, prediction, pos_label=self._positive, zero_division=0.0, **counted)
                )
            result["matthews_correlation"] = _matthews_correlation(label, prediction, times)
        return {**result, "examples": count}


def _matthews_correlation(
    label: npt.NDArray[np.int64], prediction: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
) -> float:
    """Compute scikit-learn's value from the counts of the classes alone, without its table of all pairs of them."""
    labelled, predicted = np.bincount(label, times), np.bincount(prediction, times)
    both = min(len(labelled), len(predicted))
    correct, total = float(times[label == prediction].sum()), float(times.sum())
    covariance = correct * total - np.dot(labelled[:both], predicted[:both])
    spread = (total**2 - np.dot(predicted, predicted)) * (total**2 - np.dot(labelled, labelled))
    return 0.0 if spread == 0 else float(covariance / np.sqrt(spread))


class NumberTally:
    """Tally of predicted numbers: loss (mean squared error), pearson and spearmanr (-1 to 1), examples (their number).

    The correlations are scipy's, and need all predictions: that of ranks is no sum. Where all labels or all predictions
    are the same number they are 0: a model that learned nothing must not become the best one.
    """

    needs_units = False

    def __init__(self, device: torch.device) -> None:
        self._rows = [torch.zeros(0, 2, device=device)]  # predicted, label
        self.units: UnitSums | None = None

    def keep_units(self, units: int) -> None:
        self.units = UnitSums(units, self._rows[0].device, torch.float32, right=False)

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch: logits (B, 1), the predictions, and labels (B,), numbers."""
        rows = torch.stack((logits.reshape(-1).float(), labels.reshape(-1).float()), dim=1)
        self._rows.append(rows)
        if self.units is not None:
            assert units is not None, "keep_units was called: every batch must say its units"
            self.units.add(units, (rows[:, 0] - rows[:, 1]) ** 2)

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        if self.units is not None:
            self.units.reduce(add_over_processes)
        rows = join(torch.cat(self._rows))
        self._rows = [rows[~rows[:, 1].isnan()]]  # a label is never NaN, so that row is padding

    def scores(self) -> dict[str, float]:
        from scipy import stats

        library: Any = stats  # its functions return values without types
        rows: npt.NDArray[np.float64] = torch.cat(self._rows).double().cpu().numpy()
        predicted, label = rows[:, 0], rows[:, 1]
        if not len(label):
            return {"loss": math.nan, "pearson": math.nan, "spearmanr": math.nan, "examples": 0}
        errors: npt.NDArray[np.float64] = predicted - label
        loss = float(np.mean(errors * errors))
        defined = math.isfinite(loss) and np.ptp(predicted) > 0 and np.ptp(label) > 0
        found = [
            float(measure(predicted, label)[0]) if defined else 0.0 for measure in (library.pearsonr, library.spearmanr)
        ]
        return {"loss": loss, "pearson": found[0], "spearmanr": found[1], "examples": len(label)}


class TextTally:
    """Tally of texts that are read in pieces: the outputs of all pieces of a text are averaged, and count once.

    Outputs are log-probabilities of classes, so that the average is the geometric mean of the probabilities, or
    numbers. The units of batches are texts.

    Args:
        make: the tally that counts a text by its average.
        texts: their number.
        width: outputs of a piece: the classes, or one number.
    """

    needs_units = True

    def __init__(self, make: "Callable[[], ClassTally | NumberTally]", device: torch.device, *, texts: int, width: int):
        self._make, self._width, self._keeps_units = make, width, False
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._outputs = torch.zeros(texts, width, device=device)
        self._pieces, self._labels, self._seen = torch.zeros(3, texts, dtype=wide, device=device)
        self.units: UnitSums | None = None

    def keep_units(self, units: int) -> None:
        self._keeps_units = True

    def add(self, logits: Tensor, labels: Tensor, units: Tensor | None = None) -> None:
        """Count one batch: logits (B, classes) and classes (B,), or numbers (B, 1) and numbers (B,)."""
        assert units is not None, "every batch of a tally of texts must say its texts"
        outputs = logits.reshape(-1, self._width).float()
        self._outputs.index_add_(0, units, outputs if self._width == 1 else outputs.log_softmax(-1))
        self._pieces.index_add_(0, units, torch.ones_like(units, dtype=self._pieces.dtype))
        self._labels[units], self._seen[units] = labels.to(self._labels.dtype), 1.0

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        self._outputs, self._pieces, self._labels, self._seen = map(
            add_over_processes, (self._outputs, self._pieces, self._labels, self._seen)
        )

    def scores(self) -> dict[str, float]:
        (rows,) = torch.where(self._pieces > 0)
        tally = self._make()
        if self._keeps_units:
            tally.keep_units(len(self._pieces))
        # of a text whose pieces several processes read, each of them had the label
        labels = self._labels[rows] / self._seen[rows]
        tally.add(
            self._outputs[rows] / self._pieces[rows, None].float(),
            labels.float() if self._width == 1 else labels.long(),
            rows,
        )
        self.units = tally.units
        return tally.scores()


def tally_of_texts(
    make: "Callable[[], ClassTally | NumberTally]", device: torch.device, examples: Sequence[Any], *, width: int
) -> Tally:
    """Return a tally of labelled texts, which averages where some of them are read in pieces."""
    texts = sum(len(part.unit_documents) for part in examples)
    return make() if texts == sum(map(len, examples)) else TextTally(make, device, texts=texts, width=width)


class TranslationTally(TokenTally):
    """Tally of translations: loss in nats per target token (also the final [SEP]), accuracy, perplexity, tokens; bleu.

    Loss, accuracy and perplexity are those of the human translation's tokens, each predicted from those before it,
    without label smoothing. bleu, from 0 to 100, and exact_match are there once translations were counted, with their
    number, sentences. exact_match, from 0 to 1, is the share of the translations that are their reference, white space
    aside. bleu is sacrebleu's: corpus BLEU of text as it is read (detokenised, with its capitals) against one
    reference; batches and processes do not change it.

    Papineni et al. 2002, https://aclanthology.org/P02-1040; Post 2018, https://aclanthology.org/W18-6319.
    """

    def __init__(self, device: torch.device, *, tokenizer: str = "13a") -> None:
        super().__init__(device)
        self._tokenizer = tokenizer
        # per order the n-grams that are right, and all; words of the translations, of the references; sentences, and
        # those of them that are exactly right
        self._counts = torch.zeros(2 * _ORDERS + 4, dtype=torch.int64, device=device)

    def add_translations(self, translations: Sequence[str], references: Sequence[str]) -> None:
        """Count the translations of a batch against their references."""
        found = _bleu(self._tokenizer).corpus_score(list(translations), [list(references)])
        exact = sum(one.split() == other.split() for one, other in zip(translations, references, strict=True))
        sizes = [found.sys_len, found.ref_len, len(translations), exact]
        self._counts += torch.tensor([*found.counts, *found.totals, *sizes], device=self._counts.device)

    def reduce(self, add_over_processes: Combine, join: Combine) -> None:
        super().reduce(add_over_processes, join)
        self._counts = add_over_processes(self._counts)

    def scores(self) -> dict[str, float]:
        scores, counts = super().scores(), [int(count) for count in self._counts]
        words, reference_words, sentences, exact = counts[-4:]
        if not sentences:
            return scores
        bleu = _bleu(self._tokenizer)
        smoothing = {"smooth_method": bleu.smooth_method, "smooth_value": bleu.smooth_value}
        found = bleu.compute_bleu(counts[:_ORDERS], counts[_ORDERS:-4], words, reference_words, **smoothing)
        return {**scores, "bleu": float(found.score), "exact_match": exact / sentences, "sentences": sentences}


def bleu_signature(tokenizer: str) -> str:
    """Return sacrebleu's signature: ``nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...``."""
    bleu = _bleu(tokenizer)
    bleu.corpus_score(["a"], [["a"]])  # it must have seen how many references there are
    return str(bleu.get_signature().format())


def _bleu(tokenizer: str) -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("sacrebleu", "train") from error
    return BLEU(
        tokenize=tokenizer, force=True
    )  # without it a text whose full stops stand apart gives a warning; it changes no score


def score(
    model: Callable[..., Any], batches: Iterable[Mapping[str, Tensor]], tally: Tally, *, device: torch.device
) -> Tally:
    """Run a model, in evaluation mode, over batches without gradients and return the tally with its predictions.

    Each batch holds `labels`, which the model gets too, so that it may compute only the logits that count, and `units`
    (see `UNITS`) where the tally keeps them.
    """
    # Not inference_mode: a compiled model, or one that caches a table, could not be trained with it afterwards.
    with torch.no_grad():
        for batch in batches:
            there = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
            units = there.pop(UNITS, None)
            tally.add(model(**there).logits, there["labels"], units)
    return tally
