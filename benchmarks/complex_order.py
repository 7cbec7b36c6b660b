"""What complex-order embeddings cost: forward and backward pass as ratios to one nn.Embedding of the same size.

All candidates are timed in turn, round after round, in one process: on a CPU one thread and the process's CPU time, on
a GPU the wall clock. Each ratio is the median over rounds of the ratio within a round, with its quartiles. The limit,
1.00, is nn.Embedding with its dense gradient. Upstream gradients are the same random numbers for all.

    python benchmarks/complex_order.py
    python benchmarks/complex_order.py --sections passes --rounds 40 --json benchmarks/results/complex-embedding.json

Sections: ``passes``: forward and backward of every scheme, eager and compiled. ``step``: the same with the optimiser's
step, dense gradients with fused Adam and row-wise ones with SparseAdam, as ratios to nn.Embedding with fused Adam.
``bandwidth`` (GPU): bytes a second that the embedding must move, as a share of those of a copy.

The table of nn.Embedding is 60 MB: a fresh allocation of it costs more in page faults than its gradient costs in
arithmetic. The benchmark therefore tells glibc to keep what is freed, as a training process does after its first steps
(`--fresh` leaves the allocator as it is; all ratios are then closer to the ratio of bytes).
"""

import argparse
import ctypes
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine, seconds
from torch import Tensor, nn

from wordorder import ComplexOrderEmbedding, ComplexVanillaEmbedding

LIMIT = "nn.Embedding"
SCHEMES: dict[str, dict[str, Any]] = {
    "complex-order": {},
    "frequency by channel": {"frequency": "word-sharing"},
    "frequency by word": {"frequency": "dimension-sharing"},
    "amplitude by channel": {"amplitude": "word-sharing"},
    "amplitude by word": {"amplitude": "dimension-sharing"},
    "with phases": {"phase": True},
    "with damping": {"damping": "learned"},
}


TITLES = {
    "passes": "embedding, forward and backward, {tokens:,} tokens drawn evenly",
    "step": "embedding with its optimiser step, {tokens:,} tokens drawn evenly",
    "step-words": "embedding with its optimiser step, {tokens:,} tokens as frequent as words",
    "step-short": "embedding with its optimiser step, {tokens:,} tokens as frequent as words",
    "bandwidth": "bytes per second against a copy",
}
"""Section -> what its table is called."""

DRAWN: dict[str, dict[str, Any]] = {"step-words": {"zipf": True}, "step-short": {"zipf": True, "batch": 2}}
"""Section -> how its tokens differ from what the command line says."""


def keep_memory() -> None:
    """Let glibc keep freed memory instead of giving it back and having it faulted in again."""
    if platform.libc_ver()[0] != "glibc":
        return
    trim_threshold, largest_mappings = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    allocator = ctypes.CDLL(None)
    allocator.mallopt(trim_threshold, 2**31 - 1)
    allocator.mallopt(largest_mappings, 0)


