"""Train a small encoder, then show what TUPE learned about positions.

Shows: `wordorder.inspection`, and Fig. 2 of TUPE by `wordorder.papers.tupe.figure_2`. The encoder fills blanks in texts
where each token repeats the one three positions before, so the maps should prefer distances divisible by 3.
Prints: the preferred distances of each head, and the share of its map that depends on distance alone. `--folder` also
writes the figures of `wordorder inspect`, and Fig. 2.

python examples/inspect_correlations.py
python examples/inspect_correlations.py --steps 600 --folder figures
"""

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import wordorder
from wordorder.inspection import draw, inspect_model
from wordorder.papers.tupe.figure_2 import draw_correlations, word_position_correlations

VOCABULARY, LENGTH, BATCH, PERIOD = 30, 25, 32, 3
CLS, MASK = 0, 1


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw [CLS] and 24 tokens of period 3, some masked, with labels (-100: no label)."""
    tokens = torch.randint(2, VOCABULARY, (BATCH, PERIOD), generator=generator).repeat(1, (LENGTH - 1) // PERIOD)
    tokens = torch.cat((torch.full((BATCH, 1), CLS), tokens), dim=1)
    masked = torch.rand(tokens.shape, generator=generator) < 0.3
    masked[:, 0] = False
    return tokens.masked_fill(masked, MASK), tokens.masked_fill(~masked, -100)


def train(encoding: str, steps: int) -> torch.nn.Module:
    """Train an encoder to fill the blanks."""
    torch.manual_seed(0)
    encoder = wordorder.Encoder(
        VOCABULARY, width=32, layers=1, heads=2, max_positions=LENGTH, encoding=encoding, dropout=0.0
    )
    head = torch.nn.Linear(32, VOCABULARY)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=5e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        tokens, labels = batch(generator)
        loss = F.cross_entropy(head(encoder(tokens).hidden).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{encoding}: loss {loss.item():.3f} after {steps} steps", flush=True)
    return encoder


def main() -> None:
    """Train, inspect, print, and draw with --folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=250, help="training steps")
    parser.add_argument("--encoding", default="tupe-a", help="tupe-a, tupe-r, t5, ...")
    parser.add_argument("--folder", type=Path, help="folder for the figures; default: none are drawn")
    arguments = parser.parse_args()
    encoder = train(arguments.encoding, arguments.steps)
    found = inspect_model(encoder, LENGTH)
    for name, findings in found.maps.items():
        near = findings.profile.count_W > LENGTH // 2  # means of few entries say little
        distances = findings.profile.distances_W[near]
        for head, means in enumerate(findings.profile.mean_HW[:, near], start=1):
            best = distances[means.argsort(descending=True)[:4]].sort().values
            print(f"{name}, head {head}: prefers keys at {' '.join(f'{distance:+d}' for distance in best.tolist())}")
    for sentence in found.answers():
        print(sentence)
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        fig_2 = {"correlations.png": draw_correlations(word_position_correlations(encoder, LENGTH))}
        for name, drawing in (draw(found) | fig_2).items():
            (arguments.folder / name).write_bytes(drawing.png)


if __name__ == "__main__":
    main()
