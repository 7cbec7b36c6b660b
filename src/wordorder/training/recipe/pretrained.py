"""`model.pretrained`: a recipe that starts from a saved model takes network, sizes, encoding and tokeniser from it.

From a model of transformers, too; its encoding alone may then be changed."""

import hashlib
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput

ARM, SEED = "{arm}", "{seed}"
"""Placeholders in a folder's name for the arm of a comparison, and for the seed of a run."""

FREE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "initializer_range",
    "sparse_prediction",
)
"""Fields of [model] that may differ from the saved model's: they change no weight that it has. `initializer_range` is
that of the new head."""

TOKENIZER = "tokenizer.json"


def place(pattern: str, *, arm: str | None = None, seed: int | None = None) -> str:
    """Put an arm and a seed, where they are given, into a name such as runs/pretraining/{arm}/seed-{seed}/model."""
    for mark, value in ((ARM, arm), (SEED, seed)):
        pattern = pattern if value is None else pattern.replace(mark, str(value))
    return pattern


def complete(tables: Mapping[str, Any], *, seed: int) -> tuple[dict[str, Any], str | None, list[str]]:
    """Fill [model] and [tokenizer] in from the folder that `model.pretrained` names.

    Returns:
        The sections, [model] without `pretrained`; the folder, or None where the recipe names none; and the faults.
    """
    model = dict(tables["model"])
    named = model.pop("pretrained", None)
    if named is None:
        return dict(tables), None, []
    try:
        if not isinstance(named, str) or not named.strip():
            raise BadInput(f"model.pretrained: must be the folder of a saved model, got {named!r}")
        folder = place(named, seed=seed)
        if ARM in folder:
            raise BadInput(f"model.pretrained: {folder}: {ARM} is an arm's name, but there is no [compare]")
        saved = read_pretrained(Path(folder))
    except BadInput as error:
        return dict(tables), None, list(error.faults)
    faults = _conflicts(saved, model, folder)
    tokenizer, tokenizer_faults = _tokenizer(tables.get("tokenizer", {}), folder)
    if is_host(saved["network"]) and not faults + tokenizer_faults:
        tokenizer_faults = _vocabulary_faults(Path(folder))
    filled = {**tables, "model": {**saved, **model, "network": saved["network"]}, "tokenizer": tokenizer}
    return filled, folder, faults + tokenizer_faults


def is_host(network: str) -> bool:
    from wordorder.models.swap.families import FAMILIES

    return network in FAMILIES


def read_pretrained(folder: Path) -> dict[str, Any]:
    """Return [model] of a saved model; of transformers' the type and the encoding alone.

    Raises:
        BadInput: it holds no model, one of another kind, no weights in safetensors, or adapters; or config.json names
            other files than those that are read.
    """
    from wordorder.models import NETWORK_TASKS, build_config, config_fields
    from wordorder.models.hosts import MODEL
    from wordorder.models.saved_folder import (
        adapter_faults,
        check_model_of,
        elsewhere_faults,
        read_config,
        weight_files,
    )
    from wordorder.models.swap.families import FAMILIES
    from wordorder.models.swap.folder import MODEL_TYPE

    networks = {f"wordorder-{network}": network for network in NETWORK_TASKS}
    with naming_the_key():
        try:
            config: dict[str, Any] = read_config(folder)
        except (FileNotFoundError, NotADirectoryError):
            raise BadInput(
                f"{folder} holds no model (no config.json); name the folder model/ of a finished run, or one of "
                "transformers"
            ) from None
        if elsewhere := [*adapter_faults(folder), *elsewhere_faults(folder, config)]:
            raise BadInput(elsewhere)
        kind = config.get("model_type")
        if isinstance(kind, str) and kind in (*FAMILIES, MODEL_TYPE):
            return {"network": check_model_of(None, folder).model_type, "encoding": MODEL}
        if not isinstance(kind, str) or kind not in networks:
            raise BadInput(
                f"{folder} holds a model of type {kind!r}; valid: {', '.join(networks)}; and of transformers: "
                f"{', '.join(FAMILIES)}"
            )
        network = networks[kind]
        fields = {field: config[field] for field in config_fields(network) if config.get(field) is not None}
        try:
            build_config(network, **fields)
        except (ValueError, TypeError) as error:
            raise BadInput(f"{folder}/config.json: {' '.join(str(error).split())}") from None
        weight_files(folder)
    return {"network": network, **fields}


