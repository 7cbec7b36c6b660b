"""Crash a training at every moment, on a disk that is held in memory, and resume it: the end is that of a whole run.

    python tests/soak/every_moment.py                  # 100,000 crashes; some minutes
    python tests/soak/every_moment.py --crashes 2000   # a sample

A small run is recorded once: what its folder holds before and after each call that flushes, renames or removes. From
that, crashes are made without a process that dies: a name is sure when its folder was flushed, and a byte when its file
was; of what is not sure a crash takes as much as chance decides, the newest names first, and bytes from the ends of
files. So writes are torn, and reach the disk in another order than they were made. Every state of the disk is cleaned
as a run begins by; states that are the same then are resumed once, from what was there before the cleaning, and every
file of the end is compared with that of the run that nothing disturbed. Seed and number of a crash give it again.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_points import END_OF_DISK, NAMES, place_of
from same_run import differences, fingerprint
from small_runs import MODELS, RECIPE, write_corpus

SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "masked-lm": ("masked-lm", ()),
    "memory": ("memory", ()),
    "many checkpoints": ("masked-lm", ("save_every=1", "keep_checkpoints=1", "keep_steps=[3]")),
    "last": ("masked-lm", ("select='last'", "evaluate_every='never'", "save_every=3")),
}
"""What is trained: a model of small_runs, and what else [training] says."""
SHORT = ("max_steps=8", "evaluate_every=2", "log_every=3")

_MANIFEST = re.compile(r"checkpoint-\d+/manifest\.json")

Names = dict[str, int]
"""Path below the run folder -> number of the file, which keeps its number under another name; folders have -1."""


@dataclass(frozen=True)
class Moment:
    """What the disk holds at a moment, and what of it is not sure."""

    names: Names
    undo: tuple[Callable[[Names], None], ...]
    """How to take back each change of names that is not sure, oldest first."""
    sure: dict[int, int]
    """File -> bytes that were flushed, of files with more."""
    sizes: dict[int, int]
    reached: int
    """Step of the newest checkpoint that is sure; a crash must leave it, or a newer one."""


@dataclass
class Recording:
    """Records a folder: stands in the place of functions of `os`, and looks at the folder before and after each."""

    folder: Path
    moments: list[Moment] = field(default_factory=list)
    contents: dict[int, bytes] = field(default_factory=dict)
    """File -> the most that it ever held: files only grow, or are new ones."""

    def __post_init__(self) -> None:
        self._original = {name: getattr(os, name) for name in NAMES}
        self._names: Names = {}
        self._sure: dict[int, int] = {}
        self._unsure: list[tuple[str, Callable[[Names], None]]] = []
        self._seen: dict[int, tuple[int, int]] = {}  # inode -> file, size at the last look
        self._reached = 0

    def __enter__(self) -> "Recording":
        for name in NAMES:
            setattr(os, name, self._watched(name))
        return self

    def __exit__(self, *error: object) -> None:
        for name, call in self._original.items():
            setattr(os, name, call)

    def _watched(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            path = place_of(args[0], kwargs.get("dir_fd"))
            if path is None or not (path == self.folder or self.folder in path.parents):
                return self._original[name](*args, **kwargs)
            self.look()
            target = Path(os.fsdecode(args[1])).absolute() if name in ("rename", "replace") else None
            result = self._original[name](*args, **kwargs)
            self._done(name, self._below(path), None if target is None else self._below(target))
            self.look()
            return result

        return call

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def look(self) -> None:
        """Note what is there now: new files, longer ones."""
        there: Names = {}
        for root, folders, files in os.walk(self.folder):
            below = self._below(Path(root))
            prefix = "" if below == "." else f"{below}/"
            there |= {f"{prefix}{name}": -1 for name in folders}
            for name in files:
                there[f"{prefix}{name}"] = self._number(Path(root, name))
        for path in sorted(there.keys() - self._names.keys()):  # made without a call that is watched
            self._change(path, lambda names, path=path: names.pop(path, None))
        self._names = there
        sizes = {number: size for number, size in self._seen.values()}
        unsure = {number: self._sure.get(number, 0) for number in there.values() if number >= 0}
        unsure = {number: sure for number, sure in unsure.items() if sure < sizes[number]}
        undo = tuple(change for _, change in self._unsure)
        present = {number: sizes[number] for number in there.values() if number >= 0}
        moment = Moment(dict(there), undo, unsure, present, self._newest(there, undo))
        if not self.moments or moment != self.moments[-1]:
            self.moments.append(moment)

    def _newest(self, there: Names, undo: Sequence[Callable[[Names], None]]) -> int:
        sure = dict(there)
        for change in reversed(undo):
            change(sure)
        steps = [int(path.split("/")[0].removeprefix("checkpoint-")) for path in sure if _MANIFEST.fullmatch(path)]
        self._reached = max(self._reached, *steps, 0)
        return self._reached

    def _number(self, path: Path) -> int:
        found = path.stat()
        number, size = self._seen.get(found.st_ino, (-1, -1))
        if number < 0 or found.st_size < size:  # a new file, perhaps where an old one was
            number = len(self.contents)
            self.contents[number] = b""
        if found.st_size != len(self.contents[number]) or found.st_size == 0:
            self.contents[number] = path.read_bytes()
        self._seen[found.st_ino] = (number, found.st_size)
        return number

    def _change(self, path: str, undo: Callable[[Names], None]) -> None:
        self._unsure.append((str(Path(path).parent), undo))

    def _done(self, name: str, path: str, target: str | None) -> None:
        if name == "fsync":
            number = self._names.get(path, -1)
            if number >= 0:
                self._sure[number] = len(self.contents[number])
                return
            last = max((place for place, (folder, _) in enumerate(self._unsure) if folder == path), default=-1)
            del self._unsure[: last + 1]  # a journal has an order: what is before it is sure too
            return
        before = dict(self._names)
        if target is not None:

            def undo(names: Names) -> None:
                for inner in [inner for inner in names if inner == target or inner.startswith(f"{target}/")]:
                    names[path + inner.removeprefix(target)] = names.pop(inner)
                if target in before:
                    names[target] = before[target]

            moved = {inner for inner in before if inner == path or inner.startswith(f"{path}/")}
            self._names = {
                (target + inner.removeprefix(path) if inner in moved else inner): number
                for inner, number in before.items()
                if inner in moved or inner != target
            }
            self._change(target, undo)
        elif name in ("unlink", "rmdir"):
            self._names = {inner: number for inner, number in before.items() if inner != path}
            self._change(path, lambda names: names.update({path: before[path]}))


def crashed(moment: Moment, draw: random.Random) -> dict[str, tuple[int, int]]:
    """Return what a crash at a moment leaves: path -> file and its length; folders have -1."""
    names, lost = dict(moment.names), draw.randint(0, len(moment.undo))
    for undo in reversed(moment.undo[len(moment.undo) - lost :]):
        undo(names)
    left: dict[str, tuple[int, int]] = {}
    for path, number in sorted(names.items()):
        size, sure = moment.sizes.get(number, -1), moment.sure.get(number)
        if number >= 0 and size < 0:  # its name was taken away since, so it is whole
            left[path] = (number, sys.maxsize)
        elif sure is None:
            left[path] = (number, size)
        else:  # a crash takes whole pages from the end
            kept = draw.choice([sure, size, draw.randint(sure, size)])
            left[path] = (number, size if kept == size else max(sure, kept // END_OF_DISK * END_OF_DISK))
    return {path: found for path, found in left.items() if all(str(up) in left for up in _parents(path))}


def _parents(path: str) -> list[Path]:
    return [up for up in Path(path).parents if str(up) != "."]


def put(left: dict[str, tuple[int, int]], contents: dict[int, bytes], folder: Path) -> None:
    """Write what a crash has left into an empty folder."""
    folder.mkdir(parents=True)
    for path, (number, size) in sorted(left.items()):
        if number < 0:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(contents[number][:size])


def visible(left: dict[str, tuple[int, int]]) -> tuple[Any, ...]:
    """Return a crash's state without the contents of hidden files, which a run removes when it begins."""
    hidden = {path for path in left if path.startswith(".")}
    return tuple((path, None if path in hidden else found) for path, found in sorted(left.items()))


