"""Writing text of any length: time per token and memory, once the memory of the model is full.

    python benchmarks/streaming.py --json benchmarks/results/streaming.json

One run per memory and one without, token by token as `wordorder.models.stream_tokens` does it. ``last_to_first`` is the
time of the last tenth of the tokens by that of the first tenth, whole segments each, after the memory has filled; of
each tenth the median segment counts. On a machine that others use its speed may change meanwhile, so ``old_to_young``
compares the stream as it then is with a new one, segment by segment in turn: 1.05 is allowed. ``cache_bytes`` are those
of all storages that the cache keeps alive, at the end of a segment, after the first and the last tenth. Without a
memory all keys are kept, and both grow: that run has fewer tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from timing import machine, wait

from wordorder.models import build_config, build_model, stream_tokens

VOCABULARY, SEGMENT, SLOTS = 10_000, 128, 128
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "encoding": "rope",
}
MEMORIES = ("look-ahead", "segment-recurrence", "none")


def build(memory: str, *, segment: int = SEGMENT, slots: int = SLOTS) -> Any:
    """A model that nobody trained, which changes neither time nor memory."""
    lengths = {} if memory == "none" else {"memory_length": slots, "segment_length": segment}
    config = build_config("decoder", **SIZES, **lengths, memory=memory)
    return build_model(config, "causal-lm", seed=0).eval()


class Watched:
    """A model that shows the cache that it fills, as `stream_tokens` calls it."""

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.device, self.cache = model, model.config, model.device, None

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Read, and remember the cache."""
        output = self.model(*given, **named)
        self.cache = output.past_key_values
        return output


def live_bytes(root: Any) -> int:
    """Bytes of all storages of tensors that an object keeps alive."""
    storages: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or item is None:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            storages[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
        elif hasattr(item, "__dict__"):
            waiting += vars(item).values()
    return sum(storages.values())


def resident_bytes() -> int | None:
    """What is resident of this process; None where the system does not say."""
    try:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    except OSError:
        return None
    return int(line.split()[1]) * 1024


def timed(tokens: Iterator[int], count: int, device: torch.device) -> float:
    """Seconds that so many tokens take: CPU time, which a shared machine disturbs least; on a GPU the wall clock."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    wait(device)
    started = clock()
    assert sum(1 for _ in islice(tokens, count)) == count
    wait(device)
    return clock() - started


def old_to_young(model: Any, old: Iterator[int], filling: int, segment: int, where: torch.device) -> list[float]:
    """Ratios of the times of a segment in a long stream and in one whose memory has just filled, in turn."""
    young = stream_tokens(model, torch.zeros(1, 1, dtype=torch.long), seed=1)
    timed(young, filling, where)
    ratios: list[float] = []
    for turn in range(12):
        first, second = (young, old) if turn % 2 else (old, young)
        times = timed(first, segment, where), timed(second, segment, where)
        ratios.append(times[1] / times[0] if turn % 2 else times[0] / times[1])
    return ratios


def measure(
    memory: str, tokens: int, *, segment: int = SEGMENT, slots: int = SLOTS, device: str = "cpu"
) -> dict[str, Any]:
    """Stream ``tokens`` after the memory has filled, rounded to ten parts of whole segments each."""
    model = Watched(build(memory, segment=segment, slots=slots).to(device))
    part = max(round(tokens / 10 / segment), 1) * segment
    where = torch.device(device)
    with_memory = memory != "none"
    written = stream_tokens(model, torch.zeros(1, 1, dtype=torch.long), seed=0)
    # fill the memory, and warm up; a token more is written than read, so that parts end where segments do
    filling = max(slots // segment + 2, 2) * segment if with_memory else segment
    timed(written, filling, where)
    seconds: list[float] = []
    cache, resident = [], []
    for number in range(10):
        seconds.append(statistics.median(timed(written, segment, where) for _ in range(part // segment)))
        if number in (0, 9):
            cache.append(live_bytes(model.cache))
            resident.append(resident_bytes())
    low, middle, high = statistics.quantiles(old_to_young(model.model, written, filling, segment, where), n=4)
    return {
        "memory": memory,
        "tokens": 10 * part,
        "milliseconds_per_token": [1e3 * taken / segment for taken in seconds],
        "last_to_first": seconds[-1] / seconds[0],
        "old_to_young": middle,
        "old_to_young_quartiles": [low, high],
        "cache_bytes": cache,
        "resident_bytes": resident,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEMORIES, default=list(MEMORIES))
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--segment", type=int, default=SEGMENT)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    results: dict[str, Any] = {"machine": machine(), "device": given.device, "model": SIZES}
    results |= {"segment_length": given.segment, "memory_length": given.slots, "streaming": []}
    for memory in given.only:
        tokens = given.tokens if memory != "none" else given.tokens // 10
        row = measure(memory, tokens, segment=given.segment, slots=given.slots, device=given.device)
        results["streaming"].append(row)
        times, bytes_held = row["milliseconds_per_token"], row["cache_bytes"]
        low, high = (held / 2**20 for held in bytes_held)
        print(
            f"{memory:20} {row['tokens']:6} tokens: {times[0]:.2f} .. {times[-1]:.2f} ms per token, last/first"
            f" {row['last_to_first']:.3f}, old/young {row['old_to_young']:.3f}; cache {low:.2f} .. {high:.2f} MiB"
        )
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
