"""What T5's bias costs in transformers: a training step of its encoder on each attention function.

    python benchmarks/t5_attention.py --json benchmarks/results/transformers.json

Every section is one run: candidates in turn, ratios within a round, medians of CPU time (see timing.py). The limit,
1.00, is transformers' own "sdpa". Beside it: its "eager", ours with the table of distances
(`swap_encoding(model, "t5", start="copy")`), and "sdpa" with no bias at all, which no position can undercut by much.
Memory is the peak of resident memory above the model, each in a process of its own.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import extra_memory, in_a_process, interleave, machine
from transformers import T5Config, T5EncoderModel

from wordorder.models import swap_encoding

LIMIT = "transformers, sdpa"
SWAPPED = "wordorder, swap_encoding"
CANDIDATES = (LIMIT, "transformers, eager", SWAPPED, "SDPA, no bias")
BATCH, WIDTH, HEADS, LAYERS = 2, 256, 4, 2
SECTIONS = (  # tokens of the first text, of the second, dropout, rounds
    (512, 512, 0.0, 15),
    (1024, 1024, 0.0, 15),
    (2048, 2048, 0.0, 5),
    (1024, 704, 0.0, 11),
    (1024, 1024, 0.1, 7),
)


def build(name: str, dropout: float) -> T5EncoderModel:
    """Build a T5 encoder, the same for all candidates but for its attention."""
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "num_heads": HEADS, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_layers": LAYERS}
    model = T5EncoderModel(T5Config(vocab_size=256, dropout_rate=dropout, **sizes)).train()
    model.set_attn_implementation("eager" if name == "transformers, eager" else "sdpa")
    if name == SWAPPED:
        swap_encoding(model, "t5", start="copy")
    if name == "SDPA, no bias":
        for block in model.encoder.block:
            block.layer[0].SelfAttention.has_relative_attention_bias = True  # else zeros would be written out
            block.layer[0].SelfAttention.compute_bias = lambda *args, **kwargs: None
    return model


def step(name: str, tokens: int, shorter: int, dropout: float) -> Callable[[], None]:
    """Forward and backward of a batch of two texts; a shorter one is padded on the right."""
    model = build(name, dropout)
    seeded = torch.Generator().manual_seed(0)
    ids = torch.randint(256, (BATCH, tokens), generator=seeded)
    upstream = torch.randn(BATCH, tokens, WIDTH, generator=seeded)
    mask = torch.ones(BATCH, tokens, dtype=torch.long)
    mask[1, shorter:] = 0

    def run() -> None:
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, attention_mask=mask).last_hidden_state.backward(upstream)

    return run


def measure(*, rounds: int | None) -> dict[str, Any]:
    """Time every section; memory too where the texts are of one length and nothing is dropped."""
    found: dict[str, Any] = {}
    for tokens, shorter, dropout, times in SECTIONS:
        candidates = {name: step(name, tokens, shorter, dropout) for name in CANDIDATES}
        rows = interleave(candidates, limit=LIMIT, rounds=rounds or times)
        if tokens == shorter and not dropout:
            for name, row in rows.items():
                row["extra_bytes"] = int(in_a_process(__file__, "--alone", name, str(tokens)))
        texts = f"{BATCH} x {tokens}" if tokens == shorter else f"texts of {tokens} and {shorter}"
        what = f"T5 encoder, {LAYERS} layers of width {WIDTH}, {HEADS} heads, {texts} tokens"
        found[f"{what}, dropout {dropout}" if dropout else what] = rows
    return found


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--alone"]:
        step(sys.argv[2], 64, 64, 0.0)()  # libraries allocate on first use
        print(extra_memory(step(sys.argv[2], int(sys.argv[3]), int(sys.argv[3]), 0.0)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="default: enough for quartiles within a few percent")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    arguments = parser.parse_args()
    found = measure(rounds=arguments.rounds)
    for section, rows in found.items():
        print(f"\n{section}")
        for name, row in rows.items():
            low, high = row["ratio_quartiles"]
            memory = f"{row['extra_bytes'] / 2**20:8.1f} MiB" if "extra_bytes" in row else ""
            print(f"  {name:28} {row['ratio']:6.2f} ({low:.2f} to {high:.2f}) {row['milliseconds']:9.1f} ms {memory}")
    if arguments.json:
        document = {"limit": LIMIT, "clock": "CPU time", "machine": machine(), "sections": found}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
