"""Read and gather the weights of a model, also of one whose parameters are sharded over processes (FSDP2).

Checkpoints are those of one process, whatever wrote them: tensors are gathered before they are written, and each
process takes its part of what is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]  # its PathLike is bare
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from wordorder.errors import BadInput, RunFailed
from wordorder.files import one_line
from wordorder.models import saved_folder
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.recipe.pretrained import naming_the_key


def is_sharded(model: nn.Module) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gathered(state: Any, *, keep: bool) -> Any:
    """Return a state with whole tensors on the CPU in the place of sharded ones; called by all processes together.

    `keep` is False for all processes but one, which take no memory for what was gathered.
    """
    if isinstance(state, DTensor):
        full = state.full_tensor()
        return full.detach().cpu() if keep else None
    if isinstance(state, Mapping):
        return {key: gathered(value, keep=keep) for key, value in cast(Mapping[Any, Any], state).items()}
    if isinstance(state, list | tuple):
        values = [gathered(value, keep=keep) for value in cast("list[Any] | tuple[Any, ...]", state)]
        return tuple(values) if isinstance(state, tuple) else values
    return state


def whole_weights(model: Any, *, keep: bool) -> dict[str, Tensor] | None:
    """Return all weights of a sharded model, each once, as `save_pretrained` names them; None unless `keep`."""
    own = {name: weight for name, weight in model.state_dict().items() if name not in _tied(model)}
    found = gathered(own, keep=keep)
    return found if keep else None


def shared_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this process's shard of a whole tensor, if its place is a sharded one; no data is sent."""
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor) or tensor.shape != like.shape:
        return tensor
    there = tensor.to(like.to_local().device)
    # src_data_rank=None: each process has read the whole, so it cuts its part and nothing is sent
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


def check_finite(weights: Mapping[str, Tensor], run_folder: Path, *, step: int) -> None:
    """Refuse weights that are not finite: a finite loss can make them, and they must not replace a good checkpoint."""
    with torch.no_grad():
        bad = saved_folder.not_finite(weights)
    if bad:
        raise RunFailed(f"weights are not finite after step {step} ({', '.join(bad[:3])}); {last_good(run_folder)}")


def load_weights(model: Any, folder: Path) -> None:
    try:
        places = model.state_dict()
        weights = {name: shared_out(weight, places.get(name, weight)) for name, weight in _read(folder).items()}
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise RunFailed(f"{folder}: the weights cannot be read: {one_line(error)}") from error
    lost = set(missing) - _tied(model)
    if lost or unexpected:
        raise RunFailed(
            f"{folder}: the weights are not this model's (missing {sorted(lost)}, unknown {sorted(unexpected)})"
        )


def load_body(model: Any, folder: Path, *, with_head: bool) -> dict[str, Any]:
    """Load the body of a pre-trained model into a model with another head; with the head, what fits of it too.

    Returns:
        loaded, the number of weights from the folder; and the names of those that are new, which keep the values drawn
        from the seed (the head of a new task), and of those of the folder that are unused (the head of the former one).

    Raises:
        BadInput: no weights can be read, or one of the body is missing, has another shape or type, or is not finite;
            all are named.
    """
    with naming_the_key():
        try:
            weights = _read(folder)
        except BadInput:
            raise
        except (OSError, ValueError, SafetensorError) as error:
            raise BadInput(saved_folder.no_weights(folder, error)) from None
        own: dict[str, Tensor] = model.state_dict()
        body = {name for name in own if name.startswith(f"{model.base_model_prefix}.")}
        both = own.keys() & weights.keys()
        fitting = {name for name in both if own[name].shape == weights[name].shape}
        faults = [f"{folder} has no {name}, which the model needs" for name in sorted(body - both - _tied(model))]
        faults += [
            f"{folder}: {name} has the shape {tuple(weights[name].shape)}, not {tuple(own[name].shape)}"
            for name in sorted(body & both - fitting)
        ]
        if faults:
            raise BadInput(faults)
        taken = {name: weights[name] for name in own if name in (fitting if with_head else fitting & body)}
        whole = [name for name, w in taken.items() if own[name].is_floating_point() and not w.is_floating_point()]
        wrong = [f"{name} is not of a floating-point type" for name in whole]
        wrong += [f"{name} is not finite" for name in saved_folder.not_finite(taken)]
        if wrong:
            raise BadInput(f"{folder}: {fault}" for fault in wrong)
    model.load_state_dict(taken, strict=False)
    return {
        "loaded": len(taken),
        "new": [name for name in own if name not in taken.keys() | _tied(model)],
        "unused": sorted(weights.keys() - taken.keys()),
    }


def _read(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for path in saved_folder.weight_files(folder):
        weights |= load_file(path)
    return weights


def _tied(model: Any) -> set[str]:
    return set(getattr(model, "all_tied_weights_keys", None) or {})
