"""One attention with a slow specification (`reference`) and faster exact backends; the call itself is in `attend`.

The package exports the function under the name of this folder, so the module can be called as well:
``wordorder.attention(q, k, v, order, mask)``. `torch.compile` does not trace the call of a module: code that is
compiled imports the function, ``from wordorder.attention import attention``.
"""

import sys
from types import ModuleType
from typing import Any

from wordorder.attention.attend import attend as attend
from wordorder.attention.attend import attention as attention
from wordorder.attention.attend import attention_weights as attention_weights
from wordorder.attention.backends import BACKENDS as BACKENDS
from wordorder.attention.backends import choose_backend as choose_backend
from wordorder.attention.backends.backend import Backend as Backend
from wordorder.attention.call import Call as Call
from wordorder.attention.plan import LayerPlans as LayerPlans
from wordorder.attention.plan import Plan as Plan
from wordorder.attention.plan import plan_attention as plan_attention
from wordorder.attention.plan import plan_layers as plan_layers
from wordorder.attention.step import Extend as Extend
from wordorder.attention.step import ExtendInput as ExtendInput
from wordorder.attention.step import Keys as Keys
from wordorder.attention.step import LayerStep as LayerStep
from wordorder.attention.step import Record as Record
from wordorder.attention.step import Source as Source


class _CallableModule(ModuleType):
    """A module that can be called like its function `attention`: importing this folder puts the module at that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return attention(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
