from types import SimpleNamespace

import pytest

from wordorder.comparison.probes.extrapolation import Extrapolation
from wordorder.comparison.probes.measure import PROBES, check_probes, make_probe
from wordorder.errors import BadInput
from wordorder.tasks import TASKS, task_options


def recipe(task="masked-lm", generated=None, **probes):
    data = SimpleNamespace(source="a.txt", generated=generated)
    compare = SimpleNamespace(probes={n.replace("_", "-"): o for n, o in probes.items()})
    return SimpleNamespace(data=data, task=task_options({"name": task}), compare=compare)


def test_every_name_of_the_catalogue_has_typed_options_with_defaults():
    for name, kind in PROBES.items():
        assert isinstance(make_probe(name, {}), kind)


def test_lists_of_a_recipe_are_the_options_of_a_probe():
    assert make_probe("extrapolation", {"factors": [2, 4]}) == Extrapolation(factors=(2, 4))


def test_every_fault_is_named_at_once():
    with pytest.raises(BadInput) as error:
        check_probes(
            recipe(
                extrapolatoin={},
                extrapolation={"factors": "2", "lengths": [2]},
                shuffled_windows={"windows": [1]},
            )
        )
    assert error.value.faults == (
        "compare.probes.extrapolatoin: there is no such probe; did you mean 'extrapolation'? known: "
        "extrapolation, shuffled-windows, lengths",
        "compare.probes: extrapolation.factors must be a list, each an integer, got '2'",
        "compare.probes: extrapolation has no option 'lengths'; known: factors, tokens, texts",
        "compare.probes.shuffled-windows: windows must be different whole numbers of at least 2, got [1]",
    )


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_asks_a_task_what_it_is(name):
    readers = ["masked-lm", "causal-lm", "classification"]
    if name == "lengths":
        readers = ["causal-lm", "classification", "translation"]
    probe = make_probe(name, {})
    assert [task.name for task in TASKS.values() if probe.can_measure(task)] == readers


def test_a_probe_of_another_task_is_refused():
    with pytest.raises(BadInput, match="extrapolation: is for tasks masked-lm, causal-lm, classification, not for reg"):
        check_probes(recipe("regression", extrapolation={}))


def test_a_comparison_refuses_before_anything_is_prepared(make_recipe, log):
    from comparison_stand_in import STAND_IN

    from wordorder.comparison import compare

    with pytest.raises(BadInput, match="there is no such probe"):
        compare(make_recipe('compare.probes={"nothing"={}}'), pipeline=STAND_IN, progress=False)
    assert log() == []


def test_answers_are_measured_by_length_alone():
    for name in ("extrapolation", "shuffled_windows"):
        with pytest.raises(BadInput, match=rf"{name.replace('_', '-')}: reads running text, and of a.txt only answers"):
            check_probes(recipe("causal-lm", generated="parity", **{name: {}}))
    check_probes(recipe("causal-lm", generated="parity", lengths={}))
    check_probes(recipe("classification", generated="parity", lengths={"bins": [4, 9]}, extrapolation={}))
    with pytest.raises(BadInput, match=r"lengths: needs a generated task, data.source task:NAME, got a.txt; leave it"):
        check_probes(recipe("causal-lm", lengths={}))
    with pytest.raises(BadInput, match=r"lengths: bins must be different whole numbers of at least 1, ascending, got"):
        check_probes(recipe("causal-lm", generated="parity", lengths={"bins": [9, 4]}))
