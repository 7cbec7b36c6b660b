"""Kernels that have what `python -m tools.kernels` must find: spills, too much shared memory, no tensor cores."""

import triton
import triton.language as tl

from tools.kernel_case import KernelCase


@triton.jit
def _subtract_sum(x, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    values = tl.load(at)
    tl.store(at, values - tl.sum(values))  # every value has to be held until the sum is known


@triton.jit
def _subtract_sums(x, BLOCK: tl.constexpr, LOOPS: tl.constexpr):
    for step in range(LOOPS):
        at = x + step * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(at)
        tl.store(at, values - tl.sum(values))


@triton.jit
def _product(x, y, BLOCK: tl.constexpr, LOOPS: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(LOOPS):
        left, right = tl.load(x + at + step * BLOCK * BLOCK), tl.load(y + at + step * BLOCK * BLOCK)
        total += tl.dot(left, right)
    tl.store(x + at, total.to(tl.float16))


@triton.jit
def _refused(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)  # BLOCK is no power of two


def kernel_cases():
    one, two = {"x": "*fp32", "BLOCK": "constexpr"}, {"x": "*fp16", "y": "*fp16"}
    two |= {"BLOCK": "constexpr", "LOOPS": "constexpr"}
    deep = {"fn": _product, "signature": two, "num_warps": 8, "divisible": frozenset("xy")}
    return [
        KernelCase(
            name="spilling",
            fn=_subtract_sums,
            signature=one | {"LOOPS": "constexpr"},
            num_warps=1,
            constexprs={"BLOCK": 16384, "LOOPS": 9},
        ),
        KernelCase(name="around", fn=_subtract_sum, signature=one, constexprs={"BLOCK": 16384}, num_warps=1),
        KernelCase(name="sound", fn=_subtract_sum, signature=one, constexprs={"BLOCK": 1024}),
        KernelCase(name="claiming", fn=_subtract_sum, signature=one, constexprs={"BLOCK": 64}, matrix_units=True),
        KernelCase(name="large", constexprs={"BLOCK": 128, "LOOPS": 16}, num_stages=5, matrix_units=True, **deep),
        KernelCase(name="refused", fn=_refused, signature=one, constexprs={"BLOCK": 48}),
        KernelCase(
            name="elsewhere", fn=_refused, signature=one, constexprs={"BLOCK": 48}, targets=frozenset({"gfx942"})
        ),
    ]
