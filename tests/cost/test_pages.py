"""docs/scaling.md and docs/cost.md: the options and formulas that they name are those of the code, the example runs."""

import re
from pathlib import Path

from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cost.counting import KEPT_INSIDE, NORM_BYTES
from wordorder.cost.gpus import MOMENT_BYTES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "scaling.md").read_text(encoding="utf-8")


def test_options_that_the_page_names_are_those_of_the_command():
    help_text = CliRunner().invoke(app, ["cost", "--help"], env={"COLUMNS": "200"}).stdout
    commands = re.findall(r"wordorder cost [^\n`]*", PAGE.replace("\\\n", " "))
    options = {option for command in commands for option in re.findall(r"--[a-z-]+", command)}
    assert options == {"--set", "--gpus", "--sharding", "--peak-tflops", "--utilisation"}
    assert all(option in help_text for option in options)
    assert "## Launch" in PAGE


def test_constants_of_the_formulas_are_those_of_the_code():
    assert NORM_BYTES == 4
    assert "attention        4 C + (3 C + 2 K) w + C" in PAGE
    assert KEPT_INSIDE == {"relu": 1, "gelu": 2, "silu": 2, "swiglu": 4}
    assert "m = 1 for relu, 2 for gelu and silu, 4 for swiglu" in PAGE
    assert MOMENT_BYTES == {"sgd": 0, "adafactor": 0, "adamw_8bit": 2, "adamw_bnb_8bit": 2}
    assert "SGD and Adafactor: 0, 8-bit AdamW: 2 P'" in PAGE


def test_the_example_of_the_page_of_costs_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "cost.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code, "cost.md", "exec"), {})
    total, seconds = capsys.readouterr().out.split()
    assert int(total) > 0
    assert 0 < float(seconds) < 1
