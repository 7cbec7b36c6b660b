"""Adam that touches only the rows of a table that the batch used."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

_TILE_ROWS = 256
"""Rows updated at a time on a CPU: a few tensors of 256 rows stay in its cache."""


class RowWiseAdam(torch.optim.Adam):
    """Adam (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980) for sparse and dense gradients side by side.

    A parameter whose gradient is sparse (``sparse=True`` of `ComplexOrderEmbedding` or nn.Embedding) is updated row by
    row; all others as `torch.optim.Adam` does. For every row with a gradient, with t counting the steps of its table::

        m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,
        x <- x - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    which is dense Adam to the letter for rows with a gradient at every step. Rows without one keep x, m and v as they
    are (lazy, as `torch.optim.SparseAdam`), where dense Adam would go on moving them by their old momentum. Unlike
    SparseAdam it takes dense gradients too, so that one optimiser serves a whole network, and it works in tiles that
    stay in the cache.

    Weight decay is decoupled, as in `torch.optim.AdamW` (Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101),
    and for dense gradients alone: on a table it would touch every row. Put tables in a group without it.

    Args:
        params: parameters, or groups of them.
        lr: step size.
        betas: decay of the first and of the second moment.
        eps: added to the denominator.
        weight_decay: of parameters with dense gradients, each step by ``lr * weight_decay``.
        fused: one kernel for all parameters with dense gradients, as in `torch.optim.Adam`.

    Raises:
        ValueError: an argument is out of range; or from step: a sparse gradient in a group with weight decay.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        fused: bool | None = None,
    ) -> None:
        options: dict[str, Any] = {"weight_decay": weight_decay, "decoupled_weight_decay": True, "fused": fused}
        super().__init__(cast("Any", params), lr=lr, betas=betas, eps=eps, **options)
        # fused Adam tells loss scalers that its step divides gradients by the scale, which ours does not for rows
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters; ``closure`` computes the loss again where it is given."""
        loss: float | None = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        by_row: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for parameter in cast("list[Tensor]", group["params"]):
                if parameter.grad is not None and parameter.grad.is_sparse:
                    by_row.append((parameter, parameter.grad))
                    self._step_rows(parameter, parameter.grad.coalesce(), group)
                    parameter.grad = None  # hidden from the dense step
        inspect.unwrap(cast("Any", torch.optim.Adam).step)(self)  # without the hooks that torch wraps around steps
        for parameter, gradient in by_row:
            parameter.grad = gradient
        return loss

    def _step_rows(self, x: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            raise ValueError(
                f"weight_decay would touch every row of a {tuple(x.shape)} table with a sparse gradient, got"
                f" {group['weight_decay']}; put such tables in a group with weight_decay=0"
            )
        state = cast("dict[str, Tensor]", self.state[x])
        if not state:
            state["step"] = torch.zeros((), device=x.device if group["fused"] else "cpu")
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(x), torch.zeros_like(x)
        state["step"] += 1
        (b1, b2), steps = group["betas"], int(state["step"])
        stride, root = float(group["lr"]) / (1 - b1**steps), (1 - b2**steps) ** 0.5
        rows, values = gradient.indices()[0], gradient.values()
        for start in range(0, len(rows), _TILE_ROWS if x.device.type == "cpu" else max(1, len(rows))):
            tile = slice(start, start + _TILE_ROWS) if x.device.type == "cpu" else slice(None)
            at, g = rows[tile], values[tile]
            m = state["exp_avg"].index_select(0, at).lerp_(g, 1 - b1)
            v = state["exp_avg_sq"].index_select(0, at).mul_(b2).addcmul_(g, g, value=1 - b2)
            state["exp_avg"].index_copy_(0, at, m)
            state["exp_avg_sq"].index_copy_(0, at, v)
            x.index_add_(0, at, m.div_(v.sqrt_().div_(root).add_(group["eps"])), alpha=-stride)
