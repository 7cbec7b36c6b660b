"""Sensitivity to word order: the loss from shuffling the words of a text within windows.

After Sinha et al. 2021, https://arxiv.org/abs/2104.06644, who shuffle training texts; here the texts that the model is
scored on are shuffled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wordorder.comparison.probes import texts as reading
from wordorder.comparison.probes.probe import Axes, Measured, Probe, Row, Trained, check_at_least, check_different
from wordorder.data.examples.datasets import LabelledExamples, MaskedLanguageExamples
from wordorder.data.examples.masking import IGNORED
from wordorder.data.examples.order import counter_hash
from wordorder.tasks import TASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


WHOLE = "whole text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledWindows(Probe):
    """A probe of how much worse a model does on texts whose words are shuffled within windows."""

    windows: tuple[int, ...] = (2, 4, 8, 16)
    """Numbers of words of a window; the whole text is always shuffled too."""
    tokens: int = 16384
    """Number of tokens of text that are read for each window, the same ones each time, spread evenly over the split."""
    seed: int = 0
    """Seed of the shuffling."""

    def __post_init__(self) -> None:
        check_different("windows", self.windows)
        check_at_least("tokens", self.tokens, 1)
        check_at_least("seed", self.seed, 0)

    def axes(self, task: str) -> Axes:
        labelled = TASKS[task].labels is not None
        return Axes(
            title="Sensitivity to word order",
            x="words are shuffled within windows of",
            x_kind="label",
            value="accuracy lost (share of texts)" if labelled else "loss added (nats per predicted token)",
            higher_is_better=None,
            log=False,
            meaning="What shuffling words within windows costs: 0 means that the model makes no use of their order.",
        )

    def measure(self, trained: Trained) -> Measured:
        measure_language = _masked if trained.task.masks_tokens else _causal
        return (_classified if trained.task.labels == "class" else measure_language)(self, trained)


Order = Callable[[int, reading.Ids], reading.Ids]
"""Function from a text's number and tokens to the places that its tokens are taken from."""


def _orders(options: ShuffledWindows, trained: Trained) -> dict[str, Order]:
    starts, fixed = word_starts(trained.prepared.tokenizer), fixed_tokens(trained.prepared.tokenizer)

    def order(window: int | None) -> Order:
        return lambda index, ids: shuffled_order(ids, starts, fixed, window=window, seed=options.seed, index=index)

    return {**{f"{size} words": order(size) for size in sorted(options.windows)}, WHOLE: order(None)}


def _language(
    options: ShuffledWindows,
    trained: Trained,
    texts: list[reading.Window],
    make: Callable[[reading.Ids, reading.Ids], reading.Window],
) -> Measured:
    """Measure a language model: it predicts the same words in another order; `make` puts together a window."""
    plain = reading.mean_loss(reading.token_losses(trained, [make(*text) for text in texts]))
    rows: list[Row] = []
    for x, order in _orders(options, trained).items():
        windows: list[reading.Window] = []
        for index, (seen, labels) in enumerate(texts):
            places = order(index, np.where(labels == IGNORED, seen, labels))
            windows.append(make(seen[places], labels[places]))
        loss = reading.mean_loss(reading.token_losses(trained, windows))
        rows.append({"x": x, "value": loss - plain, "loss": loss, "loss_as_written": plain})
    return Measured(rows=rows)


def _masked(options: ShuffledWindows, trained: Trained) -> Measured:
    examples: MaskedLanguageExamples = trained.examples
    texts: list[reading.Window] = []
    for number in _spread(len(examples), int(examples.lengths.mean()), options.tokens):
        example = examples[number]
        # a mask moves with its word: the same words are predicted, and the same ones are seen
        texts.append((example["input_ids"].numpy(), example["labels"].numpy()))
    return _language(options, trained, texts, lambda seen, labels: (seen, labels))


