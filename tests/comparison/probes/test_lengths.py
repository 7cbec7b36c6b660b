from types import SimpleNamespace

import numpy as np
import pytest
import torch
from documents import settings
from solvers import SOLVERS

from wordorder.comparison.probes.lengths import EXACT, TOKENS, Lengths
from wordorder.comparison.probes.probe import Trained
from wordorder.data import DataSettings, TokenizerConfig
from wordorder.tasks import prepare

SIZES = {"train_examples": 300, "test_examples": 60, "train_lengths": (6, 12), "test_lengths": (13, 28)}


@pytest.fixture
def make_answered(tmp_path, made):
    """A model made by hand, and a generated task that it was trained for."""

    def make(name, task, logits, *, length=128, **values):
        data, options = settings(source=f"task:{name}", task=task, length=length, **SIZES | values)
        prepared = prepare(data, options, TokenizerConfig(kind="whitespace"), seed=0, cache_dir=tmp_path / "c")
        recipe = SimpleNamespace(data=data, task=options, training={}, segment_length=length)
        model = made(lambda ids: logits(ids, prepared.tokenizer))
        # the stand-in knows no words of a decoder beside an encoder
        forward = lambda labels=None, **batch: model(**batch) if not task == "translation" else model(labels)  # noqa: E731
        forward.config = model.config
        return Trained(recipe=recipe, model_dir=tmp_path, model=forward, prepared=prepared, device=torch.device("cpu"))

    return make


def solver(name, *, below):
    """Logits of the right answers to texts of fewer tokens than `below`, and of [PAD] to longer ones."""

    def logits(ids, tokenizer):
        found = torch.zeros(*ids.shape, len(tokenizer))
        for row, text in enumerate(ids.tolist()):
            words = tokenizer.convert_ids_to_tokens(text)
            middle = words.index("[SEP]")
            answer = [*SOLVERS[name](" ".join(words[1:middle])).split(), "[SEP]"]
            for place, word in enumerate(answer if middle - 1 < below else []):
                found[row, min(middle + place, found.shape[1] - 1), tokenizer.convert_tokens_to_ids(word)] = 9.0
        return found

    return logits


def test_long_answers_are_counted_whole_and_by_token(make_answered):
    trained = make_answered("reverse", "causal-lm", solver("reverse", below=21))
    found = Lengths().measure(trained)
    lengths = np.array(trained.prepared.reported_lengths)
    assert [row["x"] for row in found.rows if row["group"] == EXACT] == [14, 16, 18, 20, 22, 24, 26, 28]
    for row in found.rows:
        assert row["value"] == (1.0 if row["x"] <= 20 else 0.0)
        assert row["texts"] == ((lengths <= row["x"]) & (lengths > row["x"] - 2)).sum()
    assert {row["group"] for row in found.rows} == {EXACT, TOKENS}
    assert sum(row["texts"] for row in found.rows if row["group"] == EXACT) == 60


def test_bins_are_those_asked_for_and_what_lies_beyond_is_noted(make_answered):
    trained = make_answered("parity", "causal-lm", solver("parity", below=16))
    found = Lengths(bins=(15, 20)).measure(trained)
    lengths = np.array(trained.prepared.reported_lengths)
    assert [(row["x"], row["value"], row["texts"]) for row in found.rows] == [
        (15, 1.0, (lengths <= 15).sum()),
        (20, 0.0, ((lengths > 15) & (lengths <= 20)).sum()),
    ]
    assert found.notes == [f"{(lengths > 20).sum()} texts are longer than 20."]


def test_classes_are_answers(make_answered):
    def logits(ids, tokenizer):
        bits = (ids == tokenizer.convert_tokens_to_ids("b")).sum(1) % 2
        short = (ids > 3).sum(1) < 16  # special tokens stand first in the vocabulary
        return torch.nn.functional.one_hot(torch.where(short, bits, 1 - bits), 2).float()

    found = Lengths(bins=(15, 28)).measure(make_answered("parity", "classification", logits))
    assert [(row["x"], row["value"], row["group"]) for row in found.rows] == [(15, 1.0, EXACT), (28, 0.0, EXACT)]


def test_translations_are_read_after_the_right_tokens(make_answered):
    def logits(labels, tokenizer):
        hits = torch.nn.functional.one_hot(labels.clamp(min=0), len(tokenizer)).float()
        hits[labels.ne(-100).sum(1) > 21, 0] = 0.0  # of longer texts the first token is wrong
        return hits

    found = Lengths(bins=(20, 28)).measure(make_answered("reverse", "translation", logits))
    assert [row["value"] for row in found.rows if row["group"] == EXACT] == [1.0, 0.0]
    assert [row["value"] for row in found.rows if row["group"] == TOKENS] == [1.0, pytest.approx(0.96, abs=0.01)]


@pytest.mark.parametrize("reset", ["documents", "never"])
def test_lanes_give_each_answer_to_its_text(make_answered, reset):
    trained = make_answered("recall", "causal-lm", lambda ids, _: None, length=8, packing="lanes", reset_memory=reset)
    text = trained.examples
    size = len(trained.prepared.tokenizer)
    always = int(text.ids[text.predicted].min())

    def logits(ids):
        found = torch.zeros(*ids.shape, size)
        found[..., always] = 1.0  # the same answer always
        return found

    made = lambda input_ids, **_: SimpleNamespace(logits=logits(input_ids), memory=None)  # noqa: E731
    made.config = SimpleNamespace(memory="none")
    documents = zip(text.ids[text.predicted].tolist(), trained.prepared.reported_lengths, strict=True)
    right = [(answer == always, length) for answer, length in documents]
    one = Trained(
        **{name: getattr(trained, name) for name in ("recipe", "model_dir", "prepared", "device")}, model=made
    )
    for memory in ("none", "segment-recurrence"):
        made.config.memory = memory
        rows = Lengths(bins=(20, 28)).measure(one).rows
        for row, (low, high) in zip(rows, ((0, 20), (20, 28)), strict=True):
            own = [hit for hit, length in right if low < length <= high]
            assert (row["texts"], row["value"]) == (len(own), pytest.approx(np.mean(own)))


def test_lengths_are_those_of_the_test_in_eight_bins_or_fewer():
    def uppers(*lengths):
        data = DataSettings(source="task:parity", test_lengths=lengths)
        return Lengths()._uppers(SimpleNamespace(recipe=SimpleNamespace(data=data)))

    assert uppers(41, 200) == [60, 80, 100, 120, 140, 160, 180, 200]
    assert uppers(5, 7) == [5, 6, 7]
    assert uppers(9, 9) == [9]
