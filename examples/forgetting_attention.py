"""Give an attention block of one's own the forget gates of FoX, on a task where the newest value counts.

Lin et al. 2025, https://arxiv.org/abs/2503.02130. A text sets variables to values, again and again, and asks for them:
the answer is the value that was set last, among older ones of the same variable.

Shows: `wordorder.Positional` with an encoding that reads the input of the block's attention, and its cache.
Prints: the accuracy of the answers in texts of the length of training and in texts four times as long, and how far the
logits with the cache are from those without.

    python examples/forgetting_attention.py
    python examples/forgetting_attention.py --encodings alibi t5 rope+fox --steps 1000
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import wordorder
from wordorder.networks import KeyValueCache, Prepared

VARIABLES, VALUES, LENGTH, BATCH = 3, 8, 32, 32
WIDTH, HEADS = 32, 2
ASK = VARIABLES * VALUES  # tokens below it set a variable, those from it on ask for one


def batch(length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts, and the answers: -100 where a token asks for nothing, or for what was not set yet."""
    shape = (BATCH, length)
    variable = torch.randint(VARIABLES, shape, generator=generator)
    value = torch.randint(VALUES, shape, generator=generator)
    asks = torch.rand(shape, generator=generator) < 0.5
    tokens = torch.where(asks, ASK + variable, variable * VALUES + value)
    answers, newest = torch.full(shape, -100), torch.full((BATCH, VARIABLES), -100)
    for t in range(length):
        now, asked = variable[:, t : t + 1], asks[:, t : t + 1]
        earlier = newest.gather(1, now)
        answers[:, t : t + 1] = torch.where(asked, earlier, -100)
        newest.scatter_(1, now, torch.where(asked, earlier, value[:, t : t + 1]))
    return tokens, answers


class Block(nn.Module):
    """Attention after a norm, and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, order: Prepared, layer: int) -> Tensor:
        """Return the block's output, (batch, tokens, WIDTH)."""
        normed = order.input(layer, self.norms[0](x))
        q, k, v = self.qkv(normed).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = order.attend(layer, q, k, v, x=normed)  # the gates are a projection of x
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norms[1](x))


class Network(nn.Module):
    """One block, which answers in every token."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(ASK + VARIABLES, WIDTH), nn.Linear(WIDTH, VALUES)
        self.positional = wordorder.Positional(
            encoding, width=WIDTH, heads=HEADS, layers=1, max_positions=4 * LENGTH, causal=True
        )
        self.block = Block()

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """Return logits (batch, tokens, VALUES); with a cache tokens are those after the ones that it holds."""
        x = self.positional.embed(self.tokens(tokens), cache=cache)
        return self.head(self.block(x, self.positional.prepare(x, cache=cache), 0))


def train(encoding: str, steps: int) -> Network:
    """Train a new network."""
    torch.manual_seed(0)
    model = Network(encoding)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)  # every encoding sees the same batches
    for _ in range(steps):
        tokens, answers = batch(LENGTH, generator)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: Network, length: int) -> float:
    """Return the share of right answers in new texts."""
    generator, right = torch.Generator().manual_seed(2), []
    for _ in range(16):
        tokens, answers = batch(length, generator)
        right.append((model(tokens).argmax(-1) == answers)[answers >= 0])
    return torch.cat(right).float().mean().item()


@torch.no_grad()
def with_cache(model: Network) -> float:
    """Return the largest difference of the logits token by token from those of the whole text."""
    tokens, _ = batch(LENGTH, torch.Generator().manual_seed(3))
    cache = model.positional.cache()
    steps = [model(tokens[:, t : t + 1], cache) for t in range(LENGTH)]
    return (torch.cat(steps, dim=1) - model(tokens)).abs().max().item()


def main() -> None:
    """Print the scores of every encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each encoding")
    parser.add_argument("--encodings", nargs="+", default=["none", "rope", "fox"])
    arguments = parser.parse_args()
    for encoding in arguments.encodings:
        model = train(encoding, arguments.steps)
        scores = ", ".join(f"{accuracy(model, n):.3f} in {n} tokens" for n in (LENGTH, 4 * LENGTH))
        print(f"{encoding:8} accuracy {scores}; with a cache {with_cache(model):.1e} apart", flush=True)


if __name__ == "__main__":
    main()
