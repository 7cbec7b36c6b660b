"""Segments: encoded documents, packed or cut into examples of at most `length` tokens."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encode import EncodedDocuments, Ids, Integers, starts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Examples one after another in one array."""

    ids: Ids
    """Tokens of all examples, special tokens included, shape (tokens,)."""
    starts: Integers
    """The start of each example in `ids`, and at last the end, shape (examples + 1,)."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Integers:
        """Number of tokens of each example, shape (examples,)."""
        return np.diff(self.starts)

    def __getitem__(self, number: int) -> Ids:
        return self.ids[self.starts[number] : self.starts[number + 1]]

    def rows(self, index_B: Integers, *, padding: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return examples as (B, N), N the longest of them, padded on the right, and True where a token is present."""
        start_B, length_B = self.starts[index_B], self.lengths[index_B]
        column_N = np.arange(int(length_B.max()))
        present_BN = column_N < length_B[:, None]
        if present_BN.all():
            return self.ids[start_B[:, None] + column_N].astype(np.int64), present_BN
        where_BN = np.minimum(start_B[:, None] + column_N, len(self.ids) - 1)
        return np.where(present_BN, self.ids[where_BN], padding).astype(np.int64), present_BN

    def containing(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which segments hold a token whose id is `wanted`, True or False for each id, shape (examples,)."""
        if not len(self):
            return np.zeros(0, np.bool_)
        return np.add.reduceat(wanted[self.ids], self.starts[:-1]) > 0

    def only(self, kept: npt.NDArray[np.bool_]) -> "Segments":
        return Segments(ids=self.ids[np.repeat(kept, self.lengths)], starts=starts_of(self.lengths[kept]))


def framed(ids: Ids, first: Integers, last: Integers, *, cls_id: int | None, sep_id: int) -> Segments:
    """Frame the spans from `first` to `last` of `ids` as `[CLS] span [SEP]`, or as `span [SEP]`."""
    size = last - first
    starts = starts_of(size + (1 if cls_id is None else 2))
    found = np.empty(starts[-1], np.int32)
    inner = np.ones(len(found), np.bool_)
    found[starts[1:] - 1], inner[starts[1:] - 1] = sep_id, False
    if cls_id is not None:
        found[starts[:-1]], inner[starts[:-1]] = cls_id, False
    # each token's place in `ids`: the start of its span, and its own number within it
    within: Integers = np.arange(size.sum(), dtype=np.int64) - np.repeat(np.cumsum(size) - size, size)
    found[inner] = ids[np.repeat(first, size) + within]
    return Segments(ids=found, starts=starts)


class Packer(ABC):
    """Makes segments of documents.

    Args:
        length: most tokens of a segment, special tokens included.
    """

    def __init__(self, *, length: int, cls_id: int, sep_id: int) -> None:
        self.length, self.cls_id, self.sep_id = length, cls_id, sep_id

    @abstractmethod
    def pack(self, documents: EncodedDocuments) -> Segments:
        """Return the segments of a whole text."""


class WholeSentences(Packer):
    """Pack `[CLS] sentences [SEP]`: as many whole sentences of one document as fit, as RoBERTa's DOC-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2. A sentence longer than a segment is cut. A segment
    never crosses documents, so the last of a document may be short. No token is lost.
    """

    def pack(self, documents: EncodedDocuments) -> Segments:
        spans: list[tuple[int, int]] = []
        for number in range(len(documents)):
            spans += _spans(documents.sentences(number).tolist(), self.length - 2)
        first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        return framed(documents.ids, first, last, cls_id=self.cls_id, sep_id=self.sep_id)


class AcrossDocuments(Packer):
    """Pack `[CLS] sentences [SEP]`: as many whole sentences as fit, of several documents, RoBERTa's FULL-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2; TUPE was trained so. A document that ends within a
    segment is followed by [SEP] and the next one. A sentence longer than a segment is cut. No token is lost.
    """

    def pack(self, documents: EncodedDocuments) -> Segments:
        ends = np.unique(documents.borders[1:])
        ends = ends[ends > 0]  # a document without a token ends where the one before it does, and adds no [SEP]
        # each [SEP] belongs to the last sentence before it
        shift = np.searchsorted(ends, documents.sentence_starts, side="right")
        running = np.insert(documents.ids, ends, np.int32(self.sep_id))
        spans = _spans([0, *(documents.sentence_starts + shift)[1:].tolist()], self.length - 2)
        first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        last = last - (running[last - 1] == self.sep_id)  # a segment's own [SEP] follows
        some = last > first
        return framed(running, first[some], last[some], cls_id=self.cls_id, sep_id=self.sep_id)


def _spans(borders: list[int], room: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = end = borders[0]
    for border in borders[1:]:
        while border - start > room:
            # The next sentence does not fit: close the segment before it, or within it where it is alone too long.
            cut = end if end > start else start + room
            spans.append((start, cut))
            start = end = cut
        end = border
    return spans if end == start else [*spans, (start, end)]


class Contiguous(Packer):
    """Pack `[CLS]` and length - 1 tokens of running text, cut anywhere: every segment is full, nothing is padded.

    Documents follow each other with [SEP] after each. What is left at the end, fewer than length - 1 tokens, is lost.
    """

    keeps_last = False

    def pack(self, documents: EncodedDocuments) -> Segments:
        running, size = in_a_row(documents, self.sep_id), self.length - 1
        starts = np.arange(0, len(running), size)
        if len(running) % size and not self.keeps_last:
            running, starts = running[: starts[-1]], starts[:-1]
        # a [CLS] before each segment
        return Segments(
            ids=np.insert(running, starts, np.int32(self.cls_id)),
            starts=np.append(starts, len(running)) + np.arange(len(starts) + 1),
        )


class CausalSegments(Contiguous):
    """Pack `[CLS]` and up to length - 1 tokens of running text, cut anywhere, for causal language models.

    As `Contiguous`, but nothing is lost: the last segment may be short. Each token of the text, and the [SEP] after
    each document, is predicted exactly once, so the sum of the losses is that of the whole text.
    """

    keeps_last = True


PACKERS: dict[str, type[Packer]] = {
    "full-sentences": WholeSentences,
    "full-sentences-across-documents": AcrossDocuments,
    "contiguous": Contiguous,
}
"""Value of data.packing -> packer of masked-lm."""


def first_documents(segments: Segments, documents: EncodedDocuments, *, cls_id: int, sep_id: int) -> Integers:
    """Return the index of the document in which each segment of a `Packer` begins.

    Segments hold the tokens of the documents one after another, none left out but at the end, and besides them [CLS]
    and [SEP] alone, which text never has.
    """
    of_text = (segments.ids != cls_id) & (segments.ids != sep_id)
    before = np.append(0, np.cumsum(of_text))[segments.starts[:-1]]
    return np.searchsorted(documents.borders, before, side="right").astype(np.int64) - 1


def in_a_row(documents: EncodedDocuments, sep_id: int) -> Ids:
    """Join documents in a row with [SEP] after each."""
    return np.insert(documents.ids, documents.borders[1:], np.int32(sep_id))


def join_answers(
    texts: EncodedDocuments, answers: EncodedDocuments, *, sep_id: int, ends: bool
) -> tuple[EncodedDocuments, npt.NDArray[np.bool_]]:
    """Make `text [SEP] answer` of each text and its answer.

    Args:
        ends: the [SEP] after an answer is predicted too, since it says where the answer ends.

    Returns:
        The documents; and True for each token that is predicted, of these documents `in_a_row`.
    """
    sep, end = np.array([sep_id], np.int32), np.array([ends])
    ids: list[Ids] = []
    predicted: list[npt.NDArray[np.bool_]] = []
    for number in range(len(texts)):
        text, answer = texts.tokens(number), answers.tokens(number)
        ids += [text, sep, answer]
        predicted += [np.zeros(len(text) + 1, np.bool_), np.ones(len(answer), np.bool_), end]
    starts = starts_of(np.diff(texts.borders) + 1 + np.diff(answers.borders))
    documents = EncodedDocuments(
        ids=np.concatenate(ids), sentence_starts=starts, document_starts=np.arange(len(starts), dtype=np.int64)
    )
    return documents, np.concatenate(predicted)


def cut_in_pieces(
    documents: EncodedDocuments,
    pairs: EncodedDocuments | None,
    *,
    length: int,
    max_pieces: int | None,
    truncate: bool = False,
    cls_id: int,
    sep_id: int,
    separators: int = 1,
    add_special_tokens: bool = True,
    unknown_id: int | None = None,
) -> tuple[Segments, Integers]:
    """Make `[CLS] piece [SEP]` of each document, or `[CLS] text [SEP] second [SEP]` of each pair.

    A document of more than length - 2 tokens (length, without special tokens) is cut into pieces of that size. A last
    piece of less than a quarter of it is left out, because it rarely tells the class. A pair is one example; the longer
    text loses what does not fit.

    Args:
        max_pieces: most pieces of one document, evenly spaced; None: all.
        truncate: keep the beginning of a long document alone.
        separators: how many [SEP] stand between the texts of a pair: one as in BERT, or two as in RoBERTa and TUPE's
            fairseq models, `<s> A </s> </s> B </s>`.
        add_special_tokens: False makes pieces of words alone, without [CLS] and [SEP]; for documents, not for pairs.
        unknown_id: id of [UNK], the whole example of a text that has no token at all where no special ones are added;
            None: [CLS] in its place.

    Returns:
        The examples, and for each the index of its document.
    """
    cls, sep = np.array([cls_id], np.int32), np.array([sep_id], np.int32)
    before, after = ([cls], [sep]) if add_special_tokens else ([], [])
    nothing = np.array([cls_id if unknown_id is None else unknown_id], np.int32)
    room = length - len(before) - len(after)
    examples: list[Ids] = []
    owners: list[int] = []
    for number in range(len(documents)):
        text = documents.tokens(number)
        if pairs is None:
            # a batch, and a network, take no example of no token
            text = text if len(text) or add_special_tokens else nothing
            text = text[:room] if truncate else text
            texts = [[*before, piece, *after] for piece in _pieces(text, room, max_pieces)]
        else:
            # the ends are cut off, from the longer text first, until both fit
            second, both = pairs.tokens(number), length - 2 - separators
            first = text[: max(both // 2, both - len(second))]
            texts = [[cls, first, *([sep] * separators), second[: both - len(first)], sep]]
        examples += [np.concatenate(parts) for parts in texts]
        owners += [number] * len(texts)
    starts = starts_of([len(example) for example in examples])
    return Segments(ids=np.concatenate(examples), starts=starts), np.array(owners, np.int64)


def _pieces(tokens: Ids, room: int, most: int | None) -> Iterator[Ids]:
    starts = [0, *(start for start in range(room, len(tokens), room) if len(tokens) - start >= room / 4)]
    if most is not None and len(starts) > most:
        starts = [starts[(2 * i + 1) * len(starts) // (2 * most)] for i in range(most)]
    return (tokens[start : start + room] for start in starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePairs:
    """The pairs of one split of a translation that are used."""

    sources: Segments
    """`[CLS] source [SEP]`, as the tokeniser writes a single text."""
    targets: Segments
    """`target [SEP]`: what the decoder predicts. It is fed `[CLS] target`, which the model makes by shifting."""
    kept: Integers
    """Index of each pair in the split."""
    cut: int
    """Pairs of which an end was cut off."""


def join_pairs(
    sources: EncodedDocuments, targets: EncodedDocuments, *, length: int, drop_long: bool, cls_id: int, sep_id: int
) -> SentencePairs:
    """Put the special tokens around both sides of every pair.

    Args:
        length: most tokens of `[CLS] source [SEP]`, and of `[CLS] target`, which is what the decoder reads.
        drop_long: leave pairs out that are longer on either side, as in training, where half a sentence teaches the
            model to stop in the middle; False cuts them.
    """
    sides = [(sources, length - 2, cls_id), (targets, length - 1, None)]
    long = np.any([np.diff(texts.borders) > room for texts, room, _ in sides], axis=0)
    kept = np.flatnonzero(~long) if drop_long else np.arange(len(long))
    segments: list[Segments] = []
    for texts, room, begin in sides:
        first, last = texts.borders[:-1][kept], texts.borders[1:][kept]
        segments.append(framed(texts.ids, first, np.minimum(last, first + room), cls_id=begin, sep_id=sep_id))
    return SentencePairs(
        sources=segments[0],
        targets=segments[1],
        kept=kept.astype(np.int64),
        cut=0 if drop_long else int(long.sum()),
    )
