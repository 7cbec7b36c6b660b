"""Load weights from the safetensors files of `save_pretrained`: all of a model, or the body of a pre-trained one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]  # its PathLike is bare
from torch import Tensor

from wordorder.errors import BadInput, RunFailed
from wordorder.limits import one_line, safetensors_header
from wordorder.models.hub import saved_folder
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.checkpoints.sharded import shared_out


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a model to start from; see `wordorder.models.hub.saved_folder.weight_files`.

    Args:
        folder: where `save_pretrained` wrote.

    Raises:
        BadInput: a file is missing, or the index cannot be read, or it names a file outside of the folder.
    """
    try:
        return saved_folder.weight_files(folder)
    except BadInput as error:
        raise BadInput([f"model.pretrained: {fault}" for fault in error.faults]) from None


def load_weights(model: Any, folder: Path) -> None:
    """Load all weights of a folder into a model of the same configuration.

    Args:
        model: a transformers model; of one that is shared out over processes each takes its part.
        folder: holds model.safetensors, or its shards and their index.

    Raises:
        RunFailed: weights are missing or do not belong to the model, or cannot be read.
    """
    try:
        places = model.state_dict()
        weights = {name: shared_out(weight, places.get(name, weight)) for name, weight in _read(folder).items()}
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise RunFailed(f"{folder}: the weights cannot be read: {one_line(error)}") from error
    # A tied weight is saved once, under one of its names.
    lost = set(missing) - _tied(model)
    if lost or unexpected:
        raise RunFailed(
            f"{folder}: the weights are not this model's (missing {sorted(lost)}, unknown {sorted(unexpected)})"
        )


def check_finite(weights: Mapping[str, Tensor], run_folder: Path, *, step: int) -> None:
    """Refuse weights that are not finite: a finite loss can make them, and they must not replace a good checkpoint.

    Args:
        weights: by name.
        run_folder: holds the checkpoints.
        step: after which the weights are looked at.

    Raises:
        RunFailed: some are not finite; the first are named, and the last good checkpoint is.
    """
    with torch.no_grad():
        bad = saved_folder.not_finite(weights)
    if bad:
        raise RunFailed(f"weights are not finite after step {step} ({', '.join(bad[:3])}); {last_good(run_folder)}")


def check_body(config: Any, folder: Path) -> None:
    """Refuse a folder with fewer weights than its configuration needs, before memory is allocated for the model.

    Args:
        config: of the model that is to start from the folder, whose sizes are the folder's.
        folder: of the saved model.

    Raises:
        BadInput: they are, or they cannot be read.
    """
    from transformers import AutoModel

    try:
        saved_folder.check_claims(AutoModel, config, saved_folder.stored_shapes(folder), folder)
    except BadInput as error:
        raise BadInput([f"model.pretrained: {fault}" for fault in error.faults]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Names of the weights that came from a pre-trained folder, and of those that did not."""

    loaded: tuple[str, ...]
    new: tuple[str, ...]
    """Weights of the model that keep the values drawn from the seed: the head of a new task."""
    unused: tuple[str, ...]
    """Weights of the folder that the model has no parameter for: the head of the former task."""


def load_body(model: Any, folder: Path, *, with_head: bool) -> Loaded:
    """Load the body of a pre-trained model into a model with another head.

    Args:
        model: a transformers model, whose weights are drawn already.
        folder: holds a model with the same body, in safetensors; nothing is unpickled.
        with_head: also take what fits of the head, to go on with the same task.

    Raises:
        BadInput: no weights can be read, or one of the body is missing, has another shape or type, or is not finite;
            all are named.
    """
    try:
        weights = _read(folder)
    except BadInput:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"model.pretrained: {saved_folder.no_weights(folder, error)}") from None
    own: dict[str, Tensor] = model.state_dict()
    body = {name for name in own if name.startswith(f"{model.base_model_prefix}.")}
    missing = sorted(body - weights.keys() - _tied(model))
    other = sorted(name for name in body & weights.keys() if own[name].shape != weights[name].shape)
    faults = [f"model.pretrained: {folder} has no {name}, which the model needs" for name in missing]
    faults += [
        f"model.pretrained: {folder}: {name} has the shape {tuple(weights[name].shape)}, not {tuple(own[name].shape)}"
        for name in other
    ]
    if faults:
        raise BadInput(faults)
    fitting = {name for name in own.keys() & weights.keys() if own[name].shape == weights[name].shape}
    taken = {name: weights[name] for name in own if name in (fitting if with_head else fitting & body)}
    kinds = {name: shape.kind for name, shape in saved_folder.stored_shapes(folder).items() if name in taken}
    for reason, names in (
        ("is not of a floating-point type", saved_folder.wrong_types(own, kinds)),
        ("is not finite", saved_folder.not_finite(taken)),
    ):
        faults += [f"model.pretrained: {folder}: {name} {reason}" for name in names]
    if faults:
        raise BadInput(faults)
    model.load_state_dict(taken, strict=False)
    return Loaded(
        loaded=tuple(name for name in own if name in taken),
        new=tuple(name for name in own if name not in taken.keys() | _tied(model)),
        unused=tuple(sorted(weights.keys() - taken.keys())),
    )


def _read(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        safetensors_header(path)  # first: what it claims, it must hold
        weights |= load_file(path)
    return weights


def _tied(model: Any) -> set[str]:
    return set(getattr(model, "all_tied_weights_keys", {}))
