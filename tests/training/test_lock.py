"""One process at a time writes into a run's folder, and a killed one leaves it free."""

import os
import signal
import subprocess
import sys

import pytest

from wordorder.errors import BadInput
from wordorder.training.runs import folder
from wordorder.training.runs.folder import locked

HOLDER = """
import os, sys, time
from pathlib import Path
from wordorder.training.runs.folder import locked
with locked(Path(sys.argv[1])):
    if not os.fork():
        time.sleep(60)  # as a worker that reads data does, when its parent is killed
        os._exit(0)
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder run, with a child."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "run"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "holds\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_folder_that_another_process_writes_into_is_refused_and_free_when_it_is_killed(holder, tmp_path):
    with pytest.raises(BadInput, match=rf"run.*is being written by process {holder.pid} on .*--output-dir FOLDER"):
        locked(tmp_path / "run").__enter__()
    holder.kill()
    holder.wait()
    with locked(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / ".lock").read_text()
    assert not list((tmp_path / "run").iterdir())


def test_a_folder_that_was_made_for_the_lock_goes_with_it_unless_something_was_written(tmp_path):
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists()
    with locked(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "curve.jsonl").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["curve.jsonl"]


def test_the_lock_of_another_folder_in_its_place_is_left_alone(tmp_path):
    with locked(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".lock").write_text("of another")
    assert (tmp_path / "run" / ".lock").read_text() == "of another"


def test_without_locks_on_the_file_system_a_line_says_so(tmp_path, monkeypatch, capsys):
    def none(handle, kind):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(folder.fcntl, "lockf", none)
    with locked(tmp_path):
        pass
    assert "has no locks (No locks available)" in capsys.readouterr().err