class Batch:
    """Token ids, positions and upstream gradients, and the passes to time on them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        shape, generator = (arguments.batch, arguments.length), torch.Generator().manual_seed(0)
        self.device = torch.device(arguments.device)
        self.arguments = arguments
        self.ids = self.drawn(generator, *shape, integers=arguments.vocabulary)
        self.positions = torch.arange(arguments.length, device=self.device)[None]
        self.upstream = [self.drawn(generator, *shape, arguments.width) for _ in range(2)]

    def drawn(self, generator: torch.Generator, *shape: int, integers: int = 0) -> Tensor:
        """Random numbers, or token ids whose ranks fall off as words' do (Zipf) where asked for."""
        if not integers:
            return torch.randn(shape, generator=generator).to(self.device)
        if not self.arguments.zipf:
            return torch.randint(integers, shape, generator=generator).to(self.device)
        chances = 1 / torch.arange(1, integers + 1, dtype=torch.float64)
        count = shape[0] * shape[1]
        return torch.multinomial(chances, count, True, generator=generator).reshape(shape).to(self.device)

    def plain(self, sparse: bool = False) -> nn.Embedding:
        """The limit."""
        return nn.Embedding(self.arguments.vocabulary, self.arguments.width, sparse=sparse).to(self.device)

    def waves(self, sparse: bool = False, **options: Any) -> nn.Module:
        """A scheme."""
        sizes = self.arguments.vocabulary, self.arguments.width
        return ComplexOrderEmbedding(*sizes, sparse=sparse, **options).to(self.device)

    def vanilla(self) -> nn.Module:
        """The baseline without word order."""
        return ComplexVanillaEmbedding(self.arguments.vocabulary, self.arguments.width).to(self.device)

    def passes(self, module: nn.Module, call: Callable[..., Any] | None = None) -> Callable[[], None]:
        """Forward and backward."""
        parameters = list(module.parameters())
        call = module if call is None else call

        def run() -> None:
            inputs = (self.ids,) if isinstance(module, nn.Embedding) else (self.ids, self.positions)
            outputs = call(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            torch.autograd.grad(outputs, parameters, self.upstream[: len(outputs)])

        return run

    def step(self, module: nn.Module, optimizers: list[torch.optim.Optimizer]) -> Callable[[], None]:
        """Forward, backward and the optimiser's step."""

        def run() -> None:
            inputs = (self.ids,) if isinstance(module, nn.Embedding) else (self.ids, self.positions)
            outputs = module(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            torch.autograd.backward(outputs, self.upstream[: len(outputs)])
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

        return run


def naive(module: ComplexOrderEmbedding) -> Callable[..., tuple[Tensor, Tensor]]:
    """The equation as one writes it first: two lookups, cosine, sine."""
    from torch.nn import functional as F

    def run(ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = F.embedding(ids, module.tables().frequency) * positions[..., None]
        r = F.embedding(ids, module.amplitude)
        return r * angle.cos(), r * angle.sin()

    return run


def candidates_of_passes(batch: Batch) -> dict[str, Callable[[], None]]:
    """Name and call of all that ``passes`` times."""
    runs = {LIMIT: batch.passes(batch.plain()), "two nn.Embedding": _two(batch)}
    full = batch.waves()
    runs["naive"] = batch.passes(full, naive(full))
    for name, options in SCHEMES.items():
        runs[name] = batch.passes(batch.waves(**options))
    runs["complex-vanilla"] = batch.passes(batch.vanilla())
    runs["complex-order, row-wise"] = batch.passes(batch.waves(sparse=True))
    if batch.arguments.compile:
        compiled = torch.compile(full, fullgraph=True)
        runs["complex-order, compiled"] = batch.passes(full, compiled)
        shared = batch.waves(frequency="word-sharing")
        runs["frequency by channel, compiled"] = batch.passes(shared, torch.compile(shared, fullgraph=True))
    return runs


def _two(batch: Batch) -> Callable[[], None]:
    runs = [batch.passes(batch.plain()) for _ in range(2)]

    def run() -> None:
        for part in runs:
            part()

    return run


def candidates_of_steps(batch: Batch) -> dict[str, Callable[[], None]]:
    """Name and call of all that ``step`` times."""
    runs: dict[str, Callable[[], None]] = {}
    for name, make in {
        LIMIT: batch.plain,
        "complex-order": batch.waves,
        "frequency by channel": lambda sparse=False: batch.waves(sparse, frequency="word-sharing"),
    }.items():
        dense = make()
        runs[name] = batch.step(dense, [torch.optim.Adam(dense.parameters(), lr=1e-3, fused=True)])
        runs[f"{name}, SparseAdam"] = batch.step(*_by_row(make(sparse=True)))
    return runs


def _by_row(module: nn.Module) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    by_word = [p for p in module.parameters() if p.shape[0] > 1]
    shared = [p for p in module.parameters() if p.shape[0] == 1]
    optimizers: list[torch.optim.Optimizer] = [torch.optim.SparseAdam(by_word, lr=1e-3)]
    return module, optimizers + ([torch.optim.Adam(shared, lr=1e-3)] if shared else [])


def bandwidth(batch: Batch, rounds: int) -> dict[str, dict[str, Any]]:
    """Bytes that the forward pass must move a second, as a share of a copy's, measured in turn."""
    module, number = batch.waves(), batch.ids.numel() * batch.arguments.width * 4
    source = torch.empty(64 * 2**20, device=batch.device)
    target = torch.empty_like(source)
    shares: list[float] = []
    with torch.no_grad():
        for _ in range(rounds + 2):
            copied = 2 * source.numel() * 4 / seconds(lambda: target.copy_(source), batch.device)
            moved = 4 * number / seconds(lambda: module(batch.ids, batch.positions), batch.device)
            shares.append(moved / copied)
    return {"forward": {"ratio": sorted(shares[2:])[len(shares[2:]) // 2], "milliseconds": float("nan")}}


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, dict[str, Any]]]:
    """All sections that were asked for."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for section in arguments.sections:
        batch = Batch(
            arguments if section not in DRAWN else argparse.Namespace(**{**vars(arguments), **DRAWN[section]})
        )
        title = TITLES[section].format(tokens=batch.arguments.batch * batch.arguments.length)
        if section == "bandwidth":
            found[title] = bandwidth(batch, arguments.rounds)
            continue
        runs = candidates_of_passes(batch) if section == "passes" else candidates_of_steps(batch)
        found[title] = interleave(runs, limit=LIMIT, rounds=arguments.rounds, device=batch.device)
    return found


def parse(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"vocabulary": 30_000, "width": 512, "batch": 16, "length": 512, "rounds": 10}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sections", nargs="+", default=list(TITLES)[:-1], choices=list(TITLES))
    parser.add_argument("--zipf", action="store_true", help="draw frequent words more often, as texts do")
    parser.add_argument("--fresh", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="time eager code alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    return parser.parse_args(given)


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    arguments = parse()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    if not arguments.fresh:
        keep_memory()
    sections = measure(arguments)
    for section, rows in sections.items():
        print(f"\n{section:32} {'ratio':>6} {'ms':>8}")
        for name, row in rows.items():
            print(f"{name:32} {row['ratio']:6.2f} {row['milliseconds']:8.1f}")
    if arguments.json:
        settings = {key: value for key, value in vars(arguments).items() if key != "json"}
        document = {
            "limit": LIMIT,
            "clock": "CPU time",
            "settings": settings,
            "machine": machine(),
            "sections": sections,
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
