"""Describe what is wrong with a configuration, each fault in one line with the field, its value and the remedy."""

import dataclasses
import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedConfig

from wordorder.hints import MOST_HINTS
from wordorder.limits import MOST_CLASSES
from wordorder.memory import MEMORIES
from wordorder.registry import Registry

MOST = 2**31 - 1
"""Largest size: what an index of 32 bits reaches."""
MOST_LAYERS = 10_000
"""Most layers, and heads: each is built one by one."""


def size_faults(config: object, names: Iterable[str], most: int = MOST) -> list[str]:
    """Return a line for each size that is not positive, or that building would never get through; None is no fault."""
    found: list[str] = []
    for name in names:
        size = getattr(config, name, None)
        if size is not None and not 0 < size <= most:
            found.append(f"{name} must be {'positive' if size <= 0 else f'at most {most:,}'}, got {size!r}")
    return found


def stranger_faults(given: Mapping[str, Any], names: Mapping[Any, Any] | None) -> list[str]:
    """Return what is wrong with the number of classes and their names, and each backend that is code of the Hub."""
    found: list[str] = []
    classes = given.get("num_labels")
    if classes is not None and (type(classes) is not int or classes <= 0):
        found.append(f"num_labels must be positive, got {classes!r}")
    elif classes is not None and classes > MOST_CLASSES:
        found.append(f"num_labels must be at most {MOST_CLASSES:,}, got {classes!r}")
    if names is not None and not all(isinstance(key, int) or str(key).isdecimal() for key in names):
        found.append("id2label must have the numbers of the classes as keys")
    for name in (f"{private}{part}_implementation" for part in ("attn", "experts") for private in ("", "_")):
        backend = given.get(name)
        plain = isinstance(backend, str) and backend.replace("_", "").replace("|", "").isalnum()
        if backend is not None and not plain:
            found.append(
                f"{name} must be the name of a backend of this machine, such as 'sdpa' or 'eager': code of the Hub is"
                f" not run; got {backend!r}"
            )
    return found


def not_tied(output: tuple[int, ...], table: tuple[int, ...], encoding: str) -> str:
    """Return a line on an output layer that is to share a table of another shape."""
    return (
        f"tie_word_embeddings=true: the output layer {output} cannot share the words' table {table} of encoding"
        f" {encoding!r}; set tie_word_embeddings=false, or amplitude='full' without as_real='pair'"
    )


def missing_classes(registry: Registry[Any], trained_with: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each class of a saved model that is neither of the package nor registered here."""
    lines: list[str] = []
    for name, source in trained_with.items():
        kind = source.get("class")
        call = (
            f"memory.register_memory({kind})"
            if registry is MEMORIES
            else f"encodings.register_encoding({name!r}, {kind})"
        )
        if name not in registry:
            lines.append(
                f"{registry.title} {name!r} of this model is none of the catalogue: it is the class {kind} of"
                f" {source.get('file') or 'an interactive session'}; import that class and call wordorder.{call} before"
                " the model is loaded"
            )
    return lines


def unknown_memory(name: str) -> str:
    """Return a line on a memory that nobody has registered."""
    close = difflib.get_close_matches(name.lower().replace("_", "-"), MEMORIES, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"unknown memory {name!r}; {meant}known: none, {', '.join(MEMORIES)}; one of your own must be registered"
        " first, by wordorder.memory.register_memory(class), or by --use FILE.py:CLASS"
    )


def warn_of_changes(
    title: str, trained_with: Mapping[str, Mapping[str, str]], own: Mapping[str, Mapping[str, str]]
) -> None:
    """Warn where the file of a class is no longer what the model was trained with."""
    for name, source in trained_with.items():
        if name in own and own[name]["sha256"] != source.get("sha256"):
            warnings.warn(
                f"{title} {name!r} is of another file than the model was trained with ({source.get('file')}, sha256"
                f" {str(source.get('sha256'))[:12]}); its weights may mean something else now",
                stacklevel=2,
            )


_CALLED_HERE = {
    "positional_encoding": "did you mean 'encoding'?",
    "position_encoding": "did you mean 'encoding'?",
    "position_embedding_type": "did you mean 'encoding'? ('absolute' is 'learned' here, 'relative_key' is 'shaw')",
    "rope_theta": "did you mean encoding_options={'base': ...}, with encoding='rope'?",
}
"""Hints for fields that other models' configurations name otherwise."""


def unknown_fields(keys: Iterable[str], known: set[str]) -> list[str]:
    """Return a line for each unknown field, the first ones with the nearest known one and all known ones."""
    return [_unknown_field(key, known, hint=number < MOST_HINTS) for number, key in enumerate(keys)]


def _unknown_field(key: str, known: set[str], *, hint: bool) -> str:
    if not hint:  # the nearest one of many takes a millisecond to find
        return f"unknown model field {key!r}"
    close = difflib.get_close_matches(key, known, n=1)
    meant = f"{_CALLED_HERE[key]} " if key in _CALLED_HERE else f"did you mean {close[0]!r}? " if close else ""
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    return f"unknown model field {key!r}; {meant}known: {', '.join(sorted(known - inherited))}"
