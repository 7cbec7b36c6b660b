"""Gradient checkpointing of a network's layers."""

from typing import Any, cast

from torch import nn
from torch.utils import checkpoint


def run_layer(layer: nn.Module, *arguments: Any, checkpointed: bool) -> Any:
    """Return what a layer returns, computed again in the backward pass where gradient checkpointing is on.

    Args:
        layer: called with the arguments.
        *arguments: of the layer.
        checkpointed: keep no activations of it.
    """
    if not checkpointed:
        return layer(*arguments)
    # re-entrant checkpointing would walk the shared bias's graph once per layer and fail
    return cast("Any", checkpoint).checkpoint(layer, *arguments, use_reentrant=False)
