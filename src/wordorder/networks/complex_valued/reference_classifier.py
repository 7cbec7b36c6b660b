"""The complex Transformer of the paper's published text classification code, as it computes, defects included."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.complex_valued.linear import check_sizes
from wordorder.ops.complex import Pair, unconjugated_modulus_scores


class ReferenceAttention(nn.Module):
    """Attention as in the published code: real maps on both streams, scores ``|q k^T| / sqrt(d)`` without conjugation.

    Padding is attended to: the code's mask argument is never given.

    Args:
        width: complex channels, C; a multiple of heads.
        heads: H.
        dropout: on attention weights.

    Raises:
        ValueError: width is no multiple of heads.
    """

    def __init__(self, width: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got width={width}, heads={heads}")
        self.heads, self.head_dim = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, y_BTC: Tensor) -> Pair:
        """Real and imaginary part, (B, T, C) each, to the same."""
        q, k, v = ((self._split(map_(x_BTC)), self._split(map_(y_BTC))) for map_ in (self.query, self.key, self.value))
        weight_BHTS = self.dropout((unconjugated_modulus_scores(q, k) * self.head_dim**-0.5).softmax(-1))
        real, imag = ((weight_BHTS @ part).transpose(1, 2).flatten(2) for part in v)
        return self.out(real), self.out(imag)

    def _split(self, x_BTC: Tensor) -> Tensor:
        return x_BTC.view(*x_BTC.shape[:2], self.heads, self.head_dim).transpose(1, 2)


class ReferenceNorm(nn.Module):
    """``weight (x - mean) / (std + 1e-6) + bias`` with the unbiased std; eps is not under the root."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def draw_parameters(self, std: float, generator_for: object) -> None:
        """Weight 1, bias 0."""
        del std, generator_for
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C); a token whose channels are all alike becomes the bias, with a finite gradient."""
        centred = x_BTC - x_BTC.mean(-1, keepdim=True)
        square = centred.square().sum(-1, keepdim=True) / (x_BTC.shape[-1] - 1)
        flat = square == 0  # the root has no derivative there
        std = square.masked_fill(flat, 1).sqrt().masked_fill(flat, 0)
        return self.weight * centred / (std + 1e-6) + self.bias


class ReferenceLayer(nn.Module):
    """One layer as in the published code::

        x, y = attention(x, y)                        no residual around it
        x = x + drop(norm0(x)),   y = y + drop(y)     the imaginary stream misses its norm, and doubles
        x = x + drop(FF(norm1(x))),   y = y + drop(FF(norm1(y)))

    ``FF(t) = W2 drop(relu(W1 t + b1)) + b2``, real and the same on both streams.

    Args:
        width: complex channels, C.
        heads: H.
        feedforward: inner channels.
        dropout: everywhere.
    """

    def __init__(self, width: int, *, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = ReferenceAttention(width, heads=heads, dropout=dropout)
        self.norms = nn.ModuleList(ReferenceNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, y_BTC: Tensor) -> Pair:
        """Real and imaginary part, (B, T, C) each, to the same."""
        x, y = self.attention(x_BTC, y_BTC)
        x, y = x + self.dropout(self.norms[0](x)), y + self.dropout(y)
        x, y = (part + self.dropout(self._feedforward(self.norms[1](part))) for part in (x, y))
        return x, y

    def _feedforward(self, x_BTC: Tensor) -> Tensor:
        return self.down(self.dropout(F.relu(self.up(x_BTC))))


class ReferenceTransformer(nn.Module):
    """From complex embeddings to the features of a text, as the published text classification code does it.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333; the code differs from the paper in what `ReferenceLayer` and
    `ReferenceAttention` say, and in this: there are two layers where the settings say one, the second of which gets the
    streams swapped; after it comes a norm. The features are both parts of the last slot, which mostly is padding, in
    the order in which the second layer has them (imaginary first). The positions that go with it run backwards, T - 1
    .. 0 (see `ComplexOrderEmbedding`), and its loss took the softmax of a softmax, which is up to the caller.

    Args:
        width: complex channels, C; a multiple of heads.
        heads: H.
        feedforward: inner channels.
        dropout: everywhere.

    Raises:
        ValueError: a size is out of range.
    """

    def __init__(self, width: int, *, heads: int = 8, feedforward: int = 512, dropout: float = 0.1) -> None:
        super().__init__()
        check_sizes(feedforward=feedforward)
        self.layers = nn.ModuleList(
            ReferenceLayer(width, heads=heads, feedforward=feedforward, dropout=dropout) for _ in range(2)
        )
        self.final_norm = ReferenceNorm(width)
        self.features = 2 * width

    def hidden(self, z: Pair) -> Pair:
        """Both streams after the final norm, (B, T, C) each, the one that was imaginary first."""
        x, y = self.layers[0](*z)
        x, y = self.layers[1](y, x)
        return self.final_norm(x), self.final_norm(y)

    def forward(self, z: Pair) -> Tensor:
        """Complex embeddings (B, T, C) each -> features (B, 2C)."""
        return torch.cat([part[:, -1] for part in self.hidden(z)], dim=-1)
