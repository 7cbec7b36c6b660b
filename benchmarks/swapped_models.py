"""What a swapped encoding costs: a training step of a Llama of transformers, swapped over unswapped.

    python benchmarks/swapped_models.py --json benchmarks/results/swapped.json

Every section is one run: candidates in turn, ratios within a round, medians of CPU time (see timing.py). The limit,
1.00, is the model as transformers computes it, with "sdpa". "written out" is the same encoding with its bias as one
matrix of all pairs, on the backend "sdpa": what it would cost without the structure of the bias.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine
from transformers import LlamaConfig, LlamaForCausalLM

from wordorder.attention.backends import VARIABLE
from wordorder.models import swap_encoding

LIMIT = "unswapped"
CANDIDATES = {
    "rope": ("rope", None),
    "none": ("none", None),
    "rope*3,none": ("rope*3,none", None),
    "t5": ("t5", None),
    "t5, written out": ("t5", "sdpa"),
    "model+t5": ("model+t5", None),
    "tupe-r": ("tupe-r", None),
    "rope+fox": ("rope+fox", None),
    "rope+fox, written out": ("rope+fox", "sdpa"),
}
"""What is printed -> the name that is swapped in, and the backend that is forced."""
LAYERS, WIDTH, HEADS = 4, 256, 4
SECTIONS = ((4, 256, 31), (1, 2048, 21))
"""Texts, tokens of each, rounds."""


def step(name: str | None, backend: str | None, batch: int, tokens: int) -> Callable[[], None]:
    """Return forward and backward of one batch; a name of None leaves the model as it is."""
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=256, intermediate_size=3 * WIDTH, **sizes)).train()
    if name is not None:
        swap_encoding(model, name, seed=0)
    ids = torch.randint(256, (batch, tokens), generator=torch.Generator().manual_seed(0))

    def run() -> None:
        os.environ.pop(VARIABLE, None)
        if backend is not None:
            os.environ[VARIABLE] = backend
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    return run


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="default: enough for quartiles within a few percent")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    arguments = parser.parse_args()
    sections: dict[str, Any] = {}
    for batch, tokens, rounds in SECTIONS:
        steps = {LIMIT: step(None, None, batch, tokens)}
        steps |= {label: step(name, backend, batch, tokens) for label, (name, backend) in CANDIDATES.items()}
        title = f"Llama, {LAYERS} layers of width {WIDTH}, {HEADS} heads, {batch} x {tokens} tokens"
        sections[title] = rows = interleave(steps, limit=LIMIT, rounds=arguments.rounds or rounds)
        print(f"\n{title}")
        for label, row in rows.items():
            low, high = row["ratio_quartiles"]
            print(f"  {label:24} {row['ratio']:6.2f} ({low:.2f} to {high:.2f}) {row['milliseconds']:9.1f} ms")
    if arguments.json:
        document = {"limit": LIMIT, "clock": "CPU time", "machine": machine(), "sections": sections}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
