"""The launches of the kernels: their grids, arguments and blocks, without running them."""

# Triton's functions are compiled from their source, and their arguments have no types
# pyright: reportUnknownMemberType=false

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wordorder.attention.backends.triton import SPARE_RANK, kernels
from wordorder.attention.backends.triton.configurations import Blocks, Shape
from wordorder.attention.backends.triton.operands import (
    KernelBias,
    KernelMask,
    blocks_of_same_ids,
    padded_channels,
    padded_rank,
)

LOG2_E = 1.4426950408889634


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A call of attention as the kernels take it."""

    q: Tensor
    """(B, H, T, D)."""
    k: Tensor
    """(B, G, S, D)."""
    v: Tensor
    """(B, G, S, E)."""
    bias: KernelBias
    mask: KernelMask
    seed: Tensor | None
    """Seed of the dropout, int64 (1,)."""
    scale: float
    dropout: float
    target: str
    """One of `configurations.TARGETS`."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, T and S."""
        batch, heads, queries, _ = self.q.shape
        return batch, heads, queries, self.k.shape[2]

    @property
    def shape(self) -> Shape:
        """The facts on which the sizes of blocks depend."""
        a = self.bias.a_BHTR
        by_pair = self.bias.dense_BHTS is not None or self.mask.visible_BHTS is not None
        extras = by_pair or self.dropout > 0 or self.k.shape[1] != self.q.shape[1]
        widest = max(self.q.shape[-1], self.v.shape[-1], 0 if a is None else a.shape[-1] - SPARE_RANK)
        return Shape(padded_channels(widest), a is not None, self.q.element_size(), self.target, extras)


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and its arguments by name."""

    kernel: Any
    grid: tuple[int, ...]
    """Blocks, heads and examples."""
    arguments: dict[str, Any]
    blocks: Blocks

    def run(self) -> None:
        """Start the kernel on the device of its tensors."""
        device = next(value.device for value in self.arguments.values() if isinstance(value, Tensor))
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self.kernel[self.grid](**self.arguments, num_warps=self.blocks.warps, num_stages=self.blocks.stages)


def forward(inputs: Inputs, o: Tensor, lse: Tensor, chosen: Blocks) -> Launch:
    """Return the launch that writes output (B, H, T, E) and log-sum-exp (B, H, T)."""
    batch, heads, queries, _ = inputs.sizes
    grid = (-(-queries // chosen.rows), heads, batch)
    arguments = {**_common(inputs, chosen), **_id_blocks(inputs, chosen.rows, chosen.keys), "o": o, "lse": lse}
    return Launch(kernels.forward, grid, arguments | _strides("o", o, "bht"), chosen)


def row_sums(inputs: Inputs, o: Tensor, do: Tensor, delta: Tensor) -> Launch:
    """Return the launch that writes delta = rowsum(do o), (B, H, T)."""
    batch, heads, queries, _ = inputs.sizes
    chosen = Blocks(64, 0, 4, 1)
    arguments = {"delta": delta, "o": o, "do": do, "heads": heads, "queries": queries, "ROWS": chosen.rows}
    arguments |= {"E": o.shape[-1], "BLOCK_E": padded_channels(o.shape[-1])} | _strides("o", o, "bht")
    return Launch(kernels.row_sums, (-(-queries // chosen.rows), heads, batch), arguments, chosen)


@dataclass(frozen=True)
class Upstream:
    """The backward pass's own inputs: the gradient of the output, in its layout; log-sum-exp and delta (B, H, T)."""

    do: Tensor
    lse: Tensor
    delta: Tensor


