"""What each encoding costs: a training step of the same network, as a ratio to plain attention without positions.

Encoders first, then decoders (causal, no memory), in which some more encodings are defined.

All encodings are timed in turn, round after round, in one process, so that whatever else the machine does meets all of
them alike; each ratio is the median over rounds of the ratio within a round, with its quartiles. On a CPU one thread
runs and the process's CPU time is taken, which a shared machine disturbs least. The limit, 1.00, is the encoding
`none`: the same stack on torch's own scaled_dot_product_attention with no bias, and no mask but the causal one.

    python benchmarks/training_step.py
    python benchmarks/training_step.py --length 512 --rounds 20 --json benchmarks/results/encodings.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine

import wordorder
from wordorder.encodings import CATALOG

VOCABULARY = 1000
LIMIT = "none"

NETWORKS = {"encoder": wordorder.Encoder, "decoder": wordorder.Decoder}


def defined_in(network: str) -> list[str]:
    """The encodings that this kind of network can have, and the paper's BERT-R."""
    return [*(name for name, kind in CATALOG.items() if network not in kind.refused_in), "learned+t5"]


def build(network: str, encoding: str, arguments: argparse.Namespace) -> torch.nn.Module:
    """Build a network of the sizes asked for."""
    torch.manual_seed(0)
    return NETWORKS[network](
        VOCABULARY,
        width=arguments.width,
        layers=arguments.layers,
        heads=arguments.heads,
        max_positions=arguments.length,
        encoding=encoding,
    ).to(arguments.device)


def measure(network: str, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Time every encoding, interleaved."""
    asked = arguments.encodings or defined_in(network)
    built = {name: build(network, name, arguments) for name in dict.fromkeys([LIMIT, *asked])}
    shape = (arguments.batch, arguments.length)
    tokens = torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(0)).to(arguments.device)

    def step(one: torch.nn.Module) -> None:
        one.zero_grad(set_to_none=True)
        one(tokens).hidden.sum().backward()

    candidates = {name: lambda one=one: step(one) for name, one in built.items()}
    rows = interleave(candidates, limit=LIMIT, rounds=arguments.rounds, device=tokens.device)
    for name, row in rows.items():
        row["tokens_per_second"] = 1e3 * tokens.numel() / row["milliseconds"]
        row["parameters"] = sum(parameter.numel() for parameter in built[name].parameters())
    return rows


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("length", 128), ("batch", 8), ("width", 256), ("layers", 4), ("heads", 4), ("rounds", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--encodings", nargs="+", help="none is always among them; all that are defined if left out")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    return parser.parse_args()


def main() -> None:
    """Print the table, and write the file that was asked for."""
    arguments = parse()
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    networks = {network: measure(network, arguments) for network in arguments.networks}
    for network, rows in networks.items():
        print(f"{network:15} {'ratio':>6} {'ms a step':>10} {'tokens/s':>10} {'parameters':>11}")
        for name, row in rows.items():
            numbers = f"{row['ratio']:6.2f} {row['milliseconds']:10.1f} {row['tokens_per_second']:10,.0f}"
            print(f"{name:15} {numbers} {row['parameters']:11,}")
    if arguments.json:
        settings = {key: value for key, value in vars(arguments).items() if key != "json"}
        document = {"limit": LIMIT, "settings": settings, "machine": machine(), "networks": networks}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
