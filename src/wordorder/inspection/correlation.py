"""How strongly each position attends to each other position, whatever the words are."""

import torch
from torch import Tensor, nn

from wordorder.encodings import TUPE, Composition
from wordorder.ops import Contiguous


def position_correlation(model: nn.Module, length: int) -> dict[str, Tensor]:
    """The learned position-to-position terms of a model with TUPE.

    Args:
        model: anything that contains an encoder of this package.
        length: N; token 0 is [CLS].

    Returns:
        float32 (H, N, N) on the CPU, in units of logits: "absolute" for TUPE-A; "absolute", "relative" and "sum" for
        TUPE-R, the sum as the model uses it, [CLS] reset included. Empty for encodings without such a term.

    Raises:
        ValueError: length is not positive, or is beyond the model's table.
    """
    if length <= 0:
        raise ValueError(f"length must be positive, got {length}")
    for module in model.modules():
        if isinstance(module, Composition):
            for part in module.parts.values():
                if isinstance(part, TUPE):
                    with torch.no_grad():
                        maps = part.maps(Contiguous(length))
                    return {name: values[0].float().cpu() for name, values in maps.items()}
    return {}
