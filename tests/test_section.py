"""Values that people write are checked against strict types; every wrong one is one sentence."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MinLen

from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT
from wordorder.hints import MOST_HINTS
from wordorder.section import Section, Several, Text, value_fault


class Inner(Section):
    section: ClassVar[str] = "oven.light"
    on: bool = False


class Oven(Section):
    section: ClassVar[str] = "oven"
    refused: ClassVar[dict[str, str]] = {"coal": "was removed; write power"}

    name: Text
    power: Annotated[int, Ge(1), Le(MOST_COUNT)] = 3
    share: Annotated[float, Gt(0), Lt(0.5)] | None = None
    mode: Literal["bake", "grill"] = "bake"
    racks: Annotated[Several[Annotated[int, Ge(0)]], MinLen(1)] = (0,)
    trays: str | list[str] = "none"
    timers: Mapping[str, Mapping[str, Any]] | None = None
    light: Inner = Inner()

    def faults(self) -> list[str]:
        return ["oven.power: a grill has at most 9"] if self.mode == "grill" and self.power > 9 else []


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"power": "3"}, "oven.power: must be an integer, got '3'"),
        ({"power": True}, "oven.power: must be an integer, got True"),
        ({"power": 3.0}, "oven.power: must be an integer, got 3.0"),
        ({"power": 0}, "oven.power: must be at least 1, got 0"),
        ({"power": 2**40}, "oven.power: must be at least 1 and at most 2,147,483,647, got 1099511627776"),
        ({"power": 10**400}, "oven.power: must be at least 1 and at most 2,147,483,647, got a huge number"),
        ({"share": 0}, "oven.share: must be greater than 0 and less than 0.5, got 0"),
        ({"share": float("nan")}, "oven.share: must be a finite number, got nan"),
        ({"share": "x"}, "oven.share: must be a number, got 'x'"),
        ({"mode": "gril"}, "oven.mode: unknown value 'gril'; did you mean 'grill'? valid values: bake, grill"),
        ({"mode": 3}, "oven.mode: must be one of 'bake', 'grill', got 3"),
        ({"racks": []}, "oven.racks: must be a list that is not empty, got []"),
        ({"racks": [0, -1]}, "oven.racks[1]: must be at least 0, got -1"),
        ({"racks": 3}, "oven.racks: must be a list, each an integer, got 3"),
        ({"trays": [3]}, "oven.trays: must be a string or a list, each a string, got [3]"),
        ({"timers": {"a": 3}}, "oven.timers.a: must be a table, got 3"),
        ({"power": float("inf")}, "oven.power: must be an integer, got inf"),
        ({"mode": float("inf")}, "oven.mode: must be one of 'bake', 'grill', got inf"),
        ({"share": 10**400}, "oven.share: must be a finite number, got a huge number"),
        ({"light": 3}, "oven.light: must be a table, got 3"),
        ({"self": 3}, "[oven]: unknown name 'self'; valid names: "),
        ({"light": {"on": 1}}, "oven.light.on: must be true or false, got 1"),
        ({"light": {"off": 1}}, "[oven.light]: unknown name 'off'; valid names: on"),
        ({"nam": "x"}, "[oven]: unknown name 'nam'; did you mean 'name'? valid names: "),
        ({"name": " "}, "oven.name: must be a string that is not empty, got ' '"),
        ({"coal": 1}, "oven.coal: was removed; write power"),
        ({"mode": "grill", "power": 10}, "oven.power: a grill has at most 9"),
    ],
)
def test_a_wrong_value_is_one_sentence(values, fault):
    with pytest.raises(BadInput) as caught:
        Oven(**{"name": "x", **values})
    assert len(caught.value.faults) == 1, caught.value.faults
    assert caught.value.faults[0].startswith(fault)


def test_all_faults_are_said_at_once_and_a_copy_is_checked_too():
    with pytest.raises(BadInput) as caught:
        Oven(power=0, mode="grill", racks=["a"], oven=1)
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["[oven]", "oven.power", "oven.racks[0]", "[oven]"]
    assert "name is missing; give it here or by --set oven.name=..." in caught.value.faults[0]
    right = Oven(name="x", racks=[1, 2], share=0.25)
    assert right.racks == (1, 2)
    assert right.having(power=5) == Oven(name="x", racks=(1, 2), share=0.25, power=5)
    with pytest.raises(BadInput, match=r"oven\.power: must be at least 1"):
        right.having(power=0)


def test_a_value_is_as_long_as_a_person_reads():
    with pytest.raises(BadInput, match=r"^oven\.power: must be an integer, got 'xxx") as caught:
        Oven(name="x", power="x" * 9999)
    assert len(caught.value.faults[0]) < 300


def test_a_value_of_one_type_alone_is_checked_in_the_same_way():
    hint = Annotated[int, Ge(1), Le(9)]
    assert value_fault("x", hint, 9) is None
    assert value_fault("x", hint, 10) == "x: must be at least 1 and at most 9, got 10"
    assert value_fault("x", Annotated[float, Gt(0)], float("inf")) == "x: must be a finite number, got inf"
    assert value_fault("x", list[dict[str, int]], {}) == "x: must be a list, each a table, got {}"


def test_of_many_unknown_names_the_first_have_hints():
    with pytest.raises(BadInput) as error:
        Oven(name="a", **{f"pover{number}": 1 for number in range(200)})
    assert len(error.value.faults) == 200
    assert sum("did you mean 'power'?" in fault for fault in error.value.faults) == MOST_HINTS
