"""The lines of docs/scaling.md that start a run are started as they stand there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_recipes

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
RECIPE = "demo"


def launch_lines():
    """The commands of the section "Launch", by the name of the launcher."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Launch\n")[2].partition("\n## ")[0]
    lines = [line for block in re.findall(r"```bash\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    return {line.split()[0]: line.split() for line in lines if RECIPE in line.split()}


def start(line, recipe, folder, cache, *more):
    words = [str(recipe) if word == RECIPE else word for word in line]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "WORDORDER_CACHE": str(cache), "NO_COLOR": "1"}
    settings = ["--set", f"training.output_dir={folder}", *more]
    return subprocess.Popen(
        [*words, *settings], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_is_stopped_by_sigterm_and_accelerate_launch_goes_on(corpus, tmp_path):
    """One run by both launchers: all processes stop after the same step, one of them speaks, and nothing is lost."""
    lines, folder = launch_lines(), tmp_path / "run"
    assert set(lines) == {"python", "torchrun", "accelerate"}
    recipe = tmp_path / "tiny.toml"
    text = tiny_recipes.RECIPE.format(source=f"{corpus}/*/*.txt").replace("max_steps = 4", "max_steps = 300")
    recipe.write_text(text.replace("_steps = 2", "_steps = 20"))
    running = start(lines["torchrun"], recipe, folder, tmp_path / "cache")
    try:
        while not (folder / "checkpoint-20").exists():
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    spoken = [line for line in said.splitlines() if line.startswith("wordorder:")]
    assert len(spoken) == 1, said
    stopped = re.fullmatch(
        rf"wordorder: stopped by SIGTERM after step (\d+); the last good checkpoint is {folder}/checkpoint-\1;"
        " --resume goes on",
        spoken[0],
    )
    assert stopped, said
    accelerate, launch, *options = lines["accelerate"]
    line = [accelerate, launch, "--main_process_port", "0", *options]  # 29500 may be that of other tests
    done = start(line, recipe, folder, tmp_path / "cache", "--resume", "--json")
    out, said = done.communicate(timeout=240)
    assert done.returncode == 0, said
    assert json.loads(out)["steps"] == 300  # printed once
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["processes"] == environment["earlier_starts"][0]["processes"] == 2
    assert [path.name for path in folder.glob(".saving*")] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_process_needs_no_launcher(corpus, tmp_path):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(tiny_recipes.RECIPE.format(source=f"{corpus}/*/*.txt"))
    done = start(launch_lines()["python"], recipe, tmp_path / "run", tmp_path / "cache", "--json")
    out, said = done.communicate(timeout=200)
    assert done.returncode == 0, said
    assert json.loads(out)["steps"] == 4
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["processes"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_bad_input_is_said_once_and_both_processes_end_with_its_code(tmp_path):
    recipe = tmp_path / "wrong.toml"
    recipe.write_text("[data]\nsource = 'nowhere'\n[task]\nname = 'sleep'\n")
    running = start(launch_lines()["torchrun"], recipe, tmp_path / "run", tmp_path / "cache")
    _, said = running.communicate(timeout=200)
    assert running.returncode != 0
    assert said.count("wordorder: recipe: section [model] is missing") == 1
    assert said.count("wordorder: task.name: unknown value 'sleep'") == 1
    assert re.search(r"exitcode\s*: 2\b", said), said  # torchrun's report; its own code is 1
