r"""Twenty pairs of arms that are one network under two names, on different seeds: how many are called different?

At the 5% level one of twenty is expected, and more than three happen by chance once in sixty times. Each pair has an
encoding and a stretch of seeds of its own; an arm is a small decoder trained on each of its seeds, which decides the
weights and the batches. All are scored by the perplexity of the same held-out texts. Each pair is judged by
`compare_arms`.

The texts are drawn from a Markov chain over 12 tokens whose next token depends on the last two.

    OMP_NUM_THREADS=1 python evidence/false_positives_trained.py \
        --json evidence/results/false_positives_trained.json
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wordorder import Decoder, __version__
from wordorder.comparison.results_file import parse_results
from wordorder.comparison.statistics.significance import compare_arms

ENCODINGS = ("rope", "alibi", "t5", "sinusoidal", "learned")
TOKENS, LENGTH, BATCH, WIDTH = 12, 16, 16, 16


class Markov:
    """A source of texts: the next token is drawn by a fixed table from the two before it."""

    def __init__(self) -> None:
        self.chances = torch.softmax(2 * torch.randn(TOKENS, TOKENS, TOKENS, generator=_generator(0)), dim=-1)

    def texts(self, count: int, chance: torch.Generator) -> Tensor:
        """Return (count, LENGTH + 1) tokens."""
        tokens = [torch.randint(TOKENS, (count,), generator=chance) for _ in range(2)]
        for _ in range(LENGTH - 1):
            tokens.append(torch.multinomial(self.chances[tokens[-2], tokens[-1]], 1, generator=chance)[:, 0])
        return torch.stack(tokens, dim=1)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Model(nn.Module):
    """A decoder of one layer with an output layer."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.decoder = Decoder(
            TOKENS, width=WIDTH, layers=1, heads=2, encoding=encoding, max_positions=LENGTH, dropout=0.0
        )
        self.out = nn.Linear(WIDTH, TOKENS)

    def forward(self, texts: Tensor) -> Tensor:
        """Return the mean loss of the next tokens in nats."""
        logits = self.out(self.decoder(texts[:, :-1]).hidden)
        return cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())


def trained(encoding: str, seed: int, steps: int, source: Markov, held_out: Tensor) -> float:
    """Return the perplexity on the held-out texts of a model trained from one seed."""
    torch.manual_seed(seed)
    model, chance = Model(encoding), _generator(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        model(source.texts(BATCH, chance)).backward()
        optimiser.step()
    with torch.no_grad():
        return math.exp(float(model.eval()(held_out)))


def results_of(scores: list[list[float]]) -> dict[str, Any]:
    """A results file of two arms."""
    seeds = len(scores[0])
    rows = [
        {"arm": arm, "seed": seed, "perplexity": value, "curve": []}
        for arm, own in zip("ab", scores, strict=True)
        for seed, value in enumerate(own)
    ]
    return {
        "name": "trained",
        "task": "causal-lm",
        "metric": "perplexity",
        "rows": rows,
        "arms": [{"name": arm} for arm in "ab"],
        "planned": {"arms": 2, "seeds": list(range(seeds)), "runs": len(rows)},
        "recipe": {"compare": {}},
    }


def main() -> None:
    """Train and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=6, help="of each arm")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    started, source = time.perf_counter(), Markov()
    held_out, pairs = source.texts(256, _generator(1)), []
    for pair in range(asked.pairs):
        encoding, first = ENCODINGS[pair % len(ENCODINGS)], 1000 + 2 * asked.seeds * pair
        scores = [
            [
                trained(encoding, first + arm * asked.seeds + n, asked.steps, source, held_out)
                for n in range(asked.seeds)
            ]
            for arm in range(2)
        ]
        (entry,) = compare_arms(parse_results(results_of(scores))).comparisons
        pairs.append({"encoding": encoding, "perplexity": scores, "p": entry.p})
        print(encoding, round(entry.p or 0.0, 3), entry.outcome, flush=True)
    called = sum(pair["p"] <= 0.05 for pair in pairs)
    print(f"called different of {asked.pairs}: {called}; {time.perf_counter() - started:.0f} s")
    if asked.json:
        record = {"called_different": called, "pairs": pairs, "seeds": asked.seeds, "steps": asked.steps}
        versions = {"wordorder": __version__, "torch": torch.__version__}
        asked.json.write_text(json.dumps({**record, "versions": versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
