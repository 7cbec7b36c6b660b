"""Fill masks and classify texts with a model that a run saved, through transformers' pipelines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput

_SHOWN = 60  # characters of a text that a message quotes


def fill_mask(model_dir: str | Path, texts: Sequence[str], *, top_k: int = 5) -> list[list[dict[str, Any]]]:
    """The likeliest tokens for the mask in each text.

    Args:
        model_dir: holds a masked language model with its tokenizer.
        texts: each holds the tokenizer's mask token once or more.
        top_k: how many tokens for each mask.

    Returns:
        For each text the masks in order, flattened: dicts of mask (its number in the text), token, score (probability).

    Raises:
        BadInput: the folder holds no masked language model, or a text has no mask token or is too long for the model.
    """
    from wordorder.training.quiet import quiet_libraries

    with quiet_libraries():
        pipe = _pipeline("fill-mask", model_dir, "ForMaskedLM")
        mask = pipe.tokenizer.mask_token
        faults = [f"text has no {mask}, the token to fill: {text!r}" for text in texts if mask not in text]
        if faults:
            raise BadInput(faults)
        _check_lengths(pipe, texts)
        results: list[list[dict[str, Any]]] = []
        for text in texts:
            found: Any = pipe(text, top_k=top_k)
            masks = found if isinstance(found[0], list) else [found]
            results.append(
                [
                    {"mask": number, "token": guess["token_str"], "score": guess["score"]}
                    for number, guesses in enumerate(masks)
                    for guess in guesses
                ]
            )
        return results


def classify(model_dir: str | Path, texts: Sequence[str], *, top_k: int | None = None) -> list[list[dict[str, Any]]]:
    """The classes of each text, likeliest first.

    Args:
        model_dir: holds a sequence classifier with its tokenizer.
        texts: what to classify; a text longer than the model was trained on is cut.
        top_k: how many classes for each text; None gives all.

    Returns:
        For each text a list of dicts: label, score (probability).

    Raises:
        BadInput: the folder holds no classifier.
    """
    from wordorder.training.quiet import quiet_libraries

    with quiet_libraries():
        pipe = _pipeline("text-classification", model_dir, "ForSequenceClassification")
        length = pipe.model.config.max_position_embeddings
        return [pipe(text, top_k=top_k, truncation=True, max_length=length) for text in texts]


def task_of(model_dir: str | Path) -> str:
    """What a saved model was trained for: "fill-mask" or "text-classification".

    Args:
        model_dir: holds config.json.

    Raises:
        BadInput: there is no model, or it is for something else.
    """
    architecture = architecture_of(model_dir)
    for ending, task in (("ForMaskedLM", "fill-mask"), ("ForSequenceClassification", "text-classification")):
        if architecture.endswith(ending):
            return task
    raise BadInput(f"{model_dir}: {architecture} neither fills masks nor classifies texts")


def architecture_of(model_dir: str | Path) -> str:
    """The class of a saved model, such as WordOrderEncoderForMaskedLM.

    Args:
        model_dir: holds config.json.

    Raises:
        BadInput: there is no such file, or it does not say.
    """
    import json

    path = Path(model_dir) / "config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))["architectures"][0]
    except FileNotFoundError:
        raise BadInput(f"{model_dir}: holds no model (no config.json); name the folder model/ of a run") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadInput(f"{path}: does not say which model it is: {error}") from None


def load_model(model_dir: str | Path) -> Any:
    """A saved masked language model or sequence classifier, from safetensors only: nothing is unpickled.

    Args:
        model_dir: holds the model.

    Raises:
        BadInput: it holds none, one for something else, or one whose weights are missing, damaged or pickled.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

    import wordorder.models  # registers the model types  # noqa: F401  # pyright: ignore[reportUnusedImport]

    kind: Any = AutoModelForMaskedLM if task_of(model_dir) == "fill-mask" else AutoModelForSequenceClassification
    try:
        return kind.from_pretrained(str(model_dir), local_files_only=True, use_safetensors=True)
    except (OSError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"{model_dir}: no weights can be read from safetensors, the only format taken: {reason}"
        ) from None


def _pipeline(task: Any, model_dir: str | Path, ending: str) -> Any:
    from transformers import pipeline

    architecture = architecture_of(model_dir)
    if not architecture.endswith(ending):
        raise BadInput(f"{model_dir}: {architecture} cannot do {task}")
    device = "cpu" if not _accelerator() else None
    return pipeline(task, model=load_model(model_dir), tokenizer=str(model_dir), device=device)


def _check_lengths(pipe: Any, texts: Sequence[str]) -> None:
    """Refuse the texts that are longer than the model's learned table, if it has one."""
    from wordorder.models import check_length

    faults: list[str] = []
    for text in texts:
        length = len(pipe.tokenizer(text)["input_ids"])
        try:
            check_length(pipe.model.config, length)
        except BadInput:
            limit = pipe.model.config.max_position_embeddings
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            faults.append(f"text has {length} tokens, the model takes at most {limit}; shorten it: {shown!r}")
    if faults:
        raise BadInput(faults)


def _accelerator() -> bool:
    import torch

    return torch.accelerator.is_available()
