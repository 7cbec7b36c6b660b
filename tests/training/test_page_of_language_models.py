"""docs/language-models.md: its defaults are those of the code."""

import re
from pathlib import Path

from wordorder.tasks import CausalLMOptions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "language-models.md").read_text(encoding="utf-8")


def test_the_defaults_of_the_table_are_those_of_the_code():
    known = {name: field.default for name, field in CausalLMOptions.model_fields.items()}
    table = dict(re.findall(r"^\| `(reset_memory|roll|eval_lanes)` \| `?(\w+)`? \|", PAGE, flags=re.MULTILINE))
    assert {name: str(known[name]).lower() for name in table} == table
    assert len(table) == 3
