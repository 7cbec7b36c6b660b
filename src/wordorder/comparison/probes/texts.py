"""Read the reported split's texts in other windows than those of training, and compute the loss of each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from wordorder.comparison.probes.probe import CannotProbe, Trained
from wordorder.data.examples.datasets import MaskedLanguageExamples
from wordorder.data.examples.masking import IGNORED
from wordorder.training.loop.carried_memory import has_memory

Ids = npt.NDArray[np.int64]
Losses = npt.NDArray[np.float64]
Window = tuple[Ids, Ids]
"""Input of the model (T,), and the label of each place (T,), -100 where nothing is predicted."""

TOKENS_PER_BATCH = 4096
LOGITS_PER_BATCH = 2**25
"""Maximum number of logits of a batch; 128 MiB in float32."""


def text_of(trained: Trained) -> Ids:
    """Return the tokens of the reported split as one running text: its documents in order, with [SEP] after each."""
    tokens = trained.prepared.reported
    assert tokens is not None  # `prepare` gives it
    return tokens.ids.astype(np.int64)


def window_of_training(trained: Trained) -> int:
    """Return `new_tokens`; raise CannotProbe where data.length is several segments of a memory."""
    segment = trained.recipe.segment_length
    if has_memory(trained.model.config) and segment != trained.recipe.data.length:
        raise CannotProbe(
            f"the model reads data.length {trained.recipe.data.length} in segments of {segment} tokens with its memory,"
            " and this probe reads single windows"
        )
    return new_tokens(trained)


def new_tokens(trained: Trained) -> int:
    """Return the number of text tokens in a window of data.length, without the special tokens of training."""
    length, task = trained.recipe.data.length, trained.task
    assert length is not None  # reading a recipe fills it in
    if task.running_text:
        return length if _in_lanes(trained) else length - 1
    return length - trained.prepared.tokenizer.num_special_tokens_to_add(pair=False)


def blocks(text: Ids, size: int, tokens: int) -> list[Ids]:
    """Return pieces of a running text, evenly spread: as many as hold about `tokens` tokens, at least one."""
    there = len(text) // size
    count = min(there, max(1, tokens // size))
    starts = (np.arange(count) * there // count) * size
    return [text[start : start + size] for start in starts.tolist()]


def causal_windows(trained: Trained, block: Ids, length: int) -> list[Window]:
    """Cut a piece of text into windows that are read each by itself; every token is predicted once.

    The first token of a window is predicted from what windows begin with in training: [CLS], or in lanes the token
    before it in the text, [SEP] at the beginning of the piece.
    """
    before = np.concatenate((np.array([_special(trained, "sep")], np.int64), block[:-1]))
    windows: list[Window] = []
    for start in range(0, len(block), length):
        read = before[start : start + length].copy()
        if not _in_lanes(trained):
            read[0] = _special(trained, "cls")
        windows.append((read, block[start : start + length]))
    return windows


def masked_block(trained: Trained, block: Ids, unit: int, number: int) -> Window:
    """Mask a piece of text as training does, in pieces of a training window; the windows are cut afterwards."""
    examples = trained.examples
    assert isinstance(examples, MaskedLanguageExamples)
    rows = block.reshape(-1, unit)
    numbers = number * len(rows) + np.arange(len(rows), dtype=np.int64)
    seed = 3 * trained.recipe.data.seed + 2
    seen, labels = examples.masking(
        rows, np.ones(rows.shape, np.bool_), seed=seed, epoch_B=numbers * 0, index_B=numbers
    )
    return seen.reshape(-1), labels.reshape(-1)


def enclosed(trained: Trained, seen: Ids, labels: Ids) -> Window:
    """Put [CLS] before and [SEP] after a window, neither of which is predicted."""
    start, end = _special(trained, "cls"), _special(trained, "sep")
    return np.concatenate(([start], seen, [end])), np.concatenate(([IGNORED], labels, [IGNORED]))


def token_losses(trained: Trained, windows: Sequence[Window]) -> list[Losses]:
    """Return the loss in nats of every place of every window, each read by itself; NaN where nothing is predicted."""
    found: list[Losses] = [np.empty(0)] * len(windows)
    for numbers, batch in batches(trained, [read for read, _ in windows]):
        labels = [torch.as_tensor(windows[number][1]) for number in numbers]
        labels_BT = pad_sequence(labels, batch_first=True, padding_value=IGNORED).to(trained.device)
        losses_BT = losses_at(trained.model(**batch).logits, labels_BT)
        for number, losses in zip(numbers, losses_BT, strict=True):
            found[number] = losses[: len(windows[number][1])]
    return found


def losses_at(logits_BTV: torch.Tensor, labels_BT: torch.Tensor) -> Losses:
    """Return the loss in nats at each place (B, T), NaN where the label is -100."""
    chosen_BT = labels_BT != IGNORED
    losses = functional.cross_entropy(logits_BTV[chosen_BT].float(), labels_BT[chosen_BT], reduction="none")
    found: Losses = np.full(tuple(labels_BT.shape), np.nan)
    found[chosen_BT.cpu().numpy()] = losses.double().cpu().numpy()
    return found


def batches(trained: Trained, rows: Sequence[Ids]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Yield batches of about as many tokens each, shortest rows first: the numbers of their rows, and the batch."""
    padding = _special(trained, "pad")
    most = max(1, min(TOKENS_PER_BATCH, LOGITS_PER_BATCH // int(trained.model.config.vocab_size)))
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and len(rows[order[end]]) * (end + 1 - start) <= most:
            end += 1
        numbers, start = order[start:end], end
        lengths = torch.tensor([len(rows[number]) for number in numbers])
        present = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = [torch.as_tensor(rows[number]) for number in numbers]
        batch = {"input_ids": pad_sequence(ids, batch_first=True, padding_value=padding).to(trained.device)}
        if not present.all():
            batch["attention_mask"] = present.long().to(trained.device)
        yield numbers, batch


def accuracy(trained: Trained, texts: list[Ids], labels: list[int]) -> float:
    """Return the share of texts whose label the model predicts."""
    right = 0
    for numbers, batch in batches(trained, texts):
        predicted = trained.model(**batch).logits.argmax(-1).cpu().tolist()
        right += sum(labels[number] == guess for number, guess in zip(numbers, predicted, strict=True))
    return right / len(texts)


def mean_loss(losses: Sequence[Losses]) -> float:
    """Return the mean in nats over all places where something was predicted."""
    return float(np.nanmean(np.concatenate(losses)))


def _in_lanes(trained: Trained) -> bool:
    return trained.recipe.task.in_lanes


def _special(trained: Trained, role: str) -> int:
    found = getattr(trained.prepared.tokenizer, f"{role}_token_id")
    assert isinstance(found, int)  # `load_tokenizer` refuses a tokeniser without
    return found
