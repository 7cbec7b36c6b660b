"""Rotary position embedding (RoPE) and its scalings for longer texts."""

import math
from typing import Literal

import torch
from torch import Tensor

from wordorder.encodings.places import OnQueriesAndKeys, Rotation, check_choice, check_sines
from wordorder.ops import Positions, PositionsLike, as_positions

Ramp = Literal["dimension", "turns"]


class Rotary(OnQueriesAndKeys):
    """Rotate pairs of query or key channels by an angle proportional to position.

    Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864, Sec. 3.2.2::

        w_i = base ** (-2 i / D),  i = 0 .. D/2 - 1              [radians per token]
        (a, b) -> (a cos(p w_i) - b sin(p w_i),  b cos(p w_i) + a sin(p w_i))

    Differs from the paper: pairs are (x[i], x[i + D/2]) as in HF Llama, not neighbours;
    angles are in at least float32 (float64 for float64). No parameters, buffers or cache.

    Args:
        head_dim: channels per head, D; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.

    Shape:
        x (B, H, T, D), positions (B or 1, T) token index, may be negative -> like x, same dtype.

    Raises:
        ValueError: an argument is out of range, or x's last axis is not head_dim.
    """

    paper = "Su et al. 2021, https://arxiv.org/abs/2104.09864"

    def __init__(self, head_dim: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        check_sines(base, "head_dim (width / heads)", head_dim)
        self.head_dim, self.base = head_dim, base

    def frequencies(self, *, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        """Return the radians per token of each pair, (K,)."""
        return _geometric(self.head_dim, self.base, dtype, device)

    def magnitude(self) -> float:
        """Return the factor on both cosine and sine; 1 for a pure rotation."""
        return 1.0

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> tuple[Rotation, Rotation]:
        """Return the rotations of queries and keys, one object for both if they have the same positions."""
        of_queries = self.rotation(query, dtype=dtype, device=device)
        if key is query:
            return of_queries, of_queries
        return of_queries, self.rotation(key, dtype=dtype, device=device)

    def rotation(
        self, positions: Positions, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> Rotation:
        """Return the cosines and sines at these positions, in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        position_BT = positions.index_BT(device)
        frequency_K = self.frequencies(dtype=wide, device=position_BT.device)
        angle_B1TK = position_BT[:, None, :, None].to(wide) * frequency_K
        return Rotation(angle_B1TK.cos() * self.magnitude(), angle_B1TK.sin() * self.magnitude())

    def rotate(self, x_BHTD: Tensor, positions: PositionsLike) -> Tensor:
        """Rotate queries or keys."""
        if x_BHTD.shape[-1] != self.head_dim:
            raise ValueError(f"x must end in head_dim={self.head_dim}, got {tuple(x_BHTD.shape)}")
        return self.rotation(as_positions(positions), dtype=x_BHTD.dtype, device=x_BHTD.device).apply(x_BHTD)


class LinearScaledRotary(Rotary):
    """Rotate by positions divided by ``factor``: factor * N tokens span the angles of N.

    Chen et al. 2023, "Extending context window of large language models via positional interpolation",
    https://arxiv.org/abs/2306.15595, Eq. 4: ``w_i = base ** (-2 i / D) / factor``.

    Args:
        head_dim: channels per head, D; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.

    Raises:
        ValueError: an argument is out of range.
    """

    paper = "Chen et al. 2023, https://arxiv.org/abs/2306.15595"

    def __init__(self, head_dim: int, *, base: float = 10_000.0, factor: float = 2.0) -> None:
        super().__init__(head_dim, base=base)
        self.factor = _checked_factor(factor)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        return super().frequencies(dtype=dtype, device=device) / self.factor


class NTKAwareRotary(Rotary):
    """Rotate with a larger base: the fastest pair keeps its frequency, the slowest is divided by ``factor``.

    bloc97 2023, "NTK-aware scaled RoPE"; formula in Peng et al. 2023, https://arxiv.org/abs/2309.00071, Eq. 16:
    ``base' = base * factor ** (D / (D - 2))``.

    Args:
        head_dim: channels per head, D; even and at least 4.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.

    Raises:
        ValueError: an argument is out of range.
    """

    paper = "Peng et al. 2023, Eq. 16, https://arxiv.org/abs/2309.00071"

    def __init__(self, head_dim: int, *, base: float = 10_000.0, factor: float = 2.0) -> None:
        super().__init__(head_dim, base=base)
        if head_dim < 4:
            raise ValueError(f"head_dim must be at least 4 for NTK-aware scaling, got {head_dim}")
        self.factor = _checked_factor(factor)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        base = self.base * self.factor ** (self.head_dim / (self.head_dim - 2))
        return _geometric(self.head_dim, base, dtype, device)


class YaRNRotary(Rotary):
    """Rotate fast pairs at their frequency and slow ones at theirs divided by ``factor``, with a ramp between.

    Peng et al. 2023, "YaRN", https://arxiv.org/abs/2309.00071, Sec. 3.2 and 3.4. With r_i = N w_i / (2 pi) turns of
    pair i over the original length N::

        w'_i    = (1 - gamma_i) w_i / factor + gamma_i w_i
        sqrt(1/t) = 0.1 ln(factor) + 1      on queries and keys, so that scores are multiplied by 1/t

        ramp="dimension"   gamma_i = clip((high - i) / (high - low), 0, 1)
                           low  = floor(i(beta)), high = ceil(i(alpha)), where i(r) solves r_i = r
        ramp="turns"       gamma_i = clip((r_i - alpha) / (beta - alpha), 0, 1)

    The paper writes the second. The authors' code, and so every published checkpoint, transformers, vLLM and llama.cpp
    have the first, which is the default here. Between the two ends, at factor 16, frequencies by the second are down to
    0.30 of those by the first. As in that code, low is at least 0 and high at most D - 1.

    Args:
        head_dim: channels per head, D; positive and even.
        max_positions: longest text of the network in tokens; N where ``original_positions`` is not given.
        original_positions: original length N in tokens, that is the length of pre-training; positive.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.
        alpha: pairs with fewer turns than this are slow; at least 0.
        beta: pairs with more turns than this are fast; greater than alpha.
        ramp: how the share of the original frequency grows between them, by the index of the pair ("dimension") or by
            its "turns".

    Raises:
        ValueError: an argument is out of range.
    """

    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"

    def __init__(
        self,
        head_dim: int,
        *,
        max_positions: int,
        original_positions: int | None = None,
        base: float = 10_000.0,
        factor: float = 2.0,
        alpha: float = 1.0,
        beta: float = 32.0,
        ramp: Ramp = "dimension",
    ) -> None:
        super().__init__(head_dim, base=base)
        check_choice("ramp", ramp, Ramp)
        original = max_positions if original_positions is None else original_positions
        if original <= 0:
            raise ValueError(f"original_positions (or max_positions) must be positive, got {original}")
        if not 0 <= alpha < beta:
            raise ValueError(f"alpha and beta must fulfil 0 <= alpha < beta, got {alpha} and {beta}")
        self.original_positions, self.alpha, self.beta, self.ramp = original, alpha, beta, ramp
        self.factor = _checked_factor(factor)

    def frequencies(self, *, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        frequency_K = super().frequencies(dtype=dtype, device=device)
        if self.ramp == "turns":
            turns_K = self.original_positions * frequency_K / (2 * math.pi)
            keep_K = ((turns_K - self.alpha) / (self.beta - self.alpha)).clamp(0, 1)
        else:
            low = max(math.floor(self._pair_of(self.beta)), 0)
            high = min(math.ceil(self._pair_of(self.alpha)), self.head_dim - 1)
            pair_K = torch.arange(frequency_K.shape[0], dtype=dtype, device=device)
            # as in the authors' code: with both ends equal the ramp is a step
            keep_K = 1 - ((pair_K - low) / (high - low or 0.001)).clamp(0, 1)
        return frequency_K * (keep_K + (1 - keep_K) / self.factor)

    def _pair_of(self, turns: float) -> float:
        """Return i of the pair that makes so many turns over the original length, as a real number."""
        if turns == 0:
            return float(self.head_dim)  # no pair has frequency 0: beyond the last one
        wavelength = self.original_positions / (2 * math.pi * turns)
        return self.head_dim * math.log(wavelength) / (2 * math.log(self.base))

    def magnitude(self) -> float:
        """Return the square root of the inverse temperature."""
        return 0.1 * math.log(self.factor) + 1


def _geometric(head_dim: int, base: float, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    two_i_K = torch.arange(0, head_dim, 2, device=device, dtype=dtype)
    return base ** (-two_i_K / head_dim)


def _checked_factor(factor: float) -> float:
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor must be at least 1{' and finite' if factor > 1 else ''}, got {factor}")
    return factor
