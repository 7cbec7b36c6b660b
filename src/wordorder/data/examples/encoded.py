"""Texts as token ids, kept compactly: one flat array and the borders of sentences and documents in it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """The tokens of many documents, without special tokens.

    Args:
        ids: tokens of all documents in a row, shape (tokens,).
        sentence_starts: where each sentence begins in `ids`, and at last the end of `ids`, shape (sentences + 1,).
        document_starts: where each document begins in `sentence_starts`, and at last its end, shape (documents + 1,).
    """

    ids: npt.NDArray[np.int32]
    sentence_starts: Integers
    document_starts: Integers

    def __len__(self) -> int:
        return len(self.document_starts) - 1

    def sentences(self, document: int) -> Integers:
        """Return where the sentences of a document begin in `ids`, and at last its end."""
        return self.sentence_starts[self.document_starts[document] : self.document_starts[document + 1] + 1]

    def tokens(self, document: int) -> npt.NDArray[np.int32]:
        """Return the ids of a document."""
        borders = self.sentences(document)
        return self.ids[borders[0] : borders[-1]]
