"""Describe what is wrong with a configuration, each fault in one line with the field, its value and the remedy."""

import dataclasses
import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from wordorder.files import MOST_CLASSES
from wordorder.hints import MOST_HINTS
from wordorder.memory import MEMORIES
from wordorder.own_classes import REGISTRIES

Sources = Mapping[str, Mapping[str, str]]
"""Class, file and sha256 of each class that is none of the package, by its name."""

_SIZES = (
    "vocab_size", "hidden_size", "num_key_value_heads", "intermediate_size", "max_position_embeddings",
    "memory_length", "segment_length",
)  # fmt: skip
_COUNTS = ("num_hidden_layers", "decoder_layers", "num_attention_heads")
_LARGEST = dict.fromkeys(_SIZES, 2**31 - 1) | dict.fromkeys(_COUNTS, 10_000)
"""Largest sizes, what an index of 32 bits reaches, and most layers and heads, each of which is built by itself."""
_RATES = {
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "output_dropout", "label_smoothing"
}  # fmt: skip
_POSITIVE = {"layer_norm_eps", "initializer_range", "embedding_scale"}
_TOKENS = {"pad_token_id": "; None where there is no padding", "decoder_start_token_id": ""}


def range_faults(fields: Mapping[str, Any]) -> list[str]:
    """Return a line for each field of a configuration that lies outside of its range; None is no fault."""
    lines: list[str] = []
    for name, value in fields.items():
        if value is None:
            continue
        if name in _LARGEST and not 0 < value <= _LARGEST[name]:
            limit = "positive" if value <= 0 else f"at most {_LARGEST[name]:,}"
            lines.append(f"{name} must be {limit}, got {value!r}")
        elif name in _RATES and not 0 <= value < 1:
            lines.append(f"{name} must lie in [0, 1), got {value}")
        elif name in _POSITIVE and not 0 < value < float("inf"):
            lines.append(f"{name} must be positive, got {value}")
        elif name in _TOKENS and not 0 <= value < fields["vocab_size"]:
            lines.append(f"{name} must lie in 0 .. {fields['vocab_size'] - 1}, got {value}{_TOKENS[name]}")
    return lines


def head_faults(fields: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the numbers of heads, one line each."""
    lines: list[str] = []
    width, heads, groups = (fields[n] for n in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if heads > 0 and width % heads:
        lines.append(f"hidden_size must be a multiple of num_attention_heads, got {width} and {heads}")
    if groups is not None and groups > 0 and heads % groups:
        lines.append(f"num_key_value_heads must divide num_attention_heads={heads}, got {groups}")
    return lines


def stranger_faults(fields: Mapping[str, Any], names: Mapping[Any, Any] | None) -> list[str]:
    """Return what is wrong with the number of classes and their names, and each backend that is code of the Hub."""
    lines: list[str] = []
    classes = fields.get("num_labels")
    if classes is not None and (type(classes) is not int or not 0 < classes <= MOST_CLASSES):
        limit = f"at most {MOST_CLASSES:,}" if type(classes) is int and classes > 0 else "positive"
        lines.append(f"num_labels must be {limit}, got {classes!r}")
    if names is not None and not all(isinstance(key, int) or str(key).isdecimal() for key in names):
        lines.append("id2label must have the numbers of the classes as keys")
    for name in (f"{private}{part}_implementation" for part in ("attn", "experts") for private in ("", "_")):
        backend = fields.get(name)
        plain = isinstance(backend, str) and backend.replace("_", "").replace("|", "").isalnum()
        if backend is not None and not plain:
            lines.append(
                f"{name} must be the name of a backend of this machine, such as 'sdpa' or 'eager': code of the Hub is"
                f" not run; got {backend!r}"
            )
    return lines


def not_tied(output: tuple[int, ...], table: tuple[int, ...], encoding: str) -> str:
    """Return a line on an output layer that is to share a table of another shape."""
    return (
        f"tie_word_embeddings=true: the output layer {output} cannot share the words' table {table} of encoding"
        f" {encoding!r}; set tie_word_embeddings=false, or amplitude='full' without as_real='pair'"
    )


def missing_classes(trained_with: Mapping[str, Sources]) -> list[str]:
    """Return a line for each class of a saved model that is neither of the package nor registered here."""
    lines: list[str] = []
    for key, registry in REGISTRIES.items():
        for name, source in trained_with[key].items():
            if name in registry:
                continue
            kind, file = source.get("class"), source.get("file") or "an interactive session"
            of_memory = registry is MEMORIES
            call = f"memory.register_memory({kind})" if of_memory else f"encodings.register_encoding({name!r}, {kind})"
            lines.append(
                f"{registry.title} {name!r} of this model is none of the catalogue: it is the class {kind} of {file};"
                f" import that class and call wordorder.{call} before the model is loaded"
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


def warn_of_changes(trained_with: Mapping[str, Sources], registered: Mapping[str, Sources]) -> None:
    """Warn where the file of a class is no longer what the model was trained with."""
    for key, classes in trained_with.items():
        for name, source in classes.items():
            now = registered.get(key, {}).get(name)
            if now is not None and now["sha256"] != source.get("sha256"):
                warnings.warn(
                    f"{REGISTRIES[key].title} {name!r} is of another file than the model was trained with"
                    f" ({source.get('file')}, sha256 {str(source.get('sha256'))[:12]}); its weights may mean something"
                    " else now",
                    stacklevel=2,
                )


_CALLED_HERE = {
    "positional_encoding": "did you mean 'encoding'?",
    "position_encoding": "did you mean 'encoding'?",
    "position_embedding_type": "did you mean 'encoding'? ('absolute' is 'learned' here, 'relative_key' is 'shaw')",
    "rope_theta": "did you mean encoding_options={'base': ...}, with encoding='rope'?",
}
"""Hints for fields that other models' configurations name otherwise."""


# Keywords that transformers itself passes to a configuration beside its fields (its __post_init__ reads or sets these).
_FROM_TRANSFORMERS = {
    "torch_dtype", "num_labels", "output_attentions", "attn_implementation", "experts_implementation", "name_or_path",
    "_name_or_path", "_commit_hash", "model_type", "transformers_version", "tie_last_hidden_states", "per_layer_config",
}  # fmt: skip


def unknown_fields(keys: Iterable[str], known: set[str], *, from_file: bool = False) -> list[str]:
    """Return a line for each unknown field, the first ones with the nearest known one and all known ones."""
    lines: list[str] = []
    allowed = set(_FROM_TRANSFORMERS)
    if from_file:  # which may hold what older versions wrote there
        allowed |= set(GenerationConfig._get_default_generation_params())  # pyright: ignore[reportPrivateUsage]
    listed = ", ".join(sorted(known - {f.name for f in dataclasses.fields(PreTrainedConfig)}))
    for key in (key for key in keys if key not in allowed):
        if len(lines) >= MOST_HINTS:  # the nearest one of many takes a millisecond to find
            lines.append(f"unknown model field {key!r}")
            continue
        close = difflib.get_close_matches(key, known, n=1)
        meant = f"{_CALLED_HERE[key]} " if key in _CALLED_HERE else f"did you mean {close[0]!r}? " if close else ""
        lines.append(f"unknown model field {key!r}; {meant}known: {listed}")
    return lines
