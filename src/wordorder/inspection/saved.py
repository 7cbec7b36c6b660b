"""Inspect a model that was saved, and leave figures, numbers and a page in a folder."""

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from wordorder.durable import check_writable, write_files
from wordorder.errors import BadInput
from wordorder.inspection.correlation import score_maps
from wordorder.inspection.figures import draw
from wordorder.inspection.findings import Inspection, check_range, inspect_model, numbers, without_nan
from wordorder.inspection.page import page, tables, worth_table
from wordorder.inspection.parts import worth_of_parts
from wordorder.inspection.words import WORDS

LENGTH = 512
"""Positions looked at where nobody says how many, unless the model takes fewer."""

NUMBERS, PAGE, MAPS = "numbers.json", "inspect.html", "maps.safetensors"


@dataclass(frozen=True)
class SavedInspection:
    """What was found, and where it lies.

    Args:
        inspection: what was found.
        numbers: the content of numbers.json.
        folder: where the files are.
        files: their names.
    """

    inspection: Inspection
    numbers: dict[str, Any]
    folder: Path
    files: tuple[str, ...]


def inspect_model_dir(
    model_dir: str | Path,
    out: str | Path | None = None,
    *,
    length: int | None = None,
    text: str | Path | None = None,
    score: Callable[[], Mapping[str, Any]] | None = None,
) -> SavedInspection:
    """Look at what a saved encoder has learned about positions.

    Writes numbers.json (every number, the model and the versions), and where there is something to draw the figures
    (PNG), maps.safetensors (maps and panels, float32) and inspect.html (all of it on one page). Each file is written
    under a temporary name and renamed; figures of an earlier inspection that this one has not are removed.

    Args:
        model_dir: holds a model of type wordorder-encoder, with or without a head.
        out: the folder to write into, made if needed; default: see `default_folder`.
        length: positions to look at, 4 .. 1024; default: as many as the model takes, but no more than 512.
        text: a UTF-8 file whose first 1024 tokens are the words of the correlations, the first of them in the panels;
            default: words drawn from the vocabulary.
        score: scores the saved model, for what the parts of its maps are worth; see `worth_of_parts`. It is called four
            times.

    Raises:
        BadInput: there is no such model or it is of another type, damaged or pickled; the length is out of range; the
            text cannot be read; the folder cannot be written; or ``score`` is given for a model that adds nothing
            content-free to its scores.
        MissingExtra: matplotlib or jinja2 is not installed.
    """
    source = Path(model_dir)
    kind = _class_of(source)
    folder = default_folder(source) if out is None else Path(out)
    fault = check_writable(folder)
    if fault:
        raise BadInput(f"the folder {str(folder)!r} cannot be written: {fault}; choose another one")
    length = _length(_config(source, kind), length)
    words = _words(source, text)
    model = _load(source, kind)
    if score is not None and not score_maps(model, 1):
        raise BadInput(
            f"{source}: encoding {model.config.encoding!r} adds nothing content-free to the scores, so there are no"
            " parts to score the model with; leave --data out"
        )
    inspection = inspect_model(model, length, words=words)
    worth = None if score is None else worth_of_parts(score)
    drawings = draw(inspection)
    facts = {"folder": str(source), "architecture": type(model).__name__, **_facts(model.config)}
    versions = _versions()
    contents = {name: drawing.png for name, drawing in drawings.items()}
    if drawings:
        contents[MAPS] = _tensors(inspection)
        shown = {**facts, "positions": length, **versions}
        named = [(name.replace("_", " "), str(value)) for name, value in shown.items() if value is not None]
        shown_tables = tables(inspection) + worth_table(worth)
        contents[PAGE] = page(
            inspection, drawings, shown_tables, name=str(source), encoding=model.config.encoding, facts=named
        ).encode()
    found = {
        "model": facts,
        "words_of": "vocabulary" if text is None else str(text),
        **numbers(inspection),
        "worth": without_nan(worth),
        "versions": versions,
        "files": [*contents, NUMBERS],
    }
    contents[NUMBERS] = _json(found).encode()
    old = _files_listed(folder / NUMBERS) - set(contents)
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder, contents)
    for name in old:
        if (folder / name).is_file():
            (folder / name).unlink()
    return SavedInspection(inspection, found, folder, tuple(contents))


