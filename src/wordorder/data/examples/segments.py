"""Masked-language-model segments: documents packed into examples of at most `length` tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encode import EncodedDocuments, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Examples one after another in one array.

    Args:
        ids: tokens of all examples, special tokens included, shape (tokens,).
        starts: where each example begins in `ids`, and at last the end, shape (examples + 1,).
    """

    ids: npt.NDArray[np.int32]
    starts: Integers

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Integers:
        """Number of tokens of each example, shape (examples,)."""
        return np.diff(self.starts)

    def rows(self, index_B: Integers, *, padding: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return examples as (B, N), N the longest of them, padded on the right, and True where a token is present."""
        start_B, length_B = self.starts[index_B], self.lengths[index_B]
        column_N = np.arange(int(length_B.max()))
        present_BN = column_N < length_B[:, None]
        if present_BN.all():
            return self.ids[start_B[:, None] + column_N].astype(np.int64), present_BN
        where_BN = np.minimum(start_B[:, None] + column_N, len(self.ids) - 1)
        return np.where(present_BN, self.ids[where_BN], padding).astype(np.int64), present_BN


Packing = Callable[..., Segments]


def pack_full_sentences(documents: EncodedDocuments, *, length: int, cls_id: int, sep_id: int) -> Segments:
    """Pack `[CLS] sentences [SEP]`: as many whole sentences of one document as fit, as RoBERTa's DOC-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2. A sentence longer than a segment is cut. A segment
    never crosses documents, so the last of a document may be short. No token is lost.

    Args:
        length: most tokens of a segment, special tokens included.
    """
    spans = [span for d in range(len(documents)) for span in _spans(documents.sentences(d).tolist(), length - 2)]
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(last - first + 2)])
    ids = np.empty(starts[-1], np.int32)
    ids[starts[:-1]], ids[starts[1:] - 1] = cls_id, sep_id
    inner = np.ones(len(ids), np.bool_)
    inner[starts[:-1]] = inner[starts[1:] - 1] = False
    ids[inner] = documents.ids  # the spans follow each other without a gap, so all tokens go in as they come
    return Segments(ids=ids, starts=starts)


def _spans(borders: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs of whole sentences of at most `room` tokens."""
    spans, start = closed_spans(borders, room)
    yield from spans
    if borders[-1] > start:
        yield start, borders[-1]


def closed_spans(borders: list[int], room: int) -> tuple[list[tuple[int, int]], int]:
    """Return the runs that no further sentence can change, and where the one begins that is still open.

    Args:
        borders: where sentences begin, and at last the end.
    """
    spans: list[tuple[int, int]] = []
    start = end = borders[0]
    for border in borders[1:]:
        while border - start > room:
            # The next sentence does not fit: close the segment before it, or within it where it is alone too long.
            cut = end if end > start else start + room
            spans.append((start, cut))
            start = end = cut
        end = border
    return spans, start


def pack_across_documents(documents: EncodedDocuments, *, length: int, cls_id: int, sep_id: int) -> Segments:
    """Pack `[CLS] sentences [SEP]`: as many whole sentences as fit, of several documents, RoBERTa's FULL-SENTENCES.

    Liu et al. 2019, https://arxiv.org/abs/1907.11692, Sec. 4.2; TUPE was trained so. A document that ends within a
    segment is followed by [SEP] and the next one. A sentence longer than a segment is cut. No token is lost.
    """
    running, borders = with_separators(documents, sep_id)
    return framed(running, list(_spans(borders.tolist(), length - 2)), cls_id=cls_id, sep_id=sep_id)


def with_separators(documents: EncodedDocuments, sep_id: int) -> tuple[npt.NDArray[np.int32], Integers]:
    """Join documents in a row with [SEP] after each that has a token.

    Returns the tokens, and where sentences begin in them, and at last their end.
    """
    ends = np.unique(documents.sentence_starts[documents.document_starts[1:]])
    ends = ends[ends > 0]  # a document without a token ends where the one before it does, and adds no [SEP]
    running = np.insert(documents.ids, ends, np.int32(sep_id))  # each [SEP] belongs to the last sentence before it
    return running, documents.sentence_starts + np.searchsorted(ends, documents.sentence_starts, side="right")


def framed(running: npt.NDArray[np.int32], spans: list[tuple[int, int]], *, cls_id: int, sep_id: int) -> Segments:
    """Frame spans of running text as `[CLS] span [SEP]`.

    Args:
        running: the text; a [SEP] at the end of a span is the span's own.
    """
    first, last = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    last = last - (running[last - 1] == sep_id)  # a segment's own [SEP] follows
    first, last = first[last > first], last[last > first]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(last - first + 2)])
    shift: Integers = np.repeat(first - 1 - starts[:-1], last - first + 2)
    where: Integers = np.arange(starts[-1], dtype=np.int64) + shift
    ids = running[np.clip(where, 0, len(running) - 1)]
    ids[starts[:-1]], ids[starts[1:] - 1] = cls_id, sep_id
    return Segments(ids=ids, starts=starts)


