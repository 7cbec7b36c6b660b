"""Attention on a GPU with a bias that learns, beside FlashAttention without any: steps of `benchmarks/gpu.py`.

Forward and backward down to the queries, keys, values and every tensor of the bias, in bfloat16. The limit, 1.00, is
FlashAttention through torch's SDPA with no bias; a share is the limit's time over a candidate's, so that more is
better. Candidates run in turn, timed by CUDA events; a share is the median over rounds of the share within a round. One
is timed only after its output and every gradient were compared with the slow reference. Without a GPU the same runs on
tiny shapes in float32, to try the script: those numbers mean nothing.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from wordorder.attention import attention
from wordorder.encodings import Terms
from wordorder.ops import Bias, Contiguous, LowRankBias, Mask, ToeplitzBias
from wordorder.ops.bias import SumBias

CHANNELS = 64
MAX_DISTANCE = 128
HEADS = 16
LIMIT = "FlashAttention, no bias"
OURS = "wordorder, triton"
FAR = "wordorder, far and near"
WRITTEN_OUT = "SDPA, bias written out"
FLEX = "FlexAttention"
PEER = "x-transformers"
BACKENDS = {OURS: "triton", FAR: "far-and-near", WRITTEN_OUT: "sdpa", FLEX: "flex"}
"""The backend of `wordorder.attention` that a candidate is."""

BOUND = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 1e-4}
"""Largest error of an output or gradient, over the largest element of the reference's, as tests of backends have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One section of the benchmark."""

    bias: str
    """"t5" (a table of distances, constant from `MAX_DISTANCE` on), "tupe-a" (low-rank factors of d channels), "tupe-r"
    (both) or "fox" (factors of 2 channels)."""
    tokens: int
    batch: int
    heads: int = HEADS
    channels: int = CHANNELS
    causal: bool = False
    dropout: float = 0.0
    candidates: tuple[str, ...] = (OURS, WRITTEN_OUT, FLEX)

    @property
    def name(self) -> str:
        """Name in tables."""
        dropout = f", dropout {self.dropout:g}" if self.dropout else ""
        return f"{self.bias}{', causal' * self.causal}, {self.tokens:,} tokens{dropout}"

    @property
    def flops(self) -> float:
        """FLOPs of content alone, forward and backward: two products forward, five backward."""
        return 7 * 2 * self.batch * self.heads * self.tokens**2 * self.channels / (1 + self.causal)

    def shrunk(self) -> "Sizes":
        """Return sizes small enough for a CPU and Triton's interpreter, odd on purpose."""
        return replace(self, tokens=37, batch=1, heads=2)


