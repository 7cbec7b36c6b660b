"""docs/resume.md: its codes, signals, files and messages are those of the code."""

import re
from pathlib import Path

from wordorder.cli import faults
from wordorder.training import TrainingSettings, read_recipe, run
from wordorder.training.checkpoints.checkpoint import MANIFEST
from wordorder.training.loop.interruption import SIGNALS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "resume.md").read_text(encoding="utf-8")
RARE = {"scaler.json", "generation_config.json"}  # with fp16; of models that generate


def table(heading):
    """The rows of the first table below a heading."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"][
        2:
    ]


def test_every_signal_has_a_row_and_its_answer_is_exit_code_3():
    rows = table("Signals and exit codes")
    assert [row[0].strip("`") for row in rows if "SIG" in row[0]] == [number.name for number in SIGNALS]
    assert all(f"exit code {faults.STOPPED}" in row[2] for row in rows if "SIG" in row[0])


def test_the_exit_codes_are_those_of_the_command_line():
    found = [int(row[0]) for row in table("Signals and exit codes") if row[0].isdigit()]
    assert found == [faults.DONE, faults.FAILED, faults.BAD_INPUT, faults.STOPPED]
    assert f"exit code {faults.INTERRUPTED}" in PAGE


def test_the_table_names_every_file_of_a_checkpoint(recipe_file):
    settings = ["task.name=causal-lm", "task.packing=lanes", "data.length=16", "tokenizer.kind=byte"]
    settings += ["model.network=decoder", "model.encoding=transformer-xl", "model.memory=look-ahead"]
    settings += ["model.memory_length=24", "training.max_steps=1"]
    folder = run(read_recipe(recipe_file, settings), progress=False).model_dir.parent
    found = {path.name.replace("-0.", "-<process>.") for path in (folder / "checkpoint-1").iterdir()}
    named = {name for row in table("What is in a checkpoint") for name in re.findall(r"`([^`]+)`", row[0])}
    assert found - named == set()
    assert named - found <= RARE
    assert MANIFEST in named


def test_the_defaults_that_it_tells_are_those_of_the_code():
    assert f"`training.keep_checkpoints = 3` ({TrainingSettings().keep_checkpoints} by default)" in PAGE
    assert (TrainingSettings().save_every, TrainingSettings().evaluate_every) == (None, 0.1)
    assert "by default a tenth of the run" in PAGE