def query_gradients(
    inputs: Inputs, upstream: Upstream, dq: Tensor | None, da: Tensor | None, dtable: Tensor | None, chosen: Blocks
) -> Launch:
    """Return the launch that writes dq (B, H, T, D) and da (B, H, T, R), and adds to dtable (B, H, 1 or blocks, W)."""
    batch, heads, queries, _ = inputs.sizes
    grid = (-(-queries // chosen.rows), heads, batch)
    arguments = {**_common(inputs, chosen), **_id_blocks(inputs, chosen.rows, chosen.keys), **_given(upstream)}
    for name, target, switch in (("dq", dq, "QUERIES"), ("da", da, "FACTORS"), ("dtable", dtable, "TABLE")):
        arguments |= {name: inputs.q if target is None else target, f"WANT_{switch}": target is not None}
    by_table = (0, 0, 0) if dtable is None else dtable.stride()
    arguments |= {"dtable_b": by_table[0], "dtable_h": by_table[1]}
    arguments["dtable_m"] = by_table[2] if dtable is not None and dtable.shape[2] > 1 else 0
    return Launch(kernels.query_gradients, grid, arguments | _strides("dq", dq, "bht"), chosen)


def key_gradients(
    inputs: Inputs, upstream: Upstream, dk: Tensor | None, dv: Tensor | None, dc: Tensor | None, chosen: Blocks
) -> Launch:
    """Return the launch that writes dk (B, G, S, D) and dv (B, G, S, E), both or neither, and dc (B, H, S, R)."""
    batch, _, _, keys = inputs.sizes
    grid = (-(-keys // chosen.keys), inputs.k.shape[1], batch)
    exchanged = inputs.mask if inputs.mask.ids is None else replace(inputs.mask, ids=inputs.mask.ids[::-1])
    its_blocks = _id_blocks(replace(inputs, mask=exchanged), chosen.keys, chosen.rows)
    arguments = {**_common(inputs, chosen), **its_blocks, **_given(upstream)}
    arguments |= {name: inputs.q if target is None else target for name, target in (("dk", dk), ("dv", dv), ("dc", dc))}
    arguments |= {"WANT_KEYS": dk is not None, "WANT_FACTORS": dc is not None}
    arguments |= _strides("dk", dk, "bhs") | _strides("dv", dv, "bhs")
    return Launch(kernels.key_gradients, grid, arguments, chosen)


def dense_gradients(inputs: Inputs, upstream: Upstream, ddense: Tensor, chosen: Blocks) -> Launch:
    """Return the launch that writes ddense (B or 1, H or 1, T, S), contiguous."""
    batch, heads, queries, keys = inputs.sizes
    examples, own_heads = ddense.shape[:2]
    grid = (-(-queries // chosen.rows), -(-keys // chosen.keys), examples * own_heads)
    arguments = {**_common(inputs, chosen), **_given(upstream), "ddense": ddense}
    del arguments["bounds"]
    arguments |= {"shared_examples": batch // examples, "shared_heads": heads // own_heads}
    return Launch(kernels.dense_gradients, grid, arguments, chosen)


def _given(upstream: Upstream) -> dict[str, Any]:
    given = {"do": upstream.do, "lse": upstream.lse, "delta": upstream.delta}
    return given | _strides("o", upstream.do, "bht")


def _common(inputs: Inputs, chosen: Blocks) -> dict[str, Any]:
    """Return the arguments that all kernels share; the place of a tensor that is not there is taken by the queries."""
    q, k, v, mask = inputs.q, inputs.k, inputs.v, inputs.mask
    (_, heads, queries, keys), rank = inputs.sizes, (0, 0)
    a, c = inputs.bias.a_BHTR, inputs.bias.c_BHSR
    if a is not None and c is not None:
        rank = padded_rank(a.shape[-1])
        a, c = (a * LOG2_E).to(q.dtype).contiguous(), c.to(q.dtype).contiguous()
    table = None if inputs.bias.table_HW is None else (inputs.bias.table_HW * LOG2_E).contiguous()
    dense = inputs.bias.dense_BHTS
    if dense is not None and dense.stride(-1) != 1:
        dense = dense.contiguous()
    q_positions, k_positions = mask.positions or (None, None)
    q_ids, k_ids = mask.ids or (None, None)
    tensors = (
        ("q", q, "bht"),
        ("k", k, "bhs"),
        ("v", v, "bhs"),
        ("a", a, "bh"),
        ("c", c, "bh"),
        ("table", table, "h"),
        ("dense", dense, "bht"),
        ("valid", mask.tokens_BS, "b"),
        ("bounds", mask.bounds_B2, ""),
        ("shift", mask.shift_B, ""),
        ("q_positions", q_positions, "b"),
        ("k_positions", k_positions, "b"),
        ("q_ids", q_ids, "b"),
        ("k_ids", k_ids, "b"),
        ("mask", mask.visible_BHTS, "bhts"),
        ("seed", inputs.seed, ""),
    )
    arguments: dict[str, Any] = {}
    for name, tensor, axes in tensors:
        arguments |= {name: q if tensor is None else tensor} | _strides(name, tensor, axes)
    arguments |= {"heads": heads, "groups": heads // k.shape[1], "queries": queries, "keys": keys}
    arguments |= {"scale": inputs.scale, "low": mask.low or 0, "high": mask.high or 0, "dropout": inputs.dropout}
    arguments |= {
        "D": q.shape[-1],
        "E": v.shape[-1],
        "BLOCK_D": padded_channels(q.shape[-1]),
        "BLOCK_E": padded_channels(v.shape[-1]),
    }
    arguments |= {"RANK": rank[0], "REST": rank[1], "TABLE": table is not None, "DENSE": dense is not None}
    arguments |= {"LOW": mask.low is not None, "HIGH": mask.high is not None, "VALID": mask.tokens_BS is not None}
    arguments |= {"SHIFT": mask.shift_B is not None, "POSITIONS": mask.positions is not None}
    arguments |= {"IDS": mask.ids is not None, "MASK": mask.visible_BHTS is not None, "DROPOUT": inputs.dropout > 0}
    return arguments | {"ROWS": chosen.rows, "KEYS": chosen.keys}


def _id_blocks(inputs: Inputs, own_block: int, other_block: int) -> dict[str, Any]:
    """Return which blocks hold tokens of the same packed sequences."""
    if inputs.mask.ids is None:
        return {"id_blocks": inputs.q}
    own, other = (ids.expand(inputs.q.shape[0], -1) for ids in inputs.mask.ids)
    return {"id_blocks": blocks_of_same_ids(own, other, own_block, other_block).contiguous()}


def _strides(name: str, tensor: Tensor | None, axes: str) -> dict[str, int]:
    """Return the strides of the first axes by name, 0 along an axis of 1."""
    if tensor is None:
        return {f"{name}_{axis}": 0 for axis in axes}
    return {f"{name}_{axis}": 0 if tensor.shape[at] == 1 else tensor.stride(at) for at, axis in enumerate(axes)}
