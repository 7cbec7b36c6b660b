"""Packing: the spans of tokens that are examples, and the special tokens around them; no token is copied."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from wordorder.data.tokens import Ids, Integers, Tokens, tokens_of

Bools = npt.NDArray[np.bool_]

_BLOCK = 2**22
"""Tokens that are looked at together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The texts of examples, or the first or second texts of pairs: the span of each in the tokens of a split."""

    tokens: Tokens
    first: Integers
    last: Integers

    @property
    def lengths(self) -> Integers:
        return self.last - self.first

    def only(self, rows: Bools | Integers) -> "Side":
        return Side(tokens=self.tokens, first=self.first[rows], last=self.last[rows])

    def ids(self, number: int) -> Ids:
        return self.tokens.ids[self.first[number] : self.last[number]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Examples of one text or two each, with special tokens that are set when an example is read."""

    sides: tuple[Side, ...]
    before: tuple[int, ...] = ()
    """Special tokens before an example, such as [CLS]."""
    between: tuple[int, ...] = ()
    """Between the texts of a pair."""
    after: tuple[int, ...] = ()
    """After an example."""
    nothing: int | None = None
    """The whole example of a text that has no token where no special ones are added."""
    lengths: Integers = field(init=False)
    """Number of tokens of each example, special ones included, shape (examples,)."""

    def __post_init__(self) -> None:
        special = len(self.before) + len(self.after) + len(self.between) * (len(self.sides) - 1)
        lengths = special + sum(side.lengths for side in self.sides)
        object.__setattr__(self, "lengths", np.maximum(lengths, 1))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> npt.NDArray[np.int64]:
        """Return the tokens of an example."""
        parts: list[npt.ArrayLike] = [self.before]
        for place, side in enumerate(self.sides):
            parts += [self.between, side.ids(number)] if place else [side.ids(number)]
        ids = np.concatenate([np.asarray(part, np.int64) for part in (*parts, self.after)])
        return ids if len(ids) else np.array([self.nothing], np.int64)

    def rows(self, index_B: Integers, *, padding: int) -> tuple[npt.NDArray[np.int64], Bools]:
        """Return examples as (B, N), N the longest of them, padded on the right, and True where a token is present."""
        length_B = self.lengths[index_B]
        present_BN = np.arange(int(length_B.max())) < length_B[:, None]
        ids_BN = np.full(present_BN.shape, padding, np.int64)
        ids_BN[present_BN] = np.concatenate([self[number] for number in index_B.tolist()])
        return ids_BN, present_BN


def containing(side: Side, wanted: Bools) -> Bools:
    """Return which spans, ascending and apart, hold a token whose id is `wanted`, True or False for each id."""
    result = np.zeros(len(side.first), np.bool_)
    cuts = np.searchsorted(side.first, np.arange(0, len(side.tokens.ids), _BLOCK))
    for low, high in pairwise([*cuts.tolist(), len(side.first)]):
        if low < high:
            start, end = int(side.first[low]), int(side.last[low:high].max())
            counts = np.cumsum(np.append(0, wanted[side.tokens.ids[start:end]]))
            result[low:high] = counts[side.last[low:high] - start] > counts[side.first[low:high] - start]
    return result


def documents_of(side: Side) -> Integers:
    """Return the index of the text in which each span begins; [SEP] belongs to the text after it."""
    tokens = side.tokens
    after = side.first + np.isin(side.first, tokens.ends[tokens.sizes > 0])
    return np.searchsorted(tokens.starts, after, side="right") - 1


def whole_sentences(tokens: Tokens, *, room: int) -> Side:
    """Return spans of as many whole sentences of one document as fit, as RoBERTa's DOC-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2. A sentence longer than a span is cut. A span never
    crosses documents, so the last of a document may be short. No token is lost.
    """
    assert tokens.sentence_ends is not None, "the tokens were encoded without sentences"
    ends, starts = tokens.sentence_ends, tokens.starts[:-1]
    low, high = (np.searchsorted(ends, places, side="right") for places in (starts, tokens.ends))
    cuts = array("q")
    for start, first, last in zip(_numbers(starts), _numbers(low), _numbers(high), strict=True):
        cuts.extend(_spans(start, ends[first:last].tolist(), room))
    return _side(tokens, cuts)


