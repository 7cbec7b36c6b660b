"""Print what `wordorder compare demo` loads, checks and builds, as JSON: `python -m tools.figures.comparison`.

The recipe is the packaged one, on a small text of made-up words, with two steps and one seed: none of the counts
depends on the text or on the number of steps. Where a figure cannot be counted, its place has the reason, as text.
"""

import contextlib
import importlib
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tools.figures.core import lines_loaded, package

STEPS = 2
COUNTED = {
    "validations of a recipe": "wordorder.training.recipe.recipe:check_run",
    "encodings built": "wordorder.encodings.composition:Composition.__init__",
}
"""What is counted, and the function that does it: `module:name`."""


def write_texts(folder: Path) -> str:
    """Write sixty small texts of made-up words, and return the pattern that names them."""
    draw = random.Random(0)
    for number in range(60):
        words = ("".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(200))
        (folder / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")
    return f"{folder}/*.txt"


def counter_of(path: str) -> Callable[[], int]:
    """Replace a function by one that counts its calls, and return the function that tells their number."""
    module, _, name = path.partition(":")
    *owners, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    function, calls = getattr(owner, last), 0

    def counting(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        return function(*arguments, **keywords)

    setattr(owner, last, counting)
    return lambda: calls


def used_in(steps: Callable[[], object]) -> tuple[set[str], set[str]]:
    """Return the functions of the package that are entered, and the types of the package that they work on.

    Functions are those with a name, so no comprehensions and no lambdas; what runs because a module is imported does
    not count. Types are the classes of which a function returns an instance, or is a method.
    """
    functions, types, importing = set[str](), set[str](), 0
    prefix, modules = str(package()), f"{package().name}."

    def note(frame: FrameType, event: str, value: object) -> None:
        nonlocal importing
        name = frame.f_code.co_qualname
        if name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        if importing or not frame.f_code.co_filename.startswith(prefix):
            return
        last = name.rpartition(".")[2]
        if event == "call" and not last.startswith("<"):
            functions.add(f"{frame.f_code.co_filename}:{name}")
        if event == "return":
            kinds: tuple[type, ...] = (type(value), type(frame.f_locals.get("self")))
            types.update(kind.__qualname__ for kind in kinds if kind.__module__.startswith(modules))

    sys.setprofile(note)
    try:
        steps()
    finally:
        sys.setprofile(None)
    return functions, types


def used_to_the_first_batch(texts: str, folder: Path) -> tuple[set[str], set[str]]:
    """Return what `used_in` finds from `prepare`, with the recipe read, to one batch of what training reads."""
    from torch.utils.data import DataLoader

    from wordorder.tasks import prepare
    from wordorder.training import read_recipe

    recipe = read_recipe(package() / "recipes" / "demo.toml", [f"data.source={texts}"])

    def steps() -> None:
        prepared = prepare(recipe.data, recipe.task, recipe.tokenizer, seed=0, cache_dir=folder)
        next(iter(DataLoader(prepared.train, batch_size=4, collate_fn=prepared.collate)))

    return used_in(steps)


def compare(texts: str, folder: Path) -> None:
    """Run `wordorder compare demo` in this process; what it says is shown only where it fails.

    Raises:
        RuntimeError: it has written no results.
    """
    from wordorder.cli.main import main

    settings = [f"data.source={texts}", f"training.max_steps={STEPS}", "compare.workers=1"]
    options = [word for setting in settings for word in ("--set", setting)]
    sys.argv = ["wordorder", "compare", "demo", "--seeds", "1", "--output-dir", str(folder), *options]
    words = io.StringIO()
    with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words), contextlib.suppress(SystemExit):
        main()
    if not (folder / "results.json").is_file():
        raise RuntimeError(f"wordorder compare demo: {(words.getvalue().strip().splitlines() or ['no results'])[-1]}")


def measure(folder: Path) -> dict[str, int | str]:
    """Return the numbers by name, or why one is missing; texts, cache and results go into the folder."""
    for part in ("texts", "cache"):
        (folder / part).mkdir()
    os.environ["WORDORDER_CACHE"] = str(folder / "cache")
    texts = write_texts(folder / "texts")

    figures: dict[str, int | str] = {}
    counters: dict[str, Callable[[], int]] = {"lines of compare demo": lines_loaded}
    # Whatever has moved or fails, the other numbers are still counted.
    names = ("functions to the first batch", "types to the first batch")
    try:
        figures |= dict(zip(names, map(len, used_to_the_first_batch(texts, folder / "cache")), strict=True))
    except Exception as error:
        figures |= dict.fromkeys(names, f"{type(error).__name__}: {error}")
    for name, function in COUNTED.items():
        try:
            counters[name] = counter_of(function)
        except (ImportError, AttributeError) as error:
            figures[name] = f"{error}: COUNTED in tools/figures/comparison.py names it"
    try:
        compare(texts, folder / "run")
        return figures | {name: count() for name, count in counters.items()}
    except Exception as error:
        return figures | dict.fromkeys(counters, str(error))


def main() -> None:
    """Count, and print the numbers by name."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder))))


if __name__ == "__main__":
    main()
