"""Complex embeddings as the published text classification code starts them, N(0, 1) amplitudes whatever the network.

Wang et al. 2020, https://arxiv.org/abs/1912.12333, and https://github.com/iclr-complex-order/complex-order. That code
reads positions backwards, L - 1 .. 0 over a padded text, and never masks: `ReferenceTextNetwork` does so too.
"""

import torch
from torch import Tensor, nn

from wordorder.encodings.wave_embedding import SLOWEST, WaveEmbedding, WavesAsReal
from wordorder.networks.complex_valued import PhaseDropout
from wordorder.networks.initialisation import Generators
from wordorder.ops import PositionsLike


class ReferenceWaves(WaveEmbedding):
    """A wave per word and channel, from the published code's amplitudes.

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T) -> real and imag, (B, T, D) each.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width, tables={"amplitude": "full", "frequency": "full"}, frequency_init="normal")

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Draw the initial values, amplitudes from N(0, 1) whatever ``std``."""
        super().draw_parameters(1.0, generator_for)


class ReferenceOrderEmbedding(ReferenceWaves):
    """Complex-order embeddings of the published code: ``w_jd = 10000 ** (-2 floor(d / 2) / D)``, and row 0 of w zero.

    The code keeps row 0 of the amplitudes at 0, too; here that row is trained like any other.
    """

    def draw_frequencies(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        words, channels = shape
        d = torch.arange(channels, dtype=torch.float64, device="cpu")
        frequencies = (SLOWEST ** (2 * (d / 2).floor() / channels)).repeat(words, 1)
        if words > 1:
            frequencies[0] = 0
        return frequencies


class ReferenceVanillaEmbedding(ReferenceWaves):
    """The published code's "vanilla": it draws theta from N(0, 1) and multiplies it by the position after all.

    So it is complex-order with random frequencies, where the paper's baseline has no position.
    """


class ReferenceWords(nn.Module):
    """Published waves as stacked vectors, (B, T, 2C), with dropout of whole complex numbers.

    The published code drops amplitudes and angles apart.

    Args:
        waves: `ReferenceOrderEmbedding` or `ReferenceVanillaEmbedding`.
        dropout: of complex numbers.
    """

    def __init__(self, waves: ReferenceWaves, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = WavesAsReal(waves, 2 * waves.width, "pair")
        self.dropout = PhaseDropout(dropout)

    def forward(self, token_ids: Tensor, positions: PositionsLike) -> Tensor:
        """Return the vectors of token ids (B, T) at their positions."""
        return self.dropout(self.embedding(token_ids, positions))
