"""Build a Conformer block with the relative positions of Transformer-XL, and train it on utterances of many lengths.

Gulati et al. 2020, https://arxiv.org/abs/2005.08100: half a feed-forward network, attention, a convolution, the other
half and a layer norm. (The convolution has a layer norm too; the paper's batch norm would count padding.) Each
utterance is noise with two tones, too far apart for the convolution; its class is which of them comes first.

Shows: `wordorder.Positional` in an encoder of frames, with padding.
Prints: the accuracy on new utterances without positions and with them, and how far the output of an utterance in a
batch, beside longer ones, is from its output alone.

    python examples/conformer_block.py
    python examples/conformer_block.py --encodings rope t5 --steps 500
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import wordorder
from wordorder.networks import Prepared

CHANNELS, WIDTH, HEADS, LAYERS, KERNEL = 8, 32, 2, 2, 5
SHORTEST, LONGEST, BATCH = 24, 48, 32
OPTIONS = {"transformer-xl": {"sides": "signed", "vectors_per_layer": True}}  # as in the paper


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw frames (batch, frames, CHANNELS), padding (True = padding), and which tone is first."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (BATCH, 1), generator=generator)
    frames = 0.3 * torch.randn(BATCH, LONGEST, CHANNELS, generator=generator)
    first_tone = torch.randint(2, (BATCH,), generator=generator)
    first = torch.randint(SHORTEST // 2 - 2, (BATCH,), generator=generator)
    second = first + torch.randint(10, SHORTEST // 2, (BATCH,), generator=generator)
    for frame, tone in ((first, first_tone), (second, 1 - first_tone)):
        frames[torch.arange(BATCH), frame, tone] += 3
    return frames, torch.arange(LONGEST) >= lengths, first_tone


def feed_forward() -> nn.Module:
    """Return a feed-forward network after a norm."""
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))


class Convolution(nn.Module):
    """A gated convolution over neighbouring frames, channel by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """Mix neighbouring frames; padding is 0, as what lies beyond an utterance's end is."""
        gated = F.glu(self.up(self.norms[0](x)), dim=-1).masked_fill(padding[..., None], 0)
        mixed = self.depthwise(gated.transpose(1, 2)).transpose(1, 2)
        return self.down(F.silu(self.norms[1](mixed)))


class ConformerBlock(nn.Module):
    """The block of the paper's Sec. 2."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.convolution = feed_forward(), feed_forward(), Convolution()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, padding: Tensor, order: Prepared, layer: int) -> Tensor:
        """Return the block's output, (batch, frames, WIDTH)."""
        x = x + self.before(x) / 2
        normed = order.input(layer, self.attention_norm(x))
        q, k, v = self.qkv(normed).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(order.attend(layer, q, k, v, x=normed).transpose(1, 2).flatten(2))
        x = x + self.convolution(x, padding)
        return self.norm(x + self.after(x) / 2)


class Conformer(nn.Module):
    """A classifier of utterances."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(CHANNELS, WIDTH), nn.Linear(WIDTH, 2)
        sizes = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "max_positions": LONGEST}
        self.positional = wordorder.Positional(encoding, **sizes, options=OPTIONS.get(encoding))
        self.blocks = nn.ModuleList(ConformerBlock() for _ in range(LAYERS))

    def forward(self, frames: Tensor, padding: Tensor) -> Tensor:
        """Return logits (batch, 2)."""
        x = self.positional.embed(self.up(frames))
        order = self.positional.prepare(x, key_padding_mask=padding)
        for layer, block in enumerate(self.blocks):
            x = block(x, padding, order, layer)
        return self.head(x.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True))


def train(encoding: str, steps: int) -> tuple[float, float]:
    """Train a new classifier; return its accuracy, and the largest difference between utterances alone and padded."""
    torch.manual_seed(0)
    model = Conformer(encoding)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)  # every encoding sees the same batches
    for _ in range(steps):
        frames, padding, classes = batch(generator)
        loss = F.cross_entropy(model(frames, padding), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right: list[Tensor] = []
    with torch.no_grad():
        for _ in range(16):
            frames, padding, classes = batch(generator)
            logits = model(frames, padding)
            right.append(logits.argmax(-1) == classes)
        alone = [model(x[~hidden][None], hidden[~hidden][None]) for x, hidden in zip(frames, padding, strict=True)]
    return torch.cat(right).float().mean().item(), (torch.cat(alone) - logits).abs().max().item()


def main() -> None:
    """Print the accuracy with every encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="training steps of each encoding")
    parser.add_argument("--encodings", nargs="+", default=["none", "transformer-xl"])
    arguments = parser.parse_args()
    for encoding in arguments.encodings:
        accuracy, apart = train(encoding, arguments.steps)
        print(f"{encoding:16} accuracy {accuracy:.3f}, alone and padded {apart:.1e} apart", flush=True)


if __name__ == "__main__":
    main()
