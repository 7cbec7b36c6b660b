"""What a memory costs in training: a step of no memory, of Transformer-XL and of look-ahead memory, and their FLOPs.

    python benchmarks/memory_step.py --json benchmarks/results/memory-step.json

A step is forward and backward of a decoder whose memory is full, down to every weight, without the optimiser: the three
in turn, ratios within a round, medians (see timing.py). FLOPs are counted by torch (forward and backward) with every
matrix of scores written out, so that hidden halves count as they do in the paper's code. The limit, 1.00, is
Transformer-XL; what look-ahead takes over it is compared with what it computes over it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from wordorder import Decoder, LookAheadMemory, SegmentRecurrence
from wordorder.memory import Memory, MemoryState

SIZES: dict[str, Any] = {"width": 256, "layers": 4, "heads": 4, "dropout": 0.0, "attention_dropout": 0.0}
VOCABULARY = 1000
XL, LOOK_AHEAD, NONE = "transformer-xl", "look-ahead", "no memory"
LENGTHS = {128: 8, 512: 2}
"""Tokens of a segment, and slots -> batch."""


def decoder_of(memory: Memory | None, sizes: Mapping[str, Any] = SIZES) -> Decoder:
    """The same decoder with another memory."""
    torch.manual_seed(0)
    return Decoder(VOCABULARY, encoding="transformer-xl", memory=memory, **sizes)


def step_of(decoder: Decoder, segment: int, batch: int) -> Callable[..., tuple[Tensor, ...]]:
    """Forward and backward of a segment beside a full memory."""
    torch.manual_seed(1)
    ids = torch.randint(VOCABULARY, (batch, 3 * segment))
    state: MemoryState | None = None
    if decoder.memory is not None:
        with torch.no_grad():
            for start in (0, segment):
                state = decoder(ids[:, start : start + segment], memory=state).memory
        assert state is not None
        assert state.length == segment
    leaves, upstream = list(decoder.parameters()), torch.randn(batch, segment, decoder.options.width)

    def step(backend: str | None = None) -> tuple[Tensor, ...]:
        output = decoder(ids[:, -segment:], memory=state, backend=backend)
        return torch.autograd.grad(output.hidden, leaves, upstream, allow_unused=True)

    return step


def candidates(
    segment: int, *, sizes: Mapping[str, Any] = SIZES, batch: int | None = None
) -> dict[str, Callable[..., Any]]:
    """The three, at one length, on torch's default device."""
    memories: dict[str, Memory | None] = {
        XL: SegmentRecurrence(segment),
        LOOK_AHEAD: LookAheadMemory(segment),
        NONE: None,
    }
    batch = LENGTHS[segment] if batch is None else batch
    return {name: step_of(decoder_of(memory, sizes), segment, batch) for name, memory in memories.items()}


def flops_of(step: Callable[..., Any]) -> int:
    """Of forward and backward, scores written out."""
    counter = FlopCounterMode(display=False)
    with counter:
        step("reference")
    return counter.get_total_flops()


def measure(segment: int, *, rounds: int, wall: bool) -> dict[str, Any]:
    """Times, FLOPs and the ratio of both, by candidate."""
    steps = candidates(segment)
    flops = {name: flops_of(step) for name, step in steps.items()}
    rows = interleave(steps, limit=XL, rounds=rounds, wall=wall)
    for name, row in rows.items():
        row["flops"] = flops[name]
        row["flops_ratio"] = flops[name] / flops[XL]
        row["time_over_flops"] = row["ratio"] / row["flops_ratio"]
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", type=int, choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true", help="wall clock instead of the process's CPU time")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {}
    for segment in options.only:
        title = f"training step, {LENGTHS[segment]} x {segment} tokens, {segment} slots"
        found[title] = measure(segment, rounds=options.rounds, wall=options.wall)
        print(title)
        for name, row in found[title].items():
            low, high = row["ratio_quartiles"]
            print(
                f"  {name:16} {row['ratio']:.2f} ({low:.2f} .. {high:.2f}), FLOPs {row['flops_ratio']:.2f}, "
                f"time over FLOPs {row['time_over_flops']:.2f}  {row['milliseconds']:8.1f} ms"
            )
    if options.json:
        clock = "wall time" if options.wall else "CPU time"
        document = {"limit": XL, "clock": clock, "sizes": SIZES, "machine": machine(), "sections": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
