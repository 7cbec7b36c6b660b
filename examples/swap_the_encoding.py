"""Train one small encoder with several encodings, in plain torch.

The text is random numbers; the encoder classifies for each number whether it is smaller than the one before it. Without
word order it can only guess from the number itself.

Shows: `wordorder.Encoder` in a plain training loop; the encoding is a name.
Prints: the loss of each encoding after the same number of steps on the same batches.

    python examples/swap_the_encoding.py
    python examples/swap_the_encoding.py --steps 300 --encodings none rope tupe-r learned+t5
"""

import argparse

import torch
from torch.nn import functional as F

import wordorder

VOCABULARY, LENGTH, BATCH = 30, 24, 32


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw numbers, and mark those that are smaller than the number before."""
    numbers = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
    return numbers, (numbers < numbers.roll(1, dims=1)).long()


def train(encoding: str, steps: int) -> float:
    """Train a new encoder, and return its mean loss in nats per token over the last tenth of the steps."""
    torch.manual_seed(0)
    encoder = wordorder.Encoder(
        VOCABULARY, width=64, layers=2, heads=4, max_positions=LENGTH, encoding=encoding, dropout=0.0
    )
    head = torch.nn.Linear(64, 2)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=3e-3)
    generator = torch.Generator().manual_seed(1)  # every encoding sees the same batches
    losses: list[float] = []
    for _ in range(steps):
        numbers, smaller = batch(generator)
        loss = F.cross_entropy(head(encoder(numbers).hidden).flatten(0, 1), smaller.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def main() -> None:
    """Print the loss of every encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="training steps of each encoding")
    parser.add_argument("--encodings", nargs="+", default=["none", "learned", "rope", "t5", "tupe-a", "tupe-r"])
    arguments = parser.parse_args()
    for encoding in arguments.encodings:
        print(f"{encoding:16} loss {train(encoding, arguments.steps):.4f}", flush=True)


if __name__ == "__main__":
    main()
