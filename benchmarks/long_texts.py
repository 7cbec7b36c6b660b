"""What encodings and windows cost on longer texts: time and memory of a training step of a decoder.

    python benchmarks/long_texts.py --json benchmarks/results/long-texts.json

Each section is one run: candidates in turn, ratios within a round, medians of CPU time on one thread (see timing.py).
Memory is the peak of resident memory above what is there before the step, each in a process of its own. The first row
is the limit, 1.00: no positions, or no window. Of decoders the whole step is timed, of layers their attention alone.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from timing import extra_memory, in_a_process, interleave, machine

import wordorder
from wordorder.attention.backends import VARIABLE

WIDTH, HEADS, VOCABULARY = 256, 4, 1000


class Layer(NamedTuple):
    """The attention of one layer alone, heads of 64 channels."""

    batch: int
    tokens: int
    causal: bool


DECODER = "decoder, 2 layers of width 256, 1 x 1,024 tokens"
LAYERS = {
    "attention of a layer, 1 x 4 heads x 4,096 tokens": Layer(1, 4096, causal=True),
    "attention of an encoder's layer, 1 x 4 heads x 4,096 tokens": Layer(1, 4096, causal=False),
    "attention of an encoder's layer, 2 x 4 heads x 4,096 tokens": Layer(2, 4096, causal=False),
    "attention of an encoder's layer, 2 x 4 heads x 8,192 tokens": Layer(2, 8192, causal=False),
}
TILES = ", in tiles"
"""Behind the name of an encoding: by the backend that `far-and-near` is compared with."""
LEARNED = "tupe-a", "tupe-r", "shaw", "relative-logits", "deberta"
OF_LAYERS = (
    ("none", "none@512", "t5@512", "t5", f"t5{TILES}", "tupe-r", f"tupe-r{TILES}"),
    ("none", *(name + how for name in LEARNED for how in ("", TILES)), "transformer-xl"),
    ("none", "t5", f"t5{TILES}"),
    ("none", "t5", f"t5{TILES}"),
)
CANDIDATES: dict[str, tuple[str, ...]] = {
    DECODER: ("none", "rope", "xpos", "pope", "none+shift", *LEARNED, "t5", "transformer-xl", "fox", "path", "dape"),
    **dict(zip(LAYERS, OF_LAYERS, strict=True)),
}


def step_of(section: str, candidate: str, tokens: int | None = None) -> Callable[[], None]:
    """Return a training step on one text, or forward and backward of attention."""
    torch.manual_seed(0)
    if section in LAYERS:
        layer = LAYERS[section]
        return attention_of(candidate, layer._replace(tokens=tokens or layer.tokens))
    tokens = tokens or 1024
    options = {"width": WIDTH, "layers": 2, "heads": HEADS}
    decoder = wordorder.Decoder(VOCABULARY, encoding=candidate, max_positions=tokens, **options)
    token_ids_BT = torch.randint(VOCABULARY, (1, tokens))

    def step() -> None:
        decoder.zero_grad(set_to_none=True)
        decoder(token_ids_BT).hidden.sum().backward()

    return step


def attention_of(candidate: str, layer: Layer) -> Callable[[], None]:
    """Return forward and backward of one layer's attention, from queries, keys and values on."""
    encoding, sizes = candidate.removesuffix(TILES), {"width": WIDTH, "heads": HEADS, "layers": 1}
    positional = wordorder.Positional(encoding, **sizes, max_positions=layer.tokens, causal=layer.causal)
    shape = layer.batch, HEADS, layer.tokens, WIDTH // HEADS
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    upstream = torch.randn(shape)
    x_BTC = torch.randn(layer.batch, layer.tokens, WIDTH)  # the input, which a few terms read
    backend = "recomputed-tiles" if candidate.endswith(TILES) else ""

    def step() -> None:
        os.environ[VARIABLE] = backend
        positional.zero_grad(set_to_none=True)
        positional.prepare(x_BTC).attend(0, q, k, v, x=x_BTC).backward(upstream)

    return step


def memory_of(section: str, encoding: str) -> int:
    """Return the bytes that one step needs, after a short one: libraries allocate on first use."""
    torch.set_num_threads(1)
    step_of(section, encoding, 1024)()
    return extra_memory(step_of(section, encoding))


def measure(rounds: int) -> dict[str, Any]:
    """Return all sections."""
    sections: dict[str, Any] = {}
    for section, encodings in CANDIDATES.items():
        candidates = {encoding: step_of(section, encoding) for encoding in encodings}
        long = section in LAYERS and LAYERS[section].tokens > 4096
        sections[section] = interleave(candidates, limit=encodings[0], rounds=rounds // 2 if long else rounds)
        for encoding, row in sections[section].items():
            row["extra_bytes"] = int(in_a_process(__file__, "--memory-of", section, encoding))
    return sections


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    if sys.argv[1:2] == ["--memory-of"]:
        print(memory_of(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sections = measure(arguments.rounds)
    for title, rows in sections.items():
        print(title)
        for name, row in rows.items():
            low, high = row["ratio_quartiles"]
            numbers = f"{row['ratio']:5.2f} ({low:.2f} to {high:.2f}) {row['milliseconds']:8.1f} ms"
            print(f"  {name:16} {numbers} {row['extra_bytes'] / 2**20:6.0f} MiB")
    if arguments.json:
        document = {"limit": "the first row", "clock": "CPU time", "machine": machine(), "sections": sections}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
