"""Sentence pairs as a translation model gets them: `[CLS] source [SEP]`, and the target followed by [SEP]."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encode import EncodedDocuments, Integers
from wordorder.data.examples.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePairs:
    """The pairs of one split that are used."""

    sources: Segments
    """`[CLS] source [SEP]`, as the tokeniser writes a single text."""
    targets: Segments
    """`target [SEP]`: what the decoder predicts. It is fed `[CLS] target`, which the model makes by shifting."""
    kept: Integers
    """Index of each pair in the split."""
    cut: int
    """Pairs of which an end was cut off."""

    @property
    def lengths(self) -> Integers:
        """Number of tokens of each pair, both sides together, shape (pairs,)."""
        return self.sources.lengths + self.targets.lengths


def join_pairs(
    sources: EncodedDocuments, targets: EncodedDocuments, *, length: int, drop_long: bool, cls_id: int, sep_id: int
) -> SentencePairs:
    """Put the special tokens around both sides of every pair.

    Args:
        length: most tokens of `[CLS] source [SEP]`, and of `[CLS] target`, which is what the decoder reads.
        drop_long: leave pairs out that are longer on either side, as in training, where half a sentence teaches the
            model to stop in the middle; False cuts them.
    """
    room = length - 2, length - 1
    sizes = [np.diff(side.sentence_starts[side.document_starts]) for side in (sources, targets)]
    long = (sizes[0] > room[0]) | (sizes[1] > room[1])
    kept = np.flatnonzero(~long) if drop_long else np.arange(len(long))
    return SentencePairs(
        sources=_surround(sources, kept, sizes[0], room[0], before=[cls_id], after=[sep_id]),
        targets=_surround(targets, kept, sizes[1], room[1], before=[], after=[sep_id]),
        kept=kept.astype(np.int64),
        cut=0 if drop_long else int(long.sum()),
    )


def _surround(
    texts: EncodedDocuments, kept: Integers, sizes: Integers, room: int, *, before: list[int], after: list[int]
) -> Segments:
    start, size = texts.sentence_starts[texts.document_starts[kept]], np.minimum(sizes[kept], room)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(size + len(before) + len(after))])
    ids = np.empty(starts[-1], np.int32)
    inner = np.ones(len(ids), np.bool_)
    for offset, token in enumerate(before):
        ids[starts[:-1] + offset], inner[starts[:-1] + offset] = token, False
    for offset, token in enumerate(reversed(after), start=1):
        ids[starts[1:] - offset], inner[starts[1:] - offset] = token, False
    # Each token's place in `texts.ids`: its text's start, and its own number within the text.
    within: npt.NDArray[np.int64] = np.arange(size.sum(), dtype=np.int64) - np.repeat(np.cumsum(size) - size, size)
    ids[inner] = texts.ids[np.repeat(start, size) + within]
    return Segments(ids=ids, starts=starts)
