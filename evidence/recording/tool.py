"""Record what the command line computes, from outside: frozen recipes of 50 steps, and what their folders hold then.

Commands run in forks of this process, which has loaded the libraries once; each has a folder and one thread.
"""

import json
import math
import os
import signal
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from recording.core import digest
from recording.texts import write_texts

RECIPES = Path(__file__).parent / "recipes"
TOKENIZERS = ("wordpiece", "bpe", "byte", "character", "word", "whitespace")
KILLED = ("across", "memory")
"""Recipes that are also killed after their second checkpoint, and resumed."""

Value = tuple[str, Any]


class Tool:
    """The command line of one checkout, in a folder of its own."""

    def __init__(self, calls: ModuleType, folder: Path) -> None:
        self.calls, self.folder = calls, folder
        self.texts = write_texts(folder / "texts")
        os.environ |= {"WORDORDER_DATA": str(self.texts), "WORDORDER_CACHE": str(folder / "cache"), "COLUMNS": "200"}
        (folder / "recipes").mkdir()
        for path in RECIPES.glob("*.toml"):
            text = calls.recipe_text(path.read_text(encoding="utf-8"))
            (folder / "recipes" / path.name).write_text(text, encoding="utf-8")

    def start(self, *arguments: str) -> int:
        """Start a command in a fork, and return its process; its output goes to files of this folder."""
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.chdir(self.folder)
                for name, number in (("stdout", 1), ("stderr", 2)):
                    os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
                sys.argv = ["wordorder", *arguments]
                from wordorder.cli.main import main

                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(code)
        return child

    def __call__(self, *arguments: str) -> str:
        """Run a command and return what it printed; RuntimeError with its last lines if it failed."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.start(*arguments), 0)[1])
        if code != 0:
            raise RuntimeError(f"{' '.join(arguments)} ended with {code}:\n{self.read('stderr')[-2000:]}")
        return self.read("stdout")

    def read(self, name: str) -> str:
        """Return the text of a file in the folder."""
        return (self.folder / name).read_text(encoding="utf-8")

    def recipe(self, name: str) -> str:
        """Return the path of a frozen recipe."""
        return str(self.folder / "recipes" / f"{name}.toml")


def texts(tool: Tool) -> Iterator[Value]:
    """Yield ids, borders of sentences and documents, and counts, of each kind of tokenizer that is trained here."""
    for kind in TOKENIZERS:
        encoded = tool.calls.tokens(tool.texts / "corpus", kind, tool.folder / "cache")
        for name in ("ids", "sentences", "documents"):
            yield f"text/{kind}/{name}", digest(torch.tensor([int(number) for number in encoded[name]]))
        yield from flat(f"text/{kind}/statistics", encoded["statistics"])


def recipes(tool: Tool) -> Iterator[Value]:
    """Yield the resolved values of every recipe of the repository and of the frozen ones."""
    paths = {f"frozen/{path.stem}": path for path in sorted((tool.folder / "recipes").glob("*.toml"))}
    for name, path in (tool.calls.recipes() | paths).items():
        if "pretrained =" in (text := path.read_text(encoding="utf-8")):  # resolved from a model that is not here
            yield from flat(f"recipe/{name}", tomllib.loads(text))
        else:
            yield from flat(f"recipe/{name}", tool.calls.resolved(path, needed(text)))


def needed(text: str) -> list[str]:
    """Return the setting that a recipe leaves to its user: the texts."""
    return [] if "source =" in text or "base =" in text else ['data.source="corpus/*.txt"']


def costs(tool: Tool) -> Iterator[Value]:
    """Yield widths and counted costs of every recipe of the repository whose data is at hand."""
    for name, path in tool.calls.recipes().items():
        try:
            settings = [word for setting in needed(path.read_text()) for word in ("--set", setting)]
            counted = json.loads(tool("cost", str(path), *settings, "--json"))
        except RuntimeError:  # its texts are not part of the repository
            continue
        yield from flat(f"cost/{name}", tool.calls.counted(counted))


def training(tool: Tool) -> Iterator[Value]:
    """Yield what trainings leave, weights and scores; their evaluation, inspection and use; killed and resumed runs."""
    for path in sorted(RECIPES.glob("*.toml")):
        for seed in (0, 1):
            key, folder = f"training/{path.stem}/seed-{seed}", tool.folder / f"{path.stem}-{seed}"
            tool("train", tool.recipe(path.stem), "--set", f"training.seed={seed}", "--output-dir", str(folder))
            yield from left_by_run(tool, key, folder)
        source = tool.calls.resolved(Path(tool.recipe(path.stem)), [])["data"]["source"]
        if path.stem != "translation":
            scores = json.loads(tool("evaluate", str(folder / "model"), source, "--split", "test", "--json"))
            yield from flat(f"evaluate/{path.stem}", tool.calls.scores(scores))
    for name in ("demo", "memory", "century"):
        tool("inspect", str(tool.folder / f"{name}-0" / "model"), "--length", "16", *reading(tool, name), "--json")
        numbers = json.loads(tool.read("stdout"))
        yield from flat(f"inspect/{name}", tool.calls.inspected(numbers))
    words = ("generate", str(tool.folder / "memory-0" / "model"), "the people of the", "--temperature", "0")
    yield "generate/memory", tool(*words, "--max-new-tokens", "40")
    for name in KILLED:
        yield from killed(tool, name)


def reading(tool: Tool, name: str) -> tuple[str, ...]:
    """Return the option that gives a language model a text to read while it is inspected."""
    return ("--text", str(tool.texts / "corpus" / "00.txt")) if name == "memory" else ()


def killed(tool: Tool, name: str) -> Iterator[Value]:
    """Yield what a run leaves that is killed after its second checkpoint, and resumed."""
    folder = tool.folder / f"{name}-killed"
    command = ("train", tool.recipe(name), "--output-dir", str(folder))
    child = tool.start(*command)
    while not (folder / "checkpoint-20" / "manifest.json").exists():
        if os.waitpid(child, os.WNOHANG)[0]:
            raise RuntimeError(f"{name} ended before it was killed:\n{tool.read('stderr')[-2000:]}")
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    tool(*command, "--resume")
    yield from left_by_run(tool, f"killed/{name}", folder)


def left_by_run(tool: Tool, key: str, folder: Path) -> Iterator[Value]:
    """Yield what a training left, and the digest of each of its weights."""
    from safetensors.torch import load_file

    for name, value in tool.calls.run_values(folder):
        yield from flat(f"{key}/{name}", value)
    for name, tensor in load_file(folder / "model" / "model.safetensors").items():
        yield f"{key}/weights/{name}", digest(tensor)


def comparison(tool: Tool) -> Iterator[Value]:
    """Yield rows, probes and trials of comparisons, with one worker and with two."""
    for name, workers in (("demo", 1), ("demo", 2), ("causal", 1), ("order_binding", 1)):
        folder = tool.folder / f"compare-{name}-{workers}"
        settings = ("--set", f"compare.workers={workers}", "--set", "training.max_steps=60")
        results = json.loads(tool("compare", tool.recipe(name), *settings, "--output-dir", str(folder), "--json"))
        yield from flat(f"compare/{name}-{workers}", tool.calls.compared(results))


def statistics(tool: Tool) -> Iterator[Value]:
    """Yield the tests and the table of every committed result of a comparison."""
    for path in tool.calls.results():
        yield from flat(f"result/{path.stem}", tool.calls.conclusions(path))


def search(tool: Tool) -> Iterator[Value]:
    """Yield the trials that a search for learning rates asks for, for 40 tables of scores."""
    for number in range(40):
        best_rate, best_factor = 2.0 ** (number % 7 - 3) * 1e-3, 4.0 ** (number % 4 - 1)
        factors = (None,) if number % 3 == 0 else (1.0, 4.0, 16.0)
        seeds, extend = (100, 101, 102)[: 1 + number % 3], number % 4

        def score(rate: float, factor: float | None, seed: int, *, at: tuple[float, float] = (best_rate, best_factor)):
            if (round(1e6 * rate) + seed) % 11 == 0:
                return None  # a trial that failed
            away = abs(math.log2(rate / at[0])) + abs(math.log2((factor or 1.0) / at[1]))
            return round(away + (seed % 5) / 7, 6)

        yield f"search/{number}", list(tool.calls.trials((5e-4, 1e-3, 2e-3, 4e-3), factors, seeds, extend, score))


GROUPS = {
    "text": texts,
    "recipes": recipes,
    "search": search,
    "statistics": statistics,
    "cost": costs,
    "training": training,
    "comparison": comparison,
}


def flat(key: str, value: Any) -> Iterator[Value]:
    """Yield the leaves of nested tables: `{"a": {"b": [1, 2]}}` -> `("key/a/b", [1, 2])`; lists of tables by number."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(f"{key}/{name}", inner)
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for number, inner in enumerate(value):
            yield from flat(f"{key}/{number}", inner)
    else:
        yield key, value