def default_folder(model_dir: Path) -> Path:
    """``inspect`` beside the folder model/ of a run, ``inspect-NAME`` beside a folder of any other name."""
    place = Path(os.path.abspath(model_dir))  # so that "." has a name and a folder around it
    inside = "inspect" if place.name == "model" else f"inspect-{place.name}"
    return (place if model_dir.name in ("", "..") else model_dir).parent / inside


def _files_listed(path: Path) -> set[str]:
    """The names under "files" in a JSON file that an earlier inspection left; none where there is no such list."""
    try:
        listed: Any = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name) for name in listed if Path(str(name)).name == str(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _class_of(folder: Path) -> Any:
    """The class that config.json names, of a model that can be inspected."""
    import wordorder.models as models

    path = folder / "config.json"
    try:
        settings: Any = json.loads(path.read_text(encoding="utf-8"))
        kind = settings["model_type"]
    except FileNotFoundError:
        raise BadInput(f"{folder}: holds no model (no config.json); name the folder model/ of a run") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: does not say which model it is: {error}") from None
    if kind != "wordorder-encoder":
        raise BadInput(
            f"{folder}: holds a model of type {kind!r}; inspect reads wordorder-encoder, as train, compare and convert"
            " write it"
        )
    named = str((settings.get("architectures") or ["WordOrderEncoderModel"])[0])
    found: Any = getattr(models, named, None) if named.startswith("WordOrderEncoder") else None
    if found is None:
        raise BadInput(f"{folder}: config.json names the class {named!r}, which is none of this package's encoders")
    return found


def _config(folder: Path, kind: Any) -> Any:
    from huggingface_hub.errors import StrictDataclassError

    try:
        return kind.config_class.from_pretrained(str(folder), local_files_only=True)
    except StrictDataclassError as error:
        raise BadInput(f"{folder / 'config.json'}: {' '.join(str(error).split())}") from None


def _load(folder: Path, kind: Any) -> Any:
    """The model, from safetensors only: nothing is unpickled."""
    from safetensors import SafetensorError

    try:
        model, report = kind.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are looked at below, and named
        )
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"{folder}: no weights can be read from safetensors, the only format taken: {reason}") from None
    # transformers would draw these at random, and chance would be inspected
    if report["mismatched_keys"]:
        named = sorted(str(key if isinstance(key, str) else key[0]) for key in report["mismatched_keys"])
        raise BadInput(f"{folder}: weights have other sizes than config.json says: {', '.join(named)}")
    if report["missing_keys"]:
        raise BadInput(f"{folder}: weights are missing from the file: {', '.join(sorted(report['missing_keys']))}")
    return model.eval()


def _facts(config: Any) -> dict[str, Any]:
    names = (
        "encoding", "encoding_options", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "vocab_size", "norm", "norm_placement", "wordorder_version",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}


def _versions() -> dict[str, str]:
    from wordorder import __version__

    packages = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "matplotlib")}
    return {"wordorder": __version__, "python": platform.python_version(), **packages}


def _json(value: object) -> str:
    """JSON with one line per row of numbers; in strings a line break is escaped, so that only rows are joined."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\n[^\[\]{}\"]*\]", lambda row: " ".join(row[0].split()), text) + "\n"


def _tensors(inspection: Inspection) -> bytes:
    """Maps by their names, panels as "panel word-word" and so on; float32."""
    from safetensors.torch import save

    tensors = {name: found.map.values_HNN for name, found in inspection.maps.items()}
    if inspection.correlations:
        panels = inspection.correlations.panels
        tensors |= {f"panel {name}": panel.float() for name, panel in panels.items()}
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def _length(config: Any, length: int | None) -> int:
    from wordorder.models import check_length

    if length is None:
        return min(config.max_position_embeddings, LENGTH)
    check_length(config, length)  # first: it says what this model takes
    check_range(length)
    return length


def _words(folder: Path, text: str | Path | None) -> list[int] | None:
    """The first tokens of a text."""
    if text is None:
        return None
    from transformers import AutoTokenizer

    try:
        content = Path(text).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--text {text}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"--text {text}: is not UTF-8 text: {error}") from None
    try:
        tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"{folder}: holds no tokenizer, which a text needs: {reason}") from None
    ids: list[int] = tokenizer(content[: 64 * WORDS], add_special_tokens=False)["input_ids"][:WORDS]
    if not ids:
        raise BadInput(f"--text {text}: holds no words")
    return ids
