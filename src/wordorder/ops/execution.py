"""Detect autocast and transforms of torch.func, and run layers whose activations are computed again in backward."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import checkpoint


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast, which would bring scores and sums down to 16 bits again."""
    kind = _autocast_of(device)
    return nullcontext() if kind is None else torch.autocast(kind, enabled=False)


def working_dtype(like: torch.Tensor) -> torch.dtype:
    """Return the dtype that linear layers give for such an input: autocast's where it is on, else the input's own."""
    kind = _autocast_of(like.device)
    return like.dtype if kind is None else torch.get_autocast_dtype(kind)


def as_autocast_casts(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return queries, keys and values in autocast's dtype, as `scaled_dot_product_attention` does; float64 stays."""
    dtype = working_dtype(tensors[0])
    if _autocast_of(tensors[0].device) is None:
        return tensors
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)


def under_autocast(device: torch.device) -> bool:
    """Tell whether autocast is on and counts on this device."""
    return _autocast_of(device) is not None


def _autocast_of(device: torch.device) -> str | None:
    """Return the device type whose autocast is on and counts here, for the meta device the CPU's; None if it is off."""
    kind = "cpu" if device.type == "meta" else device.type
    return kind if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) else None


def transformed() -> bool:
    """Tell whether torch.func or forward-mode derivatives run: neither knows functions with their own backward."""
    # torch says so nowhere in public; without these names the function itself refuses, less clearly
    core: object = getattr(torch, "_C")  # noqa: B009
    functorch = getattr(core, "_are_functorch_transforms_active", None)
    level = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return bool(functorch is not None and functorch()) or level >= 0


def has_values(tensor: Tensor) -> bool:
    """Tell whether there are values to look at: none where they are traced, captured, or on torch's meta device."""
    captured = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return not (torch.compiler.is_compiling() or transformed() or tensor.is_meta or captured)


def is_sparse(tensor: Tensor) -> bool:
    """Tell whether a tensor holds some of its values only, in a layout that few of torch's functions know."""
    return tensor.layout not in (torch.strided, torch.jagged)


def may_be_read(tensor: Tensor) -> bool:
    """Tell whether to look at values: on a GPU that would stop the stream."""
    return tensor.device.type == "cpu" and has_values(tensor)


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Tell whether a module is its weight alone: of this very class, without hooks or a forward that a tool put in.

    Any other one must be called: adapters add to the weight, offloading loads it as the module is called.
    """
    parts = vars(module)
    changed = parts.get("forward") or parts["_forward_pre_hooks"] or parts["_forward_hooks"]
    return type(module) is kind and not changed


def call_as_constant(module: nn.Module, x: Tensor) -> Tensor:
    """Call a module so that its result has a gradient in x, and none in the module's weights."""
    fixed = {name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad}
    return functional_call(module, fixed, (x,))


def run_layer(layer: nn.Module, *arguments: object, checkpointed: bool) -> Any:
    """Run a layer; ``checkpointed``: keep no activations of it, but compute it again in the backward pass."""
    if not checkpointed:
        return layer(*arguments)
    # re-entrant checkpointing would walk the shared bias's graph once per layer and fail
    return checkpoint.checkpoint(layer, *arguments, use_reentrant=False)  # pyright: ignore
