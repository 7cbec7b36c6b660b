"""docs/scaling.md: its tables are what the code gives, and what it names is there."""

import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def published():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import publish_scaling
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return publish_scaling


@pytest.mark.parametrize("name", ["hardware", "bert-base-scaling", "1b-scaling"])
def test_the_tables_are_those_that_the_code_gives(published, name):
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the page was made with torch 2.13; other versions issue other operations")
    table = published.hardware_table() if name == "hardware" else published.table_of(name.removesuffix("-scaling"))
    assert f"<!-- {name}-table -->\n\n{table}\n\n<!-- /{name}-table -->" in PAGE


def test_the_check_on_a_cpu_is_the_one_that_was_measured(published):
    assert f"<!-- cost-check-table -->\n\n{published.check_table()}\n\n<!-- /cost-check-table -->" in PAGE


def test_options_and_assumptions_that_the_page_names_are_those_of_the_code():
    from typer.testing import CliRunner

    from wordorder.cli.app import app
    from wordorder.inspection import communication, prediction

    help_text = CliRunner().invoke(app, ["cost", "--help"], env={"COLUMNS": "200"}).stdout
    commands = re.findall(r"wordorder cost [^\n`]*", PAGE)
    options = {option for command in commands for option in re.findall(r"--[a-z-]+", command)}
    assert {"--gpu", "--gpus", "--strategy", "--check"} <= options
    assert all(option in help_text for option in options)
    shares = (prediction.MATMUL_SHARE, prediction.ATTENTION_SHARE, prediction.BANDWIDTH_SHARE, communication.LINK_SHARE)
    for share in shares:
        assert f"{share:.0%}" in PAGE
    assert "## Launch" in PAGE


def test_the_example_of_the_page_of_costs_runs(capsys):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "cost.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(code) == 1
    exec(compile(code[0], "cost.md", "exec"), {})
    # so small a model is bound by issuing its operations
    assert capsys.readouterr().out.startswith("launching True")
