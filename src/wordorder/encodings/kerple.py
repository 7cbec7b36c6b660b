"""Kernelized relative position biases (KERPLE): a learned logarithm or power of the distance per head."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import Generators, OnDistance, check_positive

SMALLEST = 0.01
"""The lower bound of r1 and r2 in the authors' code, and of all initial values here."""


class _Kerple(OnDistance):
    """The base of both kernels: two positive numbers per head and their initial values."""

    purpose = "texts longer than in training"
    paper = "Chi et al. 2022, https://arxiv.org/abs/2205.09921"
    largest: ClassVar[tuple[float, float]]
    """The largest initial values of r1 and r2."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_positive(heads=heads)
        self.heads = heads
        self.raw_r1, self.raw_r2 = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.draw_parameters(0.0)

    def r2(self, raw_r2_H: Tensor) -> Tensor:
        """Return r2 from its learned parameter; r1 is ``softplus(raw)``."""
        return F.softplus(raw_r2_H)

    def raw_of_r2(self, r2_H: Tensor) -> Tensor:
        """Return the parameter that gives r2."""
        return _softplus_undone(r2_H)

    @abstractmethod
    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
        """Return the bias at distances of at least 0; r1 and r2 broadcast over the heads."""

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Draw r1 and r2 uniformly between `SMALLEST` and `largest`; `networks.initialise` calls it."""
        del std
        undone = {"raw_r1": _softplus_undone, "raw_r2": self.raw_of_r2}
        for (name, raw_of), largest in zip(undone.items(), self.largest, strict=True):
            raw = self.get_parameter(name)
            nn.init.uniform_(raw, SMALLEST, largest, generator=generator_for and generator_for(name))
            if not getattr(raw, "_is_hf_initialized", False):  # transformers' mark of a loaded weight: nn.init left it
                with torch.no_grad():
                    raw.copy_(raw_of(raw.float()))

    def kernel_H(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return r1 and r2, (H,) each, in at least float32."""
        wide = torch.promote_types(dtype, torch.float32)
        return F.softplus(self.raw_r1.to(wide)), self.r2(self.raw_r2.to(wide))

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the kernel at distances of any shape, (H, *shape), in at least float32."""
        over = (-1, *(1,) * distance.dim())
        r1_H, r2_H = (r_H.view(over) for r_H in self.kernel_H(torch.promote_types(dtype, self.raw_r1.dtype)))
        return self.kernel(r1_H, r2_H, distance.abs())

    def cost_parts(self) -> dict[str, int]:
        return {"kernel": 2 * self.heads}


def _softplus_undone(r: Tensor) -> Tensor:
    return torch.log(torch.expm1(r))


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

    largest = (2.0, 1.0)

    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
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

    largest = (1.0, 2.0 - SMALLEST)

    def r2(self, raw_r2_H: Tensor) -> Tensor:
        return 2 * torch.sigmoid(raw_r2_H)

    def raw_of_r2(self, r2_H: Tensor) -> Tensor:
        return torch.logit(r2_H / 2)

    def kernel(self, r1_H: Tensor, r2_H: Tensor, distance: Tensor) -> Tensor:
        far = distance.to(r1_H.dtype)
        # 0 ** r2 has no second derivative by r2
        return -r1_H * (far.masked_fill(far == 0, 1) ** r2_H).masked_fill(far == 0, 0)
