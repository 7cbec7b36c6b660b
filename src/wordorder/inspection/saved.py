"""Inspect a model that was saved, and leave figures, numbers and a page in a folder."""

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from wordorder.errors import BadInput, RunFailed
from wordorder.files import check_writable, is_plain_name, read_json, write_files
from wordorder.inspection.figures import Drawing, draw, draw_reading
from wordorder.inspection.findings import Inspection, check_range, inspect_model, numbers
from wordorder.inspection.language_model import (
    LanguageModelInspection,
    inspect_language_model,
    language_model_numbers,
)
from wordorder.inspection.page import Table, page, reading_tables, tables
from wordorder.streams import printable

LENGTH = 512
"""Default number of positions, unless the model takes fewer."""

TOKENS = 8192
"""Most tokens of a text that a language model is watched over."""

NUMBERS, PAGE, MAPS, READING = "numbers.json", "inspect.html", "maps.safetensors", "reading.safetensors"

ENCODER, LANGUAGE_MODEL = "wordorder-encoder", "wordorder-decoder"
CLASSES = {
    ENCODER: ("WordOrderEncoder", "WordOrderEncoderModel", "encoders"),
    LANGUAGE_MODEL: ("WordOrderDecoderForCausalLM", "WordOrderDecoderModel", "causal language models"),
}
"""Type of a model -> beginning of its class's name, the class where config.json names none, and a word for them."""


@dataclass(frozen=True)
class SavedInspection:
    """Findings on a saved model, and the files that hold them.

    Args:
        numbers: the content of numbers.json.
        files: their names.
    """

    inspection: Inspection | LanguageModelInspection
    numbers: dict[str, Any]
    folder: Path
    files: tuple[str, ...]
    tables: tuple[Table, ...] = ()


