"""Compile every kernel for GPUs that are not here, and read what the compiler says of it: `python -m tools.kernels`.

    python -m tools.kernels --json benchmarks/results/kernels.json     # then: make pages
    python -m tools.kernels --only backward --target sm_90             # while a kernel is written

Triton needs no device to compile. For each `tools.kernel_case.KernelCase` and target this prints registers,
bytes or registers that spill to memory, shared memory beside the target's limit, and the instructions of tensor cores.
It ends with status 1 where a kernel does not compile, spills within an inner loop, exceeds a limit, or multiplies
matrices without tensor cores. Spills around the loops, of an address for instance, cost a few cycles for each program.
Compiling says nothing about numbers: those are tested in Triton's interpreter, and on a GPU.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tools.kernel_case import KernelCase

MODULES = ("tools.attention_kernels",)
"""Modules with a function `kernel_cases`."""

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A GPU to compile for."""

    backend: str
    arch: int | str
    warp: int
    """Threads of a warp."""
    shared: int
    """Bytes of shared memory that one block may have."""
    matrix: str
    """Pattern of the instructions of its tensor cores."""


TARGETS = {
    "sm_80": Target(backend="cuda", arch=80, warp=32, shared=163 * KIB, matrix=r"\bmma\.sync"),
    "sm_86": Target(backend="cuda", arch=86, warp=32, shared=99 * KIB, matrix=r"\bmma\.sync"),
    "sm_90": Target(backend="cuda", arch=90, warp=32, shared=227 * KIB, matrix=r"\bwgmma\.mma_async|\bmma\.sync"),
    "sm_100": Target(backend="cuda", arch=100, warp=32, shared=227 * KIB, matrix=r"\btcgen05\.mma|\bmma\.sync"),
    "gfx942": Target(backend="hip", arch="gfx942", warp=64, shared=64 * KIB, matrix=r"\bv_mfma"),
}
"""A100, RTX 30 (and 40), H100 and H200, B200, MI300."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the compiler says of one kernel for one target."""

    kernel: str
    target: str
    blocks: str
    """Sizes of its blocks in words; may be empty."""
    registers: int
    """Registers of a thread; of an AMD GPU, vector registers, accumulation registers among them."""
    spills: int
    """Bytes stored to and loaded from memory for want of registers; of an AMD GPU, vector registers."""
    inside: int
    """Instructions of inner loops that read or write spilled registers; of an AMD GPU, the spilled registers."""
    shared: int
    """Bytes of shared memory of a block."""
    matrix: tuple[str, ...]
    """Instructions of tensor cores in the code."""
    seconds: float
    """Time of compiling it."""

    def faults(self, *, matrix_units: bool) -> list[str]:
        """Say in sentences what is wrong."""
        limit, found = TARGETS[self.target].shared, list[str]()
        if self.inside:
            found.append(f"reads or writes spilled registers {self.inside} times in an inner loop")
        if self.shared > limit:
            found.append(f"needs {self.shared:,} bytes of shared memory, of at most {limit:,}")
        if matrix_units and not self.matrix:
            found.append("multiplies matrices without tensor cores")
        return [f"{self.kernel}, {self.target}: {fault}" for fault in found]


def compile_listed(module: str, index: int, target: str) -> Compiled | str:
    """Compile one case of a module."""
    return compile_case(cases_of(module)[index], target)


def compile_case(case: KernelCase, target: str) -> Compiled | str:
    """Compile one case; return the error as text where Triton refuses it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    to = TARGETS[target]
    arguments = list(case.signature)
    attributes = {(arguments.index(name),): [["tt.divisibility", 16]] for name in case.divisible}
    source = ASTSource(case.fn, dict(case.signature), dict(case.constexprs), attributes)
    options, log = {"num_warps": case.num_warps, "num_stages": case.num_stages}, io.StringIO()
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(log):  # Triton prints what ptxas says
            made = triton.compile(source, target=GPUTarget(to.backend, to.arch, to.warp), options=options)
    except Exception as error:  # any error of the compiler belongs to this kernel, and the others go on
        return f"{case.name}, {target}: does not compile: {type(error).__name__}: {error}"
    seconds = time.perf_counter() - started
    if to.backend == "cuda":
        code, counts = made.asm["ptx"], counts_of_ptxas(log.getvalue())
        counts["inside"] = spills_in_loops(machine_code(made.asm["cubin"])) if counts["spills"] else 0
    else:
        code, counts = made.asm["amdgcn"], counts_of_amdgcn(made.asm["amdgcn"])
    matrix = tuple(sorted(set(re.findall(to.matrix, code))))
    facts = {"kernel": case.name, "target": target, "blocks": case.blocks, **counts}
    return Compiled(**facts, shared=made.metadata.shared, matrix=matrix, seconds=seconds)


def cases_of(module: str) -> list[KernelCase]:
    """Return the cases of a module of kernels."""
    return importlib.import_module(module).kernel_cases()


def counts_of_ptxas(log: str) -> dict[str, int]:
    """Read registers, spills and local memory from what `ptxas -v` prints; functions that are called count too."""
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", log)]
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if not registers or not frames:
        raise ValueError(f"ptxas names no registers: {log!r}")
    return {
        "registers": max(registers),
        "spills": sum(int(stores) + int(loads) for _, stores, loads in frames),
    }


def machine_code(cubin: bytes) -> str:
    """Return the instructions of a compiled kernel as text, by the tool that Triton brings along."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-sass", file.name], check=True, capture_output=True, text=True).stdout


