"""Examples with one label: documents, or pieces of long ones, with the class or the number of the document."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.segments import Segments


def label_names(labels: set[str]) -> tuple[str, ...]:
    """Return the classes in the order of their ids: numbers by value, otherwise by the alphabet."""
    if all(label.lstrip("-").isdecimal() for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


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
) -> tuple[Segments, npt.NDArray[np.int64]]:
    """Make `[CLS] piece [SEP]` of each document, or `[CLS] text [SEP] second [SEP]` of each pair.

    A document of more than length - 2 tokens (length, without special tokens) is cut into pieces of that size. A last
    piece of less than a quarter of it is left out, because it rarely tells the class. A pair is one example; the longer
    text loses what does not fit. No token says which text is which: TUPE's encoder has no segment embeddings,
    [SEP] does it.

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
    examples: list[npt.NDArray[np.int32]] = []
    owners: list[int] = []
    for number in range(len(documents)):
        text = documents.tokens(number)
        if pairs is None:
            # a batch, and a network, take no example of no token
            text = text if len(text) or add_special_tokens else nothing
            text = text[:room] if truncate else text
            texts = [[*before, piece, *after] for piece in _pieces(text, room, max_pieces)]
        else:
            first, second = _shorten(text, pairs.tokens(number), length - 2 - separators)
            texts = [[cls, first, *([sep] * separators), second, sep]]
        examples += [np.concatenate(parts) for parts in texts]
        owners += [number] * len(texts)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(example) for example in examples], dtype=np.int64)])
    return Segments(ids=np.concatenate(examples), starts=starts), np.array(owners, np.int64)


def _pieces(tokens: npt.NDArray[np.int32], room: int, most: int | None) -> Iterator[npt.NDArray[np.int32]]:
    starts = [0, *(start for start in range(room, len(tokens), room) if len(tokens) - start >= room / 4)]
    if most is not None and len(starts) > most:
        starts = [starts[(2 * i + 1) * len(starts) // (2 * most)] for i in range(most)]
    return (tokens[start : start + room] for start in starts)


def _shorten(
    first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], room: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Cut the ends off, from the longer text first, until both fit."""
    half = room // 2
    for_first = min(len(first), max(half, room - len(second)))
    return first[:for_first], second[: room - for_first]
