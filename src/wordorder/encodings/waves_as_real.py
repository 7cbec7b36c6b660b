"""Complex embeddings as the token embeddings of a network of real numbers."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from wordorder.encodings.places import ReplacesEmbedding
from wordorder.encodings.wave_embedding import WaveEmbedding, check_choice
from wordorder.ops import PositionsLike

AsReal = Literal["concat", "real-part", "pair"]


class WavesAsReal(ReplacesEmbedding):
    """Complex embeddings as the token embeddings of a network of real numbers.

    Args:
        width: model channels, C.
        as_real: how a complex vector becomes a real one: "concat", "real-part" or "pair".

    Raises:
        ValueError: unknown choice.
    """

    paper = "Wang et al. 2020, https://arxiv.org/abs/1912.12333"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": "it takes the place of the token embeddings, and cross-attention reads none"
    }

    def __init__(self, waves: WaveEmbedding, width: int, as_real: AsReal) -> None:
        super().__init__()
        self.waves, self.width, self.as_real = waves, width, as_real
        self.projection = nn.Linear(2 * width, width, bias=False) if as_real == "concat" else None

    @property
    def weight(self) -> nn.Parameter:
        """Return the amplitudes, the counterpart of a table of word vectors."""
        return self.waves.amplitude

    @property
    def num_embeddings(self) -> int:
        """Return the number of token ids, V."""
        return self.waves.vocabulary

    @property
    def padding_idx(self) -> int | None:
        """Return the token id whose vector is 0, or None."""
        return self.waves.padding_idx

    @property
    def embedding_dim(self) -> int:
        """Return the number of model channels, C."""
        return self.width

    def forward(self, token_ids_BT: Tensor, positions: PositionsLike | None = None) -> Tensor:
        """Return real vectors (B, T, C) of tokens at positions; these default to 0 .. T - 1."""
        real, imag = self.waves(token_ids_BT, positions)
        if self.as_real == "real-part":
            return real
        both_BTC = torch.cat((real, imag), dim=-1)
        return both_BTC if self.projection is None else self.projection(both_BTC)

    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        """Resize all tables that have a row per word."""
        self.waves.resize(vocabulary, std=std)

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters of each part beyond the amplitudes."""
        tables = {f"{name} table": table.numel() for name, table in self.waves.named_tables().items()}
        del tables["amplitude table"]
        if self.projection is not None:
            tables["projection to real"] = sum(parameter.numel() for parameter in self.projection.parameters())
        return tables


def complex_channels(width: int, as_real: AsReal) -> int:
    """Return the number of complex channels, D, for ``width`` real ones.

    Raises:
        ValueError: unknown choice, or an odd width that is to hold pairs.
    """
    check_choice("as_real", as_real, AsReal)
    if as_real == "pair" and width % 2:
        raise ValueError(f"as_real='pair' needs an even width, got {width}")
    return width // 2 if as_real == "pair" else width
