"""A text that comes block by block gives the segments of the whole text, to the last token."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.segments import PACKERS, CausalSegments

CLS, SEP = 2, 3
DOCUMENTS = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=9)  # lengths of sentences


def encoded(documents, first):
    lengths = [length for document in documents for length in document]
    return EncodedDocuments(
        ids=np.arange(first, first + sum(lengths), dtype=np.int32),
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        document_starts=np.concatenate([[0], np.cumsum([len(d) for d in documents])]).astype(np.int64),
    )


def rows(segments):
    return [segments.ids[a:b].tolist() for a, b in pairwise(segments.starts)]


@pytest.mark.parametrize("kind", [*PACKERS.values(), CausalSegments])
@given(documents=DOCUMENTS, cuts=st.sets(st.integers(1, 8)), length=st.integers(8, 12))
def test_blocks_give_the_segments_of_the_whole(kind, documents, cuts, length):
    ends = {"length": length, "cls_id": CLS, "sep_id": SEP}
    borders = [0, *sorted(cut for cut in cuts if cut < len(documents)), len(documents)]
    packer, found, first = kind(**ends), [], 10
    for a, b in pairwise(borders):
        carry = json.loads(json.dumps(packer.carry))  # as a checkpoint has it
        packer = kind(**ends)
        packer.carry = carry
        block = encoded(documents[a:b], first)
        first += len(block.ids)
        found += rows(packer.feed(block))
    found += rows(packer.flush())
    assert found == rows(kind(**ends).pack(encoded(documents, 10)))
    assert rows(packer.flush()) == []
