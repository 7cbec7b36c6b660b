import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the stand-ins, which worker processes import by name too

SENTENCES = "The union of the states is strong. Congress will meet again in the winter. The people ask for peace. "


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[..., Any]:
    """Write a small recipe and read it; keywords replace values of [compare], ``arms`` its arms."""
    from wordorder.training import read_recipe

    source = tmp_path / "texts.jsonl"
    if not source.exists():
        lines = [json.dumps({"text": f"Message {n}. " + SENTENCES * 12}) for n in range(12)]
        source.write_text("\n".join(lines) + "\n")

    def make(*overrides: str, arms: dict[str, dict[str, Any]] | None = None, **compare: Any) -> Any:
        arms = arms or {name: {"model.encoding": name} for name in ("none", "rope", "tupe-r")}
        compare = {"seeds": [0, 1, 2], **compare}
        text = [
            f'[data]\nsource = "{source}"\nvalidation_fraction = 0.2\ntest_fraction = 0.2',
            '[task]\nname = "masked-lm"',
            "[tokenizer]\nvocab_size = 120",
            "[model]\nnetwork = 'encoder'\nhidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2",
            "intermediate_size = 32\nmax_position_embeddings = 16\nencoding = 'none'",
            f"[training]\noutput_dir = '{tmp_path / 'out'}'\nmax_steps = 6\nlearning_rate = 0.002",
            "batch_size = 4",
            "[compare]",
            *(f"{name} = {json.dumps(value)}" for name, value in compare.items()),
        ]
        for name, changes in arms.items():
            text += ["[[compare.arms]]", f"name = {json.dumps(name)}"]
            text += [f'"{key}" = {json.dumps(value)}' for key, value in changes.items()]
        path = tmp_path / "small.toml"
        path.write_text("\n".join(text))
        return read_recipe(path, overrides)

    return make


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What the stand-ins did, line by line."""
    path = tmp_path / "log.txt"
    path.touch()
    monkeypatch.setenv("STAND_IN_LOG", str(path))
    return lambda: path.read_text().splitlines()


SCRIPT = """
import signal
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from comparison_stand_in import STAND_IN
from wordorder.comparison import compare
from wordorder.errors import Stopped
from wordorder.training import read_recipe
if __name__ == "__main__":
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
    try:
        compare(read_recipe({recipe!r}, {overrides!r}), progress=False, pipeline=STAND_IN, {options})
    except Stopped:
        sys.exit(3)
"""


@pytest.fixture
def start_comparison(tmp_path: Path, log: Callable[[], list[str]]) -> Iterator[Callable[..., Any]]:
    """Start a comparison in a process group of its own, and wait until so many trainings have begun."""
    started: list[subprocess.Popen[bytes]] = []

    def start(recipe: Any, *, until: int, overrides: Sequence[str] = (), options: str = "") -> Any:
        script = tmp_path / "script.py"
        here = {"folder": str(Path(__file__).parent), "recipe": str(recipe.path)}
        script.write_text(SCRIPT.format(**here, overrides=overrides, options=options))
        process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
        started.append(process)
        deadline = time.monotonic() + 90
        while sum(line.startswith("start") for line in log()) < until:
            assert process.poll() is None, "the comparison ended too early"
            assert time.monotonic() < deadline, log()
            time.sleep(0.05)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
