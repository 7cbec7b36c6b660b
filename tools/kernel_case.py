"""One configuration of a Triton kernel, described so that it can be compiled without a GPU.

`python -m tools.kernels` compiles every case for every target, and reads registers, spills and shared memory from what
the compiler says. A module of kernels takes part by a function::

    def kernel_cases() -> list[KernelCase]

and by its name in `tools.kernels.MODULES`. It lists the configurations that its launcher chooses from, no others: for
each kernel (forward, dq, dk and dv) every entry of the table of configurations, with the switches that cost most. The
launcher and this function read the same table, so that what is compiled here is what runs there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """A kernel with the types of its arguments, its constants, and how it is launched."""

    name: str
    """Name in tables, unique within a module for each target, such as "forward, bfloat16, 64 channels"."""
    fn: Any
    """The function that `triton.jit` returned."""
    signature: Mapping[str, str]
    """Type of each argument by name, in the order of the function, in Triton's words: "*bf16" is a pointer, "i32" an
    integer, "fp32" a number, "constexpr" one of ``constexprs``. Launchers make an integer that is 1 a constant: give
    such a stride as "constexpr", with the value 1."""
    constexprs: Mapping[str, Any]
    """Values of the arguments that are "constexpr"."""
    divisible: frozenset[str] = frozenset()
    """Pointers and integers that are multiples of 16, which the launcher finds out: torch's tensors are aligned, and
    strides mostly are multiples. Without them reads are not vectorised nor pipelined, and other code is measured."""
    num_warps: int = 4
    num_stages: int = 3
    matrix_units: bool = False
    """There are products of matrices (`tl.dot`), so that instructions of tensor cores have to be in the code."""
    blocks: str = ""
    """Sizes of its blocks in words, for the table."""
    targets: frozenset[str] = frozenset()
    """Targets that the configuration is chosen for, such as "sm_90"; empty = all (`tools.kernels.TARGETS`)."""
