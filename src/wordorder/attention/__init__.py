"""One attention with a slow specification (`reference`) and faster exact backends; the call itself is in `dispatch`.

The package exports the function under the name of this folder, so the module can be called as well:
``wordorder.attention(q, k, v, order, mask)``.
"""

import sys
from types import ModuleType
from typing import Any

from wordorder.attention.choice import Backend, Call, choose_backend
from wordorder.attention.dispatch import attention, attention_weights
from wordorder.attention.plan import HybridPlan, Plan, describe, make_plan, plan_layers


class _CallableModule(ModuleType):
    """Importing this folder puts the module at ``wordorder.attention``; calling it must still work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return attention(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

__all__ = [
    "Backend",
    "Call",
    "HybridPlan",
    "Plan",
    "attention",
    "attention_weights",
    "choose_backend",
    "describe",
    "make_plan",
    "plan_layers",
]
