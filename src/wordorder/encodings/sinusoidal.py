"""Fixed sines and cosines added to the embeddings."""

import math

import torch
from torch import Tensor

from wordorder.encodings.places import OnEmbeddings, check_positive, check_sines
from wordorder.ops import PositionsLike, as_positions


class Sinusoidal(OnEmbeddings):
    """Add sines and cosines of the position, at wavelengths from 2 pi to 2 pi * base tokens.

    Vaswani et al. 2017, "Attention is all you need", https://arxiv.org/abs/1706.03762, Sec. 3.5::

        PE[p, 2i] = sin(p / base ** (2i / C)),   PE[p, 2i + 1] = cos(p / base ** (2i / C))
        x -> embedding_scale * x + PE

    Angles are in at least float32. No parameters or buffers.

    Args:
        width: model channels, C; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.
        embedding_scale: factor on the embeddings; positive. Default: sqrt(C), as in the paper (Sec. 3.4). It brings
            embeddings drawn at std 1/sqrt(C) to the size of the sines, which would drown them. 1.0 suits embeddings
            that are of size 1 already.

    Shape:
        x (B, T, C), positions (B or 1, T) -> like x, same dtype.

    Raises:
        ValueError: an argument is out of range, or x's last axis is not width.
    """

    purpose = "absolute positions"
    paper = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762"

    def __init__(self, width: int, *, base: float = 10_000.0, embedding_scale: float | None = None) -> None:
        super().__init__()
        check_sines(base, "width", width)
        self.width, self.base = width, base
        self.embedding_scale: float = math.sqrt(width) if embedding_scale is None else embedding_scale
        check_positive(embedding_scale=self.embedding_scale)

    def forward(self, x_BTC: Tensor, positions: PositionsLike) -> Tensor:
        """Scale the embeddings and add the sines."""
        if x_BTC.shape[-1] != self.width:
            raise ValueError(f"x must end in width={self.width}, got {tuple(x_BTC.shape)}")
        wide = torch.promote_types(x_BTC.dtype, torch.float32)
        position_BT = as_positions(positions).index_BT(x_BTC.device).to(wide)
        two_i_K = torch.arange(0, self.width, 2, device=x_BTC.device, dtype=wide)
        angle_BTK = position_BT[..., None] * self.base ** (-two_i_K / self.width)
        sines_BTC = torch.stack((angle_BTK.sin(), angle_BTK.cos()), dim=-1).flatten(-2)
        return (self.embedding_scale * x_BTC.to(wide) + sines_BTC).type_as(x_BTC)
