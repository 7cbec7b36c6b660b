"""What complex layers cost against real ones: a linear map, an encoder layer, a recurrent layer.

    python benchmarks/complex_layers.py --json benchmarks/results/complex-layers.json

Every section is one run, forward and backward down to every weight: candidates in turn, ratios within a round, medians
(see timing.py). The limit, 1.00, is the real layer: for the linear map and the recurrent layer the one of as many real
multiplications (twice the channels), for the encoder layer the one of equal width.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine
from torch import Tensor, nn

from wordorder.attention import Call, LayerStep, plan_attention
from wordorder.encodings import Terms
from wordorder.networks import EncoderLayer, TransformerOptions
from wordorder.networks.complex_valued import ComplexOptions
from wordorder.ops.complex import split, stacked_linear
from wordorder.papers.complex_order import ComplexLSTM

BATCH = 8
TOKENS, WIDTH, HEADS = 128, 512, 8


def gradients(output: Tensor | tuple[Tensor, ...], leaves: Sequence[Tensor], upstream: Any) -> Any:
    """Of every leaf, given that of the output."""
    return torch.autograd.grad(output, leaves, upstream)


def linear_maps(rows: int = 1024, inputs: int = 512, outputs: int = 512) -> dict[str, Callable[[], Any]]:
    """A complex map of the stacked tensor in every form, and torch's complex numbers."""
    torch.manual_seed(0)
    z = torch.randn(rows, 2 * inputs, requires_grad=True)
    x, y = (part.detach().contiguous().requires_grad_() for part in split(z))
    a, b = (torch.randn(outputs, inputs, requires_grad=True) for _ in range(2))
    real = torch.randn(2 * outputs, 2 * inputs, requires_grad=True)
    upstream = torch.randn(rows, 2 * outputs)
    g, h = (part.contiguous() for part in split(upstream))

    def native() -> Any:
        product = torch.complex(x, y) @ torch.complex(a, b).T
        return gradients((product.real, product.imag), [x, y, a, b], (g, h))

    found: dict[str, Callable[[], Any]] = {
        "real, twice the channels": lambda: gradients(z @ real.T, [z, real], upstream),
        "complex64": native,
    }
    for form in ("gauss", "block", "outer"):
        found[f"stacked, {form}"] = lambda form=form: gradients(
            stacked_linear(z, (a, b), form=form), [z, a, b], upstream
        )
    return found


def encoder_layers() -> dict[str, Callable[[], Any]]:
    """One pre-norm layer with its attention, without dropout."""
    sizes: dict[str, Any] = {"width": WIDTH, "heads": HEADS, "dropout": 0.0, "attention_dropout": 0.0}
    styles = {
        "real": TransformerOptions(**sizes),
        "complex, shared real weights": ComplexOptions(**sizes, shared_weights=True),
        "complex": ComplexOptions(**sizes),
        "complex, modulus scores": ComplexOptions(**sizes, scores="modulus"),
    }
    return {name: layer_step(blocks) for name, blocks in styles.items()}


def layer_step(blocks: TransformerOptions) -> Callable[[], Any]:
    """Forward and backward of a layer on random hidden states."""
    torch.manual_seed(0)
    layer = EncoderLayer(blocks)
    x = torch.randn(BATCH, TOKENS, blocks.channels, requires_grad=True)
    upstream, order = torch.randn_like(x), Terms(blocks.head_dim**-0.5)
    call = Call(
        batch=BATCH,
        heads=HEADS,
        queries=TOKENS,
        keys=TOKENS,
        head_dim=blocks.head_dim,
        dtype=x.dtype,
        device=x.device,
    )
    plan, leaves = plan_attention(order, None, call, backend=blocks.backend), [x, *layer.parameters()]
    return lambda: gradients(layer(x, LayerStep(plan))[0], leaves, upstream)


def recurrent_layers(inputs: int = 256, hidden: int = 128) -> dict[str, Callable[[], Any]]:
    """One direction over texts of 32 tokens."""
    torch.manual_seed(0)
    z = torch.randn(32, 32, 2 * inputs, requires_grad=True)
    upstream = torch.randn(32, 32, 2 * hidden)
    real = nn.LSTM(2 * inputs, 2 * hidden, batch_first=True)
    layer = ComplexLSTM(inputs, hidden)
    return {
        "real, twice the channels": lambda: gradients(real(z)[0], [z, *real.parameters()], upstream),
        "complex": lambda: gradients(layer(z), [z, *layer.parameters()], upstream),
    }


SECTIONS: dict[str, tuple[str, str, Callable[[], dict[str, Callable[[], Any]]]]] = {
    "linear": ("linear map, 1024 rows, 512 to 512 complex channels", "real, twice the channels", linear_maps),
    "layer": (f"encoder layer, {BATCH} x {TOKENS} tokens, {WIDTH} channels, {HEADS} heads", "real", encoder_layers),
    "recurrent": ("LSTM, 32 x 32 tokens, 256 to 128 complex channels", "real, twice the channels", recurrent_layers),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sections that are asked for, and print or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true", help="wall clock instead of the process's CPU time")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {}
    for name in options.only:
        title, limit, candidates = SECTIONS[name]
        found[title] = interleave(candidates(), limit=limit, rounds=options.rounds, wall=options.wall)
        print(title)
        for candidate, row in found[title].items():
            low, high = row["ratio_quartiles"]
            print(f"  {candidate:32} {row['ratio']:.2f} ({low:.2f} .. {high:.2f})  {row['milliseconds']:8.1f} ms")
    if options.json:
        clock = "wall time" if options.wall else "CPU time"
        document = {"limit": "the first row", "clock": clock, "machine": machine(), "sections": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
