"""Keep sums and scores in the precision that they were given."""

from contextlib import AbstractContextManager, nullcontext

import torch


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast, which would bring scores and sums down to 16 bits again."""
    kind = _kind(device)
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def working_dtype(like: torch.Tensor) -> torch.dtype:
    """Return the dtype that linear layers give for such an input: autocast's where it is on, else the input's own."""
    kind = _kind(like.device)
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else like.dtype


def _kind(device: torch.device) -> str:
    """Return the device type whose autocast counts; for the meta device the CPU's, which every build of torch has."""
    return "cpu" if device.type == "meta" else device.type
