"""Streams that are closed, full or no longer read: progress is dropped, results are missed with one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wordorder import streams

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the streams are set up by a POSIX shell")


def shell(command: str, folder: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash in which `wordorder` is this package's command and `python` this interpreter."""
    names = f'wordorder() {{ "{sys.executable}" -m wordorder "$@"; }}; python() {{ "{sys.executable}" "$@"; }};'
    environment = os.environ | variables
    return subprocess.run(
        ["bash", "-c", f"{names} {command}"], capture_output=True, text=True, cwd=folder, env=environment
    )


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["2>&1 | true", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_a_training_that_nobody_can_read_is_finished(tmp_path: Path, recipe_text: str, streams: str):
    (tmp_path / "corpus.txt").write_text("".join(f"the state of the union {n} is good\n" for n in range(60)))
    (tmp_path / "recipe.toml").write_text(recipe_text)
    done = shell(f"{{ wordorder train recipe.toml; echo $? > code; }} {streams}", tmp_path)
    assert done.stderr == ""
    assert (tmp_path / "code").read_text() == "0\n"
    assert (tmp_path / "run/metrics.json").stat().st_size
    assert (tmp_path / "run/model/model.safetensors").stat().st_size


PREPARED = "import sys; from wordorder.streams import *; prepare_streams();"


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "2> >(true)"])
def test_what_stderr_cannot_take_is_dropped(streams: str):
    program = f"{PREPARED} [print(n, file=sys.stderr, flush=True) for n in range(9)]; print(sys.stderr.isatty())"
    done = shell(f"python -c '{program}' {streams}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_output_that_can_be_read_is_as_before():
    program = f'{PREPARED} print("é", end=""); sys.stdout.buffer.write(b"!"); print("ü", file=sys.stderr)'
    done = shell(f"python -c '{program}'", PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr) == (0, "ü\n")
    assert sorted(done.stdout) == sorted("é!")


def test_a_full_disk_behind_a_result_is_one_line():
    done = shell("wordorder --help > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "wordorder: standard output cannot be written: No space left on device; send it elsewhere\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_the_null_device(closed: str, tmp_path: Path):
    # a file that is opened later must not get the number of a standard stream, which libraries in C write to
    program = (
        f'{PREPARED} number = open("file", "w").fileno(); assert number > 2; print(sys.stdin.read()); open("ok", "w")'
    )
    done = shell(f"python -c '{program}' {closed}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ok").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            r"printf 'caf\xe9' |",
            "wordorder.errors.BadInput: stdin is not utf-8 text: unexpected end of data; send text",
        ),
        ("", "[]"),
    ],
)
def test_stdin_that_is_no_text_is_one_error(given: str, said: str):
    done = shell(f"{given} python -c '{PREPARED} print(list(lines_of_stdin()))' {'' if given else '<&-'}")
    assert (done.stderr + done.stdout).splitlines()[-1] == said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_an_encoding_lacks_are_escaped_as_in_json(encoding: str):
    done = shell(f"python -c '{PREPARED} print(\"λ\\U0001f600\")'", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout) == (0, "\\u03bb\\ud83d\\ude00\n")


@pytest.mark.slow
def test_a_recipe_with_letters_beyond_ascii_is_read_in_every_locale(tmp_path: Path, recipe_text: str):
    (tmp_path / "é").mkdir()
    recipe = recipe_text.replace('"run"', '"naïve"').replace("corpus", "é/cörpus")
    (tmp_path / "é/recipe.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "é/cörpus.txt").write_text("".join(f"the state of union number {n}\n" for n in range(6_000)))
    command = "wordorder train é/recipe.toml --dry-run | grep output_dir"
    done = shell(command, tmp_path, LC_ALL="POSIX", PYTHONIOENCODING="ascii")
    assert done.stderr == ""
    assert done.stdout == 'output_dir = "na\\u00efve"\n'


def test_a_log_gets_a_line_of_progress_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def lines() -> list[str]:
        with streams.progress_bar("Encoding, texts") as shown:
            shown(1_000, 4_000)
            shown(2_000, None)
        return capsys.readouterr().err.splitlines()

    assert lines() == []
    monkeypatch.setattr(streams, "EVERY", 0.0)
    assert lines() == ["Encoding, texts: 1,000 of 4,000 (25%)", "Encoding, texts: 2,000"]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert lines() == []
