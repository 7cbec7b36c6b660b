"""Detect transforms of torch.func, and run layers whose activations are computed again in the backward pass."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint


def transformed() -> bool:
    """Tell whether torch.func or forward-mode derivatives run: neither knows functions with their own backward."""
    # torch says so nowhere in public; without these names the function itself refuses, less clearly
    core: object = getattr(torch, "_C")  # noqa: B009
    functorch = getattr(core, "_are_functorch_transforms_active", None)
    level = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return bool(functorch is not None and functorch()) or level >= 0


def may_be_read(given: Tensor) -> bool:
    """Tell whether to look at values: on a GPU that would stop the stream, and where they are traced it cannot be."""
    return not torch.compiler.is_compiling() and not transformed() and given.device.type == "cpu"


def run_layer(layer: nn.Module, *arguments: object, checkpointed: bool) -> Any:
    """Run a layer; ``checkpointed``: keep no activations of it, but compute it again in the backward pass."""
    if not checkpointed:
        return layer(*arguments)
    # re-entrant checkpointing would walk the shared bias's graph once per layer and fail
    return checkpoint.checkpoint(layer, *arguments, use_reentrant=False)  # pyright: ignore
