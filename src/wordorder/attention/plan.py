"""What attention needs besides queries, keys and values, worked out once per forward and read by every layer."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wordorder.attention import sdpa
from wordorder.attention.choice import Backend, BiasKind, Call, choose_backend
from wordorder.attention.tiles import TileMask
from wordorder.encodings import HybridOrder, Order
from wordorder.errors import BadInput
from wordorder.ops import Bias, DenseBias, Packed, Visibility, check_positions_fit
from wordorder.ops.tracing import transformed


@dataclass(frozen=True)
class Plan:
    """Order and mask in the form that one backend wants.

    Args:
        backend: who computes.
        order: the scale, rotations, bias and terms by content.
        mask: who sees whom, as it was given.
        visible_B1TS: bool, True = visible; None where nothing is hidden; for SDPA and the reference.
        mask_BHTS: bias and mask in one matrix, for SDPA.
        is_causal: the mask is the lower triangle, which SDPA knows by name.
        tile_mask: the mask by tiles.
    """

    backend: Backend
    order: Order
    mask: Visibility | Tensor | None = None
    visible_B1TS: Tensor | None = None
    mask_BHTS: Tensor | None = None
    is_causal: bool = False
    tile_mask: TileMask | None = None

    def layer(self, index: int) -> "Plan":
        """The plan as layer ``index`` (from 0) sees it."""
        return replace(self, order=self.order.layer(index)) if self.order.content else self


@dataclass(frozen=True)
class HybridPlan:
    """Order and mask where they differ by layer, each kind of layer in the form of the backend that is best for it.

    Args:
        kinds: the plan of each kind of layer.
        kind_of_layer: which of them each layer has.
    """

    kinds: tuple[Plan, ...]
    kind_of_layer: tuple[int, ...]

    def layer(self, index: int) -> Plan:
        """The plan as layer ``index`` (from 0) sees it."""
        return self.kinds[self.kind_of_layer[index]].layer(index)


def plan_layers(order: Order | HybridOrder, make: Callable[[Order, int], Plan], *, layers: int) -> Plan | HybridPlan:
    """The plan of all layers.

    Kinds of layers with the same bias share what is written out of it, and the mask: they differ in nothing that
    `make_plan` reads.

    Args:
        order: what the encodings prepared.
        make: gives the plan of an order that so many layers read.
        layers: of the network.
    """
    if isinstance(order, Order):
        return make(order, layers)
    readers = [sum(_alike(kind, order.kinds[other]) for other in order.kind_of_layer) for kind in order.kinds]
    plans: list[Plan] = []
    for kind, count in zip(order.kinds, readers, strict=True):
        made = next((plan for plan, other in zip(plans, order.kinds, strict=False) if _alike(kind, other)), None)
        shared = None if made is None else replace(made, order=replace(kind, bias=made.order.bias))
        plans.append(shared or make(kind, count))
    return HybridPlan(tuple(plans), order.kind_of_layer)


def _alike(order: Order, other: Order) -> bool:
    """Whether both have the same bias, and either both or neither have terms by content."""
    mine, others = _summands(order.bias), _summands(other.bias)
    same = len(mine) == len(others) and all(a is b for a, b in zip(mine, others, strict=True))
    return same and bool(order.content) == bool(other.content)


def _summands(bias: Bias | None) -> tuple[Bias, ...]:
    return () if bias is None else bias.parts()


def describe(
    order: Order,
    mask: Visibility | Tensor | None = None,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    dropout: float = 0.0,
    training: bool | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Call:
    """What `choose_backend` asks about a call.

    Args:
        order: what the encodings prepared.
        mask: who sees whom.
        batch: examples, B.
        heads: query heads, H.
        queries: T.
        keys: S.
        head_dim: D.
        dtype: of queries, keys and values.
        device: of queries, keys and values.
        dropout: probability that a weight is dropped.
        training: whether a gradient is wanted; None: whether gradients are recorded at all.
        return_lse: the log-sum-exp is wanted.
        return_weights: the weights are wanted.
    """
    bias = order.bias
    kind: BiasKind = "none" if bias is None else "learned" if bias.requires_grad else "fixed"
    return Call(
        device=device.type,
        dtype=dtype,
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        head_dim=head_dim,
        bias=kind,
        structured=bias is None or not any(isinstance(part, DenseBias) for part in bias.parts()),
        content=bool(order.content),
        training=torch.is_grad_enabled() if training is None else training,
        dropout=dropout > 0,
        return_lse=return_lse,
        return_weights=return_weights,
        masked=_differs(mask),
        traced=torch.compiler.is_compiling() or transformed(),
    )


def make_plan(
    order: Order, mask: Visibility | Tensor | None, call: Call, *, backend: str | None = None, layers: int = 1
) -> Plan:
    """Put order and mask in the form that the backend wants.

    Args:
        order: what the encodings prepared.
        mask: who sees whom; a bool tensor that broadcasts to (B, H, T, S), True = visible, or None for all.
        call: what `describe` returned.
        backend: forced; None chooses.
        layers: how many calls will share the plan; a bias that several read is written out once for all of them.

    Raises:
        ValueError: a mask tensor is not boolean, the mask or the order is of other sizes, or the forced backend cannot
            do the call.
    """
    if order.positions is not None:
        check_positions_fit("the order's query positions", order.positions[0], call.batch, call.queries)
        check_positions_fit("the order's key positions", order.positions[1], call.batch, call.keys)
    if isinstance(mask, Visibility):
        _check_mask(mask, call)
    elif mask is not None:
        mask = _checked_tensor(mask, call)
    chosen, device = choose_backend(call, backend), torch.device(call.device)
    if isinstance(mask, Visibility) and mask.hides_nothing:
        mask = None
    if chosen == "flex":
        return Plan(chosen, order, mask)
    if chosen.endswith("tiles"):
        return _plan_of_tiles(order, mask, call, chosen, layers)
    if chosen == "reference":
        return Plan(chosen, order, mask, _dense(mask, device))
    causal = isinstance(mask, Visibility) and mask.is_plain_causal and order.bias is None and len(order.content) == 0
    visible = None if causal else _dense(mask, device)
    return Plan(chosen, order, mask, visible, sdpa.additive_mask(order, visible, call.dtype), causal)


def _plan_of_tiles(order: Order, mask: Visibility | Tensor | None, call: Call, chosen: Backend, layers: int) -> Plan:
    device = torch.device(call.device)
    tile_mask = TileMask(mask, batch=call.batch, queries=call.queries, keys=call.keys, device=device)
    if chosen == "kept-tiles" and layers > 1 and order.bias is not None:
        # the weights are kept anyway: one matrix for all layers and examples is built once instead of in every tile
        wide = torch.promote_types(call.dtype, torch.float32)
        order = replace(order, bias=DenseBias(order.bias.written_out(wide), may_hide=order.bias.may_hide))
    return Plan(chosen, order, mask, tile_mask=tile_mask)


def _dense(mask: Visibility | Tensor | None, device: torch.device) -> Tensor | None:
    return mask.dense(device) if isinstance(mask, Visibility) else mask


def _differs(mask: Visibility | Tensor | None) -> bool:
    """Whether the mask differs between examples, as far as its type says."""
    if isinstance(mask, Tensor):
        return mask.dim() == 4 and mask.shape[0] > 1
    return isinstance(mask, Visibility) and (mask.valid_BS is not None or isinstance(mask.key, Packed))


def _checked_tensor(mask: object, call: Call) -> Tensor:
    """Return a mask given as a tensor with four axes.

    Raises:
        BadInput: it is something else, or does not broadcast to (B, H, T, S).
    """
    if not isinstance(mask, Tensor):
        kind = type(mask).__name__
        raise BadInput(
            f"mask must be a Visibility or a bool tensor (True = visible), got {kind}; for a causal mask "
            "pass Visibility(positions, positions, causal=True)"
        )
    if mask.dtype != torch.bool:
        raise BadInput(f"mask must be boolean (True = visible), got {mask.dtype}; additive terms belong in the order")
    wanted = (call.batch, call.heads, call.queries, call.keys)
    shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    if len(shape) > 4 or any(size not in (1, fits) for size, fits in zip(shape, wanted, strict=True)):
        raise BadInput(
            f"mask must broadcast to (batch, heads, queries, keys) = {wanted}, got shape {tuple(mask.shape)}"
        )
    return mask[(None,) * (4 - mask.dim())]


def _check_mask(mask: Visibility, call: Call) -> None:
    """A mask of other sizes would be broadcast, or read in part."""
    for positions in (mask.query, mask.key):
        check_positions_fit("the mask's positions", positions, call.batch, positions.length)  # the rows, lengths below
    lengths, asked = (mask.query.length, mask.key.length), (call.queries, call.keys)
    valid = None if mask.valid_BS is None else tuple(mask.valid_BS.shape)
    if lengths != asked or (valid is not None and valid not in ((1, call.keys), (call.batch, call.keys))):
        raise BadInput(
            f"the mask is of {lengths[0]} queries and {lengths[1]} keys, valid_BS {valid}; the call has {call.batch} "
            f"examples, {call.queries} queries and {call.keys} keys"
        )
