"""Describe what is wrong with a configuration, each fault in one line with the field, its value and the remedy."""

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from typing import Any, cast, get_type_hints

from transformers import PreTrainedConfig

from wordorder.encodings import CATALOG
from wordorder.hints import describe, fits, option_faults
from wordorder.limits import MOST_CLASSES
from wordorder.networks.complex_valued import COMPLEX_OPTIONS, ComplexOptions

MOST = 2**31 - 1
"""Largest size: what an index of 32 bits reaches.

A configuration may be a stranger's, and is believed before weights are read.
"""
MOST_LAYERS = 10_000
"""Most layers, and heads: each is built one by one."""
MOST_LETTERS = 10_000
"""Most characters in the name of an encoding, which may spell out every layer."""


def size_faults(sizes: Mapping[str, int | None]) -> list[str]:
    """Return a line for each size that is not positive, or beyond what any machine could hold."""
    given = {name: size for name, size in sizes.items() if size is not None}
    found = [f"{name} must be positive, got {printed(size)}" for name, size in given.items() if size <= 0]
    return found + [
        f"{name} must be at most {MOST:,}, got {printed(size)}" for name, size in given.items() if size > MOST
    ]


def layer_faults(counts: Mapping[str, int | None]) -> list[str]:
    """Return a line for each number of layers or heads that is so large that building would never end."""
    given = {name: count for name, count in counts.items() if count is not None}
    return [
        f"{name} must be at most {MOST_LAYERS:,}, got {printed(count)}"
        for name, count in given.items()
        if count > MOST_LAYERS
    ]


def class_faults(classes: object, names: Mapping[Any, Any] | None) -> list[str]:
    """Return what is wrong with a number of classes and their names, as transformers takes them."""
    found: list[str] = []
    if classes is not None and (type(classes) is not int or classes <= 0):
        found.append(f"num_labels must be positive, got {printed(classes)}")
    elif isinstance(classes, int) and classes > MOST_CLASSES:
        found.append(f"num_labels must be at most {MOST_CLASSES:,}, got {printed(classes)}")
    if names is not None and not all(_is_id(key) for key in names):
        found.append("id2label must have the numbers of the classes as keys")
    return found


def backend_faults(given: Mapping[str, Any]) -> list[str]:
    """Return a line for each backend named by a configuration that transformers would fetch from the Hub and run."""
    named = {f"{private}{name}_implementation" for name in ("attn", "experts") for private in ("", "_")}
    return [
        f"{name} must be the name of a backend of this machine, such as 'sdpa' or 'eager': code of the Hub is not run;"
        f" got {printed(value)}"
        for name, value in given.items()
        if name in named
        and value is not None
        and not (isinstance(value, str) and value.replace("_", "").replace("|", "").isalnum())
    ]


def printed(value: object, most: int = 80) -> str:
    """Return a value from a file as short text."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a huge number"
    shown = repr(value)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _is_id(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10)


def for_a_memory(name: str, value: object) -> str:
    """Return a line on a field that does nothing without a memory."""
    return f"{name} is for a memory; set memory, or leave it out; got {value!r}"


def not_tied(output: tuple[int, ...], table: tuple[int, ...], encoding: str) -> str:
    """Return a line on an output layer that is to share a table of another shape."""
    return (
        f"tie_word_embeddings=true: the output layer {output} cannot share the words' table {table} of encoding"
        f" {encoding!r}; set tie_word_embeddings=false, or amplitude='full' without as_real='pair'"
    )


def own_sources(given: object) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return what a saved model says of encodings outside the catalogue, or one line on what is no such table."""
    if not given:
        return {}, []
    tables = cast("dict[str, Any]", given) if isinstance(given, dict) else None
    if tables is None or not all(isinstance(source, dict) for source in tables.values()):
        return {}, [f"own_encodings must be a table of tables, got {printed(cast('object', given))}"]
    return tables, []


def missing_encodings(trained_with: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each encoding of a saved model that is neither in the catalogue nor registered here."""
    return [
        f"encoding {name!r} of this model is none of the catalogue: it is the class {source.get('class')} of"
        f" {source.get('file') or 'an interactive session'}; import that class and call"
        f" wordorder.encodings.register_encoding({name!r}, {source.get('class')}) before the model is loaded"
        for name, source in trained_with.items()
        if name not in CATALOG
    ]


def warn_of_changes(trained_with: Mapping[str, Mapping[str, str]], own: Mapping[str, Mapping[str, str]]) -> None:
    """Warn where an encoding's file is no longer what the model was trained with."""
    for name, source in trained_with.items():
        here = own.get(name)
        if here is not None and here["sha256"] != source.get("sha256"):
            warnings.warn(
                f"encoding {name!r} is of another file than the model was trained with ({source.get('file')}, sha256"
                f" {str(source.get('sha256'))[:12]}); its weights may mean something else now",
                stacklevel=2,
            )


def complex_option_faults(complex_valued: bool, options: Mapping[str, object] | None) -> list[str]:
    """Return a line for each option of complex layers that is unknown, of the wrong type, or given to real layers."""
    if not complex_valued:
        return ["complex_options are for complex layers; set complex_valued = true"] if options else []
    hints = get_type_hints(ComplexOptions)
    known = {name: hints[name] for name in COMPLEX_OPTIONS}
    found = option_faults("complex_options", "a complex network", options or {}, known)
    if (options or {}).get("read_out") == "none":
        found.append("complex_options.read_out must not be 'none': heads read real numbers")
    return found


_CALLED_HERE = {
    "positional_encoding": "did you mean 'encoding'?",
    "position_encoding": "did you mean 'encoding'?",
    "position_embedding_type": "did you mean 'encoding'? ('absolute' is 'learned' here, 'relative_key' is 'shaw')",
    "rope_theta": "did you mean encoding_options={'base': ...}, with encoding='rope'?",
}
"""Hints for fields that other models' configurations name otherwise."""


def unknown_field(key: str, known: set[str]) -> str:
    """Return a line with the unknown field, the nearest known one, and all known ones."""
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"{_CALLED_HERE[key]} " if key in _CALLED_HERE else f"did you mean {close[0]!r}? " if close else ""
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    return f"unknown model field {key!r}; {hint}known: {', '.join(sorted(known - inherited))}"


def type_faults(config_class: type[PreTrainedConfig], fields: dict[str, object]) -> list[str]:
    """Return a line for each value that does not fit its field's type."""
    hints = {f.name: f.type for f in dataclasses.fields(config_class) if not isinstance(f.type, str)}
    return [
        f"{key} must be {describe(hints[key])}, got {value!r}"
        for key, value in fields.items()
        if key in hints and not fits(hints[key], value)
    ]
