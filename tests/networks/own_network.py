"""A network of nn.Linear layers that somebody else might have, with word order by `wordorder.Positional`."""

from torch import nn
from torch.nn import functional as F

import wordorder


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, order, layer):
        normed = order.input(layer, self.norm1(x))
        q, k, v = self.qkv(normed).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(order.attend(layer, q, k, v, x=normed).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class OwnNetwork(nn.Module):
    def __init__(self, encoding, *, vocabulary, width, heads, layers, max_positions, causal, options=None):
        super().__init__()
        self.positional = wordorder.Positional(
            encoding,
            width=width,
            heads=heads,
            layers=layers,
            max_positions=max_positions,
            causal=causal,
            options=options,
            vocabulary=vocabulary,
        )
        self.words = None if self.positional.embedding is not None else nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, key_padding_mask=None, positions=None, cache=None):
        words = {"input_ids": ids} if self.words is None else {"x": self.words(ids)}
        x = self.positional.embed(**words, positions=positions, cache=cache)
        order = self.positional.prepare(x, key_padding_mask=key_padding_mask, positions=positions, cache=cache)
        for layer, block in enumerate(self.blocks):
            x = block(x, order, layer)
        return self.norm(x)
