"""Duplicates and leaks are found, and nothing else is: against Jaccard's similarity, counted set by set."""

import json
import random

import numpy as np
import pytest

from wordorder.data import DataConfig, Document, TokenizerConfig, prepare
from wordorder.data.description import describe
from wordorder.data.quality.duplicates import Duplicates, Signatures, near_pairs
from wordorder.data.quality.reading_log import LEAKS, ReadingLog
from wordorder.data.quality.same_text import HeldOut, check_leakage, normalised
from wordorder.errors import BadInput


def words(seed, count=120):
    draw = random.Random(seed)
    return ["".join(draw.choice("abcdefgh") for _ in range(4)) for _ in range(count)]


def changed(text, times, seed):
    draw, text = random.Random(seed), list(text)
    for _ in range(times):
        text[draw.randrange(len(text))] = f"new{draw.random()}"
    return text


def jaccard(one, other):
    first, second = ({tuple(text[n : n + 5]) for n in range(len(text) - 4)} for text in (one, other))
    return len(first & second) / len(first | second)


def test_the_estimate_is_the_similarity():
    sign, errors = Signatures(), []
    for seed in range(400):
        one = words(seed)
        other = changed(one, 1 + seed % 20, seed)
        similarity = jaccard(one, other)
        error = float((sign.of(one) == sign.of(other)).mean()) - similarity
        errors.append(error / np.sqrt(similarity * (1 - similarity) / 128))
    assert abs(np.mean(errors)) < 0.2
    assert 0.9 < np.std(errors) < 1.15


def test_pairs_are_those_that_all_comparisons_would_find():
    sign = Signatures()
    texts = [
        text for seed in range(25) for text in (words(seed), changed(words(seed), seed % 5, seed), words(seed + 99))
    ]
    signatures = np.stack([sign.of(text) for text in texts])
    expected = {
        (a, b)
        for a in range(len(texts))
        for b in range(a + 1, len(texts))
        if (signatures[a] == signatures[b]).mean() >= 0.8
    }
    assert {(a, b) for a, b, _ in near_pairs(signatures, 0.8)} == expected
    assert len(expected) >= 15


def test_the_order_of_words_counts_and_short_texts_are_runs():
    sign = Signatures()
    assert (sign.of(["a", "b"]) == sign.of(["a", "b"])).all()
    assert (sign.of(["a", "b"]) == sign.of(["b", "a"])).mean() < 0.1


def test_normalised_words():
    assert normalised("It\u2019s  GREAT \u2014 really_good,\n  ﬁne!") == "it s great really good fine"
    assert normalised(" ?! \n?! ") == "?! ?!"
    assert normalised("Straße") == normalised("STRASSE")


def test_within_and_between_splits():
    found = Duplicates(0.7)
    base = words(1)
    found.add("train", " ".join(base))
    found.add("train", " ".join(base).upper() + "!")
    found.add("train", " ".join(changed(base, 2, 0)))
    found.add("train", " ".join(words(2)))
    found.add("test", " ".join(base) + ".")
    found.add("test", " ".join(changed(words(2), 2, 3)))
    found.add("test", " ".join(words(3)))
    report = found.report(examples=5)
    assert report["within"] == {
        "train": {"documents": 4, "exact": 1, "near": 1},
        "test": {"documents": 3, "exact": 0, "near": 0},
    }
    (pair,) = report["between"]
    assert (pair["earlier"], pair["later"], pair["exact"], pair["near"]) == ("train", "test", 1, 1)
    assert pair["share"] == pytest.approx(2 / 3)
    assert pair["examples"][0]["similarity"] == 1
    assert 0.7 <= pair["examples"][1]["similarity"] < 1
    assert pair["examples"][1]["train"].startswith(words(2)[0])


def test_a_threshold_that_the_bands_cannot_keep_is_refused():
    with pytest.raises(ValueError, match=r"threshold must lie between 0\.5 and 1, got 0\.4"):
        Duplicates(0.4)


def rows(texts):
    return "\n".join(json.dumps({"text": text}) for text in texts)


@pytest.fixture
def leaking(tmp_path):
    """The test has two training texts: one with other letters and marks, one with other white space."""
    texts = [" ".join(words(seed, 40)) for seed in range(40)]
    (tmp_path / "train.jsonl").write_text(rows(texts))
    (tmp_path / "valid.jsonl").write_text(rows(" ".join(words(seed, 40)) for seed in range(60, 66)))
    held_out = [texts[3].upper() + "!", texts[5].replace(" ", "  "), " ".join(words(70, 40))]
    (tmp_path / "test.jsonl").write_text(rows(held_out))
    return {
        "source": str(tmp_path / "train.jsonl"),
        "validation_source": str(tmp_path / "valid.jsonl"),
        "test_source": str(tmp_path / "test.jsonl"),
        "task": "masked-lm",
        "length": 32,
    }


def test_training_is_warned_of_leaks_or_refuses_them(leaking, tmp_path):
    def prepared(**fields):
        return prepare(DataConfig(**leaking, **fields), TokenizerConfig(kind="byte"), seed=0, cache_dir=tmp_path)

    data = prepared()
    assert data.statistics["dropped_duplicates"] == 1  # the copy is out of training
    (line,) = data.log.lines()
    assert line.startswith("1 training texts stand in validation or test too, but for case")
    assert not prepared(leakage="ignore").log.lines()
    with pytest.raises(BadInput, match="1 training texts stand in validation or test too"):
        prepared(leakage="error")


def test_pairs_are_not_judged_by_their_first_text():
    log, data = ReadingLog(), DataConfig(source="sotu", task="classification", pair_column="b")
    pair = Document(text="A man sleeps.", pair="yes")
    check_leakage([pair], HeldOut({"test": [Document(text="a man sleeps", pair="no")]}), data, log)
    assert not log.number(LEAKS)
    check_leakage([Document(text="A man sleeps.")], HeldOut({"test": [Document(text="a man sleeps")]}), data, log)
    assert log.number(LEAKS) == 1


def test_a_description_of_a_corpus(leaking, tmp_path):
    found = describe(DataConfig(**leaking), TokenizerConfig(kind="word", vocab_size=9000), cache_dir=tmp_path)
    assert {name: own["documents"] for name, own in found["splits"].items()} == {
        "train": 39,
        "validation": 6,
        "test": 3,
    }
    assert found["splits"]["train"]["tokens"] == 39 * 40
    assert found["splits"]["train"]["tokens_per_document"] == {
        "min": 40, "median": 40, "95%": 40, "max": 40, "mean": 40.0
    }  # fmt: skip
    assert found["dropped_duplicates"] == 1
    test = next(pair for pair in found["between"] if (pair["earlier"], pair["later"]) == ("train", "test"))
    assert (test["exact"], test["near"]) == (1, 0)


def test_a_description_of_a_stream(leaking, tmp_path):
    stream = DataConfig(**leaking, streaming=True, tokenizer_documents=20)
    found = describe(stream, TokenizerConfig(kind="word", vocab_size=9000), cache_dir=tmp_path, documents=30)
    assert found["splits"]["train"]["documents"] == 30
    test = next(pair for pair in found["between"] if (pair["earlier"], pair["later"]) == ("train", "test"))
    assert test["exact"] == 2  # a stream is described as it is, before copies are left out
