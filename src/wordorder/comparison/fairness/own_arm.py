"""`--arm my.py:MyEncoding`: make an encoding from the user's own file an arm, after trying it out before any training.

The file is run because the user named it on the command line; nothing else loads code: recipes and results are data.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from wordorder.encodings import CATALOG, Encoding, Source, names_in, register_encoding, registered_encodings
from wordorder.errors import BadInput
from wordorder.networks.encoding_checks import CHECKS, USES, check_encoding

if TYPE_CHECKING:
    from wordorder.training import Recipe


class OwnArm(NamedTuple):
    """The file, the class and the name of one --arm."""

    path: Path
    class_name: str
    name: str
    """Name of the encoding and of the arm; the class's name if none is given."""


def parse_own_arm(text: str) -> OwnArm:
    file, colon, rest = text.rpartition(":")
    class_name, _, name = rest.partition("=")
    if not colon or not file.endswith(".py") or not class_name.isidentifier():
        raise BadInput(f"--arm {text}: write --arm FILE.py:CLASS or --arm FILE.py:CLASS=name")
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise BadInput(f"--arm {text}: there is no file {path}")
    return OwnArm(path=path, class_name=class_name, name=name or class_name)


def load_own_arms(texts: Iterable[str]) -> list[str]:
    """Run the files, try the encodings out in tiny networks, and register those that pass, before a recipe is read."""
    faults: list[str] = []
    said: list[str] = []
    for text in texts:
        try:
            own = parse_own_arm(text)
            encoding = load_class(own.path, own.class_name)
            said += _tried(own, encoding)
            register_encoding(own.name, encoding)
        except BadInput as error:
            faults += error.faults
        except ValueError as error:  # raised by register_encoding
            faults.append(f"--arm {text}: {error}")
    if faults:
        raise BadInput(faults)
    return said


def load_class(path: Path, class_name: str) -> type[Encoding]:
    """Run a file and return a class of it."""
    module = ModuleType(f"wordorder_own_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and inspect look a class's module up
    sys.path.insert(0, str(path.parent))  # it may import its neighbours, as if it were run by itself
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise BadInput(f"{path.name} cannot be run: {type(error).__name__}: {error}{_line_of(error, path)}") from error
    finally:
        sys.path.remove(str(path.parent))
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Encoding)):
        there = [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, Encoding) and value.__module__ == module.__name__
        ]
        raise BadInput(
            f"{path.name} defines no encoding {class_name}; it defines {', '.join(there) or 'none'}, and an encoding is"
            " a class of wordorder.encodings.OnEmbeddings, OnScores, OnDistance, OnQueriesAndKeys or OnScoresByContent"
        )
    return found


def load_again(sources: Iterable[Source]) -> None:
    """Register in a worker process the encodings that its parent registered.

    A file that was changed since is left out: the run fails, rather than train something else under its name.
    """
    for source in sources:
        path = Path(source.file)
        known = registered_encodings().get(source.name)
        same = source.name in CATALOG if known is None else known.sha256 == source.sha256
        if same or not source.file or "." in source.class_name:
            continue
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != source.sha256:
            print(f"wordorder: {path} was changed since the comparison began; run it again", file=sys.stderr)
            continue
        register_encoding(source.name, load_class(path, source.class_name))


def with_own_arms(recipe: Recipe, texts: Iterable[str]) -> Recipe:
    """Return the recipe with an arm for each --arm, unless one of its own arms has that encoding already."""
    if recipe.compare is None:
        raise BadInput("--arm: the recipe has no [compare] section; add compare.seeds and a [[compare.arms]]")
    raw: Mapping[str, Any] = recipe.raw["compare"]
    used = {part for arm in recipe.compare.arms for part in names_in(_encoding_of(recipe, arm.overrides))}
    added: list[dict[str, Any]] = []
    for text in texts:
        name = parse_own_arm(text).name
        if name in used:
            continue
        used.add(name)
        arm: dict[str, Any] = {"name": name, "model.encoding": name}
        if recipe.model.get("encoding_options"):
            arm["model.encoding_options"] = {}  # those of the recipe are another encoding's
        added.append(arm)
    return recipe.with_overrides({"compare.arms": [*raw.get("arms", []), *added]}) if added else recipe


def own_encodings_of(recipes: Iterable[Recipe]) -> dict[str, dict[str, str]]:
    """Return class, file and sha256 of the encodings in the recipes that are not in the catalogue, by name."""
    registered = registered_encodings()
    named = {part for recipe in recipes for part in names_in(_encoding_of(recipe, {}))}
    return {name: source.as_dict() for name, source in registered.items() if name in named}


def _encoding_of(recipe: Recipe, overrides: Mapping[str, Any]) -> str:
    """Return the encoding of an arm's network; "none" if it has no such field."""
    table = overrides.get("model", {})
    return str(overrides.get("model.encoding", table.get("encoding", recipe.model.get("encoding", "none"))))


def _tried(own: OwnArm, encoding: type[Encoding]) -> list[str]:
    """Return what the checks say of an encoding that has no fault: those passed, and with what training starts."""
    faults: list[str] = []
    passed: list[str] = []
    starts: list[str] = []
    for use in USES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checks say the same
            findings = check_encoding(encoding, use=use)
        starts += [f"{own.class_name}: {finding.message}" for finding in findings if finding.check == "start values"]
        place = {"encoder": "an encoder", "decoder": "a decoder"}.get(use, use)
        faults += [
            f"{own.path.name}: {own.class_name} in {place}, {finding.check}: {finding.message}"
            for finding in findings
            if finding.kind == "fault"
        ]
        if not any(finding.kind == "refused" for finding in findings):
            passed.append(use)
    if faults:
        raise BadInput(faults)
    if not {"encoder", "decoder"} & set(passed):
        raise BadInput(f"{own.path.name}: {own.class_name} refuses encoders and decoders; there is nothing to train")
    checks = f"{own.class_name} of {own.path.name}: {len(CHECKS)} checks passed ({', '.join(passed)})"
    return [checks, *dict.fromkeys(starts)]


def _line_of(error: Exception, path: Path) -> str:
    """Return the line of the user's file in which an error arose, as words; "" if it is not known."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    # the message of a SyntaxError says the line
    return f" (line {lines[-1]})" if lines and not isinstance(error, SyntaxError) else ""
