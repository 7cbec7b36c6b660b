"""Every exception becomes one line per fault on stderr and an exit code with one meaning."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cli.faults import FaultReporter
from wordorder.errors import BadInput, MissingExtra, RunFailed, Stopped

SOURCE = Path(__file__).parents[2]


def app_that_raises(error: BaseException) -> typer.Typer:
    """Build a command line with the real reporter, whose only command raises."""
    planted = typer.Typer(cls=FaultReporter)

    @planted.callback()
    def options(debug: bool = False) -> None:
        """Take the option that every command line has."""

    @planted.command()
    def work() -> None:
        """Raise the error under test."""
        raise error

    return planted


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (BadInput(["model.width: 3 is odd", "model.heads: 0"]), 2, ["model.width: 3 is odd", "model.heads: 0"]),
        (
            MissingExtra("transformers", "models"),
            2,
            [f"transformers is not installed; run: pip install -e '{SOURCE}[models]'"],
        ),
        (
            RunFailed("the loss is NaN at step 7\nlast checkpoint: 5"),
            1,
            ["the loss is NaN at step 7 last checkpoint: 5"],
        ),
        (Stopped("stopped by SIGTERM after step 9"), 3, ["stopped by SIGTERM after step 9"]),
        (
            OSError(28, "No space left on device"),
            1,
            ["OSError: [Errno 28] No space left on device (--debug shows where)"],
        ),
        (
            MemoryError(),
            1,
            ["memory ran out (no message); make model and batch smaller, or lift the limit on memory (ulimit -v)"],
        ),
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            1,
            [
                "memory ran out (libtorch_cpu.so: failed to map segment from shared object); make model and batch "
                "smaller, or lift the limit on memory (ulimit -v)"
            ],
        ),
        (ZeroDivisionError(), 1, ["ZeroDivisionError: no message (--debug shows where)"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
    ],
)
def test_exit_code_and_lines(error: BaseException, code: int, lines: list[str]):
    result = CliRunner().invoke(app_that_raises(error), ["work"])
    assert result.exit_code == code
    assert result.stderr.splitlines() == [f"wordorder: {line}" for line in lines]
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [["--debug", "work"], ["work", "--debug"]])
def test_debug_shows_the_traceback_and_keeps_the_code(arguments: list[str]):
    result = CliRunner().invoke(app_that_raises(BadInput("no such corpus")), arguments)
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1] == "wordorder: no such corpus"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "No such command 'trian'"),
        (["train"], "Missing argument 'RECIPE'"),
        (["train", "recipe.toml", "--stepps", "3"], "No such option"),
        (["predict", "folder", "--top", "none"], "Invalid value for '--top'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(arguments: list[str], said: str):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert result.stdout == ""


def test_every_command_has_help_with_an_example():
    listing = CliRunner().invoke(app, ["--help"]).stdout
    for command in ("list", "train", "compare", "evaluate", "predict", "cost"):
        assert command in listing
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert f"Example: `wordorder {command}" in result.stdout
        assert "--json" in result.stdout


def test_without_a_command_the_help_is_shown():
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert "\n  predict  " in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["list", "list --json"])
def test_a_reader_that_goes_away_leaves_no_complaint(arguments: str):
    # `true` ends long before the first line is printed, so the pipe is closed by then.
    command = f"{{ sleep 0.3; {sys.executable} -m wordorder {arguments}; }} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 1


def test_without_typer_the_console_script_says_what_to_install(tmp_path: Path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('planted', name='typer')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from wordorder.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"wordorder: typer is not installed; run: pip install -e '{SOURCE}[train]'"]
    assert done.stdout == ""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_ctrl_c_while_the_command_line_is_loaded_prints_no_traceback(tmp_path: Path, package: str):
    (tmp_path / f"{package}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from wordorder.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "wordorder: interrupted\n")


def test_many_and_long_faults_are_cut_and_counted():
    faults = [f"name{i}: unknown; take another" for i in range(1000)]
    faults[0] = "k" * 900_000 + ": unknown; take another"
    lines = CliRunner().invoke(app_that_raises(BadInput(faults)), ["work"]).stderr.splitlines()
    assert len(lines) == 51
    assert len(lines[0]) < 2100
    assert lines[0].endswith("; take another")
    assert lines[-1] == "wordorder: and 950 more faults"
