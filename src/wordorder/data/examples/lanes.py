"""Running text in lanes: every row of a batch is one stream of text, which goes on from batch to batch."""

import heapq
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from wordorder.data.examples.masking import IGNORED
from wordorder.data.examples.order import Example, Key, KeyedExamples, counter_hash, resolve_keys
from wordorder.data.tokens import Ids, Integers, Tokens
from wordorder.errors import BadInput

UNIT = 128
"""Most tokens of a unit of running text, see `KeyedExamples.unit_documents`."""
_ROLL, _SHUFFLE = 0x2011, 0x1A9E  # keep the draws of this file apart from each other and from others


class RunningText:
    """A split as one running text: its documents in order, with [SEP] after each.

    Every token is predicted once, from the one before it: token t of ``labels(t)`` from that of ``inputs(t)``, which is
    token t - 1. Before the first token stands the last one, [SEP], as if a document had just ended. Whole documents are
    streams of their own, or else the whole text is one stream; memory never crosses streams.

    Args:
        length: tokens of a segment.
        characters: of the split's text, and
        words: by white space; what losses are divided by so that they do not depend on the tokeniser.
        by_document: each document is a stream of its own, which is never divided among lanes.
        eval_lanes: most lanes that the text is divided into where it is scored.
        roll: whether training turns the text, or shuffles its documents, anew in each epoch; see `Lanes`.
        predicted: True for each of the tokens that is predicted, such as those of answers; the others have label -100.
            None: all are.
    """

    def __init__(
        self,
        tokens: Tokens,
        *,
        length: int,
        characters: int,
        words: int,
        by_document: bool = False,
        eval_lanes: int = 16,
        roll: bool = True,
        predicted: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.predicted = predicted
        self.tokens = tokens  # which another process maps
        self._documents = np.flatnonzero(tokens.sizes)  # a text without a token is not read
        self._document_starts = np.append(tokens.starts[self._documents], tokens.starts[-1])
        self.streams = self._document_starts if by_document else self._document_starts[[0, -1]]
        """The start of each stream in `ids`, and at last the end, shape (streams + 1,)."""
        self.length, self.whole = length, by_document
        self.characters, self.words = characters, words
        self.eval_lanes, self.roll = eval_lanes, roll

    @property
    def ids(self) -> Ids:
        return self.tokens.ids

    def __len__(self) -> int:
        """Return the number of segments."""
        return int((-(-np.diff(self.streams) // self.length)).sum())

    def in_segments(self, length: int) -> "RunningText":
        """Return the same text, cut into segments of another length."""
        text = copy(self)
        text.length = length
        return text

    def training_lanes(self, rows: int, *, seed: int, parts: int = 1) -> "Lanes":
        """Divide the text into as many lanes as an optimizer step has rows.

        Args:
            rows: of all micro-batches and processes together.

        Raises:
            BadInput: the text is too short for so many lanes.
        """
        pieces = len(self.streams) - 1
        if self.whole and pieces < rows:
            raise BadInput(
                f"the training text has {pieces} documents, which cannot go whole into {rows} lanes "
                "(training.batch_size): lower it, or set task.reset_memory=never"
            )
        if len(self.ids) < rows * self.length:
            raise BadInput(
                f"the training text has {len(self.ids)} tokens, less than a segment of data.length {self.length} for "
                f"each of {rows} lanes (training.batch_size): lower one of them"
            )
        return Lanes(self, rows=rows, seed=seed if self.roll else None, parts=parts)

    def scoring_lanes(self, share: slice = slice(None), *, most: int | None = None) -> list["Lanes"]:
        """Divide the text into `eval_lanes` lanes, or fewer where each would have less than a segment; never roll it.

        Args:
            share: which of the lanes are wanted, such as every other one for each of two processes.
            most: lanes of one data set, which are read side by side; None = all.

        Returns:
            As many data sets as it takes, none where the share is empty. Their number changes no prediction.
        """
        rows = max(1, min(self.eval_lanes, len(self.ids) // self.length))
        if self.whole:
            rows = min(rows, len(self.streams) - 1)
        wanted = list(range(rows))[share]
        most = most or max(1, len(wanted))
        groups = [wanted[first : first + most] for first in range(0, len(wanted), most)]
        return [Lanes(self, rows=rows, wanted=group) for group in groups]

    def windows(self, stride: int | None = None, *, start_id: int | None = None) -> "Windows":
        return Windows(self, stride=self.length if stride is None else stride, start_id=start_id)

    @cached_property
    def _units(self) -> tuple[Integers, Integers]:
        """The start of each unit in `ids`, and its document; units begin anew with each document."""
        sizes = np.diff(self._document_starts)
        units = -(-sizes // UNIT)
        documents = np.repeat(np.arange(len(sizes)), units)
        number = np.arange(len(documents)) - np.repeat(np.cumsum(units) - units, units)
        return self._document_starts[documents] + number * UNIT, self._documents[documents]

    @property
    def unit_documents(self) -> Integers:
        """The document of each unit, shape (units,)."""
        return self._units[1]

    def units_at(self, where: Integers) -> Integers:
        """Return the units of places of the text, which are taken modulo its length."""
        return np.searchsorted(self._units[0], where % len(self.ids), side="right") - 1

    def inputs(self, where: Integers) -> Integers:
        """Return the tokens that stand before places of the text, which are taken modulo its length."""
        return self.ids[(where - 1) % len(self.ids)].astype(np.int64)

    def labels(self, where: Integers) -> Integers:
        """Return the tokens at places of the text, -100 where a token is not predicted."""
        where = where % len(self.ids)
        labels = self.ids[where].astype(np.int64)
        return labels if self.predicted is None else np.where(self.predicted[where], labels, IGNORED)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The pieces of a text by step (K) and lane (R): begin, number of tokens, and whether memory is reset before it."""

    start_KR: Integers
    count_KR: Integers
    reset_KR: npt.NDArray[np.bool_]


class Lanes(KeyedExamples):
    """A running text in lanes: segment k + 1 of a lane goes on where its segment k ended.

    Example ``k * rows + r`` is segment k of lane r, so that plain batches of consecutive examples, shared out to
    micro-batches and processes in turn, give each row of each micro-batch of each process one lane. It has input_ids,
    shift_labels (what each token should predict: the next one, also over the border of segments) and memory_reset, a
    scalar, True where memory begins anew. Lanes are of equal length to within a token, or hold whole streams, dealt out
    longest first, so that they are as equal as they can be; a lane that has ended gives empty examples until the last
    has. Nothing is lost, nothing comes twice.

    In each epoch all lanes begin anew, without memory. With a seed, the text is turned by a number of tokens that
    depends on (seed, epoch) alone (`--roll` of Transformer-XL's and LaMemo's code, which turn each lane by itself): the
    lanes begin elsewhere and segments are cut elsewhere, and the text's end is followed by its beginning, as one
    document by another. Where streams are documents, their order in a lane is shuffled instead.

    Args:
        rows: lanes that it is divided into.
        seed: of the roll; None = none.
        wanted: the lanes that this data set has; None = all.
        parts: pieces that each segment is divided into, a divisor of its length; a piece may be empty where a segment
            is short. So `parts` consecutive pieces of a lane hold the tokens of one segment, whatever parts is.
    """

    def __init__(
        self,
        text: RunningText,
        *,
        rows: int,
        seed: int | None = None,
        wanted: Sequence[int] | None = None,
        parts: int = 1,
    ) -> None:
        self.text, self.seed = text, seed
        self.characters, self.words = text.characters, text.words
        self._lanes, self._parts = rows, parts
        self._wanted = list(range(rows)) if wanted is None else list(wanted)
        self.rows = len(self._wanted)
        """Number of lanes of this data set, and so of examples per step."""
        # The latest epoch: laying out a hundred thousand documents for every batch would cost more than training.
        self._laid: tuple[int, _Layout] | None = None
        self.steps = len(self._layout(0).start_KR)
        """Number of segments of the longest lane, the same in every epoch."""

    def __len__(self) -> int:
        return self.steps * self.rows

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        epoch_B, index_B = resolve_keys(keys, len(self))
        return [self._example(epoch, index) for epoch, index in zip(epoch_B.tolist(), index_B.tolist(), strict=True)]

    def units_of(self, index_B: Integers, width: int) -> Integers:
        """Return the units of the labels of each example, (B, width), of the first epoch."""
        start_KR = self._layout(0).start_KR
        start_B = start_KR[index_B // self.rows, np.array(self._wanted)[index_B % self.rows]]
        return self.text.units_at(start_B[:, None] + np.arange(width))

    def _example(self, epoch: int, index: int) -> Example:
        layout = self._layout(epoch)
        place = index // self.rows, self._wanted[index % self.rows]
        where: Integers = layout.start_KR[place] + np.arange(int(layout.count_KR[place]))
        return {
            "input_ids": torch.as_tensor(self.text.inputs(where)),
            "shift_labels": torch.as_tensor(self.text.labels(where)),
            "memory_reset": torch.tensor(bool(layout.reset_KR[place])),
        }

    def _layout(self, epoch: int) -> _Layout:
        if self._laid is None or self._laid[0] != epoch:
            make = _whole_streams if self.text.whole else _one_stream
            layout = make(self.text, self._lanes, self.seed, epoch)
            self._laid = epoch, layout if self._parts == 1 else _divided(layout, self.text.length, self._parts)
        return self._laid[1]


def _one_stream(text: RunningText, rows: int, seed: int | None, epoch: int) -> _Layout:
    total, length = len(text.ids), text.length
    border = np.arange(rows + 1, dtype=np.int64) * total // rows
    steps = -(-int(np.diff(border).max()) // length)
    start_KR = border[:-1] + np.arange(steps, dtype=np.int64)[:, None] * length
    count_KR = np.clip(border[1:] - start_KR, 0, length)
    reset_KR = np.broadcast_to(np.arange(steps)[:, None] == 0, start_KR.shape)
    turned = 0 if seed is None else int(counter_hash(seed, _ROLL, epoch)[0] % np.uint64(total))
    return _Layout(start_KR + turned, count_KR, reset_KR)


def _whole_streams(text: RunningText, rows: int, seed: int | None, epoch: int) -> _Layout:
    segments: Integers = -(-np.diff(text.streams) // text.length)
    dealt = _dealt(segments, rows)
    steps = max(int(segments[streams].sum()) for streams in dealt)
    start_KR, count_KR = np.zeros((2, steps, rows), np.int64)
    reset_KR = np.zeros((steps, rows), np.bool_)
    for row, streams in enumerate(dealt):
        if seed is not None:
            streams = streams[np.argsort(counter_hash(seed, _SHUFFLE, epoch, streams), kind="stable")]
        step = 0
        for stream in streams.tolist():
            begin, end = text.streams[stream : stream + 2]
            pieces = slice(step, step + int(segments[stream]))
            start_KR[pieces, row] = np.arange(begin, end, text.length)
            count_KR[pieces, row] = np.minimum(text.length, end - start_KR[pieces, row])
            reset_KR[step, row] = True
            step = pieces.stop
    return _Layout(start_KR, count_KR, reset_KR)


def _divided(layout: _Layout, length: int, parts: int) -> _Layout:
    piece, rows = length // parts, layout.start_KR.shape[1]
    first_P = np.arange(parts, dtype=np.int64) * piece
    start_KPR = layout.start_KR[:, None] + first_P[:, None]
    count_KPR = np.clip(layout.count_KR[:, None] - first_P[:, None], 0, piece)
    reset_KPR = layout.reset_KR[:, None] & (first_P[:, None] == 0)
    return _Layout(start_KPR.reshape(-1, rows), count_KPR.reshape(-1, rows), reset_KPR.reshape(-1, rows))


def _dealt(segments: Integers, rows: int) -> list[Integers]:
    """Deal streams out to lanes, the longest first, each to the lane that has least; in a lane they keep their order.

    Graham 1969, "Bounds on multiprocessing timing anomalies": the longest lane is at most 4/3 of the best possible.
    """
    heap = [(0, row) for row in range(rows)]
    dealt: list[list[int]] = [[] for _ in range(rows)]
    for stream in np.argsort(-segments, kind="stable").tolist():
        total, row = heapq.heappop(heap)
        dealt[row].append(stream)
        heapq.heappush(heap, (total + int(segments[stream]), row))
    return [np.array(sorted(streams), np.int64) for streams in dealt]


class Windows(KeyedExamples):
    """A running text in windows of `length` tokens that advance by a stride and are read each by itself.

    Each token is predicted once, in the first window that holds it: shift_labels are -100 where a window repeats what
    one before it has predicted. With stride = length nothing overlaps; a smaller one gives each token at least
    length - stride + 1 tokens before it (but at the beginning of a stream), at length / stride times the cost.

    Args:
        stride: tokens by which windows advance, from 1 to length.
        start_id: stands at the beginning of each window in the place of the token that the text has there, for models
            that were trained so; None = the text's own token.

    Raises:
        ValueError: the stride is out of range.
    """

    def __init__(self, text: RunningText, *, stride: int, start_id: int | None = None) -> None:
        if not 1 <= stride <= text.length:
            raise ValueError(f"stride must lie between 1 and the length of a segment, {text.length}, got {stride}")
        self.text, self.start_id = text, start_id
        self.characters, self.words = text.characters, text.words
        spans = [_window_ends(begin, end, text.length, stride) for begin, end in pairwise(text.streams.tolist())]
        self._begin, self._new, self._end = np.concatenate(spans, axis=1)

    def __len__(self) -> int:
        return len(self._end)

    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        _, index_B = resolve_keys(keys, len(self))
        return [self._example(index) for index in index_B.tolist()]

    def units_of(self, index_B: Integers, width: int) -> Integers:
        return self.text.units_at(self._begin[index_B][:, None] + np.arange(width))

    def _example(self, index: int) -> Example:
        where = np.arange(int(self._begin[index]), int(self._end[index]), dtype=np.int64)
        read, labels = self.text.inputs(where), self.text.labels(where)
        if self.start_id is not None:
            read[0] = self.start_id
        labels[where < self._new[index]] = IGNORED
        return {"input_ids": torch.as_tensor(read), "shift_labels": torch.as_tensor(labels)}


def _window_ends(begin: int, end: int, length: int, stride: int) -> Integers:
    """Return the begin of each window of a stream, the begin of its new tokens, and its end, shape (3, windows)."""
    ends = np.append(np.arange(begin + length, end, stride), end)
    new = np.insert(ends[:-1], 0, begin)
    return np.stack([np.maximum(ends - length, begin) if stride < length else new, new, ends]).astype(np.int64)
