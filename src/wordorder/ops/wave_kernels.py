"""`waves` as one kernel each way, for CUDA: memory is read once and written once.

Loaded only where it is used, since it needs Triton. One program computes a block of channels of one token. Tables that
words or channels share have a stride of 0, so that one kernel serves every scheme. The backward kernel computes the
sines again instead of reading the outputs, which costs the same traffic and stays exact at an amplitude of 0; it
writes one row per token and table, and torch's own sum of rows by word does the rest.
"""

# Triton has no stubs, and its functions are compiled from their source: types end at this file's functions
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportIndexIssue=false, reportArgumentType=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from wordorder.ops.kernel_case import KernelCase

_BLOCK = 256

Given = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
"""Amplitude, frequency, phase and decay."""


@triton.jit
def _read(table, row_stride, column_stride, word, channel, inside, WIDE: tl.constexpr):
    return tl.load(table + word * row_stride + channel * column_stride, mask=inside, other=0).to(WIDE)


@triton.jit
def _wave(
    ids, positions, position_stride,
    amplitude, frequency, phase, decay,
    ar, ac, fr, fc, pr, pc, dr, dc,
    tokens, channels, padding,
    FREQUENCY: tl.constexpr, PHASE: tl.constexpr, DECAY: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    word = tl.load(ids + token).to(tl.int64)  # times a stride it may pass 32 bits
    position = tl.load(positions + (token // tokens) * position_stride + token % tokens).to(WIDE)
    angle = tl.zeros((BLOCK,), WIDE)
    if FREQUENCY:
        angle = _read(frequency, fr, fc, word, channel, inside, WIDE) * position
    if PHASE:  # 2 pi, and theta wrapped as `wrap_phase` does
        theta = _read(phase, pr, pc, word, channel, inside, WIDE)
        angle += theta - 6.283185307179586 * tl.ceil((theta - 3.141592653589793) / 6.283185307179586)
    shrink = tl.full((BLOCK,), 1, WIDE)
    rate = tl.zeros((BLOCK,), WIDE)
    if DECAY:
        c = _read(decay, dr, dc, word, channel, inside, WIDE)
        ahead = tl.maximum(position, 0.0)
        shrink = tl.exp(-(tl.maximum(c, 0.0) + tl.log(1 + tl.exp(-tl.abs(c)))) * ahead)  # softplus
        rate = -ahead / (1 + tl.exp(-c))
    r = _read(amplitude, ar, ac, word, channel, inside, WIDE)
    seen = word != padding
    return token * channels + channel, inside, position, seen, r, shrink, rate, tl.cos(angle), tl.sin(angle)


@triton.jit
def _forward(
    real, imag, ids, positions, position_stride,
    amplitude, frequency, phase, decay,
    ar, ac, fr, fc, pr, pc, dr, dc,
    tokens, channels, padding,
    FREQUENCY: tl.constexpr, PHASE: tl.constexpr, DECAY: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, inside, _position, seen, r, shrink, _rate, cos, sin = _wave(
        ids, positions, position_stride, amplitude, frequency, phase, decay,
        ar, ac, fr, fc, pr, pc, dr, dc, tokens, channels, padding, FREQUENCY, PHASE, DECAY, WIDE, BLOCK,
    )  # fmt: skip
    modulus = tl.where(seen, r * shrink, 0.0)
    tl.store(real + at, (modulus * cos).to(real.dtype.element_ty), mask=inside)
    tl.store(imag + at, (modulus * sin).to(imag.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    g, h, to_amplitude, to_frequency, to_phase, to_decay,
    ids, positions, position_stride,
    amplitude, frequency, phase, decay,
    ar, ac, fr, fc, pr, pc, dr, dc,
    tokens, channels, padding,
    WANT_AMPLITUDE: tl.constexpr, WANT_FREQUENCY: tl.constexpr, WANT_PHASE: tl.constexpr, WANT_DECAY: tl.constexpr,
    FREQUENCY: tl.constexpr, PHASE: tl.constexpr, DECAY: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, inside, position, seen, r, shrink, rate, cos, sin = _wave(
        ids, positions, position_stride, amplitude, frequency, phase, decay,
        ar, ac, fr, fc, pr, pc, dr, dc, tokens, channels, padding, FREQUENCY, PHASE, DECAY, WIDE, BLOCK,
    )  # fmt: skip
    for_real = tl.load(g + at, mask=inside, other=0).to(WIDE)
    for_imag = tl.load(h + at, mask=inside, other=0).to(WIDE)
    along = tl.where(seen, (for_real * cos + for_imag * sin) * shrink, 0.0)
    across = tl.where(seen, (for_imag * cos - for_real * sin) * shrink * r, 0.0)
    if WANT_AMPLITUDE:
        tl.store(to_amplitude + at, along, mask=inside)
    if WANT_FREQUENCY:
        tl.store(to_frequency + at, across * position, mask=inside)
    if WANT_PHASE:
        tl.store(to_phase + at, across, mask=inside)
    if WANT_DECAY:
        tl.store(to_decay + at, along * r * rate, mask=inside)


def forward(
    ids_BT: Tensor, position_BT: Tensor, given: Given, channels: int, padding_idx: int | None
) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary part, (B, T, D) each, as `waves` does."""
    real, imag = (given[0].new_empty(*ids_BT.shape, channels) for _ in range(2))
    if real.numel():
        inputs, switches = _inputs(ids_BT, position_BT, given, channels, padding_idx)
        _forward[_grid(ids_BT, channels)](real, imag, *inputs, **switches)
    return real, imag


def backward(
    ids_BT: Tensor,
    position_BT: Tensor,
    given: Given,
    channels: int,
    padding_idx: int | None,
    upstream: tuple[Tensor, ...],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradient of every token's row of every table that wants one, (B, T, D) in at least float32."""
    g, h = (gradient.contiguous() for gradient in upstream)
    wide = torch.promote_types(g.dtype, torch.float32)
    rows = [torch.empty(g.shape, dtype=wide, device=g.device) if want else None for want in wanted]
    if g.numel():
        inputs, switches = _inputs(ids_BT, position_BT, given, channels, padding_idx)
        names = ("WANT_AMPLITUDE", "WANT_FREQUENCY", "WANT_PHASE", "WANT_DECAY")
        targets = [g if part is None else part for part in rows]
        _backward[_grid(ids_BT, channels)](
            g, h, *targets, *inputs, **dict(zip(names, wanted, strict=True)), **switches
        )  # fmt: skip
    return tuple(rows)


def _grid(ids_BT: Tensor, channels: int) -> tuple[int, int]:
    return ids_BT.numel(), triton.cdiv(channels, _BLOCK)


def _inputs(
    ids_BT: Tensor, position_BT: Tensor, given: Given, channels: int, padding_idx: int | None
) -> tuple[list[Any], dict[str, Any]]:
    """Return what both kernels take: pointers, strides (0 along what is shared), sizes, and which tables there are."""
    amplitude = given[0]
    tables = [amplitude if table is None else table for table in given]
    strides = [
        stride if size > 1 else 0 for table in tables for stride, size in zip(table.stride(), table.shape, strict=True)
    ]
    positions = position_BT.contiguous()
    per_example = positions.stride(0) if positions.shape[0] > 1 else 0
    padding = -1 if padding_idx is None else padding_idx
    inputs = [ids_BT.contiguous(), positions, per_example, *tables, *strides, ids_BT.shape[1], channels, padding]
    wide = tl.float64 if amplitude.dtype == torch.float64 else tl.float32
    present = {name: table is not None for name, table in zip(("FREQUENCY", "PHASE", "DECAY"), given[1:], strict=True)}
    return inputs, {**present, "WIDE": wide, "BLOCK": _BLOCK}


def kernel_cases() -> list[KernelCase]:
    """List the kernels as `forward` and `backward` launch them where every table is there and wants a gradient."""
    strides = {"position_stride", "ar", "ac", "fr", "fc", "pr", "pc", "dr", "dc"}
    integers = {*strides, "tokens", "channels", "padding"}
    cases: list[KernelCase] = []
    for name, table, wide in (("bfloat16", "*bf16", tl.float32), ("float32", "*fp32", tl.float32)):
        rows = {target: "*fp32" for target in ("to_amplitude", "to_frequency", "to_phase", "to_decay")}
        types = rows | {"ids": "*i64", "positions": "*i64"} | dict.fromkeys(integers, "i32")
        for fn in (_forward, _backward):
            switches = {switch: True for switch in fn.arg_names if switch.isupper()}
            constexprs = switches | {"WIDE": wide, "BLOCK": _BLOCK} | dict.fromkeys(("ac", "fc", "pc", "dc"), 1)
            signature = {
                argument: "constexpr" if argument in constexprs else types.get(argument, table)
                for argument in fn.arg_names
            }
            pointers = (argument for argument, kind in signature.items() if kind[0] == "*")
            divisible = frozenset((*pointers, "channels", "ar", "fr", "pr", "dr"))
            kernel = f"waves, {fn.__name__.strip('_')}, {name}"
            cases.append(
                KernelCase(name=kernel, fn=fn, signature=signature, constexprs=constexprs, divisible=divisible)
            )
    return cases
