"""Duplicates and leaks are found, and nothing else is."""

import json
import random

import numpy as np
import pytest
from documents import settings

from wordorder.data import DataSettings, Text, Texts, TokenizerConfig
from wordorder.data.duplicates import check_leakage, words_of
from wordorder.data.reading_log import LEAKS, ReadingLog
from wordorder.data.split import Split
from wordorder.errors import BadInput
from wordorder.tasks import prepare


def words(seed, count=120):
    draw = random.Random(seed)
    return ["".join(draw.choice("abcdefgh") for _ in range(4)) for _ in range(count)]


def test_normalised_words():
    assert words_of("It\u2019s  GREAT \u2014 really_good,\n  ﬁne!") == "it s great really good fine"
    assert words_of(" ?! \n?! ") == "?! ?!"
    assert words_of("Straße") == words_of("STRASSE")


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
        return prepare(*settings(**leaking, **fields), TokenizerConfig(kind="byte"), seed=0, cache_dir=tmp_path)

    data = prepared()
    assert data.statistics["dropped_duplicates"] == 1  # the copy is out of training
    (line,) = data.log.lines()
    assert line.startswith("1 training texts stand in validation or test too, but for case")
    assert not prepared(leakage="ignore").log.lines()
    with pytest.raises(BadInput, match="1 training texts stand in validation or test too"):
        prepared(leakage="error")


@pytest.mark.parametrize(("pairs", "leaks"), [(("yes", "no"), 0), ((None, None), 1)])
def test_pairs_are_not_judged_by_their_first_text(pairs, leaks):
    log, data = ReadingLog(), DataSettings(source="sotu")
    texts = Texts.of([Text(text="A man sleeps.", pair=pairs[0]), Text(text="a man sleeps", pair=pairs[1])])
    split = Split(train=np.array([0]), validation=np.array([], np.int64), test=np.array([1]))
    check_leakage(texts, split, data, log)
    assert log.number(LEAKS) == leaks
