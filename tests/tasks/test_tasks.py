"""What every task says of itself, and the options of [data] that it does not read."""

import ast
from pathlib import Path
from typing import get_args

import pytest

import wordorder
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput
from wordorder.models.factory import HEADS, NETWORK_TASKS
from wordorder.tasks import TASKS, DataConfig, TaskOption, check_data, model_class, tasks_of

GIVEN = {
    "mask_probability": 0.3,
    "max_pieces": 2,
    "truncate": True,
    "pair_column": "second",
    "label_scale": 5.0,
    "positive_class": "fraud",
    "bleu_tokenizer": "zh",
    "target_source": "target.txt",
    "validation_target_source": "target.txt",
    "test_target_source": "target.txt",
    "target_column": "other",
}
"""A value of each option of some tasks that is not its default."""
BESIDE = {f"{split}target_source": {f"{split}source": "source.txt"} for split in ("", "validation_", "test_")}
"""What an option cannot be given without."""


def test_every_option_is_one_of_the_section_and_is_tested_here():
    assert set(get_args(TaskOption)) == set(GIVEN) <= DataSettings.model_fields.keys()
    assert set().union(*(task.options for task in TASKS.values())) == set(GIVEN)


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("name", TASKS)
def test_an_option_of_other_tasks_is_refused_with_their_names(name, option):
    given = {"source": "a.txt", "task": name} | BESIDE.get(option, {}) | {option: GIVEN[option]}
    if option in TASKS[name].options:
        faults = check_data(DataSettings(**given))
        assert not any("is only for" in fault for fault in faults)
        assert faults or getattr(DataConfig(**given), option) == GIVEN[option]
        return
    with pytest.raises(BadInput, match=rf"data\.{option} is only for tasks? [a-z, -]+, not for {name}; leave it out"):
        DataConfig(**given)


@pytest.mark.parametrize("name", TASKS)
def test_a_packing_of_other_tasks_is_refused(name):
    for packing in ("full-sentences-across-documents", "contiguous", "lanes"):
        settings = DataSettings(source="a.txt", task=name, packing=packing)
        found = [fault for fault in check_data(settings) if fault not in TASKS[name].data_faults(settings)]
        assert bool(found) == (packing not in TASKS[name].packings)
        assert all(f"data.packing {packing} is only for task" in fault for fault in found)


@pytest.mark.parametrize(("name", "task"), TASKS.items(), ids=TASKS)
def test_a_task_knows_its_own_saved_models_and_no_other_does(name, task):
    assert task.name == name
    problem = {"number": "regression", "class": "single_label_classification"}.get(task.labels or "")
    config = {"architectures": [f"WordOrder{task.head}"], "problem_type": problem}
    assert [other.name for other in TASKS.values() if other.fits(config)] == [name]
    networks = [network for network in NETWORK_TASKS if name in tasks_of(network)]
    assert networks
    assert all(model_class(network, name).__name__.endswith(task.head) for network in networks)
    assert HEADS.get(name, task.head) == task.head


@pytest.mark.parametrize(
    ("network", "task"), [("encoder", "translation"), ("encoder", "summary"), ("seq2seq", "masked-lm")]
)
def test_a_task_that_a_network_does_not_do_is_refused(network, task):
    with pytest.raises(BadInput, match=rf"model\.network '{network}' does not do task '{task}'; it does: "):
        model_class(network, task)


def test_a_head_without_a_task_is_known_by_its_name():
    assert model_class("encoder", "token-classification").__name__ == "WordOrderEncoderForTokenClassification"


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"data\.task: unknown value 'summary'; valid values: masked-lm, .*translation"):
        DataConfig(source="a.txt", task="summary")


@pytest.mark.parametrize("task", [{"a": 1}, ["a"], None, 3])
def test_a_task_that_is_no_name_is_one_fault(task):
    with pytest.raises(BadInput, match=r"^data\.task: must be a string, got"):
        DataConfig(source="a.txt", task=task)


@pytest.mark.slow
def test_no_other_file_compares_a_task_with_a_name():
    source = Path(wordorder.__file__).parent
    found = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        if path.relative_to(source).parts[0] != "tasks"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and "task" in ast.unparse(node.left).lower()
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in TASKS
    ]
    assert found == []


def test_no_other_file_names_a_task_but_the_names_of_build_model():
    source = Path(wordorder.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.relative_to(source).parts[0] != "tasks"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in ("masked-lm", "causal-lm")  # the others are plain words
    }
    assert found == {"models/factory.py"}
