"""Polar coordinate position embedding (PoPE): content decides magnitudes, and position alone decides angles."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import (
    Generators,
    Move,
    OnQueriesAndKeys,
    check_base,
    check_choice,
    check_positive,
)
from wordorder.ops import Positions

FirstDelta = Literal["zero", "uniform"]


class PoPE(OnQueriesAndKeys):
    """Give each channel a magnitude, by its content, and an angle, by its position and a learned offset.

    Gopalakrishnan et al. 2025, "Decoupling the what and where with polar coordinate positional embeddings",
    https://arxiv.org/abs/2509.10534, Eq. 3 to 6, with a query at i and a key at j::

        w_d = base ** (-d / D),  d = 0 .. D - 1              [radians per token]
        score[h, i, j] = scale * sum over d of softplus(q_d) softplus(k_d) cos((i - j) w_d - delta[h, d])

    RoPE rotates D/2 pairs of channels, each of which has an angle of its own that the content decides. Here content has
    no angle, and each channel has a frequency. delta, of each layer, head and channel, is the angle (i - j) w_d at
    which a channel's product is largest. It counts as the nearest number in [-2 pi, 0], as in the paper: beyond the
    ends it has no gradient.

    Moved queries and keys have 2 D channels, the real parts and then the imaginary ones, and values D. So the product
    of queries and keys costs twice as much.

    Differs from the paper: delta is taken off the angle of the query, where the paper adds it to that of the key. The
    score is the same; with grouped queries each query head has a delta of its own, where it would be each key head.

    Args:
        head_dim: channels per head, D; positive, even or odd.
        heads: query heads, H; positive.
        layers: number of layers that have a delta of their own; positive.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1. The paper has 10,000.
        first_delta: what delta starts at: "uniform" in [-2 pi, 0], or "zero", which the paper takes for language models
            and finds important for texts longer than in training. From 0 an encoder learns slowly to tell left from
            right.

    Shape:
        x (B, H, T, D), positions (B or 1, T) token index, may be negative -> (B, H, T, 2 D), dtype of x. Angles and
        magnitudes are in at least float32.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "order by rotation, the default of decoders today"
    paper = "Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534"
    refused_in: ClassVar[Mapping[str, str]] = {
        "moved": "its magnitudes are those of content alone, and a rotation or shift before them would put positions"
        " into them; leave the other one out, or name them in different layers ('rope,pope')"
    }

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        layers: int,
        base: float = 10_000.0,
        first_delta: FirstDelta = "uniform",
    ) -> None:
        super().__init__()
        check_positive(head_dim=head_dim, heads=heads, layers=layers)
        check_base(base)
        check_choice("first_delta", first_delta, FirstDelta)
        self.head_dim, self.heads, self.base, self.first_delta = head_dim, heads, base, first_delta
        self.delta = nn.Parameter(torch.empty(layers, heads, head_dim))
        self.draw_parameters(0.0)

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Set or draw delta as ``first_delta`` says; `networks.initialise` calls it."""
        del std
        if self.first_delta == "zero":
            nn.init.zeros_(self.delta)
        else:
            nn.init.uniform_(self.delta, -2 * math.pi, 0, generator=generator_for and generator_for("delta"))

    def cost_parts(self) -> dict[str, int]:
        return {"delta": self.delta.numel()}

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "tuple[Polar, Polar]":
        """Return the moves of queries, with the delta of all layers, and of keys."""
        wide = torch.promote_types(torch.promote_types(dtype, self.delta.dtype), torch.float32)
        of_keys = self._at(key, wide, device)
        of_queries = of_keys if query is key else self._at(query, wide, device)
        return replace(of_queries, delta_LHD=self.delta), of_keys

    def _at(self, positions: Positions, dtype: torch.dtype, device: torch.device | None) -> "Polar":
        """Return the move at these positions, with the angles that they alone decide."""
        position_BT = positions.index_BT(device or self.delta.device)
        d_D = torch.arange(self.head_dim, dtype=dtype, device=position_BT.device)
        angle_B1TD = position_BT[:, None, :, None].to(dtype) * self.base ** (-d_D / self.head_dim)
        return Polar(angle_B1TD.cos(), angle_B1TD.sin())


@dataclass(frozen=True)
class Polar(Move):
    """The map of each channel to a magnitude at an angle: cosines and sines (B or 1, 1, T, D), at least float32."""

    cos_B1TD: Tensor
    sin_B1TD: Tensor
    delta_LHD: Tensor | None = None
    """Subtracted from the angle in each layer, (L, H, D); None = nothing."""
    index: int = 0
    """The layer."""
    widening = 2

    def layer(self, index: int) -> "Polar":
        return replace(self, index=index)

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Return ``softplus(x)`` times cosine and times sine; computed in the dtype of the angles."""
        cos, sin = self.cos_B1TD, self.sin_B1TD
        if self.delta_LHD is not None:
            if x_BHTD.shape[1] != self.delta_LHD.shape[1]:
                raise ValueError(f"delta is of {self.delta_LHD.shape[1]} heads, got queries of {x_BHTD.shape[1]}")
            delta_H1D = self.delta_LHD[self.index, :, None].to(cos.dtype).clamp(-2 * math.pi, 0)
            cos_delta, sin_delta = delta_H1D.cos(), delta_H1D.sin()
            cos, sin = cos * cos_delta + sin * sin_delta, sin * cos_delta - cos * sin_delta
        # in one layout, on which the last bit of a vectorised logarithm depends
        magnitude_BHTD = F.softplus(x_BHTD.to(cos.dtype).contiguous())
        return torch.cat((magnitude_BHTD * cos, magnitude_BHTD * sin), dim=-1).type_as(x_BHTD)
