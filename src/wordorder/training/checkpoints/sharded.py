"""Gather and scatter whole tensors of models whose parameters are sharded over processes (FSDP2).

Checkpoints are those of one process, whatever wrote them: tensors are gathered before they are written, and each
process takes its part of what is read.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from wordorder.training.checkpoints.state_files import check_alike


def is_sharded(model: nn.Module) -> bool:
    """Tell whether parameters of a model are sharded over processes.

    Args:
        model: any module.
    """
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gathered(state: Any, *, keep: bool) -> Any:
    """Return a state with whole tensors on the CPU in the place of sharded ones; called by all processes together.

    Args:
        state: dicts, lists and tuples of tensors and anything else, the same in all processes.
        keep: False, for all processes but one, gives up what was gathered, so that no memory is taken.
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
    """Return all weights of a sharded model, each once, as `save_pretrained` names them; called by all processes.

    Args:
        model: a transformers model.
        keep: see `gathered`; False gives None.
    """
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    own = {name: weight for name, weight in model.state_dict().items() if name not in tied}
    found = gathered(own, keep=keep)
    return found if keep else None


def shared_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this process's shard of a whole tensor, if its place is a sharded one; no data is sent.

    Args:
        tensor: whole, the same in all processes.
        like: what stands in its place.
    """
    if not isinstance(like, DTensor) or isinstance(tensor, DTensor) or tensor.shape != like.shape:
        return tensor
    there = tensor.to(like.to_local().device)
    # src_data_rank=None: each process has read the whole, so it cuts its part and nothing is sent
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


def optimizer_state_for(optimizer: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a whole optimizer state for an optimizer of sharded parameters: its averages are sharded alike.

    Args:
        optimizer: whose `load_state_dict` is to take it.
        state: of `torch.optim.Optimizer.state_dict`, with whole tensors.
    """
    numbered = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    shares = {
        number: {
            name: shared_out(value, numbered[number]) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": shares}


def check_optimizer_state(optimizer: Any, saved: Any) -> None:
    """Refuse the state of another optimizer: `load_state_dict` would accept it and the first step would fail.

    Args:
        optimizer: whose `load_state_dict` is to take it.
        saved: see `optimizer_state_for`.

    Raises:
        TypeError, ValueError, LookupError: a value is missing or has another type or shape.
    """
    groups = optimizer.state_dict()["param_groups"]
    for group, own in zip(saved["param_groups"], groups, strict=True):
        check_alike(group, own)
        lost = [name for name, value in own.items() if name not in group and not isinstance(value, bool | None)]
        if lost or group["params"] != own["params"]:
            raise ValueError(f"a group of parameters lacks {', '.join(lost) or 'parameters of this model'}")
    numbered = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    for number, values in saved["state"].items():
        for name, value in values.items():
            like = numbered[number].shape if name in _AVERAGES else ()
            if name in (*_AVERAGES, "step") and torch.as_tensor(value).shape != like:
                raise ValueError(f"{name} of parameter {number} has the shape {tuple(torch.as_tensor(value).shape)}")


_AVERAGES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")
"""Tensors of optimizer state of torch that have the shape of their parameter."""


def ask_for_nothing(model: Any, times: int, batch: Mapping[str, Tensor]) -> None:
    """Take part in the forward passes of processes that have more batches than this one.

    The forward pass of a sharded model gathers its parameters from all processes, so that one with a batch less than
    another would leave that one waiting for ever.

    Args:
        model: takes a batch as keywords.
        times: how many batches others have more.
        batch: what to ask; the answer is not looked at.
    """
    with torch.no_grad():
        for _ in range(times):
            model(**batch)
