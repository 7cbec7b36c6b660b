"""The Triton kernels of attention as cases for `python -m tools.kernels`, and the search for their blocks.

    python -m tools.attention_kernels                                                # some minutes on two cores
    python -m tools.attention_kernels --measured benchmarks/results/gpu-tuning.json  # what `make gpu` found fastest

Both write the table of configurations. The search takes for each kernel, shape and GPU that has no row yet the first
blocks of `CANDIDATES` that compile without spills in an inner loop and within the shared memory.
"""

import argparse
import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.kernel_case import KernelCase
from tools.kernels import Compiled, compile_case, prepare
from wordorder.attention.backends.triton import WIDEST_TRAINED, launch
from wordorder.attention.backends.triton.configurations import CANDIDATES, TARGETS, Blocks, Kernel, Shape, table
from wordorder.attention.backends.triton.launch import Inputs, Launch, Upstream
from wordorder.attention.backends.triton.operands import KernelBias, KernelMask, padded_rank

TABLE = Path(launch.__file__).with_name("configurations.json")
TYPES = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}  # fmt: skip
SHAPES = ((64, False, 2), (64, True, 2), (128, False, 2), (128, True, 2), (256, True, 2), (64, True, 4))
"""Channels, whether there is a low-rank part, and bytes of a number, as `Shape.entry` has them."""
KEY = ("target", "kernel", "itemsize", "width", "ranked", "extras")
"""What tells the rows of the table apart."""


def kernel_cases() -> list[KernelCase]:
    """List every row of the table of configurations, with a causal mask, padding and a table.

    Those with extras have dropout, a dense part of float32, a mask tensor and groups of heads at once.
    """
    return [case_of(kernel, shape, chosen) for (kernel, shape), chosen in table().items()]


def case_of(kernel: Kernel, shape: Shape, chosen: Blocks) -> KernelCase:
    """Describe a kernel for a shape with these blocks, as `launch` starts it for a text of 2,048 tokens."""
    started = launch_of(kernel, shape, chosen)
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    divisible: set[str] = set()
    for name in started.kernel.arg_names:
        value = started.arguments[name]
        if isinstance(value, Tensor):
            signature[name] = TYPES[value.dtype]
            divisible.add(name)
        elif name.isupper() or value == 1:
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if abs(value) < 2**31 else "i64"
            divisible |= {name} if value % 16 == 0 else set()
    dtype, factors = ("bfloat16" if shape.itemsize == 2 else "float32"), (" + low rank" if shape.ranked else "")
    words, extras = kernel.replace("_", " "), (" + extras" if shape.extras else "")
    return KernelCase(
        name=f"attention, {words}, {dtype}, {shape.width} channels{factors}{extras}",
        fn=started.kernel,
        signature=signature,
        constexprs=constants,
        divisible=frozenset(divisible),
        num_warps=chosen.warps,
        num_stages=chosen.stages,
        matrix_units=shape.itemsize == 2,
        blocks=f"{chosen.rows} x {chosen.keys}",
        targets=frozenset({shape.target}),
    )


def launch_of(kernel: Kernel, shape: Shape, chosen: Blocks) -> Launch:
    """Return the launch of a kernel on tensors without memory."""
    B, H, T, D = 4, 12, 2048, shape.width
    dtype = torch.bfloat16 if shape.itemsize == 2 else torch.float32

    def made(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*sizes, dtype=dtype, device="meta")

    G = 4 if shape.extras else H
    q, k, v, o = (made(B, T, heads, D, dtype=dtype).transpose(1, 2) for heads in (H, G, G, H))
    rank = sum(padded_rank(D + 2))
    factors = [made(1, H, T, rank) for _ in range(2)] if shape.ranked else [None, None]
    matrix = made(1, H, T, T) if shape.extras else None
    pairs = made(B, 1, T, T, dtype=torch.uint8) if shape.extras else None
    valid, bounds = made(B, T, dtype=torch.uint8), made(B, 2, dtype=torch.int32)
    inputs = Inputs(
        q=q,
        k=k,
        v=v,
        bias=KernelBias(*factors, made(H, 2 * T - 1), matrix),
        mask=KernelMask(high=0, tokens_BS=valid, bounds_B2=bounds, visible_BHTS=pairs),
        seed=made(1, dtype=torch.int64) if shape.extras else None,
        scale=D**-0.5,
        dropout=0.1 if shape.extras else 0.0,
        target=shape.target,
    )
    lse = made(B, H, T)
    upstream, by_factor = Upstream(o, lse, lse), made(B, H, T, rank) if shape.ranked else None
    if kernel == "forward":
        return launch.forward(inputs, o, lse, chosen)
    here = None if shape.factors_apart else by_factor
    if kernel == "query_gradients":
        return launch.query_gradients(inputs, upstream, q, here, made(B, H, 1, 2 * T - 1), chosen)
    if kernel == "query_factors":
        return launch.query_gradients(inputs, upstream, None, by_factor, None, chosen)
    if kernel == "key_gradients":
        return launch.key_gradients(inputs, upstream, k, v, here, chosen)
    if kernel == "key_factors":
        return launch.key_gradients(inputs, upstream, None, None, by_factor, chosen)
    return launch.dense_gradients(inputs, upstream, made(1, H, T, T), chosen)


def main() -> None:
    """Put measured rows into the table, or search for those that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, metavar="JSON", help="rows that a GPU measured")
    arguments = parser.parse_args()
    rows: dict[tuple[Any, ...], dict[str, Any]] = {_key(row): row for row in json.loads(TABLE.read_text("utf-8"))}
    if arguments.measured:
        write_table(rows | {_key(row): row for row in json.loads(arguments.measured.read_text("utf-8"))["rows"]})
    else:
        search(rows)


def write_table(rows: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> None:
    """Write the table, a row a line."""
    lines = ",\n".join(json.dumps(rows[key]) for key in sorted(rows, key=str))
    TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def row_of(kernel: Kernel, shape: Shape, chosen: Blocks) -> dict[str, Any]:
    """Return a row of the table."""
    return {"kernel": kernel, **asdict(shape), "blocks": list(chosen)}


def search(rows: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """Search for the rows of the table that are missing, and write it after each."""
    prepare()
    jobs = [
        (kernel, Shape(*sizes, target, extras))
        for sizes in SHAPES
        for extras in (False, True)
        for kernel in CANDIDATES
        for target in TARGETS
        if _used(kernel, Shape(*sizes, target, extras)) and (target, kernel, sizes[2], *sizes[:2], extras) not in rows
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for row in pool.map(_first_that_fits, jobs):
            print(row, flush=True)
            rows[_key(row)] = row
            write_table(rows)


def _used(kernel: Kernel, shape: Shape) -> bool:
    """Tell whether a kernel is started for a shape: wider heads are not trained."""
    if kernel == "dense_gradients" and not shape.extras:
        return False
    if kernel.endswith("factors"):
        return shape.factors_apart and shape.width <= WIDEST_TRAINED
    return shape.width <= WIDEST_TRAINED or kernel == "forward"


def _first_that_fits(job: tuple[Kernel, Shape]) -> dict[str, Any]:
    kernel, shape = job
    for sizes in CANDIDATES[kernel]:
        chosen = Blocks(*sizes)
        made = compile_case(case_of(kernel, shape, chosen), shape.target)
        if isinstance(made, Compiled) and not made.faults(matrix_units=shape.itemsize == 2):
            return row_of(kernel, shape, chosen)
    raise SystemExit(f"no blocks fit {kernel} for {shape}; add smaller ones to CANDIDATES")


if __name__ == "__main__":
    main()
