"""One attention with a slow specification (`reference`) and faster exact backends; the call itself is in `attend`.

The package exports the function under the name of this folder, so the module can be called as well:
``wordorder.attention(q, k, v, order, mask)``.
"""

import sys
from types import ModuleType

from wordorder.attention.attend import attend, attention, attention_weights
from wordorder.attention.choice import Backend, Call, choose_backend
from wordorder.attention.plan import AttentionSizes, HybridPlan, Plan, plan_attention


class _CallableModule(ModuleType):
    """A module that can be called like its function `attention`: importing this folder puts the module at that name."""

    __call__ = staticmethod(attention)


sys.modules[__name__].__class__ = _CallableModule

__all__ = [
    "AttentionSizes",
    "Backend",
    "Call",
    "HybridPlan",
    "Plan",
    "attend",
    "attention",
    "attention_weights",
    "choose_backend",
    "plan_attention",
]
