"""Plan attention: put order and mask, once per forward pass, in the form that every layer's call reads."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from wordorder.attention import flex, sdpa
from wordorder.attention.choice import VARIABLE, Backend, BiasKind, Call, choose_backend
from wordorder.attention.tiles import TileMask
from wordorder.attention.triton.operands import KernelBias, KernelMask, kernel_bias, kernel_mask
from wordorder.encodings import PositionTerms, PositionTermsByLayer
from wordorder.errors import BadInput
from wordorder.ops import DenseBias, LowRankBias, Mask, Packed, check_bias_fits, check_positions_fit
from wordorder.ops.execution import transformed

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True)
class Plan:
    """Position terms and mask in the form that one backend wants."""

    backend: Backend
    order: PositionTerms
    sizes: "AttentionSizes"
    """Those of the calls it was made for."""
    mask: Mask | Tensor | None = None
    """The mask, as it was given."""
    visible_B1TS: Tensor | None = None
    """Bool, True = visible; None where nothing is hidden; for SDPA and the reference."""
    mask_BHTS: Tensor | None = None
    """Bias and mask in one matrix, for SDPA."""
    is_causal: bool = False
    """The mask is the lower triangle, which SDPA knows by name."""
    tile_mask: TileMask | None = None
    block_mask: "BlockMask | None" = None
    """For FlexAttention."""
    kernel_bias: KernelBias | None = None
    """For Triton, as is the mask."""
    kernel_mask: KernelMask | None = None

    def layer(self, index: int) -> "Plan":
        """Return the plan as layer ``index`` (from 0) sees it."""
        return replace(self, order=self.order.layer(index)) if self.order.content else self


@dataclass(frozen=True)
class HybridPlan:
    """Position terms and mask where they differ by layer, each kind of layer in the form of its best backend."""

    kinds: tuple[Plan, ...]
    kind_of_layer: tuple[int, ...]

    def layer(self, index: int) -> Plan:
        """Return the plan as layer ``index`` (from 0) sees it."""
        return self.kinds[self.kind_of_layer[index]].layer(index)


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Sizes, dtype and device of a call of attention; ``heads`` are those of the queries."""

    batch: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    """Channels of a head of the queries or of the values, the larger."""
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor | None = None) -> "AttentionSizes":
        """Return the sizes of queries (B, H, T, D), keys (B, G, S, D) and values (B, G, S, E); None: E = D."""
        batch, heads, queries, width = q.shape
        width = width if v is None else max(width, v.shape[-1])
        keys, dtype, device = k.shape[2], q.dtype, q.device
        return cls(batch=batch, heads=heads, queries=queries, keys=keys, head_dim=width, dtype=dtype, device=device)


