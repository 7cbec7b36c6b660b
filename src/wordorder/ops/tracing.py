"""Whether something other than plain execution is at work, for functions that have their own backward."""

from typing import Any

import torch


def transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work: neither knows functions with their own backward."""
    # torch says so nowhere in public; without these names the function itself refuses, less clearly
    core: Any = getattr(torch, "_C")  # noqa: B009
    functorch = getattr(core, "_are_functorch_transforms_active", None)
    level = getattr(torch.autograd.forward_ad, "_current_level", -1)
    return bool(functorch is not None and functorch()) or level >= 0
