"""Every wrong value of [data], [task] and [tokenizer] is reported, all at once, with what would be right."""

import pytest

from wordorder.data import DataSettings, TokenizerConfig
from wordorder.data.settings import generated_task
from wordorder.errors import BadInput
from wordorder.tasks import TASKS, task_options
from wordorder.training import read_recipe


def readers_of(option):
    *others, last = [name for name, task in TASKS.items() if option in task.Options.model_fields]
    return f"tasks {', '.join(others)} and {last}" if others else f"task {last}"


def assert_named(faults, name, expected):
    """Each fault names the key, and one of them is the one expected."""
    assert len([fault for fault in faults if fault.startswith(expected)]) == 1, faults
    assert all(name in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("source", " ", "data.source: must be a string"),
        ("source", 3, "data.source: must be a string"),
        ("length", 7, "data.length: must be at least 8, got 7"),
        ("length", "64", "data.length: must be an integer, got"),
        ("length", True, "data.length: must be an integer, got"),
        ("text_column", "", "data.text_column: must be a string"),
        ("validation_fraction", 0, "data.validation_fraction: must be greater than 0 and less than 0.5"),
        ("test_fraction", 0.5, "data.test_fraction: must be greater than 0 and less than 0.5"),
        ("seed", -1, "data.seed: must be at least 0"),
        ("validation_source", "", "data.validation_source: must be a string"),
        ("test_source", 1, "data.test_source: must be a string"),
        ("columns", "text", "data.columns: must be a list, each a string, got 'text'"),
        ("columns", (), "data.columns: must be a list that is not empty"),
        ("columns", ("text", "text"), "data.columns: must be a list of different names"),
        ("columns", ("text", 2), "data.columns[1]: must be a string, got 2"),
        ("limit_documents", 2, "data.limit_documents: must be at least 3"),
        ("skip_unreadable", 1, "data.skip_unreadable: must be true or false, got 1"),
        ("leakage", "stop", "data.leakage: unknown value 'stop'; valid values: warn, error, ignore"),
        ("streaming", True, "data.streaming: texts are mapped from a file"),
        ("task", "masked-lm", "data.task: is a section of its own, [task], with a name and its options"),
    ],
)
def test_a_wrong_data_value_is_named(field, value, expected):
    with pytest.raises(BadInput) as caught:
        DataSettings(**({"source": "sotu"} | {field: value}))
    assert_named(caught.value.faults, field, expected)


@pytest.mark.parametrize(
    ("task", "option", "value", "expected"),
    [
        ("masked-lm", "name", "summary", f"task.name: unknown value 'summary'; valid values: {', '.join(TASKS)}"),
        ("classification", "label_column", None, "task.label_column: must be a string"),
        ("masked-lm", "label_column", "b", f"task.label_column is only for {readers_of('label_column')}"),
        ("classification", "pair_column", "", "task.pair_column: must be a string"),
        ("masked-lm", "pair_column", "b", f"task.pair_column is only for {readers_of('pair_column')}"),
        ("masked-lm", "mask_probability", float("nan"), "task.mask_probability: must be a finite number"),
        ("masked-lm", "mask_probability", True, "task.mask_probability: must be a number"),
        (
            "masked-lm",
            "packing",
            "tight",
            "task.packing: unknown value 'tight'; valid values: full-sentences, full-sentences-across-documents",
        ),
        ("causal-lm", "packing", "full-sentences", "task.packing: unknown value 'full-sentences'; valid values: segm"),
        ("masked-lm", "packing", ["contiguous"], "task.packing: must be one of"),
        ("classification", "max_pieces", 0, "task.max_pieces: must be at least 1"),
        ("masked-lm", "label_scale", 5.0, f"task.label_scale is only for {readers_of('label_scale')}"),
        ("regression", "label_scale", 0, "task.label_scale: must be greater than 0, got 0"),
        ("regression", "label_scale", "5", "task.label_scale: must be a number, got"),
        ("classification", "truncate", "yes", "task.truncate: must be true or false"),
        ("masked-lm", "truncate", True, f"task.truncate is only for {readers_of('truncate')}"),
        ("masked-lm", "mask_rate", 0.2, "[task]: unknown name 'mask_rate'; did you mean"),
    ],
)
def test_a_wrong_task_value_is_named(task, option, value, expected):
    with pytest.raises(BadInput) as caught:
        task_options({"name": task} | {option: value})
    assert_named(caught.value.faults, option, expected)


def test_pieces_and_truncation_are_two_ways_of_which_one_is_taken():
    with pytest.raises(BadInput, match=r"task\.max_pieces does nothing"):
        task_options({"name": "classification", "truncate": True, "max_pieces": 3})
    assert task_options({"name": "regression", "truncate": True, "label_scale": 5}).truncate


def first_words(faults):
    return [fault.split()[0] for fault in faults]


def test_all_faults_are_reported_at_once():
    with pytest.raises(BadInput) as caught:
        DataSettings(source="", length=0, seed=1.5)
    assert first_words(caught.value.faults) == ["data.source:", "data.length:", "data.seed:"]
    with pytest.raises(BadInput) as caught:
        task_options({"name": "classification", "packing": "lanes", "max_pieces": 0, "truncate": 1})
    assert first_words(caught.value.faults) == ["task.packing", "task.max_pieces:", "task.truncate:"]


def test_faults_of_both_sections_of_a_recipe_are_reported_at_once(recipe_file):
    changes = ['data.source=""', "data.length=0", "data.seed=1.5", "task.name=x"]
    with pytest.raises(BadInput) as caught:
        read_recipe(recipe_file, changes)
    assert first_words(caught.value.faults) == ["data.source:", "data.length:", "data.seed:", "task.name:"]


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