SECTIONS = (
    Sizes(bias="tupe-r", tokens=512, batch=32, candidates=(OURS, WRITTEN_OUT)),
    Sizes(bias="tupe-r", tokens=2048, batch=8),
    Sizes(bias="tupe-r", tokens=8192, batch=2),
    Sizes(bias="tupe-r", tokens=8192, batch=2, causal=True, candidates=(OURS, WRITTEN_OUT)),
    Sizes(bias="t5", tokens=512, batch=32, candidates=(OURS, WRITTEN_OUT, PEER)),
    Sizes(bias="t5", tokens=2048, batch=8, candidates=(OURS, WRITTEN_OUT, FLEX, PEER)),
    Sizes(bias="t5", tokens=8192, batch=2, candidates=(OURS,)),
)
FAR_SECTIONS = tuple(
    Sizes(
        bias=bias,
        tokens=tokens,
        batch=max(1, 16384 // tokens),
        causal=causal,
        dropout=dropout,
        candidates=(FAR, OURS, *((WRITTEN_OUT,) if tokens <= 8192 else ()), *((FLEX,) if not dropout else ())),
    )
    for tokens in (512, 2048, 8192, 32768)
    for bias, causal, dropout in (
        *(("t5", causal, dropout) for causal in (False, True) for dropout in (0.0, 0.1)),
        ("tupe-a", False, 0.0),
        ("tupe-r", False, 0.0),
        ("tupe-r", False, 0.1),
    )
)
"""What the step `far` measures in bfloat16."""
FAR_IN_FLOAT32 = tuple(
    Sizes(bias=bias, tokens=tokens, batch=1, causal=bias == "fox", candidates=(FAR, OURS, WRITTEN_OUT))
    for tokens in (2048, 8192)
    for bias in ("t5", "tupe-r", "fox")
)
SMOKE = (
    *((bias, OURS, dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32) for bias in ("tupe-r", "t5")),
    *((bias, FAR, dtype) for dtype in (torch.bfloat16, torch.float32) for bias in ("tupe-r", "t5")),
    *((bias, WRITTEN_OUT, torch.bfloat16) for bias in ("tupe-r", "t5")),
    *((bias, FLEX, torch.bfloat16) for bias in ("tupe-r", "t5")),
)
"""Bias, candidate and dtype of each call of the step `smoke`."""
MEMORY = (8192, 32768)
"""Tokens of one text at which memory is measured: linear is four times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the kernel has to reach: a share of one candidate's throughput over another's."""

    section: str
    of: str
    at_least: float


GOALS = (
    Goal(section="tupe-r, 512 tokens", of=LIMIT, at_least=0.90),
    Goal(section="tupe-r, 8,192 tokens", of=LIMIT, at_least=0.70),
    Goal(section="tupe-r, causal, 8,192 tokens", of=LIMIT, at_least=0.70),
    Goal(section="t5, 512 tokens", of=LIMIT, at_least=0.85),
    Goal(section="t5, 2,048 tokens", of=LIMIT, at_least=0.85),
    Goal(section="t5, 8,192 tokens", of=LIMIT, at_least=0.85),
    Goal(section="tupe-r, 2,048 tokens", of=WRITTEN_OUT, at_least=2.0),
    Goal(section="tupe-r, 2,048 tokens", of=FLEX, at_least=1.3),
    Goal(section="tupe-r, 8,192 tokens", of=FLEX, at_least=1.3),
)
FAR_GOALS = (
    Goal(section="t5, 8,192 tokens", of=LIMIT, at_least=0.80),
    Goal(section="t5, 2,048 tokens", of=LIMIT, at_least=0.60),
    Goal(section="tupe-r, 8,192 tokens", of=LIMIT, at_least=0.45),
)
MOST_GROWTH = 4.2
"""Largest ratio of memory at the two lengths of `MEMORY` that counts as linear."""
MOST_OVER_FLOPS = 1.05
"""Largest ratio of look-ahead memory's time over Transformer-XL's to that of their FLOPs."""

Step = Callable[[], tuple[Tensor, ...]]


class Problem:
    """Tensors of one section; every candidate computes the same function of them."""

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.sizes, heads, tokens = sizes, sizes.heads, sizes.tokens
        # as a projection of the hidden states leaves them
        fused = torch.randn(sizes.batch, tokens, 3, heads, sizes.channels, device=device, dtype=dtype)
        self.qkv = [part.detach().requires_grad_() for part in fused.permute(2, 0, 3, 1, 4).unbind(0)]
        rank = {"t5": 0, "fox": 2, "tupe-a": sizes.channels, "tupe-r": sizes.channels + 2}[sizes.bias]
        shapes = [(1, heads, tokens, rank)] * 2 if rank else []
        shapes += [(heads, 2 * MAX_DISTANCE + 1)] if sizes.bias in ("t5", "tupe-r") else []
        self.terms = [(0.1 * torch.randn(*shape, device=device)).requires_grad_() for shape in shapes]
        distance = torch.arange(1 - tokens, tokens, device=device)
        self.row_W = distance.clamp(-MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE
        self.upstream = torch.randn(sizes.batch, tokens, heads, sizes.channels, device=device, dtype=dtype)

    def step(self, name: str) -> Step:
        """Return forward and backward of a candidate: its output, and the gradients of all that it reads."""
        if name == LIMIT:
            return self._gradients(self._flash, self.qkv)
        if name == PEER:
            return self._x_transformers()
        return self._gradients(lambda: self._ours(BACKENDS[name], self.qkv, self.terms), [*self.qkv, *self.terms])

    def reference(self) -> tuple[Tensor, ...]:
        """Return what every candidate but the limit should, by the slow reference in float64."""
        leaves = [leaf.detach().double().requires_grad_() for leaf in (*self.qkv, *self.terms)]
        return self._gradients(lambda: self._ours("reference", leaves[:3], leaves[3:]), leaves)()

    def _gradients(self, forward: Callable[[], Tensor], leaves: Sequence[Tensor]) -> Step:
        def run() -> tuple[Tensor, ...]:
            output = forward()
            upstream = self.upstream.transpose(1, 2).to(output.dtype)
            return output, *torch.autograd.grad(output, leaves, upstream)

        return run

    def _flash(self) -> Tensor:
        # on GPUs FlashAttention has no float32
        is_flash = self.upstream.dtype.itemsize == 2 or not self.upstream.is_cuda
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if is_flash else SDPBackend.EFFICIENT_ATTENTION):
            dropout = self.sizes.dropout
            return F.scaled_dot_product_attention(*self.qkv, is_causal=self.sizes.causal, dropout_p=dropout)

    def _ours(self, backend: str, qkv: Sequence[Tensor], terms: Sequence[Tensor]) -> Tensor:
        tokens, parts = self.sizes.tokens, list[Bias]()
        if len(terms) > 1:
            parts.append(LowRankBias(terms[0], terms[1]))
        if len(terms) != 2:
            edges = tokens - 1 - MAX_DISTANCE, tokens - 1 + MAX_DISTANCE
            parts.append(ToeplitzBias(terms[-1][:, self.row_W], tokens, may_hide=False, edges=edges))
        where = Contiguous(tokens)
        mask = Mask(where, where, high=0) if self.sizes.causal else None
        q, k, v = qkv
        order, dropout = Terms((2 * self.sizes.channels) ** -0.5, SumBias(parts)), self.sizes.dropout
        return attention(q, k, v, order, mask, backend=backend, dropout=dropout)

    def _x_transformers(self) -> Step:
        from x_transformers.attend import Attend
        from x_transformers.x_transformers import RelativePositionBias

        size, device = self.sizes, self.upstream.device
        relative = RelativePositionBias(scale=size.channels**0.5, causal=size.causal, heads=size.heads).to(device)
        attend = Attend(heads=size.heads, causal=size.causal)

        def forward() -> Tensor:
            bias = relative(size.tokens, size.tokens).to(self.upstream.dtype)
            return attend(*self.qkv, attn_bias=bias)[0]

        return self._gradients(forward, [*self.qkv, *relative.parameters()])


def forget_compiled(device: torch.device) -> None:
    """Drop what torch.compile made: past a number of shapes it gives up, and FlexAttention would run uncompiled."""
    if device.type == "cuda":
        torch.compiler.reset()


def largest_error(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Return the largest error of any tensor, over the expected one's largest element; infinite where one is NaN."""
    errors = [
        float((ours.detach().double() - slow.detach()).abs().max() / slow.detach().abs().max().clamp(min=1e-2))
        for ours, slow in zip(found, expected, strict=True)
    ]
    return max(error if error == error else float("inf") for error in errors)


def milliseconds(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Return the time of one call, by events around several: launches overlap as they do in training."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(repeats):
            run()
        return 1e3 * (time.perf_counter() - started) / repeats
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats


def shares(
    steps: Mapping[str, Callable[[], object]], device: torch.device, *, rounds: int, at_least: float = 20.0
) -> dict[str, dict[str, Any]]:
    """Time candidates in turn; each measurement lasts some milliseconds, and the first of ``steps`` is the limit."""
    names, repeats = list(steps), dict[str, int]()
    for name, step in steps.items():
        milliseconds(step, device, 2)
        repeats[name] = max(1, min(50, int(at_least / milliseconds(step, device, 2)) + 1)) if rounds > 2 else 1
    times = {name: list[float]() for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(milliseconds(steps[name], device, repeats[name]))
    rows: dict[str, dict[str, Any]] = {}
    for name, taken in times.items():
        low, middle, high = statistics.quantiles(
            [a / b for a, b in zip(times[names[0]], taken, strict=True)], n=4, method="inclusive"
        )
        rows[name] = {"share": middle, "share_quartiles": [low, high], "milliseconds": statistics.median(taken)}
    return rows


def left_out(device: torch.device) -> dict[str, str]:
    """Return the candidates that a dry run cannot try, with the reason: nothing on a GPU."""
    if device.type == "cuda":
        return {}
    reasons = {FLEX: "FlexAttention trains on a GPU only"}
    try:
        from wordorder.attention.backends.triton.operators import self_test

        fault = self_test(device)
    except Exception as error:  # Triton 3.6's interpreter with NumPy 2.4, or no Triton
        fault = reason_of(error)
    return reasons if fault is None else reasons | {OURS: f"Triton's interpreter does not work here: {fault}"}


def reason_of(error: Exception) -> str:
    """Return type and first line of an error."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def smoke_test(device: torch.device, *, dry: bool, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Compare each call of `SMOKE` with the slow reference, outputs and gradients, and write each result at once."""
    document: dict[str, Any] = {"rows": [], "left_out": left_out(device), "failed": []}
    for bias, name, dtype in SMOKE:
        if name in document["left_out"]:
            continue
        sizes = Sizes(bias=bias, tokens=200, batch=2, heads=2)
        case, started = f"{name}, {bias}, {str(dtype).removeprefix('torch.')}", time.monotonic()
        try:
            # bfloat16 products are wrong in Triton's interpreter
            problem = Problem(sizes.shrunk() if dry else sizes, device, torch.float32 if dry else dtype)
            error = largest_error(problem.step(name)(), problem.reference())
            bound = BOUND[dtype]
            fault = None if error <= bound else f"its error is {error:.1e}, of at most {bound:.0e}"
            document["rows"].append({"case": case, "error": error if math.isfinite(error) else None})
        except Exception as error:  # the next call may do better
            fault = reason_of(error)
            document["rows"].append({"case": case, "error": None})
        document["failed"] += [] if fault is None else [f"{case}: {fault}"]
        print(f"{case:40} {fault or 'right'}, {time.monotonic() - started:.1f} s", flush=True)
        write(document)
    return document


def section_of(sizes: Sizes, device: torch.device, dtype: torch.dtype, *, rounds: int) -> dict[str, dict[str, Any]]:
    """Return a row for each candidate: its share of the limit, its error, or why it has none."""
    forget_compiled(device)
    small = Problem(replace(sizes, tokens=min(sizes.tokens, 300), batch=2, dropout=0.0), device, dtype)
    expected, failed, errors = small.reference(), dict[str, str](), dict[str, float]()
    for name in sizes.candidates:
        try:
            if name in BACKENDS:
                errors[name] = largest_error(small.step(name)(), expected)
                if errors[name] > BOUND[dtype]:
                    failed[name] = f"not timed: its error is {errors[name]:.1e}, of at most {BOUND[dtype]:.0e}"
            else:  # it draws a table of its own
                small.step(name)()
        except Exception as error:  # another candidate's numbers are no worse for it
            failed[name] = reason_of(error)
    problem = Problem(sizes, device, dtype)
    steps = {name: problem.step(name) for name in (LIMIT, *sizes.candidates) if name not in failed}
    for name in list(steps)[1:]:
        try:
            steps[name]()
        except Exception as error:  # out of memory, for one
            failed[name] = reason_of(error)
            del steps[name]
    rows = shares(steps, device, rounds=rounds)
    for name, row in rows.items():
        row |= {"tflops": sizes.flops / row["milliseconds"] / 1e9}
        row |= {"error": errors[name]} if name in errors else {}
    for name, reason in failed.items():
        rows[name] = {"failed": reason} | ({"error": errors[name]} if name in errors else {})
    return rows


def words_of(row: Mapping[str, Any]) -> str:
    """Say what was measured of a candidate, or why nothing was."""
    if "failed" in row:
        return row["failed"]
    return f"{row['share']:6.2f} {row['milliseconds']:9.3f} ms {row['tflops']:7.1f} TFLOP/s"


def memory_of(name: str, tokens: int, device: torch.device, dtype: torch.dtype, sizes: Sizes) -> dict[str, Any]:
    """Return the peak of memory of one step above its inputs; on a CPU it is not measured."""
    forget_compiled(device)
    try:
        step = Problem(replace(sizes, tokens=tokens, batch=1), device, dtype).step(name)
        step()
        if device.type != "cuda":
            return {"bytes": None}
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return {"bytes": torch.cuda.max_memory_allocated() - before}
    except Exception as error:
        return {"failed": reason_of(error)}


def far_and_near(device: torch.device, *, dry: bool, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure far and near parts beside every other way, and the memory of one text; ``write`` after each section.

    In float32 the limit is SDPA's memory-efficient kernel, since FlashAttention has no float32.
    """
    document: dict[str, Any] = {"limit": LIMIT, "sections": {}, "memory": {}, "goals": [], "failed": []}
    document["left_out"] = left_out(device)
    sections = [*((sizes, torch.bfloat16) for sizes in FAR_SECTIONS), *((x, torch.float32) for x in FAR_IN_FLOAT32)]
    if dry:  # one of each bias
        sections = [*{sizes.bias: (replace(sizes, dropout=0.0), torch.float32) for sizes, _ in sections}.values()]
    for sizes, dtype in sections:
        candidates = tuple(name for name in sizes.candidates if name not in document["left_out"])
        sizes = replace(sizes, candidates=candidates)
        rows = section_of(sizes.shrunk() if dry else sizes, device, dtype, rounds=2 if dry else 7)
        name = sizes.name + ", float32" * (dtype == torch.float32 and not dry)
        document["sections"][name] = rows
        print(f"\n{name}")
        for candidate, row in rows.items():
            print(f"  {candidate:24} {words_of(row)}", flush=True)
        write(document)
    for goal in FAR_GOALS:
        share = document["sections"].get(goal.section, {}).get(FAR, {}).get("share")
        words = f"throughput over {goal.of}, at least {goal.at_least:g}"
        met = None if share is None else share >= goal.at_least
        document["goals"].append({"section": goal.section, "goal": words, "found": share, "met": met})
    for tokens in MEMORY:
        sizes = Sizes(bias="t5", tokens=0, batch=1, heads=2 if dry else HEADS)
        length = tokens // 512 if dry else tokens
        document["memory"][f"{tokens:,}"] = {
            name: memory_of(name, length, device, torch.float32 if dry else torch.bfloat16, sizes)
            for name in (LIMIT, FAR)
        }
    document["failed"] += never_measured(document["sections"])
    return document


def memory_step(device: torch.device, *, dry: bool, rounds: int) -> dict[str, Any]:
    """Return the share of look-ahead memory in Transformer-XL's speed of a training step, beside that of FLOPs."""
    from memory_step import LOOK_AHEAD, NONE, XL, candidates, flops_of

    sizes = {"width": 32 if dry else 1024, "heads": 2 if dry else 16, "layers": 2 if dry else 6}
    with torch.device(device):
        steps = candidates(8 if dry else 512, sizes=sizes | {"dropout": 0.0, "attention_dropout": 0.0}, batch=8)
    flops = {name: flops_of(steps[name]) for name in (XL, LOOK_AHEAD)}
    with torch.autocast(device.type, torch.bfloat16):
        rows = shares({name: steps[name] for name in (XL, LOOK_AHEAD, NONE)}, device, rounds=rounds)
    ratio = flops[LOOK_AHEAD] / flops[XL]
    return {"rows": rows, "flops_ratio": ratio, "time_over_flops": 1 / rows[LOOK_AHEAD]["share"] / ratio}


def reached(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Set each goal beside what was measured; None where it was not."""
    found: list[dict[str, Any]] = []
    sections, memory = document["sections"], document["memory"]
    for goal in GOALS:
        rows = sections.get(goal.section, {})
        ours, other = (rows.get(name, {}).get("share") for name in (OURS, goal.of))
        share = ours / other if ours and other else None
        met = None if share is None else share >= goal.at_least
        words = f"throughput over {goal.of}, at least {goal.at_least:g}"
        found.append({"section": goal.section, "goal": words, "found": share, "met": met})
    short, long = (memory.get(f"{tokens:,}", {}).get(OURS, {}).get("bytes") for tokens in MEMORY)
    growth = long / short if short and long else None
    words = f"memory over that of {MEMORY[0]:,}, at most {MOST_GROWTH:g}"
    met = None if growth is None else growth <= MOST_GROWTH
    found.append({"section": f"tupe-r, {MEMORY[1]:,} tokens", "goal": words, "found": growth, "met": met})
    over = document.get("memory_step", {}).get("time_over_flops")
    words = f"time over Transformer-XL's, over that of FLOPs, at most {MOST_OVER_FLOPS:g}"
    met = None if over is None else over <= MOST_OVER_FLOPS
    found.append({"section": "look-ahead memory, a step", "goal": words, "found": over, "met": met})
    return found


def never_measured(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the backends of this package that failed in every section, with the last reason."""
    rows = {name: [section[name] for section in sections.values() if name in section] for name in BACKENDS}
    return [
        f"{name}, in every section: {tried[-1]['failed']}"
        for name, tried in rows.items()
        if tried and all("failed" in row for row in tried)
    ]


def benchmark(device: torch.device, *, dry: bool, write: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure all sections, and call ``write`` after each with what there is: a time limit loses no more than one."""
    dtype, rounds = (torch.float32, 2) if dry else (torch.bfloat16, 15)
    document: dict[str, Any] = {"limit": LIMIT, "dtype": str(dtype), "sections": {}, "memory": {}, "failed": []}
    document["left_out"] = left_out(device)
    for sizes in SECTIONS:
        sizes = replace(sizes, candidates=tuple(name for name in sizes.candidates if name not in document["left_out"]))
        rows = section_of(sizes.shrunk() if dry else sizes, device, dtype, rounds=rounds)
        document["sections"][sizes.name] = rows
        document["goals"] = reached(document)
        print(f"\n{sizes.name}")
        for name, row in rows.items():
            print(f"  {name:24} {words_of(row)}", flush=True)
        write(document)
    document["failed"] += never_measured(document["sections"])
    for tokens in MEMORY:
        sizes = Sizes(bias="tupe-r", tokens=0, batch=1, heads=2 if dry else HEADS)
        names = [name for name in (LIMIT, OURS, FLEX) if name not in document["left_out"]]
        document["memory"][f"{tokens:,}"] = {
            name: memory_of(name, tokens // 512 if dry else tokens, device, dtype, sizes) for name in names
        }
        document["goals"] = reached(document)
        write(document)
    try:
        document["memory_step"] = memory_step(device, dry=dry, rounds=rounds)
    except Exception as error:  # what was measured before it counts
        document["failed"].append(f"look-ahead memory, a step: {reason_of(error)}")
    document["goals"] = reached(document)
    for goal in document["goals"]:
        found = "not measured" if goal["found"] is None else f"{goal['found']:.2f}"
        verdict = {None: "", True: "met", False: "missed"}[goal["met"]]
        print(f"{goal['section']:30} {goal['goal']:60} {found:>12} {verdict}")
    return document


TUNED = (("tupe-r", 64), ("t5", 64), ("tupe-r", 128), ("t5", 128))
"""Bias, and channels of a head, that are tuned."""
TRIED = 4
"""Sizes of blocks that are tried for each kernel: that of the table and the next smaller ones; larger ones spill."""


def tune(
    device: torch.device, *, dry: bool, write: Callable[[dict[str, Any]], None], name: str = OURS
) -> dict[str, Any]:
    """Measure each kernel with several sizes of blocks, and return the fastest as rows of configurations.json.

    ``write`` is called after each kernel with what there is.
    """
    from wordorder.attention.backends.triton import configurations, operators

    target, dtype = configurations.target_of(device), torch.float32 if dry else torch.bfloat16
    document: dict[str, Any] = {"rows": [], "refused": [], "left_out": left_out(device), "failed": []}
    if name in document["left_out"]:
        return document
    for bias, channels in TUNED[:1] if dry else TUNED:
        sizes = Sizes(bias=bias, tokens=2048, batch=8, channels=channels)
        step = Problem(sizes.shrunk() if dry else sizes, device, dtype).step(name)
        shape = configurations.Shape(channels, bias == "tupe-r", dtype.itemsize, target).entry
        for kernel in ("forward", "query_gradients", "key_gradients", "query_factors", "key_factors"):
            if (kernel, shape) not in configurations.table():
                continue
            candidates = configurations.CANDIDATES[kernel]
            start = candidates.index(tuple(configurations.table()[kernel, shape]))
            times: list[tuple[float, tuple[int, ...]]] = []
            for tried in candidates[start : start + (1 if dry else TRIED)]:

                def chosen(asked: Any, at: Any, kernel: str = kernel, tried: Any = tried) -> Any:
                    return configurations.Blocks(*tried) if asked == kernel else configurations.blocks(asked, at)

                try:
                    with mock.patch.object(operators, "blocks", chosen):
                        milliseconds(step, device, 1)  # compiles
                        taken = min(milliseconds(step, device, 1 if dry else 5) for _ in range(1 if dry else 5))
                    times.append((taken, tried))
                except Exception as error:  # more shared memory than the GPU has, for one
                    document["refused"].append(f"{kernel}, {tried}: {reason_of(error)}")
            if not times:
                document["failed"].append(f"{kernel}, {bias}, {channels} channels: {document['refused'][-1]}")
            else:
                taken, best = min(times)
                row = {"kernel": kernel, **asdict(shape), "blocks": list(best), "milliseconds": taken}
                document["rows"].append(row)
                print(f"{kernel:16} {bias:7} {channels:4} {best} {taken:.3f} ms", flush=True)
            write(document)
    return document