@contextmanager
def naming_the_key() -> Generator[None]:
    """Put the recipe's key in front of the faults found within the block."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"model.pretrained: {fault}" for fault in error.faults) from None


def _conflicts(saved: Mapping[str, Any], model: Mapping[str, Any], folder: str) -> list[str]:
    from wordorder.models import HOST_FIELDS, config_fields

    network = saved["network"]
    if is_host(network):
        return [
            f"model.{name}: {folder} holds a model of transformers ({network}), which says this itself; leave it out; "
            f"valid beside pretrained: {', '.join(HOST_FIELDS)}"
            for name in model
            if name not in HOST_FIELDS
        ]
    faults: list[str] = []
    if model.get("network", network) != network:
        faults.append(f"model.network: {folder} holds a {network}, got {model['network']!r}; leave it out")
    fields = {name: value for name, value in {**config_fields(network), **saved}.items() if name not in FREE}
    return faults + [
        f"model.{name}: is {fields[name]!r} in {folder}, got {value!r}; leave it out"
        for name, value in model.items()
        if name in fields and name != "network" and value != fields[name]
    ]


def _tokenizer(table: Mapping[str, Any], folder: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the section [tokenizer] for a folder, and its faults: no recipe may replace the folder's own tokeniser."""
    own = {"kind": "existing", "path": folder}
    if not (Path(folder) / TOKENIZER).exists():
        if table.get("kind") == "existing":
            return table, []
        return own, [f"model.pretrained: {folder} has no {TOKENIZER}; name one by tokenizer.kind=existing and its path"]
    if not table or own.items() <= table.items():
        return own, []
    return own, [f"[tokenizer]: comes with the saved model, from {folder}; leave the section out"]


def _vocabulary_faults(folder: Path) -> list[str]:
    from wordorder.models.saved_folder import fields_of, read_config

    try:
        size = fields_of(read_config(folder)).get("vocab_size")
        tokens = _vocabulary(folder, tokenizer_content(str(folder)))
    except BadInput as error:
        return [f"model.pretrained: {fault}" for fault in error.faults]
    if not isinstance(size, int) or tokens <= size:  # a table may have rows to spare
        return []
    return [
        f"model.pretrained: {folder}: the tokenizer has ids up to {tokens - 1}, the model has {size} tokens; put the "
        "tokenizer there that the model was trained with"
    ]


@cache
def _vocabulary(folder: Path, content: str) -> int:
    """Return the number of ids of a tokeniser; `content`, its digest, makes the cache notice that it was changed."""
    from wordorder.data import TokenizerConfig, fixed_vocab_size

    size = fixed_vocab_size(TokenizerConfig(kind="existing", path=str(folder)))
    assert size is not None  # an existing one has its size
    return size


def tokenizer_content(path: str | None) -> str:
    """Return the digest of an existing tokeniser, a folder or its tokenizer.json, independent of its path."""
    place = Path(path or "").expanduser()
    return file_content(place / TOKENIZER if place.is_dir() else place)


def weights_content(folder: Path) -> str:
    """Return the digest of the weights of a saved model; it changes if the model was trained anew under its path."""
    from wordorder.models.saved_folder import weight_files

    with naming_the_key():
        return " ".join(file_content(file) for file in weight_files(folder))


def find_word_vectors(named: str) -> tuple[Path | None, list[Path]]:
    """Return the file that `model.word_vectors` names, None if there is none, and the places where it was sought."""
    folder = os.environ.get("WORDORDER_DATA")
    places = [Path(named), *([] if folder is None else [Path(folder) / named])]
    return next((place for place in places if place.exists()), None), places


def file_content(file: Path) -> str:
    return _digest(file, file.stat().st_mtime_ns)


@cache
def _digest(file: Path, changed: int) -> str:
    """Hash a file; `changed`, its modification time, makes the cache notice that it was written anew."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()[:32]
