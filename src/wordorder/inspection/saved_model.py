"""Read the model and the text that `wordorder inspect` is given; a model from safetensors only."""

from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput

LANGUAGE_MODEL = "wordorder-decoder"
"""Type of the models that are watched while they read a text."""


def class_of(folder: Path) -> Any:
    """Return the class that config.json names, of a model that can be inspected.

    Raises:
        BadInput: there is no such model, or it is of another type.
    """
    import wordorder.models as models
    from wordorder.models.hub.saved_folder import read_config

    try:
        settings = read_config(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{folder}: holds no model (no config.json); name the folder model/ of a run") from None
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in _CLASSES:
        raise BadInput(
            f"{folder}: holds a model of type {kind!r}; inspect reads {' and '.join(_CLASSES)}, as train, compare and"
            " convert write them"
        )
    prefix, without_head = _CLASSES[kind]
    listed = settings.get("architectures") or [without_head]
    named = str(cast("list[Any]", listed)[0]) if isinstance(listed, list) else ""
    found = getattr(models, named, None) if named.startswith(prefix) else None
    if found is None:
        noun = "encoders" if prefix == "WordOrderEncoder" else "causal language models"
        raise BadInput(f"{folder}: config.json names the class {named!r}, which is none of this package's {noun}")
    return found


_CLASSES = {
    "wordorder-encoder": ("WordOrderEncoder", "WordOrderEncoderModel"),
    LANGUAGE_MODEL: ("WordOrderDecoderForCausalLM", "WordOrderDecoderModel"),
}
"""Type of a model -> beginning of its class's name, and the class where config.json names none."""


def config_of(folder: Path, kind: Any) -> Any:
    """Load the configuration of a saved model.

    Raises:
        BadInput: a field has a value of another type than it can have.
    """
    from wordorder.models.hub.saved_folder import load_config

    return load_config(kind.config_class, folder)


def load_saved(folder: Path, kind: object) -> Any:
    """Load the model, from safetensors only: nothing is unpickled.

    Raises:
        BadInput: weights are missing, damaged, pickled, not finite, or of other sizes or types.
    """
    from wordorder.models.hub.saved_folder import load_model_of

    return load_model_of(kind, folder).eval()


def first_tokens(folder: Path, config: object, text: str | Path, count: int) -> list[int]:
    """Return the ids of the first tokens of a text.

    Raises:
        BadInput: the text cannot be read or holds no words, or there is no tokenizer, or not the model's.
    """
    from wordorder.data.tokenizers.tokenizer import read_tokenizer
    from wordorder.models.hub.saved_folder import check_tokenizer

    try:
        with Path(text).open(encoding="utf-8") as file:
            content = file.read(64 * count)
    except OSError as error:
        raise BadInput(f"--text {text}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"--text {text}: is not UTF-8 text: {error}") from None
    tokenizer = read_tokenizer(folder)
    check_tokenizer(tokenizer, config, folder)
    ids: list[int] = tokenizer(content, add_special_tokens=False)["input_ids"][:count]
    if not ids:
        raise BadInput(f"--text {text}: holds no words")
    return ids
