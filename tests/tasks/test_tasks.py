"""What every task says of itself, and the options of [task] that it does not have."""

import ast
from pathlib import Path

import pytest

import wordorder
from wordorder.data import DataSettings
from wordorder.errors import BadInput
from wordorder.models.factory import HEADS, NETWORK_TASKS
from wordorder.tasks import TASKS, model_class, task_faults, task_options, tasks_of

VALUES = {
    "mask_probability": 0.3,
    "packing": "contiguous",
    "reset_memory": "documents",
    "roll": False,
    "eval_lanes": 2,
    "label_column": "class",
    "pair_column": "second",
    "max_pieces": 2,
    "truncate": True,
    "positive_class": "fraud",
    "label_scale": 5.0,
    "target_column": "other",
    "target_source": "target.txt",
    "validation_target_source": "target.txt",
    "test_target_source": "target.txt",
    "beams": 1,
    "max_target_length": 9,
    "translate_while_training": True,
    "bleu_tokenizer": "zh",
}
"""A value of each option that is not its default."""
OF_TASK = {("causal-lm", "packing"): "lanes"}
"""Values of a task that has an option of the same name as another, with other values."""
BESIDE = {option: {"packing": "lanes"} for option in ("reset_memory", "roll", "eval_lanes")}
"""What an option cannot be given without."""
BESIDE_IN_DATA = {f"{split}_target_source": {f"{split}_source": "source.txt"} for split in ("validation", "test")}
"""What it cannot be given without in [data]."""
PACKINGS = {
    "masked-lm": ["full-sentences", "full-sentences-across-documents", "contiguous"],
    "causal-lm": ["segments", "lanes"],
}
"""The packings of each task that has some."""


def owners_of(option):
    return [name for name, task in TASKS.items() if option in task.Options.model_fields]


def test_every_option_is_tested_here():
    assert {option for task in TASKS.values() for option in task.Options.model_fields} == {"name", *VALUES}
    assert {name: task.Options().name for name, task in TASKS.items()} == {name: name for name in TASKS}


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("name", TASKS)
def test_an_option_of_other_tasks_is_refused_with_their_names(name, option):
    table = {"name": name} | BESIDE.get(option, {}) | {option: OF_TASK.get((name, option), VALUES[option])}
    if name in owners_of(option):
        options = task_options(table)
        assert getattr(options, option) == table[option] != type(options).model_fields[option].default
        data = DataSettings(source="a.txt", **BESIDE_IN_DATA.get(option, {}))
        without = task_faults(data, type(options)())  # a task may need an option that is not this one
        assert [fault for fault in task_faults(data, options) if fault not in without] == []
        return
    with pytest.raises(BadInput) as caught:
        task_options({"name": name, option: VALUES[option]})
    (fault,) = caught.value.faults
    assert fault.startswith(f"task.{option} is only for task")
    assert fault.endswith(f", not for {name}; leave it out")
    assert all(owner in fault.partition(", not for")[0] for owner in owners_of(option))


@pytest.mark.parametrize("packing", [packing for packings in PACKINGS.values() for packing in packings])
@pytest.mark.parametrize("name", TASKS)
def test_a_packing_of_other_tasks_is_refused(name, packing):
    table = {"name": name, "packing": packing}
    if packing in PACKINGS.get(name, ()):
        assert task_options(table).packing == packing
        return
    with pytest.raises(BadInput) as caught:
        task_options(table)
    (fault,) = caught.value.faults
    if name in PACKINGS:
        assert fault.startswith(f"task.packing: unknown value {packing!r}; ")
        assert fault.endswith(f"valid values: {', '.join(PACKINGS[name])}")
    else:
        assert fault == f"task.packing is only for tasks masked-lm and causal-lm, not for {name}; leave it out"


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
    with pytest.raises(BadInput, match=r"task\.name: unknown value 'summary'; valid values: masked-lm, .*translation"):
        task_options({"name": "summary"})
    with pytest.raises(BadInput, match=r"^\[task\]: name is missing; valid values: masked-lm, .*translation$"):
        task_options({"beams": 1})


@pytest.mark.parametrize("task", [{"a": 1}, ["a"], None, 3])
def test_a_task_that_is_no_name_is_one_fault(task):
    with pytest.raises(BadInput, match=r"^task\.name: unknown value .*; valid values: masked-lm, ") as caught:
        task_options({"name": task})
    assert len(caught.value.faults) == 1


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