def cleaned(folder: Path) -> tuple[str, int, bool]:
    """Clean a folder as a run does; return a digest of all that is left, its newest step, and if one is damaged."""
    from wordorder.training.checkpoints.checkpoint import clean, find_newest

    clean(folder)
    found = find_newest(folder)
    newest = 0 if found.newest is None else int(found.newest.name.removeprefix("checkpoint-"))
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + (path.read_bytes() if path.is_file() else b"\0"))
    return digest.hexdigest(), newest, bool(found.passed_over)


def train(recipe: Path, folder: Path) -> None:
    """Train or resume a run in this process."""
    from wordorder.training import read_recipe, run

    run(read_recipe(recipe), output_dir=folder, resume=True, progress=False)


def crash_all(name: str, place: Path, crashes: int, seed: int) -> dict[str, Any]:
    """Record a run, crash it as often as is asked, resume every state that is different, and return what was found."""
    model, more = SETTINGS[name]
    text = RECIPE.format(corpus=place / "corpus", **MODELS[model])
    changes = dict(setting.split("=", 1) for setting in (*SHORT, *more))
    kept = [line for line in text.splitlines() if line.split(" ")[0] not in changes]
    recipe = place / f"{model}.toml"
    recipe.write_text("\n".join([*kept, *(f"{key} = {value}" for key, value in changes.items())]))
    with Recording(place / "whole") as recording:
        train(recipe, place / "whole")
        recording.look()
    expected = fingerprint(place / "whole")
    draw, states = random.Random(seed), dict[Any, tuple[int, dict[str, tuple[int, int]]]]()
    for number in range(crashes):
        moment = recording.moments[number % len(recording.moments)]
        left = crashed(moment, draw)
        states.setdefault((moment.reached, visible(left)), (number, left))
    resumed, wrong = set[str](), list[str]()
    for (reached, _), (number, left) in states.items():
        put(left, recording.contents, place / "left" / "run")
        digest, newest, damaged = cleaned(place / "left" / "run")
        shutil.rmtree(place / "left")
        wrong += [f"crash {number}: checkpoint-{reached} is lost, the newest is that of {newest}"] * (newest < reached)
        wrong += [f"crash {number}: a checkpoint is there that is not whole"] * damaged
        if digest in resumed:
            continue
        resumed.add(digest)
        put(left, recording.contents, place / "left" / "run")
        try:
            train(recipe, place / "left" / "run")
            wrong += [f"crash {number}: {file}" for file in differences(fingerprint(place / "left" / "run"), expected)]
        except Exception as error:
            wrong.append(f"crash {number}: {type(error).__name__}: {error}")
        shutil.rmtree(place / "left")
    shutil.rmtree(place / "whole")
    return {
        "run": name,
        "moments": len(recording.moments),
        "crashes": crashes,
        "states": len(states),
        "resumed": len(resumed),
        "wrong": wrong,
    }


def results(runs: Sequence[str], crashes: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what was found of each run."""
    memory = "/dev/shm"  # where there is one, thousands of flushes cost nothing
    place = Path(tempfile.mkdtemp(prefix="wordorder-moments-", dir=memory if os.access(memory, os.W_OK) else None))
    os.environ["WORDORDER_CACHE"] = str(place / "cache")
    write_corpus(place / "corpus")
    try:
        for name in runs:
            yield crash_all(name, place, -(-crashes // len(runs)), seed)
    finally:
        shutil.rmtree(place)


def main() -> int:
    """Return 0 if every run ended as one that nothing disturbed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--crashes", type=int, default=100_000, help="of all runs together")
    parser.add_argument("--runs", nargs="+", choices=SETTINGS, default=list(SETTINGS), help=f"default: {[*SETTINGS]}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # each resumed run says where it goes on
    wrong = 0
    for found in results(options.runs, options.crashes, options.seed):
        print(json.dumps(found), flush=True)
        wrong += len(found["wrong"])
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
