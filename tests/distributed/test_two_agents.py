"""Training on two "nodes": two torchrun agents that meet at an address, one of which is lost and replaced."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tiny_recipes
from safetensors.torch import load_file

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def lines_of_the_page():
    """The variable and the command that docs/scaling.md tells to type on every node."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Several nodes\n")[2]
    block = re.search(r"```bash\nexport (\w+)=(\w+)\n(.*?)```", section, re.DOTALL)
    return {block[1]: block[2]}, block[3].replace("\\\n", " ").split()


def agent(recipe, folder, cache, port, log, *, host):
    """Start the agent of one node; the host is the one whose address all of them are given."""
    variable, (torchrun, *words) = lines_of_the_page()
    assert torchrun == "torchrun"
    words[words.index("--nproc-per-node") + 1] = "1"
    here = {"FIRST:29500": f"127.0.0.1:{port}", "demo": str(recipe)}
    # on one machine the address makes all of them the host
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-conf", f"is_host={int(host)}"]
    command += [*(here.get(word, word) for word in words), "--set", f"training.output_dir={folder}"]
    environment = {**os.environ, **variable, "WORDORDER_CACHE": str(cache), "NO_COLOR": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def kill(process):
    """End an agent and its processes at once, as a machine that loses its power does."""
    try:
        every = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in every:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            pass
    process.wait()


def train(recipe, folder, cache, log, *, lose):
    """Train on two nodes; lose the second one after its first checkpoint, and put another in its place."""
    port = free_port()
    first = agent(recipe, folder, cache, port, log, host=True)
    agents = [first, agent(recipe, folder, cache, port, log, host=False)]
    try:
        if lose:
            while not (folder / "checkpoint-10" / "manifest.json").exists():
                assert first.poll() is None, log.read_text()
                time.sleep(0.02)
            kill(agents[1])
            assert not (folder / "metrics.json").exists()
            agents.append(agent(recipe, folder, cache, port, log, host=False))
        assert first.wait(300) == 0, log.read_text()
        assert agents[-1].wait(60) == 0, log.read_text()
    finally:
        for one in agents:
            kill(one)
    return json.loads((folder / "metrics.json").read_text()), load_file(folder / "model" / "model.safetensors")


def test_a_lost_node_is_replaced_and_changes_no_number(corpus, tmp_path):
    recipe, cache = tmp_path / "tiny.toml", tmp_path / "cache"
    text = tiny_recipes.RECIPE.format(source=f"{corpus}/*/*.txt").replace("max_steps = 4", "max_steps = 80")
    recipe.write_text(text.replace("_steps = 2", "_steps = 10"))
    expected, weights = train(recipe, tmp_path / "whole", cache, tmp_path / "whole.log", lose=False)
    found, replaced = train(recipe, tmp_path / "lost", cache, tmp_path / "lost.log", lose=True)
    for name in ("validation", "test", "steps", "batches", "best_step"):
        assert found[name] == expected[name]
    assert weights.keys() == replaced.keys()
    assert all(weights[name].equal(replaced[name]) for name in weights)
    environment = json.loads((tmp_path / "lost" / "environment.json").read_text())
    assert environment["processes"] == environment["earlier_starts"][0]["processes"] == 2