def plan_attention(
    order: PositionTerms | PositionTermsByLayer,
    mask: Mask | Tensor | None,
    sizes: AttentionSizes,
    *,
    layers: int = 1,
    backend: str | None = None,
    dropout: float = 0.0,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Plan | HybridPlan:
    """Put order and mask in the form that the best backend wants, once for all layers that `attend` with it.

    Kinds of layers with the same bias share what is written out of it, and the mask.

    Args:
        order: what the encodings prepared.
        mask: who sees whom; a bool tensor that broadcasts to (B, H, T, S), True = visible, or None for all.
        layers: how many calls will share the plan; a bias that several read is written out once for all of them.
        backend: forced; None chooses (`choose_backend`).

    Raises:
        ValueError: a mask tensor is not boolean, the mask or the order is of other sizes, or the forced backend cannot
            do the call.
    """
    wanted = _Wanted(backend, dropout > 0, return_lse, return_weights)
    if isinstance(order, PositionTerms):
        return _plan(order, mask, sizes, layers, wanted)
    readers = [sum(_alike(kind, order.kinds[other]) for other in order.kind_of_layer) for kind in order.kinds]
    plans: list[Plan] = []
    for kind, count in zip(order.kinds, readers, strict=True):
        made = next((plan for plan, other in zip(plans, order.kinds, strict=False) if _alike(kind, other)), None)
        shared = None if made is None else replace(made, order=replace(kind, bias=made.order.bias))
        plans.append(shared or _plan(kind, mask, sizes, count, wanted))
    return HybridPlan(tuple(plans), order.kind_of_layer)


def check_plan(plan: Plan, sizes: AttentionSizes, *, dropout: float, return_lse: bool) -> None:
    """Refuse a call that the plan's backend cannot do, or that is of other sizes than the plan was made for."""
    for name in ("batch", "heads", "queries", "keys", "dtype"):
        made, given = getattr(plan.sizes, name), getattr(sizes, name)
        if made != given:
            raise BadInput(f"this Plan was made for {name} = {made}, and the call has {given}: make one for its sizes")
    call = _call(plan.order, None, sizes, _Wanted(plan.backend, dropout > 0, return_lse))
    # a plan made outside a traced layer stays what it is: its backend runs outside as well
    choose_backend(replace(call, traced=False, transformed=False), plan.backend)


class _Wanted(NamedTuple):
    """The forced backend of a call, whether weights are dropped, and what is wanted beyond its output."""

    backend: str | None = None
    dropout: bool = False
    lse: bool = False
    weights: bool = False


def _plan(
    order: PositionTerms, mask: Mask | Tensor | None, sizes: AttentionSizes, layers: int, wanted: _Wanted
) -> Plan:
    if order.positions is not None:
        check_positions_fit("the order's query positions", order.positions[0], sizes.batch, sizes.queries)
        check_positions_fit("the order's key positions", order.positions[1], sizes.batch, sizes.keys)
    if order.bias is not None:
        check_bias_fits(order.bias, batch=sizes.batch, heads=sizes.heads, queries=sizes.queries, keys=sizes.keys)
    if mask is not None:
        mask = _checked_mask(mask, sizes)
    call = _call(order, mask, sizes, wanted)
    chosen = choose_backend(call, wanted.backend)
    by_triton = chosen == "triton" or (chosen == "flex" and call.device == "cuda")
    if by_triton and wanted.backend is None and not call.traced and _kernels_fail(sizes.device):
        chosen = choose_backend(replace(call, kernels_fail=True))
    if isinstance(mask, Mask) and mask.hides_nothing:
        mask = None
    if chosen == "flex":
        blocks = flex.block_mask(mask, sizes.batch, sizes.heads, sizes.queries, sizes.keys, sizes.device)
        return Plan(chosen, order, sizes, mask, block_mask=blocks)
    if chosen == "triton":
        read = kernel_mask(mask, sizes.batch, sizes.device)
        own = kernel_bias(order.bias, sizes.heads, sizes.dtype)
        return Plan(chosen, order, sizes, mask, kernel_bias=own, kernel_mask=read)
    if chosen.endswith("tiles"):
        tile_mask = TileMask(mask, batch=sizes.batch, queries=sizes.queries, keys=sizes.keys, device=sizes.device)
        if chosen == "kept-tiles" and layers > 1 and order.bias is not None:
            # the weights are kept anyway: one matrix for all layers and examples is built once instead of in every tile
            wide = torch.promote_types(sizes.dtype, torch.float32)
            order = replace(order, bias=DenseBias(order.bias.written_out(wide), may_hide=order.bias.may_hide))
        return Plan(chosen, order, sizes, mask, tile_mask=tile_mask)
    plain = isinstance(mask, Mask) and mask.is_plain_causal and order.bias is None and len(order.content) == 0
    causal = chosen == "sdpa" and plain
    if isinstance(mask, Mask):
        visible = None if causal else mask.dense(sizes.device)
    else:
        visible = mask
    if chosen == "reference":
        return Plan(chosen, order, sizes, mask, visible)
    return Plan(chosen, order, sizes, mask, visible, sdpa.additive_mask(order, visible, sizes.dtype), causal)


def _call(order: PositionTerms, mask: Mask | Tensor | None, sizes: AttentionSizes, wanted: _Wanted) -> Call:
    """Return the facts on which `choose_backend` decides."""
    bias = order.bias
    if isinstance(mask, Tensor):
        masked = mask.dim() == 4 and mask.shape[0] > 1
    else:
        masked = mask is not None and (mask.tokens_BS is not None or isinstance(mask.key, Packed))
    parts = () if bias is None else bias.parts()
    kind: BiasKind = "none" if bias is None else "learned" if bias.requires_grad else "fixed"
    gpu, memory = _gpu(sizes.device)
    return Call(
        device=sizes.device.type,
        dtype=sizes.dtype,
        batch=sizes.batch,
        heads=sizes.heads,
        queries=sizes.queries,
        keys=sizes.keys,
        head_dim=sizes.head_dim,
        rank=sum(part.key_factor_BHSR.shape[-1] for part in parts if isinstance(part, LowRankBias)),
        bias=kind,
        structured=not any(isinstance(part, DenseBias) for part in parts),
        content=bool(order.content),
        training=torch.is_grad_enabled(),
        dropout=wanted.dropout,
        return_lse=wanted.lse,
        return_weights=wanted.weights,
        masked=masked,
        traced=torch.compiler.is_compiling(),
        transformed=transformed(),
        gpu=gpu,
        memory=memory,
    )


def _gpu(device: torch.device) -> tuple[str, int]:
    """Return architecture and bytes of memory of a GPU; ("", 0) where there is none."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return "", 0
    card = cast(Any, torch.cuda).get_device_properties(device)
    if torch.version.hip is not None:
        return card.gcnArchName.split(":")[0], card.total_memory  # "gfx942:sramecc+:xnack-"
    return f"sm_{card.major}{card.minor}", card.total_memory


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
        from wordorder.attention.triton.operators import self_test  # needs Triton

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


def _alike(order: PositionTerms, other: PositionTerms) -> bool:
    """Tell whether both have the same bias, and either both or neither have terms by content."""
    mine, others = (() if terms.bias is None else terms.bias.parts() for terms in (order, other))
    same = len(mine) == len(others) and all(a is b for a, b in zip(mine, others, strict=True))
    return same and bool(order.content) == bool(other.content)


def _checked_mask(mask: object, sizes: AttentionSizes) -> Mask | Tensor:
    """Return the mask, a tensor with four axes; refuse one of other sizes, which would be broadcast or read in part."""
    if isinstance(mask, Mask):
        for positions in (mask.query, mask.key):  # their rows; the lengths below
            check_positions_fit("the mask's positions", positions, sizes.batch, positions.length)
        lengths, asked = (mask.query.length, mask.key.length), (sizes.queries, sizes.keys)
        tokens = None if mask.tokens_BS is None else tuple(mask.tokens_BS.shape)
        if lengths != asked or tokens not in (None, (1, sizes.keys), (sizes.batch, sizes.keys)):
            raise BadInput(
                f"the mask is of {lengths[0]} queries and {lengths[1]} keys, tokens_BS {tokens}; the call has"
                f" {sizes.batch} examples, {sizes.queries} queries and {sizes.keys} keys"
            )
        return mask
    if not isinstance(mask, Tensor):
        kind = type(mask).__name__
        raise BadInput(
            f"mask must be a Mask or a bool tensor (True = visible), got {kind}; for a causal mask "
            "pass Mask(positions, positions, high=0)"
        )
    if mask.dtype != torch.bool:
        raise BadInput(f"mask must be boolean (True = visible), got {mask.dtype}; additive terms belong in the order")
    wanted = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    if len(shape) > 4 or any(size not in (1, fits) for size, fits in zip(shape, wanted, strict=True)):
        raise BadInput(
            f"mask must broadcast to (batch, heads, queries, keys) = {wanted}, got shape {tuple(mask.shape)}"
        )
    return mask[(None,) * (4 - mask.dim())]
