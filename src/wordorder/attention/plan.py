"""What attention needs besides queries, keys and values, worked out once per forward and read by every layer."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from wordorder.attention import sdpa
from wordorder.encodings import Order
from wordorder.ops import Visibility

Backend = Literal["reference", "sdpa"]


@dataclass(frozen=True)
class Plan:
    """Order and mask in the form that one backend wants.

    Args:
        backend: who computes.
        order: the scale, rotations, bias and terms by content.
        visible_B1TS: bool, True = visible; None where nothing is hidden.
        mask_BHTS: bias and mask in one matrix, for SDPA.
        is_causal: the mask is the lower triangle, which SDPA knows by name.
    """

    backend: Backend
    order: Order
    visible_B1TS: Tensor | None = None
    mask_BHTS: Tensor | None = None
    is_causal: bool = False

    def layer(self, index: int) -> "Plan":
        """The plan as layer ``index`` (from 0) sees it."""
        return replace(self, order=self.order.layer(index)) if self.order.content else self


def choose_backend(*, return_lse: bool, return_weights: bool, forced: str | None = None) -> Backend:
    """The backend for a call; a pure function of what is asked for, never of a tensor's contents.

    Args:
        return_lse: the log-sum-exp is wanted, which SDPA does not return.
        return_weights: the attention weights are wanted, likewise.
        forced: the caller's choice.

    Raises:
        ValueError: the forced backend is unknown, or cannot return what is asked for.
    """
    if forced is None:
        return "reference" if return_lse or return_weights else "sdpa"
    if forced not in get_args(Backend):
        raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}, got {forced!r}")
    if forced == "sdpa" and (return_lse or return_weights):
        wanted = "the log-sum-exp" if return_lse else "attention weights"
        raise ValueError(f"backend 'sdpa' does not return {wanted}; take backend='reference' or None")
    return "reference" if forced == "reference" else "sdpa"


def make_plan(
    order: Order,
    mask: Visibility | Tensor | None,
    *,
    backend: Backend,
    dtype: torch.dtype,
    device: torch.device | None = None,
) -> Plan:
    """Put order and mask in the form that ``backend`` wants.

    Args:
        order: what the encodings prepared.
        mask: who sees whom; a bool tensor that broadcasts to (B, H, T, S), True = visible, or None for all.
        backend: who will compute.
        dtype: of queries, keys and values.
        device: of queries, keys and values.

    Raises:
        ValueError: a mask tensor is not boolean.
    """
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = visible), got {mask.dtype}; additive terms belong in the order")
    if backend == "reference":
        return Plan(backend, order, mask.dense(device) if isinstance(mask, Visibility) else mask)
    causal = isinstance(mask, Visibility) and mask.is_plain_causal and order.bias is None and not order.content
    visible = None if causal else mask.dense(device) if isinstance(mask, Visibility) else mask
    return Plan(backend, order, visible, sdpa.additive_mask(order, visible, dtype), causal)
