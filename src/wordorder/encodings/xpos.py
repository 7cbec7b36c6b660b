"""Extrapolatable position embedding (xPos): rotations whose products fade with distance."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from wordorder.encodings.places import OnQueriesAndKeys, Rotation, check_positive
from wordorder.encodings.rope import Rotary
from wordorder.ops import Contiguous, Positions

ROOM_FOR_PRODUCTS = 7.0
"""Natural log of the largest product of a query and a key that is allowed for, before the factors of xPos."""
ROOM_FOR_CHANNELS = 4.0
"""Natural log of the largest value of one channel of a query or key that is allowed for."""


class XPos(OnQueriesAndKeys):
    """Rotate queries and keys as RoPE does, and let each pair of channels fade with distance at its own rate.

    Sun et al. 2022, "A length-extrapolatable transformer", https://arxiv.org/abs/2212.10554, Sec. 2.1, Eq. 13 (xPos)::

        zeta_i = (i / (D/2) + gamma) / (1 + gamma),  i = 0 .. D/2 - 1
        query at n:  turned by n w_i, times zeta_i ** ( (n - c) / scale_base)
        key at m:    turned by m w_i, times zeta_i ** (-(m - c) / scale_base)

    so that their product fades by ``zeta_i ** ((n - m) / scale_base)``, fastest in the pairs that rotate fastest. The
    factors of queries and keys differ: these are two moves, not one.

    The centre c cancels in every product. It is the middle of the positions in attention (of each example), as in the
    authors' code, because neither factor may overflow: at 32,768 tokens they are within exp(-40) .. exp(40). Products
    of a query with the keys *after* it, which are masked, still grow to exp(80); hence the limit on the length of a
    window below.

    Differs from the paper's code as `Rotary` does: pairs are (x[i], x[i + D/2]); factors and angles are in at least
    float32 (float64 for float64).

    Args:
        head_dim: channels per head, D; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.
        scale_base: tokens after which a pair has faded by its zeta; positive. The paper takes 512.
        gamma: keeps zeta_0 = gamma / (1 + gamma) from 0; positive. The paper takes 0.4.

    Raises:
        ValueError: an argument is out of range, or the window is so long that factors would overflow (checked where
            its length is known without reading a tensor): above 33,399 tokens by default, 5,795 in float16.
    """

    purpose = "texts longer than in training"
    paper = "Sun et al. 2022, https://arxiv.org/abs/2212.10554"
    refused_in: ClassVar[Mapping[str, str]] = {
        "encoder": "its factor zeta ** ((n - m) / scale_base) fades keys to the left (m < n) but grows without limit"
        " for keys to the right; take 'rope', or 'alibi' for scores that fade on both sides",
        "cross-attention": "its factor grows without limit for keys at higher positions than the query's, and positions"
        " of a source and a target are not of one text",
        "right": "slots of such a memory attend to keys to their right, for which its factor grows without limit;"
        " take memory='segment-recurrence'",
    }

    def __init__(self, head_dim: int, *, base: float = 10_000.0, scale_base: float = 512.0, gamma: float = 0.4) -> None:
        super().__init__()
        check_positive(scale_base=scale_base, gamma=gamma)
        self.rotary = Rotary(head_dim, base=base)
        self.head_dim, self.scale_base, self.gamma = head_dim, scale_base, gamma

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> tuple[Rotation, Rotation]:
        """Return the moves of queries and of keys, which share the centre c."""
        self._check_window(query, key, dtype)
        centre = _centre(query, key, device)
        turn = self.rotary.rotation(query, dtype=dtype, device=device)
        of_keys = turn if key is query else self.rotary.rotation(key, dtype=dtype, device=device)
        return self._faded(turn, query, centre, 1.0), self._faded(of_keys, key, centre, -1.0)

    def fading(self, *, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """Return ``ln zeta_i / scale_base``, the negative rate per token at which each pair fades, (K,)."""
        i_K = torch.arange(self.head_dim // 2, dtype=dtype, device=device)
        return ((i_K / (self.head_dim / 2) + self.gamma) / (1 + self.gamma)).log() / self.scale_base

    def _faded(self, turn: Rotation, positions: Positions, centre: Tensor | int, sign: float) -> Rotation:
        wide, device = turn.cos_B1TK.dtype, turn.cos_B1TK.device
        # integers until here: at far positions a difference of floats would have lost its digits
        from_centre_BT = (2 * positions.index_BT(device) - centre).to(wide) / 2
        factor_B1TK = (sign * from_centre_BT[:, None, :, None] * self.fading(dtype=wide, device=device)).exp()
        return Rotation(turn.cos_B1TK * factor_B1TK, turn.sin_B1TK * factor_B1TK)

    def _check_window(self, query: Positions, key: Positions, dtype: torch.dtype) -> None:
        """Refuse windows whose factors would overflow, if their length is known without reading a tensor."""
        ends = _ends(query, key)
        if ends is None or torch.compiler.is_compiling():
            return
        wide = torch.promote_types(dtype, torch.float32)
        largest = min(
            math.log(torch.finfo(dtype).max) - ROOM_FOR_CHANNELS,
            (math.log(torch.finfo(wide).max) - ROOM_FOR_PRODUCTS) / 2,
        )
        rate = math.log((1 + self.gamma) / self.gamma) / self.scale_base
        longest, window = int(2 * largest / rate), ends[1] - ends[0]
        if window > longest:
            raise ValueError(
                f"xpos with scale_base={self.scale_base} and gamma={self.gamma} holds {longest} tokens in "
                f"{str(dtype).removeprefix('torch.')}, got {window}; take a larger scale_base, or a memory of earlier "
                "segments"
            )


def _ends(query: Positions, key: Positions) -> tuple[int, int] | None:
    """Return the lowest position and the one after the highest; None if unknown without reading a tensor."""
    if not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        return None
    if isinstance(query.offset, int) and isinstance(key.offset, int):
        return min(query.offset, key.offset), max(query.offset + query.length, key.offset + key.length)
    return (0, max(query.length, key.length)) if query.offset is key.offset else None


def _centre(query: Positions, key: Positions, device: torch.device | None) -> Tensor | int:
    """Return twice the middle of all positions, an integer or one per example, (B, 1)."""
    ends = _ends(query, key)
    if ends is not None and not (isinstance(query, Contiguous) and isinstance(query.offset, Tensor)):
        return ends[0] + ends[1] - 1
    query_BT, key_BS = query.index_BT(device), key.index_BT(device)
    lowest_B1 = torch.minimum(query_BT.amin(-1, keepdim=True), key_BS.amin(-1, keepdim=True))
    return lowest_B1 + torch.maximum(query_BT.amax(-1, keepdim=True), key_BS.amax(-1, keepdim=True))
