"""The base of complex layers: they take a pair or the stacked tensor, and return the same kind."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from wordorder.ops.complex import Pair, split, stack


class ComplexLayer(nn.Module, ABC):
    """A map of complex numbers, given as ``(real, imag)`` or side by side in the last axis, ``[real | imag]``."""

    def forward(self, z: Pair | Tensor) -> Pair | Tensor:
        """Map a pair to a pair, (..., C) each, or a stacked tensor to a stacked one, (..., 2C).

        Raises:
            ValueError: a complex tensor in their place.
        """
        refuse_complex_tensors(z)
        if isinstance(z, Tensor):
            return self.stacked(z)
        return split(self.stacked(stack(z)))

    @abstractmethod
    def stacked(self, z: Tensor) -> Tensor:
        """Map a stacked tensor."""


def refuse_complex_tensors(z: Pair | Tensor) -> None:
    """Raise ValueError where numbers are complex in torch's sense, which no layer here computes with."""
    for part in (z,) if isinstance(z, Tensor) else z:
        if part.is_complex():
            raise ValueError(
                "z must be (z.real, z.imag) or both side by side in the last axis of one real tensor, got "
                f"{part.dtype} {tuple(part.shape)}"
            )
