"""docs/language-models.md: its code runs, and its names and defaults are those of the code."""

import re
from pathlib import Path

from wordorder.data import DataConfig

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "language-models.md").read_text(encoding="utf-8")


def test_the_example_runs_and_learns(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "language-models.md", "exec"), {})
    learned, scored = capsys.readouterr().out.splitlines()
    before, after = map(float, re.findall(r"\d\.\d", learned))
    assert after < before - 1.5
    assert scored == "True"


def test_the_defaults_of_the_table_are_those_of_the_code():
    known = {name: field.default for name, field in DataConfig.model_fields.items()}
    table = dict(re.findall(r"^\| `(reset_memory|roll|eval_lanes)` \| `?(\w+)`? \|", PAGE, flags=re.MULTILINE))
    assert {name: str(known[name]).lower() for name in table} == table
    assert len(table) == 3


def test_every_option_of_evaluate_exists():
    from typer.testing import CliRunner

    from wordorder.cli.app import app

    told = CliRunner().invoke(app, ["evaluate", "--help"], env={"COLUMNS": "200"}).output
    named = set(re.findall(r"wordorder evaluate .*", PAGE)[0:4])
    assert len(named) == 4
    assert [option for line in named for option in re.findall(r"--[a-z-]+", line) if option not in told] == []
