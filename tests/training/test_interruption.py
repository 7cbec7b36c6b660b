"""Signals: the first asks, the same one again ends at once, and what is ignored stays ignored."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from wordorder.comparison.compare import stopped_by_signals
from wordorder.errors import Stopped
from wordorder.training.loop.interruption import SIGNALS, Interruption, stopping_at_once


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers_are_put_back():
    given = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}  # nohup, say, ignores one
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before
    for number, handler in given.items():
        signal.signal(number, handler)


ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@pytest.mark.parametrize("number", ALL)
def test_a_signal_only_asks(number):
    with Interruption() as interruption:
        assert interruption.requested is None
        send(number)
        assert interruption.requested is number


def test_a_cluster_s_end_does_not_break_off_the_save_that_its_warning_asked_for():
    with Interruption() as interruption:
        send(signal.SIGUSR1)
        send(signal.SIGTERM)
        assert interruption.requested is signal.SIGUSR1


def test_a_second_ctrl_c_stops_at_once():
    with Interruption() as interruption:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert interruption.requested is signal.SIGINT


TWICE = """
import os, signal, sys
from wordorder.training.loop.interruption import Interruption
with Interruption():
    for _ in range(2):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        print("lives", flush=True)
"""


REPEATED = [signal.SIGHUP, signal.SIGXCPU]  # twice when a terminal closes, and every second


@pytest.mark.parametrize("number", REPEATED)
def test_what_the_system_sends_again_does_not_break_off_the_save(number):
    with Interruption() as interruption:
        for _ in range(3):
            assert signal.getsignal(number) is not signal.SIG_DFL  # which would end the tests
            send(number)
        assert interruption.requested is number


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2"])
def test_a_second_signal_ends_the_process_at_once(name):
    done = subprocess.run([sys.executable, "-c", TWICE, name], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == -getattr(signal, name)
    assert done.stdout == "lives\n"


def test_under_a_launcher_a_signal_that_is_passed_on_does_not_break_off_the_save():
    """torchrun passes on what the job's end, or the terminal's Ctrl-C, has sent to all, also to a single process."""
    group = {"RANK": "0", "WORLD_SIZE": "1"}
    for name in ("SIGINT", "SIGTERM"):
        command = [sys.executable, "-c", TWICE, name]
        done = subprocess.run(
            command, check=False, env={**os.environ, **group}, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, "lives\n" * 2), name


WORKER = """
import multiprocessing, os, signal, sys
from wordorder.training.loop.interruption import Interruption

def work():
    with Interruption() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            print(interruption.requested.name, flush=True)

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""


def test_in_a_worker_a_signal_that_its_parent_passes_on_does_not_break_off_the_save(tmp_path):
    script = tmp_path / "compare.py"
    script.write_text(WORKER)
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n" * 2), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_is_ignored_stays_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)  # as in a shell's background jobs, and under nohup
    try:
        with stopped_by_signals(), Interruption() as interruption, stopping_at_once():
            send(number)
            assert interruption.requested is None
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", ALL[1:])
def test_where_nothing_is_to_be_saved_a_signal_stops_at_once(number):
    with pytest.raises(Stopped, match=rf"stopped by {number.name} .*--resume goes on"), stopping_at_once():
        send(number)


def test_a_signal_while_a_library_is_imported_is_no_fault_of_the_import():
    def import_late():  # as the modules of transformers are, when they are first used
        try:
            send(signal.SIGTERM)
        except Exception as error:
            raise ModuleNotFoundError("Could not import module 'Trainer'") from error

    with pytest.raises(Stopped, match="stopped by SIGTERM"), stopping_at_once():
        import_late()


def test_training_within_takes_over():
    requested = []

    def train():
        with Interruption() as interruption:
            send(signal.SIGTERM)
            requested.append(interruption.requested)
        send(signal.SIGTERM)

    with pytest.raises(Stopped, match="SIGTERM"), stopping_at_once():
        train()
    assert requested == [signal.SIGTERM]


def test_outside_the_main_thread_nothing_is_changed():
    found = []

    def look():
        with Interruption(), stopping_at_once():
            found.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [[signal.getsignal(number) for number in SIGNALS]]


EARLY = """
import os, signal, sys
import wordorder.cli.main as cli
number = getattr(signal, sys.argv[2])
cli.import_module = lambda name: os.kill(os.getpid(), number)
sys.argv = ["wordorder", *sys.argv[1].split()]
cli.main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGXCPU"])
@pytest.mark.parametrize("command", ["train r.toml --resume", "--debug compare r.toml", "list"])
def test_a_signal_while_libraries_are_imported_is_answered_too(name, command):
    done = subprocess.run([sys.executable, "-c", EARLY, command, name], capture_output=True, text=True, timeout=60)
    if command == "list":
        assert done.returncode == -getattr(signal, name)
        return
    assert done.returncode == 3
    assert done.stderr == f"wordorder: stopped by {name} before anything was started\n"
