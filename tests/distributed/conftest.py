"""Two processes that talk over gloo, started once for all tests of this folder, and what they found."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed import TCPStore

SCRIPT = Path(__file__).with_name("two_processes.py")
sys.path.insert(0, str(SCRIPT.parent))  # the recipes that the tests share with the script


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Two dozen documents of made-up words in three classes, and a table of sentences with a number each."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefghij") for _ in range(draw.randint(2, 5))) for _ in range(75)]
    for number in range(24):
        label = ("left", "middle", "right")[number % 3]
        known = words[25 * (number % 3) :][:30]
        text = " ".join(" ".join(draw.choice(known) for _ in range(8)) + "." for _ in range(12))
        (folder / label).mkdir(exist_ok=True)
        (folder / label / f"{number:02d}.txt").write_text(text)
    rows = [
        f"{' '.join(draw.choice(words) for _ in range(draw.randint(3, 12)))},{draw.random():.3f}" for _ in range(37)
    ]
    (folder / "numbers.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder


def environment_of(rank, port, cache):
    """What torchrun would tell a process, without the seconds that torchrun takes."""
    group = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    store = {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return {**os.environ, **group, **store, "WORDORDER_CACHE": str(cache)}


QUICK = ("whole", "stopped", "lost", "full_disk", "not_removed", "refused", "fully_sharded", "replicated", "sharded")


@pytest.fixture(scope="session")
def pair(tmp_path_factory, corpus):
    """What each quick check of two_processes.py found, by name, and the folder in which it worked."""
    return two_processes(tmp_path_factory.mktemp("pair"), corpus, QUICK)


@pytest.fixture(scope="session")
def slow_pair(tmp_path_factory, corpus):
    """What the others found: trainings of each task, and the compiled one."""
    from tiny_recipes import TASKS

    return two_processes(tmp_path_factory.mktemp("slow_pair"), corpus, (*TASKS, "together"))


def two_processes(folder, corpus, checks):
    # as torchrun does: the store listens here, at a port that nobody else can take, and both processes are its clients
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [sys.executable, "-W", "error", str(SCRIPT), str(folder), str(corpus), *checks]
    started = [
        subprocess.Popen(
            command,
            env=environment_of(rank, store.port, folder / "cache"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=540)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    found = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(2)]
    return Pair(folder, found, said)


class Pair:
    """The results of both processes."""

    def __init__(self, folder, found, said):
        self.folder, self.found, self.said = folder, found, said

    def __getitem__(self, name):
        one, other = (found[name] for found in self.found)
        for result in (one, other):
            assert "failed" not in result, result["failed"]
        return one, other
