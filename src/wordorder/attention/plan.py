"""Plan attention: put terms and mask, once per forward pass, in the form that every layer's call reads."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from wordorder.attention.backends import VARIABLE, choose_backend
from wordorder.attention.backends.backend import Backend
from wordorder.attention.call import Call
from wordorder.encodings import LayerTerms, Terms
from wordorder.errors import BadInput
from wordorder.ops import Mask, check_bias_fits, check_positions_fit


@dataclass(frozen=True)
class Plan:
    """Position terms and mask of one kind of layer, in the form that one backend wants."""

    backend: Backend
    terms: Terms
    call: Call
    """The calls that it was made for."""
    mask: Mask | Tensor | None
    """The mask, with the window of these layers; None where nothing is hidden."""
    prepared: Any
    """Bias and mask as the backend wants them."""


@dataclass(frozen=True)
class LayerPlans:
    """The plans of all layers of a network: one `Plan` for each kind of layer, in the form of its best backend."""

    terms: LayerTerms
    kinds: tuple[Plan, ...]

    def layer(self, index: int) -> Plan:
        """Return the plan of layer ``index`` (from 0)."""
        terms, kind_of_layer = self.terms.layer(index), self.terms.kind_of_layer
        kind = kind_of_layer[index] if kind_of_layer else 0
        plan = self.kinds[kind]
        return plan if terms is self.terms.kinds[kind] else replace(plan, terms=terms)


def plan_layers(
    terms: LayerTerms,
    mask: Mask | Tensor | None,
    call: Call,
    *,
    backend: str | Backend | None = None,
    trusted: bool = False,
) -> LayerPlans:
    """Plan the attention of all layers of a network, once per forward pass.

    Kinds of layers with the same bias and window share what is written out of it, and of the mask.

    Arguments and errors as in `plan_attention`; ``terms`` are of all layers, whose number ``call`` has.
    """
    kinds = terms.kinds
    if len(kinds) == 1:
        mask, call = _of_last_keys(kinds[0], mask, call)
        return LayerPlans(terms, (plan_attention(kinds[0], mask, call, backend=backend, trusted=trusted),))
    alike = [[_alike(kind, other) for other in kinds] for kind in kinds]
    plans: list[Plan] = []
    for kind, same in zip(kinds, alike, strict=True):
        first = same.index(True)
        if first < len(plans):
            plans.append(replace(plans[first], terms=kind))
            continue
        readers = sum(same[other] for other in terms.kind_of_layer) or call.layers
        mask_of_kind, call_of_kind = _of_last_keys(kind, mask, replace(call, layers=readers))
        plans.append(plan_attention(kind, mask_of_kind, call_of_kind, backend=backend, trusted=trusted))
    return LayerPlans(terms, tuple(plans))


def _of_last_keys(terms: Terms, mask: Mask | Tensor | None, call: Call) -> tuple[Mask | Tensor | None, Call]:
    """Return mask and call over the last keys, where the terms were made within a window."""
    keys = call.keys if terms.positions is None else terms.positions[1].length
    if keys >= call.keys or not isinstance(mask, Mask):
        return mask, call
    return mask.last(keys), replace(call, keys=keys)


def plan_attention(
    terms: Terms,
    mask: Mask | Tensor | None,
    call: Call,
    *,
    backend: str | Backend | None = None,
    trusted: bool = False,
) -> Plan:
    """Put terms and mask in the form that the best backend wants, once for all layers that `attend` with it.

    Args:
        terms: of one kind of layer; where they have a window, it narrows the mask.
        mask: who sees whom; a bool tensor that broadcasts to (B, H, T, S), True = visible, or None for all.
        call: sizes, dtype and device, how many layers share the plan, and what is wanted.
        backend: forced; None chooses (`choose_backend`).
        trusted: sizes are not checked: a network made terms and mask for this call, at positions that it has checked.

    Raises:
        ValueError: a mask tensor is not boolean, the mask or the terms are of other sizes, or the forced backend cannot
            do the call; the terms have a window, and neither they nor the mask know the positions.
    """
    if not trusted:
        mask = _checked(terms, mask, call)
    if terms.window is not None:
        mask = _windowed(mask, terms.window, terms, call)
    call = call.with_terms(terms, mask)
    chosen = choose_backend(call, backend)
    if chosen.compiles(call) and backend is None and not call.traced and _kernels_fail(call.device):
        chosen = choose_backend(replace(call, kernels_fail=True))
    if isinstance(mask, Mask) and mask.hides_nothing:
        mask = None
    return Plan(chosen, terms, call, mask, chosen.prepare(terms, mask, call))


def _windowed(mask: Mask | Tensor | None, window: int, terms: Terms, call: Call) -> Mask | Tensor:
    """Return the mask with keys beyond the window hidden as well."""
    if isinstance(mask, Mask):
        return mask.windowed(window)
    if terms.positions is None:
        raise BadInput(f"a window of {window} tokens needs positions: pass a Mask, which knows them, as mask")
    near = Mask(*terms.positions).windowed(window)
    if mask is None:
        return near
    near_B1TS = near.dense(call.device)
    assert near_B1TS is not None
    return mask & near_B1TS


def _kernels_fail(device: torch.device) -> bool:
    """Tell whether the self-test of the Triton kernels failed on a device, as far as it may run now."""
    # the test waits for the GPU, which would spoil the capture of a graph
    return not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()) and _self_test_fails(device)


@lru_cache
def _self_test_fails(device: torch.device) -> bool:
    """Run the self-test of the Triton kernels once for each device and process, and warn where it fails.

    It has a thread of its own, so that no mode of the caller (autocast, inference, fake tensors) reaches it.
    """
    try:
        from wordorder.attention.backends.triton.operators import self_test  # needs Triton

        with ThreadPoolExecutor(1) as thread:
            fault = thread.submit(self_test, device).result()
    except Exception as error:  # no compiler, too little shared memory, another version of Triton
        fault = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if fault is None:
        return False
    warnings.warn(
        f"the Triton kernels of attention failed their self-test on {device} ({fault}): other backends do their work,"
        f" with more memory; {VARIABLE}=sdpa runs without the test",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


def _alike(terms: Terms, other: Terms) -> bool:
    """Tell whether both have one bias, window and width of heads, terms by content of one structure, and sinks."""
    mine, others = (() if kind.bias is None else kind.bias.parts() for kind in (terms, other))
    same = len(mine) == len(others) and all(a is b for a, b in zip(mine, others, strict=True))
    alike = len(terms.content) == len(other.content) and bool(terms.sinks) == bool(other.sinks)
    for one, another in zip(terms.content, other.content, strict=False):
        alike &= one.low_rank == another.low_rank and one.edges == another.edges
    return same and alike and terms.window == other.window and terms.widening == other.widening


def _checked(terms: Terms, mask: object, call: Call) -> Mask | Tensor | None:
    """Return the mask, a tensor with four axes; refuse terms or a mask of other sizes, which would be broadcast."""
    if terms.positions is not None:
        check_positions_fit("the terms' query positions", terms.positions[0], call.batch, call.queries)
        check_positions_fit("the terms' key positions", terms.positions[1], call.batch, call.keys)
    if terms.bias is not None:
        check_bias_fits(terms.bias, batch=call.batch, heads=call.heads, queries=call.queries, keys=call.keys)
    if mask is None:
        return None
    if isinstance(mask, Mask):
        for positions in (mask.query, mask.key):  # their rows; the lengths below
            check_positions_fit("the mask's positions", positions, call.batch, positions.length)
        lengths, asked = (mask.query.length, mask.key.length), (call.queries, call.keys)
        tokens = None if mask.tokens_BS is None else tuple(mask.tokens_BS.shape)
        if lengths != asked or tokens not in (None, (1, call.keys), (call.batch, call.keys)):
            raise BadInput(
                f"the mask is of {lengths[0]} queries and {lengths[1]} keys, tokens_BS {tokens}; the call has"
                f" {call.batch} examples, {call.queries} queries and {call.keys} keys"
            )
        return mask
    if not isinstance(mask, Tensor):
        kind = type(mask).__name__
        raise BadInput(
            f"mask must be a Mask or a bool tensor (True = visible), got {kind}; for a causal mask "
            "pass Mask(positions, positions, high=0)"
        )
    if mask.dtype != torch.bool:
        raise BadInput(f"mask must be boolean (True = visible), got {mask.dtype}; additive terms belong in the terms")
    sizes = (call.batch, call.heads, call.queries, call.keys)
    shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    if len(shape) > 4 or any(size not in (1, fits) for size, fits in zip(shape, sizes, strict=True)):
        raise BadInput(f"mask must broadcast to (batch, heads, queries, keys) = {sizes}, got shape {tuple(mask.shape)}")
    return mask[(None,) * (4 - mask.dim())]