def _causal(options: ShuffledWindows, trained: Trained) -> Measured:
    text, unit = reading.text_of(trained), reading.window_of_training(trained)
    unit = min(unit, len(text))
    texts: list[reading.Window] = [(block, block) for block in reading.blocks(text, unit, options.tokens)]
    return _language(options, trained, texts, lambda block, _: reading.causal_windows(trained, block, unit)[0])


def _classified(options: ShuffledWindows, trained: Trained) -> Measured:
    examples: LabelledExamples = trained.examples
    numbers = _spread(len(examples), int(examples.lengths.mean()), options.tokens)
    texts = [examples[number]["input_ids"].numpy() for number in numbers]
    labels = [int(examples[number]["labels"]) for number in numbers]
    plain = reading.accuracy(trained, texts, labels)
    rows: list[Row] = []
    for x, order in _orders(options, trained).items():
        found = reading.accuracy(trained, [ids[order(index, ids)] for index, ids in enumerate(texts)], labels)
        rows.append({"x": x, "value": plain - found, "accuracy": found, "accuracy_as_written": plain})
    return Measured(rows=rows)


def _spread(there: int, size: int, tokens: int) -> list[int]:
    count = min(there, max(1, tokens // max(1, size)))
    return (np.arange(count) * there // count).tolist()


Flags = npt.NDArray[np.bool_]

_SHUFFLE = 0x5AFE  # keeps these draws apart from others


def word_starts(tokenizer: PreTrainedTokenizerFast) -> Flags:
    """Return True for each id of the vocabulary that begins a word, shape (vocabulary,).

    A piece that goes on with a word (##ing) does not; of tokens that hold their white space one that begins with it
    does, so that white space belongs to the word after it.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    before = json.dumps(state.get("pre_tokenizer"))
    found = np.ones(max(vocabulary.values()) + 1, np.bool_)
    prefix = state["model"].get("continuing_subword_prefix")
    marks = "ĠĊĉč" if "ByteLevel" in before else "▁" if "Metaspace" in before else ""
    has_spaces = any(token.isspace() for token in vocabulary)
    for token, number in vocabulary.items():
        if prefix:
            found[number] = not token.startswith(prefix)
        elif marks:
            found[number] = token[:1] in marks
        elif has_spaces:
            found[number] = token[:1].isspace()
    return found


def fixed_tokens(tokenizer: PreTrainedTokenizerFast) -> Flags:
    """Return True for each id that keeps its place: [CLS], [SEP] and [PAD], between which words are shuffled."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    found = np.zeros(max(vocabulary.values()) + 1, np.bool_)
    found[[getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "pad")]] = True
    return found


def shuffled_order(
    ids: reading.Ids, starts: Flags, fixed: Flags, *, window: int | None, seed: int, index: int
) -> reading.Ids:
    """Return the token that comes to each place, (T,), when words are shuffled within windows.

    A word's tokens stay together and in order. Windows are counted from the beginning of the text and anew after each
    token that keeps its place. The order depends on the seed, the index and the text alone.
    """
    if not len(ids):
        return np.empty(0, np.int64)
    fixed_T = fixed[ids]
    after_fixed_T = np.concatenate([[True], fixed_T[:-1]])
    begins_T = starts[ids] | fixed_T | after_fixed_T
    word_T = np.cumsum(begins_T) - 1
    first_W = np.flatnonzero(begins_T)
    run_W = np.cumsum(fixed_T | after_fixed_T)[first_W]
    number_W = np.arange(len(first_W)) - np.searchsorted(run_W, run_W)  # number of the word in its run
    window_W = number_W * 0 if window is None else number_W // window
    chance_W = counter_hash(seed, _SHUFFLE, index, np.arange(len(first_W)))
    order_W = np.lexsort((chance_W, window_W, run_W))
    place_W = np.empty(len(order_W), np.int64)
    place_W[order_W] = np.arange(len(order_W))
    return np.lexsort((np.arange(len(ids)), place_W[word_T]))
