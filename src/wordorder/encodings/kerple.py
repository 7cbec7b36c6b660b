"""Kernelized relative position biases (KERPLE): a learned logarithm or power of the distance per head."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import OnDistance

SMALLEST = 0.01
"""The lower bound of r1 and r2 in the authors' code, and of all initial values here."""


class _Kerple(OnDistance):
    """The base of both kernels: two positive numbers per head and their initial values."""

    paper = "Chi et al. 2022, https://arxiv.org/abs/2205.09921"

    def __init__(self, heads: int) -> None:
        super().__init__()
        if heads <= 0:
            raise ValueError(f"heads must be positive, got {heads}")
        self.heads = heads
        self.raw_r1, self.raw_r2 = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.draw_parameters(0.0)

    @abstractmethod
    def numbers(self, raw_r1_H: Tensor, raw_r2_H: Tensor) -> tuple[Tensor, Tensor]:
        """Return r1 and r2, (H,) each, from the learned parameters."""

    @abstractmethod
    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
        """Return the bias at distances of at least 0; r1 and r2 broadcast over the heads."""

    @abstractmethod
    def draw_parameters(self, std: float, generator_for: Callable[[str], torch.Generator | None] | None = None) -> None:
        """Draw the initial values; `networks.initialise` calls it, which has one rule for all other parameters.

        Args:
            generator_for: random generator by the parameter's name; None = torch's global one.
        """

    def kernel_H(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return r1 and r2, (H,) each, in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        return self.numbers(self.raw_r1.to(wide), self.raw_r2.to(wide))

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the kernel at distances of any shape, (H, *shape), in at least float32."""
        over = (-1, *(1,) * distance.dim())
        r1_H, r2_H = (r_H.view(over) for r_H in self.kernel_H(torch.promote_types(dtype, self.raw_r1.dtype)))
        return self.kernel(r1_H, r2_H, distance.abs())

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters: two per head."""
        return {"kernel": 2 * self.heads}


class KERPLELog(_Kerple):
    """Subtract from each score the logarithm of the distance, with a slope and a scale that are learned per head.

    Chi et al. 2022, "KERPLE", https://arxiv.org/abs/2205.09921, Sec. 4, the logarithmic kernel, the better of the two
    in the paper's experiments::

        bias[h, i, j] = -r1_h log(1 + r2_h |i - j|),    r1, r2 > 0

    One pair per head serves all layers. Differs from the paper: the numbers are kept positive by
    ``r = softplus(raw)``, where the authors' code writes ``max(r, 0.01)`` back into the weights at every forward: a
    forward that changes weights is not what gradient checkpointing, evaluation or export expect. r starts as there, r1
    uniform in (0, 2) and r2 in (0, 1), both from 0.01 on. The paper's is a decoder's (j <= i); encoders use the same
    formula on both sides, which cannot tell left from right.

    Args:
        heads: H; positive.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), at least float32.

    Raises:
        ValueError: heads is not positive.
    """

    def draw_parameters(self, std: float, generator_for: Callable[[str], torch.Generator | None] | None = None) -> None:
        """Draw r1 from U(0.01, 2) and r2 from U(0.01, 1).

        Args:
            generator_for: random generator by the parameter's name; None = torch's global one.
        """
        del std
        _draw(self.raw_r1, 2.0, _softplus_undone, generator_for and generator_for("raw_r1"))
        _draw(self.raw_r2, 1.0, _softplus_undone, generator_for and generator_for("raw_r2"))

    def numbers(self, raw_r1_H: Tensor, raw_r2_H: Tensor) -> tuple[Tensor, Tensor]:
        """Return the softplus of both."""
        return F.softplus(raw_r1_H), F.softplus(raw_r2_H)

    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
        """Return ``-r1 log(1 + r2 distance)``."""
        return -r1_H * torch.log1p(r2_H * distance)


class KERPLEPower(_Kerple):
    """Subtract from each score a power of the distance, with a slope and an exponent that are learned per head.

    Chi et al. 2022, "KERPLE", https://arxiv.org/abs/2205.09921, Sec. 4, the power kernel::

        bias[h, i, j] = -r1_h |i - j| ** r2_h,    r1 > 0,  0 < r2 <= 2

    At r2 = 1 it is ALiBi with learned slopes. Differs from the paper as `KERPLELog` does; here r1 = softplus(raw) and
    r2 = 2 sigmoid(raw), which is in (0, 2): the kernel is conditionally positive definite up to 2 only. r1 starts
    uniform in (0, 1) and r2 in (0, 2), both 0.01 away from the ends.

    Args:
        heads: H; positive.

    Shape:
        positions (B or 1, T) and (B or 1, S) -> bias (B or 1, H, T, S), at least float32.

    Raises:
        ValueError: heads is not positive.
    """

    def draw_parameters(self, std: float, generator_for: Callable[[str], torch.Generator | None] | None = None) -> None:
        """Draw r1 from U(0.01, 1) and r2 from U(0.01, 1.99).

        Args:
            generator_for: random generator by the parameter's name; None = torch's global one.
        """
        del std
        _draw(self.raw_r1, 1.0, _softplus_undone, generator_for and generator_for("raw_r1"))
        _draw(self.raw_r2, 2.0 - SMALLEST, _half_logit, generator_for and generator_for("raw_r2"))

    def numbers(self, raw_r1_H: Tensor, raw_r2_H: Tensor) -> tuple[Tensor, Tensor]:
        """Return r1 = softplus(raw) and r2 = 2 sigmoid(raw)."""
        return F.softplus(raw_r1_H), 2 * torch.sigmoid(raw_r2_H)

    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
        """Return ``-r1 distance ** r2``."""
        return -r1_H * distance.to(r1_H.dtype) ** r2_H


def _draw(
    raw: nn.Parameter, largest: float, undone: Callable[[Tensor], Tensor], generator: torch.Generator | None
) -> None:
    """Draw numbers from U(SMALLEST, largest) and store the parameters that give them."""
    nn.init.uniform_(raw, SMALLEST, largest, generator=generator)
    if not getattr(raw, "_is_hf_initialized", False):  # transformers' mark of a loaded weight, which nn.init leaves too
        with torch.no_grad():
            raw.copy_(undone(raw.float()))


def _softplus_undone(r: Tensor) -> Tensor:
    return torch.log(torch.expm1(r))


def _half_logit(r: Tensor) -> Tensor:
    return torch.logit(r / 2)
