"""One process at a time writes into a run's folder, and a killed one leaves it free."""

import os
import re
import signal
import subprocess
import sys
import threading

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


AGAIN = """
import sys
from pathlib import Path
from wordorder.errors import BadInput
from wordorder.training.runs.folder import locked
try:
    locked(Path(sys.argv[1])).__enter__()
except BadInput as error:
    print(error)
"""


def test_a_folder_that_this_process_holds_is_refused_and_stays_held(tmp_path):
    """The system would let the process in again, and free the lock at the inner end."""
    (tmp_path / "link").symlink_to(tmp_path / "run")
    command = [sys.executable, "-c", AGAIN, tmp_path / "run"]
    with locked(tmp_path / "run"):
        for name in ("run", "link"):
            with pytest.raises(BadInput, match=r"is being written by this process; .*--output-dir FOLDER"):
                locked(tmp_path / name).__enter__()
        with locked(tmp_path / "run" / "arm"):
            pass
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        assert f"is being written by process {os.getpid()} on" in done.stdout
    with locked(tmp_path / "run"):
        pass


def test_of_threads_that_start_together_one_gets_the_folder(tmp_path):
    together, results = threading.Barrier(4), []

    def enter():
        together.wait()
        try:
            with locked(tmp_path):
                results.append("entered")
                together.wait()
        except BadInput:
            results.append("refused")
            together.wait()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["entered", *["refused"] * 3]


FORKED = """
import os, sys
from pathlib import Path
from wordorder.training.runs.folder import locked
folder = Path(sys.argv[1])
left, leave = os.pipe()
with locked(folder):
    child = os.fork()
    if not child:
        os.read(left, 1)
        with locked(folder):
            print("child holds", flush=True)
        os._exit(0)
os.write(leave, b"1")
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_fork_does_not_take_itself_for_the_holder(tmp_path):
    done = subprocess.run([sys.executable, "-c", FORKED, tmp_path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "child holds\n"), done.stderr


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


@pytest.mark.parametrize("kind", ["link", "link to nothing", "file", "pipe", "folder"])
def test_what_is_called_like_the_lock_and_is_none_is_refused_and_kept(tmp_path, kind):
    victim, lock = tmp_path / "victim", tmp_path / "run" / ".lock"
    lock.parent.mkdir()
    if kind == "file":
        lock.write_text("mine")
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to("../victim")
        if kind == "link":
            victim.write_text("mine")
    before = lock.lstat()
    with pytest.raises(BadInput, match=r"run/\.lock' is .*, not the lock of a run; move it away.*--output-dir FOLDER"):
        locked(tmp_path / "run").__enter__()
    assert lock.lstat() == before
    assert victim.exists() == (kind == "link")
    if kind in ("file", "link"):
        assert lock.read_text() == "mine"


@pytest.mark.parametrize(
    "left", ["", "process 1 on a since 2024-01-01 00:00:00+00:00, longer than what comes next" * 3]
)
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, left):
    (tmp_path / ".lock").write_text(left)
    with locked(tmp_path):
        assert re.fullmatch(rf"process {os.getpid()} on \S+ since .*\n", (tmp_path / ".lock").read_text())


def test_a_link_that_takes_the_place_of_the_lock_meanwhile_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    monkeypatch.setattr(folder.os.path, "lexists", lambda path: False)
    with pytest.raises(BadInput, match="is a link, not the lock of a run"):
        locked(tmp_path / "run").__enter__()
    assert not (tmp_path / "victim").exists()


def test_without_locks_on_the_file_system_a_line_says_so(tmp_path, monkeypatch, capsys):
    def none(handle, kind):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(folder.fcntl, "lockf", none)
    with locked(tmp_path):
        pass
    assert "has no locks (No locks available)" in capsys.readouterr().err
