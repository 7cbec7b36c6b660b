"""Encodings and memories of your own, `--use FILE.py:CLASS`: run the file, try the class out, register it.

The file is run because the user named it on the command line; nothing else loads code: recipes and results are data.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from wordorder.encodings import CATALOG, Encoding, register_encoding
from wordorder.errors import BadInput
from wordorder.memory import MEMORIES, Memory, register_memory
from wordorder.registry import Registered, Registry

REGISTRIES: dict[str, Registry[Any]] = {"own_encodings": CATALOG, "own_memories": MEMORIES}
"""Registries by the key under which saved models and results tell of their classes."""


class OwnClass(NamedTuple):
    path: Path
    class_name: str
    name: str
    """Name of an encoding, and of its arm; the class's name if none is given. A memory has that of its class."""


def parse_own_class(text: str, option: str = "--use") -> OwnClass:
    """Read FILE.py:CLASS or FILE.py:CLASS=NAME; raise BadInput, naming the option, where it is neither."""
    file, colon, rest = text.rpartition(":")
    class_name, _, name = rest.partition("=")
    if not colon or not file.endswith(".py") or not class_name.isidentifier():
        raise BadInput(f"{option} {text}: write {option} FILE.py:CLASS or {option} FILE.py:CLASS=name")
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise BadInput(f"{option} {text}: there is no file {path}")
    return OwnClass(path=path, class_name=class_name, name=name or class_name)


def use_own_classes(
    texts: Iterable[str], *, option: str = "--use", bases: tuple[type, ...] = (Encoding, Memory)
) -> list[str]:
    """Run the files, try the classes out in tiny networks, and register those that pass, before a recipe is read.

    Returns:
        what was tried, one line for each class, and with what encodings start.

    Raises:
        BadInput: all faults of all classes.
    """
    faults: list[str] = []
    tried: list[str] = []
    for text in texts:
        try:
            path, class_name, name = parse_own_class(text, option)
            kind = load_class(path, class_name, bases)
            if issubclass(kind, Memory) and name not in (class_name, kind.name):
                raise BadInput(f"{option} {text}: a memory has the name of its class, {kind.name!r}; leave ={name} out")
            tried += _tried_memory(path, kind) if issubclass(kind, Memory) else _tried_encoding(path, kind)
            register(name, kind)
        except BadInput as error:
            faults += error.faults
        except ValueError as error:  # raised by the registry
            faults.append(f"{option} {text}: {error}")
    if faults:
        raise BadInput(faults)
    return tried


def register(name: str, kind: type[Any]) -> None:
    register_memory(kind) if issubclass(kind, Memory) else register_encoding(name, kind)


def load_class(path: Path, class_name: str, bases: tuple[type, ...] = (Encoding, Memory)) -> type[Any]:
    """Run a file and return a class of it; raise BadInput where it cannot be run or has no such class."""
    # files of one name in two folders are two modules; one that was edited takes its own place
    folder_digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    module = ModuleType(f"wordorder_own_{path.stem}_{folder_digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and inspect look a class's module up
    sys.path.insert(0, str(path.parent))  # it may import its neighbours, as if it were run by itself
    content = path.read_bytes()
    module.__dict__["__sha256__"] = hashlib.sha256(content).hexdigest()  # of what runs, for the record
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        raise BadInput(f"{path.name} cannot be run: {type(error).__name__}: {error}{_line_of(error, path)}") from error
    finally:
        sys.path.remove(str(path.parent))
    kind = getattr(module, class_name, None)
    if inspect.isclass(kind) and issubclass(kind, bases):
        return kind
    classes = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, bases) and value.__module__ == module.__name__
    ]
    titles = " or ".join(base.__name__.lower() for base in bases)
    raise BadInput(
        f"{path.name} defines no {titles} {class_name}; it defines {', '.join(classes) or 'none'}, and an encoding is"
        " a class of wordorder.encodings.OnEmbeddings, OnScores, OnDistance, OnQueriesAndKeys or OnScoresByContent"
        + (", a memory one of wordorder.memory.Memory" if Memory in bases else "")
    )


def all_registered() -> tuple[Registered, ...]:
    """Return what this process has registered, for `register_again` in another one."""
    return tuple(source for registry in REGISTRIES.values() for source in registry.registered.values())


def register_again(sources: Iterable[Registered]) -> None:
    """Register in a worker process what its parent registered.

    A file that was changed since is left out: the run fails, rather than train something else under its name.
    """
    for source in sources:
        path = Path(source.file)
        if source in all_registered() or not source.file or "." in source.class_name:
            continue
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != source.sha256:
            print(f"wordorder: {path} was changed since the comparison began; run it again", file=sys.stderr)
            continue
        register(source.name, load_class(path, source.class_name))


def own_classes(encodings: Collection[str], memories: Collection[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return class, file and sha256 of those names that are registered here, by key of `REGISTRIES` and name."""
    return {
        key: own
        for (key, registry), names in zip(REGISTRIES.items(), (encodings, memories), strict=True)
        if (own := {name: source.as_dict() for name, source in registry.registered.items() if name in names})
    }


def _tried_encoding(path: Path, encoding: type[Encoding]) -> list[str]:
    from wordorder.networks.encoding_checks import CHECKS, USES, check_encoding

    title = encoding.__name__
    faults: list[str] = []
    passed: list[str] = []
    starts: list[str] = []
    for use in USES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checks say the same
            findings = check_encoding(encoding, use=use)
        starts += [f"{title}: {finding.message}" for finding in findings if finding.check == "start values"]
        network = {"encoder": "an encoder", "decoder": "a decoder"}.get(use, use)
        faults += [
            f"{path.name}: {title} in {network}, {finding.check}: {finding.message}"
            for finding in findings
            if finding.kind == "fault"
        ]
        if not any(finding.kind == "refused" for finding in findings):
            passed.append(use)
    if faults:
        raise BadInput(faults)
    if not {"encoder", "decoder"} & set(passed):
        raise BadInput(f"{path.name}: {title} refuses encoders and decoders; there is nothing to train")
    checks = f"{title} of {path.name}: {len(CHECKS)} checks passed ({', '.join(passed)})"
    return [checks, *dict.fromkeys(starts)]


def _tried_memory(path: Path, memory: type[Memory]) -> list[str]:
    from wordorder.networks.memory_checks import check_memory

    if faults := check_memory(memory):
        raise BadInput([f"{path.name}: {memory.__name__}: {fault}" for fault in faults])
    return [f"{memory.__name__} of {path.name}: read in steps, from a saved state, and beside a row of another length"]


def _line_of(error: Exception, path: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    # the message of a SyntaxError says the line
    return f" (line {lines[-1]})" if lines and not isinstance(error, SyntaxError) else ""
