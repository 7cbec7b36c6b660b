"""The options of generated tasks, and every fault of them."""

import time

import numpy as np
import pytest
from documents import read_documents, settings

from wordorder.data import TokenizerConfig
from wordorder.data.generated import GENERATED
from wordorder.errors import BadInput
from wordorder.inference.saved_model import data_settings
from wordorder.tasks import prepare
from wordorder.training import read_recipe


def task(name, form="classification", **options):
    return settings(source=f"task:{name}", task=form, **options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"source": "task:partiy"}, r"data\.source: unknown value 'task:partiy'; did you mean 'task:parity'\? valid"),
        ({"source": "task:"}, r"data\.source: unknown value 'task:'"),
        ({"task": "masked-lm"}, r"task\.name: task:parity can be put as tasks causal-lm, classification and trans"),
        ({"source": "task:reverse"}, r"task:reverse can be put as tasks causal-lm and translation, not as classif"),
        ({"train_lengths": (5, 4)}, r"data\.train_lengths: must be two lengths, the shortest and the longest, got"),
        ({"train_lengths": (5,)}, r"data\.train_lengths: must be two lengths"),
        ({"test_lengths": (0, 4)}, r"data\.test_lengths.*: must be at least 1.*, got 0"),
        (
            {"source": "task:n-back", "test_lengths": (3, 9)},
            r"test_lengths: task:n-back begins at length 5, got 3",
        ),
        ({"test_examples": 0}, r"data\.test_examples: must be at least 1"),
        ({"folds": 3}, r"data\.folds is for texts that are read; data\.source task:parity is generated"),
        ({"limit_documents": 30}, r"data\.limit_documents is for texts that are read"),
        ({"test_source": "none"}, r"data\.test_source is for texts that are read"),
        ({"validation_source": "a.txt"}, r"data\.validation_source is for texts that are read"),
        ({"text_column": "t"}, r"data\.text_column is for texts that are read"),
        ({"source": "a.txt", "train_lengths": (1, 4)}, r"data\.train_lengths is only for data\.source task:NAME"),
        ({"source": "a.txt", "test_examples": 4}, r"data\.test_examples is only for data\.source task:NAME"),
        ({"source": "a.txt", "test_source": "task:parity"}, r"data\.test_source: task:NAME draws all splits itself"),
        (
            {"source": "task:recall-by-distance", "test_lengths": (1, 300)},
            r"data\.test_lengths: task:recall-by-distance ends at length 23, got 300",
        ),
        (
            {"source": "task:reverse", "task": "causal-lm", "packing": "lanes"},
            r"task\.packing lanes is for tasks whose answer is one word \(order-binding, .*\), not for task:reverse",
        ),
    ],
)
def test_every_fault_is_one_sentence(options, fault):
    values = {"source": "task:parity", "task": "classification", "length": 24} | options
    with pytest.raises(BadInput, match=fault):
        prepare(*settings(**values), TokenizerConfig(), seed=0)


def test_lengths_and_numbers_are_those_asked_for():
    sections = task("parity", train_examples=300, test_examples=40, train_lengths=(20, 22), test_lengths=(30, 30))
    found = read_documents(sections)
    lengths = {split: {d.length for d in found if d.split == split} for split in ("train", "validation", "test")}
    assert lengths == {"train": {20, 21, 22}, "validation": {20, 21, 22}, "test": {30}}
    assert [sum(d.split == split for d in found) for split in lengths] == [300, 40, 40]


@pytest.mark.parametrize("name", GENERATED)
def test_texts_of_every_length_can_be_drawn(name):
    task = GENERATED[name]
    rng = np.random.default_rng(0)
    for length in (task.shortest, task.longest or 500):
        for _ in range(20):
            assert all(task.draw(rng, length))


def test_too_few_texts_are_an_error_and_not_a_loop():
    begin = time.monotonic()
    with pytest.raises(BadInput, match=r"data\.test_lengths: at lengths 1 to 3 task:parity gives only \d+ test texts"):
        read_documents(task("parity", train_lengths=(1, 3), test_lengths=(1, 3)))
    with pytest.raises(BadInput, match=r"data\.train_lengths: .* validation texts .* lower data\.train_examples or"):
        read_documents(task("parity", train_lengths=(1, 3)))
    with pytest.raises(BadInput, match=r"of 100000 \(data\.test_examples\)"):
        read_documents(task("parity", train_lengths=(1, 3), test_lengths=(1, 3), test_examples=100_000))
    assert time.monotonic() - begin < 20


def test_short_lengths_that_training_has_whole_are_left_to_it():
    found = read_documents(task("parity", train_lengths=(1, 30), test_lengths=(1, 30), test_examples=50))
    assert {d.text for d in found if d.split == "train"} >= {"a", "b", "a a", "a b", "b a", "b b"}
    assert min(d.length for d in found if d.split == "test") > 2


@pytest.mark.parametrize(
    ("name", "form", "needed"),
    [("parity", "classification", 32), ("reverse", "causal-lm", 63), ("duplicate", "translation", 61)],
)
def test_an_example_is_never_cut(name, form, needed):
    data, options = task(name, form, test_lengths=(30, 30), train_lengths=(10, 12), train_examples=50, test_examples=20)
    whitespace = TokenizerConfig(kind="whitespace")
    with pytest.raises(BadInput, match=rf"length {needed - 1} is too short for task:{name}: .* has {needed} tokens"):
        prepare(data.having(length=needed - 1), options, whitespace, seed=0)
    prepare(data.having(length=needed), options, whitespace, seed=0)


def test_punctuation_tells_generated_texts_apart():
    # without "-" two texts of different lengths have the same words
    sizes = {"train_examples": 2000, "test_examples": 100, "train_lengths": (1, 4)}
    sections = task("recall", leakage="error", length=128, **sizes)
    assert prepare(*sections, TokenizerConfig(kind="whitespace"), seed=0).statistics["dropped_duplicates"] == 0


RECIPE = """
[data]
source = "task:parity"
train_lengths = [6, 9]

[task]
name = "causal-lm"
[tokenizer]
kind = "whitespace"
[model]
network = "decoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 256
encoding = "learned"
"""


def test_a_recipe_is_read_and_written_back(tmp_path):
    (tmp_path / "parity.toml").write_text(RECIPE)
    recipe = read_recipe(tmp_path / "parity.toml")
    assert (recipe.data.generated, recipe.data.train_lengths) == ("parity", (6, 9))
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text(recipe.to_toml())
    again = read_recipe(run / "recipe.toml")
    assert (again.data, again.task) == (recipe.data, recipe.task)
    assert data_settings(run / "model")["train_lengths"] == (6, 9)


def test_exact_match_is_for_answers_alone(tmp_path):
    (tmp_path / "parity.toml").write_text(RECIPE)
    by_answers = 'training.select="exact_match"'
    assert read_recipe(tmp_path / "parity.toml", [by_answers]).training.select == "exact_match"
    (tmp_path / "text.txt").write_text("a b c. " * 2000)
    text = (f'data.source="{tmp_path / "text.txt"}"', 'data.train_lengths="none"')
    (tmp_path / "text.toml").write_text(RECIPE.replace("train_lengths = [6, 9]\n", ""))
    with pytest.raises(BadInput, match=r"task causal-lm has no exact_match \(task translation has\); valid: loss, acc"):
        read_recipe(tmp_path / "text.toml", [text[0], by_answers])
