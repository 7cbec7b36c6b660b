"""Keep sums and scores in the precision that they were given."""

from contextlib import AbstractContextManager, nullcontext

import torch


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


def _autocast_of(device: torch.device) -> str | None:
    """Return the device type whose autocast is on and counts here, for the meta device the CPU's; None if it is off."""
    kind = "cpu" if device.type == "meta" else device.type
    return kind if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind) else None