def inspect_model_dir(
    model_dir: str | Path,
    out: str | Path | None = None,
    *,
    length: int | None = None,
    text: str | Path | None = None,
) -> SavedInspection:
    """Measure what a saved encoder has learned about positions, or watch a saved language model read a text.

    Writes numbers.json (every number, the model and the versions), and where there is something to draw the figures
    (PNG), maps.safetensors (maps, float32; of a language model reading.safetensors, attention by distance
    and alpha by age of each head) and inspect.html (all of it on one page). Each file is written under a temporary name
    and renamed; figures of an earlier inspection that this one has not are removed.

    Args:
        model_dir: holds a model of type wordorder-encoder, with or without a head, or a causal language model of type
            wordorder-decoder.
        out: the folder to write into, made if needed; default: see `default_folder`.
        length: positions to look at, 4 .. 1024; default: as many as the model takes, but no more than 512. Of a
            language model: tokens of a segment, or of a window where there is no memory; default: see
            `inspect_language_model`.
        text: a UTF-8 file; a language model reads its first 8192 tokens, an encoder none.

    Raises:
        BadInput: there is no such model or it is of another type, damaged or pickled; the length is out of range; the
            text cannot be read, or is missing or too short for a language model, or is given for an encoder; or the
            folder cannot be written, or holds files of something else under the same names.
        MissingExtra: matplotlib or jinja2 is not installed.
        RunFailed: the files cannot be written (a full disk).
    """
    from safetensors.torch import save

    from wordorder.models.saved_folder import load_config

    source = Path(model_dir)
    kind = class_of(source)
    folder = default_folder(source) if out is None else Path(out)
    fault = check_writable(folder)
    if fault:
        raise BadInput(f"the folder {str(folder)[:200]!r} cannot be written: {fault}; choose another one")
    _check_replaceable(folder, (NUMBERS, PAGE, MAPS, READING))
    config = load_config(kind.config_class, source)
    inspect = _watch_language_model if config.model_type == LANGUAGE_MODEL else _look_at_encoder
    findings = inspect(source, kind, config, length, text)
    facts = {"folder": str(source), "architecture": kind.__name__, **_facts(config)}
    versions = _versions()
    contents = {name: drawing.png for name, drawing in findings.drawings.items()}
    if findings.drawings:
        tensors = {name: tensor.float().contiguous() for name, tensor in findings.tensors.items()}
        contents[findings.tensors_name] = save(tensors)
        shown = {**facts, **findings.facts, **versions}
        named = [(name.replace("_", " "), str(value)) for name, value in shown.items() if value is not None]
        shown_page = page(
            findings.inspection,
            findings.drawings,
            findings.tables,
            name=str(source),
            encoding=config.encoding,
            facts=named,
        )
        contents[PAGE] = printable(shown_page).encode()  # a terminal may show it
    written = {"model": facts, **findings.numbers, "versions": versions, "files": [*contents, NUMBERS]}
    contents[NUMBERS] = _json(written).encode()
    _check_replaceable(folder, contents)  # the figures' names are known now
    old = _files_listed(folder / NUMBERS) - set(contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(folder, contents)
    except OSError as error:
        raise RunFailed(
            f"{folder}: {error.strerror or error}; what was there is kept; choose another folder"
        ) from error
    for name in old:
        if (folder / name).is_file():
            (folder / name).unlink()
    return SavedInspection(findings.inspection, written, folder, tuple(contents), tuple(findings.tables))


@dataclass(frozen=True)
class _Found:
    inspection: Inspection | LanguageModelInspection
    numbers: dict[str, Any]
    drawings: Mapping[str, Drawing]
    tables: list[Table]
    facts: dict[str, object]
    tensors: dict[str, Tensor]
    tensors_name: str


def _look_at_encoder(source: Path, kind: Any, config: Any, length: int | None, text: str | Path | None) -> _Found:
    from wordorder.models import check_positions

    if text is not None:
        raise BadInput(f"{source}: --text is for a causal language model; leave it out for an encoder")
    if length is None:
        length = min(int(config.max_position_embeddings), LENGTH)
    else:
        check_positions(config, length)  # first: it says what this model takes
        check_range(length)
    inspection = inspect_model(load_saved(source, kind), length)
    return _Found(
        inspection,
        numbers(inspection),
        draw(inspection),
        tables(inspection),
        {"positions": length},
        {name: found.map.values_HNN for name, found in inspection.maps.items()},
        MAPS,
    )


def _watch_language_model(source: Path, kind: Any, config: Any, length: int | None, text: str | Path | None) -> _Found:
    if text is None:
        raise BadInput(
            f"{source}: holds a causal language model, which is watched while it reads a text, and no text is named;"
            " give --text FILE"
        )
    ids = first_tokens(source, config, text, TOKENS)
    model = load_saved(source, kind)
    # as in training: a text by itself begins with [CLS], running text in lanes with nothing
    start_id = None if config.bos_token_id == config.eos_token_id else config.bos_token_id
    inspection = inspect_language_model(model, ids, length=length, start_id=start_id)
    habits = inspection.habits
    return _Found(
        inspection,
        {"text": str(text), "text_tokens": len(ids), **language_model_numbers(inspection)},
        draw_reading(inspection),
        reading_tables(inspection),
        {"tokens_at_a_time": habits.length, "tokens_read": len(ids)},
        # the count says how many tokens see each distance
        {"attention": habits.weights_LHO, "count": habits.count_O}
        | ({} if habits.alpha_LHA is None else {"alpha": habits.alpha_LHA}),
        READING,
    )


def class_of(folder: Path) -> Any:
    import wordorder.models as models
    from wordorder.models.saved_folder import read_model

    settings, named = read_model(folder)
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise BadInput(
            f"{folder}: holds a model of type {kind!r}; inspect reads {' and '.join(CLASSES)}, as train, compare and"
            " convert write them"
        )
    prefix, without_head, noun = CLASSES[kind]
    named = named if settings.get("architectures") else without_head
    found = getattr(models, named, None) if named.startswith(prefix) else None
    if found is None:
        raise BadInput(f"{folder}: config.json names the class {named!r}, which is none of this package's {noun}")
    return found


def load_saved(folder: Path, kind: object) -> Any:
    """Load the model, from safetensors only: nothing is unpickled."""
    from wordorder.models.saved_folder import load_model_of

    return load_model_of(kind, folder).eval()


def first_tokens(folder: Path, config: object, text: str | Path, count: int) -> list[int]:
    from wordorder.data.tokenizers import read_tokenizer
    from wordorder.models.saved_folder import check_tokenizer

    try:
        with Path(text).open(encoding="utf-8-sig") as file:
            content = file.read(64 * count)
    except OSError as error:
        raise BadInput(f"--text {text}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"--text {text}: is not UTF-8 text: {error}") from None
    tokenizer = read_tokenizer(folder)
    check_tokenizer(tokenizer, config, folder)
    try:
        ids: list[int] = tokenizer(content, add_special_tokens=False)["input_ids"][:count]
    except Exception as error:  # the tokenizers library raises no other class
        raise BadInput(f"--text {text}: {folder}'s tokenizer cannot read it: {error}") from None
    if not ids:
        raise BadInput(f"--text {text}: holds no words")
    return ids


def default_folder(model_dir: Path) -> Path:
    """Return ``inspect`` beside the folder model/ of a run, ``inspect-NAME`` beside a folder of any other name."""
    place = Path(os.path.abspath(model_dir))  # so that "." has a name and a folder around it
    inside = "inspect" if place.name == "model" else f"inspect-{place.name}"
    return (place if model_dir.name in ("", "..") else model_dir).parent / inside


def _check_replaceable(folder: Path, names: Iterable[str]) -> None:
    foreign = sorted(name for name in {*names} - _files_listed(folder / NUMBERS) if os.path.lexists(folder / name))
    if foreign:
        raise BadInput(
            f"--output-dir: {str(folder)[:200]!r} holds {', '.join(foreign[:4])}, which no inspection wrote and which "
            "would be replaced; name another folder by --output-dir FOLDER"
        )


def _files_listed(path: Path) -> set[str]:
    try:
        numbers = read_json(path)
        if not {"model", "versions"} <= numbers.keys():
            return set()
        written = {NUMBERS, PAGE, MAPS, READING}
        return {name for name in numbers["files"] if is_plain_name(name) and (name in written or name.endswith(".png"))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def _facts(config: object) -> dict[str, object]:
    names = (
        "encoding", "encoding_options", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "vocab_size", "norm", "norm_placement", "memory",
        "memory_length", "segment_length", "memory_options", "wordorder_version",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}


def _versions() -> dict[str, str]:
    from wordorder import __version__

    packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "matplotlib")}
    return {"wordorder": __version__, "python": platform.python_version(), **packages}


def _json(value: object) -> str:
    """Return a value as JSON with one line per row of numbers."""  # strings escape a line break: only rows are joined
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    return printable(re.sub(r"\[\n[^\[\]{}\"]*\]", lambda row: " ".join(row[0].split()), text)) + "\n"
