"""Running text for causal language models: every token is predicted once."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data import DataConfig, TokenizerConfig, prepare
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.segments import CausalSegments
from wordorder.errors import BadInput

CLS, SEP = 2, 3


@given(st.lists(st.integers(0, 25), min_size=1, max_size=6), st.integers(8, 20))
def test_nothing_is_lost_and_nothing_twice(sizes, length):
    total = sum(sizes)
    documents = EncodedDocuments(
        ids=np.arange(10, 10 + total, dtype=np.int32),
        sentence_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        document_starts=np.arange(len(sizes) + 1, dtype=np.int64),
    )
    segments = CausalSegments(length=length, cls_id=CLS, sep_id=SEP).pack(documents)
    borders = [0, *np.cumsum(sizes).tolist()]
    running = [token for a, b in pairwise(borders) for token in [*range(10 + a, 10 + b), SEP]]
    found = [segments.ids[a:b].tolist() for a, b in pairwise(segments.starts)]
    assert [token for segment in found for token in segment[1:]] == running
    assert all(segment[0] == CLS and len(segment) > 1 for segment in found)
    assert all(len(segment) == length for segment in found[:-1])
    assert len(found[-1]) <= length


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"text": f"Text number {number}. " + "It goes on and on. " * (number % 5 + 1)} for number in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def load(corpus, length=16):
    data = DataConfig(source=str(corpus), task="causal-lm", length=length)
    return prepare(data, TokenizerConfig(kind="byte"), seed=0, cache_dir=corpus.parent / "cache")


def test_labels_are_the_tokens_but_for_the_first(corpus):
    data = load(corpus)
    for part in (data.train, data.validation, data.test):
        predicted = 0
        for number in range(len(part)):
            example = part[(number % 3, number)]
            assert example["labels"][0] == -100
            assert example["labels"][1:].tolist() == example["input_ids"][1:].tolist()
            predicted += len(example["labels"]) - 1
        name = next(name for name in ("train", "validation", "test") if getattr(data, name) is part)
        counts = data.statistics[name]
        assert predicted == counts["tokens"] + counts["documents"]
        assert (part.characters, part.words) == (counts["characters"], counts["words"])
    batch = data.collate(data.test.__getitems__([0, len(data.test) - 1]))
    assert batch["labels"].shape == batch["input_ids"].shape


def test_text_shorter_than_a_segment_is_refused(corpus):
    with pytest.raises(BadInput, match=r"less than one segment of data\.length 9000"):
        load(corpus, length=9000)