def pack_contiguous(documents: EncodedDocuments, *, length: int, cls_id: int, sep_id: int) -> Segments:
    """Pack `[CLS]` and length - 1 tokens of running text, cut anywhere: every segment is full, nothing is padded.

    Documents follow each other with [SEP] after each. What is left at the end, fewer than length - 1 tokens, is lost.
    """
    return full_segments(in_a_row(documents, sep_id), length=length, cls_id=cls_id)


def in_a_row(documents: EncodedDocuments, sep_id: int) -> npt.NDArray[np.int32]:
    """Join documents in a row with [SEP] after each."""
    return np.insert(documents.ids, documents.sentence_starts[documents.document_starts[1:]], np.int32(sep_id))


def full_segments(running: npt.NDArray[np.int32], *, length: int, cls_id: int) -> Segments:
    """Cut running text into segments of `[CLS]` and length - 1 tokens; tokens that do not fill one are left out."""
    count = len(running) // (length - 1)
    ids = np.full((count, length), cls_id, np.int32)
    ids[:, 1:] = running[: count * (length - 1)].reshape(count, length - 1)
    return Segments(ids=ids.reshape(-1), starts=np.arange(count + 1, dtype=np.int64) * length)


def pack_running_text(documents: EncodedDocuments, *, length: int, cls_id: int, sep_id: int) -> Segments:
    """Pack `[CLS]` and up to length - 1 tokens of running text, cut anywhere, for causal language models.

    As `pack_contiguous`, but nothing is lost: the last segment may be short. Each token of the text, and the [SEP]
    after each document, is predicted exactly once, from what stands before it in its segment; so the sum of the losses
    is that of the whole text, and can be divided by its characters or words.
    """
    running = in_a_row(documents, sep_id)
    cuts = np.arange(0, len(running), length - 1)
    ids = np.insert(running, cuts, np.int32(cls_id))
    return Segments(ids=ids, starts=np.append(cuts + np.arange(len(cuts)), len(ids)).astype(np.int64))


SEGMENT_PACKERS: dict[str, Packing] = {
    "full-sentences": pack_full_sentences,
    "full-sentences-across-documents": pack_across_documents,
    "contiguous": pack_contiguous,
}


def keep(segments: Segments, wanted: npt.NDArray[np.bool_]) -> Segments:
    """Return the segments for which `wanted` is True, in the same order."""
    kept = segments.ids[np.repeat(wanted, segments.lengths)]
    return Segments(ids=kept, starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(segments.lengths[wanted])]))


def with_something_to_predict(special: npt.NDArray[np.bool_], segments: Segments) -> Segments:
    """Keep the segments with a token that masking may choose: one of [UNK] alone has nothing to predict.

    Args:
        special: True for ids that it never chooses.
    """
    if not len(segments):
        return segments
    return keep(segments, np.add.reduceat(~special[segments.ids], segments.starts[:-1]) > 0)
