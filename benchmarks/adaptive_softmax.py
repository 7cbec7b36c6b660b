"""What an adaptive softmax saves of an output layer with a large vocabulary: FLOPs, kept memory, time.

    python benchmarks/adaptive_softmax.py --json benchmarks/results/adaptive-softmax.json

One step of the output layer alone, forward and backward, its table tied to nothing: hidden states (tokens, width) and
labels drawn by Zipf's law, p(rank) ~ 1 / (rank + 2.7), as words of a text are. Candidates in turn, ratios within a
round, medians (see timing.py). The limit is the full softmax. Torch's `AdaptiveLogSoftmaxWithLoss` is the peer.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from wordorder.networks import AdaptiveSoftmax

CUTOFFS = [2000, 10000]


def zipf(vocabulary: int, tokens: int) -> Tensor:
    """Labels of a text."""
    weight = 1 / (torch.arange(vocabulary) + 2.7)
    return torch.multinomial(weight, tokens, replacement=True)


def heads(vocabulary: int, width: int) -> dict[str, tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]]:
    """Output layers by name, and the loss of each."""
    full = nn.Linear(width, vocabulary)
    torch_s = nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary, CUTOFFS, div_value=4.0)
    made: dict[str, tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]] = {
        "full softmax": (full, lambda h, words: F.cross_entropy(full(h), words)),
        "torch, divisor 4": (torch_s, lambda h, words: torch_s(h, words).loss),
    }
    for divisor in (1, 4):
        head = AdaptiveSoftmax(width, vocabulary, cutoffs=CUTOFFS, divisor=divisor)
        made[f"adaptive, divisor {divisor}"] = (
            head,
            lambda h, words, head=head: head.negative_log_likelihood(h, words).mean(),
        )
    return made


def kept_bytes(step: Callable[[], Any], module: nn.Module) -> int:
    """Bytes of distinct tensors that autograd keeps, parameters aside."""
    parameters = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = step()
        total = sum(kept.values())
    del output
    return total


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    hidden = torch.randn(options.tokens, options.width, requires_grad=True)
    words = zipf(options.vocabulary, options.tokens)
    rows: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], object]] = {}
    for name, (module, loss) in heads(options.vocabulary, options.width).items():

        def step(module: nn.Module = module, loss: Callable[..., Tensor] = loss) -> None:
            module.zero_grad()
            hidden.grad = None
            loss(hidden, words).backward()

        with FlopCounterMode(display=False) as counter:
            step()
        rows[name] = {
            "parameters": sum(p.numel() for p in module.parameters()),
            "flops_per_token": counter.get_total_flops() // options.tokens,
            "kept_bytes": kept_bytes(lambda loss=loss: loss(hidden, words), module),
        }
        steps[name] = step
    times = interleave(steps, limit="full softmax", rounds=options.rounds)
    for name, row in rows.items():
        row |= times[name]
    sizes = {name: getattr(options, name) for name in ("vocabulary", "width", "tokens", "rounds")}
    text = json.dumps({"machine": machine(), "settings": {**sizes, "cutoffs": CUTOFFS}, "rows": rows}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