def across_documents(tokens: Tokens, *, room: int) -> Side:
    """Return spans of as many whole sentences as fit, of several documents, RoBERTa's FULL-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2; TUPE was trained so. A document that ends within a
    span is followed by [SEP] and the next one. A sentence longer than a span is cut. No token is lost.
    """
    assert tokens.sentence_ends is not None, "the tokens were encoded without sentences"
    # each [SEP] belongs to the last sentence before it
    ends = tokens.sentence_ends + np.isin(tokens.sentence_ends, tokens.ends[tokens.sizes > 0])
    side = _side(tokens, array("q", _spans(0, _numbers(ends), room)))
    last = side.last - np.isin(side.last, tokens.starts)  # a span's own [SEP] follows
    some = last > side.first
    return Side(tokens=tokens, first=side.first, last=last).only(some)


def _side(tokens: Tokens, cuts: "array[int]") -> Side:
    first, last = np.array(cuts, np.int64).reshape(-1, 2).T
    return Side(tokens=tokens, first=first, last=last)


def _numbers(values: Integers) -> Iterator[int]:
    """Yield integers of Python, a block at a time: as a list they take several times the memory."""
    for start in range(0, len(values), 2**16):
        yield from values[start : start + 2**16].tolist()


def _spans(start: int, borders: Iterable[int], room: int) -> Iterator[int]:
    """Yield the start and the end of each span."""
    end = start
    for border in borders:
        while border - start > room:
            # the next sentence does not fit: close the span before it, or within it where it is alone too long
            cut = end if end > start else start + room
            yield from (start, cut)
            start = end = cut
        end = border
    if end > start:
        yield from (start, end)


def running(tokens: Tokens, *, room: int, keep_last: bool) -> Side:
    """Return spans of `room` tokens of running text, cut anywhere: documents follow each other with [SEP] after each.

    Args:
        keep_last: keep what is left at the end, fewer than `room` tokens, so that no token is lost.
    """
    first = np.arange(0, len(tokens.ids), room, dtype=np.int64)
    last = np.minimum(first + room, len(tokens.ids))
    full = len(first) if keep_last else len(tokens.ids) // room
    return Side(tokens=tokens, first=first[:full], last=last[:full])


def whole_texts(tokens: Tokens, *, room: int) -> Side:
    """Return the first `room` tokens of each text."""
    first = tokens.starts[:-1]
    return Side(tokens=tokens, first=first, last=np.minimum(tokens.ends, first + room))


def pieces(tokens: Tokens, *, room: int, most: int | None, truncate: bool) -> tuple[Side, Integers]:
    """Return pieces of `room` tokens of each text, and for each the index of its text.

    A last piece of less than a quarter of it is left out, because it rarely tells the class.

    Args:
        most: pieces of one text, evenly spaced; None: all.
        truncate: keep the beginning of a long text alone.
    """
    sizes = tokens.sizes
    counts = 1 if truncate else np.maximum(1, sizes // room + (4 * (sizes % room) >= room))
    counts = np.broadcast_to(counts, sizes.shape)
    taken = counts if most is None else np.minimum(counts, most)
    owners = np.repeat(np.arange(len(sizes)), taken)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(taken) - taken, taken)
    # of more pieces than are taken, those in the middle of equal shares
    number = np.where((counts > taken)[owners], (2 * number + 1) * counts[owners] // (2 * taken[owners]), number)
    first = tokens.starts[owners] + number * room
    return Side(tokens=tokens, first=first, last=np.minimum(first + room, tokens.ends[owners])), owners


def pairs(first: Tokens, second: Tokens, *, room: int) -> tuple[Side, Side]:
    """Return both texts of each pair; the ends are cut off, from the longer text first, until both fit."""
    one, other = first.sizes, second.sizes
    shares = np.minimum(one, np.maximum(room // 2, room - other))
    return (
        Side(tokens=first, first=first.starts[:-1], last=first.starts[:-1] + shares),
        Side(tokens=second, first=second.starts[:-1], last=second.starts[:-1] + np.minimum(other, room - shares)),
    )


def join_answers(texts: Tokens, answers: Tokens, *, sep_id: int) -> tuple[Tokens, Bools]:
    """Return `text [SEP] answer` of each text and its answer, and True for each token of an answer; all in memory."""
    rows: list[npt.NDArray[np.integer]] = []
    predicted: list[Bools] = []
    for number in range(len(texts)):
        text, answer = texts.document(number), answers.document(number)
        rows.append(np.concatenate([text, np.array([sep_id]), answer]))
        predicted += [np.zeros(len(text) + 1, np.bool_), np.ones(len(answer), np.bool_), np.zeros(1, np.bool_)]
    return tokens_of(rows, sep_id), np.concatenate(predicted)