def spills_in_loops(code: str) -> int:
    """Count the loads and stores of local memory within innermost loops.

    A loop is what a branch backwards encloses; an innermost one holds no other.
    """
    lines = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", code)]
    if not lines:
        raise ValueError(f"no instructions: {code!r}")
    jumps = [(int(found[1], 16), at) for at, text in lines if (found := re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text))]
    loops = [(begin, end) for begin, end in jumps if begin < end]
    inner = [
        one for one in loops if not any(one != other and one[0] <= other[0] and other[1] <= one[1] for other in loops)
    ]
    local = [at for at, text in lines if re.search(r"\b(?:STL|LDL)\b", text)]
    return sum(any(begin <= at <= end for begin, end in inner) for at in local)


def counts_of_amdgcn(assembly: str) -> dict[str, int]:
    """Read the same from the metadata at the end of AMD's assembly.

    Only vector registers spill to memory; scalar ones go into lanes of vector registers (`private_segment_fixed_size`
    stays 0), so they are not counted.
    """
    found = {name: int(number) for name, number in re.findall(r"^ +(?:- +)?\.(\w+): +(\d+)$", assembly, re.MULTILINE)}
    return {
        "registers": found["vgpr_count"],
        "spills": found["vgpr_spill_count"],
        "inside": found["vgpr_spill_count"],
    }


def compile_all(
    modules: Sequence[str], *, targets: Sequence[str], only: str = "", workers: int = 2
) -> tuple[list[Compiled], list[str]]:
    """Compile every case of the modules whose name contains ``only``; return results, and faults as sentences."""
    jobs = [
        (module, index, target)
        for module in modules
        for index, case in enumerate(cases_of(module))
        for target in targets
        if only in case.name and target in (case.targets or TARGETS)
    ]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(compile_listed, *zip(*jobs, strict=True))) if jobs else []
    faults: list[str] = []
    for (module, index, _), result in zip(jobs, results, strict=True):
        needs = cases_of(module)[index].matrix_units
        faults += [result] if isinstance(result, str) else result.faults(matrix_units=needs)
    return [result for result in results if isinstance(result, Compiled)], faults


def document_of(results: Sequence[Compiled]) -> dict[str, Any]:
    """Return what the JSON holds: the compiler, the limits, and a row for each kernel and target."""
    limits = {name: target.shared for name, target in TARGETS.items()}
    compiler = {"triton": metadata.version("triton"), "python": platform.python_version()}
    rows = [asdict(result) | {"seconds": round(result.seconds, 2)} for result in results]
    return {"compiler": compiler, "shared_limits": limits, "rows": rows}


def prepare() -> None:
    """Set what Triton reads from the environment: it compiles, and prints what ptxas says."""
    os.environ.pop("TRITON_INTERPRET", None)  # functions for the interpreter cannot be compiled
    os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9's default, which it warns of when it is unset


def main() -> None:
    """Compile, print a table, and write the file that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", nargs="+", default=MODULES, help="modules with a function kernel_cases")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--only", default="", metavar="WORDS", help="kernels whose name contains this")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    prepare()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        results, faults = compile_all(
            arguments.module, targets=arguments.target, only=arguments.only, workers=arguments.workers
        )
    width = max((len(result.kernel) for result in results), default=0)
    for row in results:
        print(
            f"{row.kernel:{width}}  {row.target:7} {row.registers:4} registers {row.spills:6} spilled"
            f" {row.shared / KIB:7.1f} KiB shared  {' '.join(row.matrix):16} {row.seconds:6.1f} s"
        )
    print(f"{len(results)} compiled in {time.perf_counter() - started:.0f} s with {arguments.workers} processes")
    if arguments.json:
        arguments.json.write_text(json.dumps(document_of(results), indent=1) + "\n", encoding="utf-8")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
