"""Running text for causal language models: every token is predicted once."""

import json

import pytest
from documents import settings

from wordorder.data import TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import prepare

CLS, SEP = 2, 3


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"text": f"Text number {number}. " + "It goes on and on. " * (number % 5 + 1)} for number in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def load(corpus, length=16):
    data, options = settings(source=str(corpus), task="causal-lm", length=length)
    return prepare(data, options, TokenizerConfig(kind="byte"), seed=0, cache_dir=corpus.parent / "cache")


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
