"""Additive terms of attention scores, described by their structure: dense, low-rank, Toeplitz or a sum of them.

The types follow the theory of TUPE (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 3.3): the untied absolute
term is a matrix of low rank, the relative term a Toeplitz matrix with 2N - 1 freedoms per head. A backend looks at the
type and picks the cheapest exact way to add it; every type can also say ``dense()``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from wordorder.ops.precision import no_autocast


class Bias(ABC):
    """A term of the attention scores, (B or 1, H, T, S) when written out."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the term written out, (B or 1, H, T, S)."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors that the term is made of; gradients flow into these."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> "Bias":
        """Return the same term with its tensors in another dtype; products of factors are then taken in it."""

    def written_out(self, dtype: torch.dtype) -> Tensor:
        """Return `dense` with its products taken in at least float32, and converted to ``dtype`` at the end."""
        with no_autocast(self.tensors[0].device):
            return self.to(torch.promote_types(dtype, torch.float32)).dense().to(dtype)

    @property
    def requires_grad(self) -> bool:
        """True if gradients are enabled and wanted for any of the tensors."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)

    @property
    def may_hide(self) -> bool:
        """True if entries can be -inf."""
        return False

    def parts(self) -> tuple["Bias", ...]:
        """Return the summands; every type but a sum has a single one, itself."""
        return (self,)

    def __add__(self, other: "Bias") -> "Bias":
        return SumBias((*self.parts(), *other.parts()))


class DenseBias(Bias):
    """A term given entry by entry.

    Args:
        tensor_BHTS: (B or 1, H or 1, T, S).
        may_hide: whether entries can be -inf; False spares backends the search for rows that see nothing.
    """

    def __init__(self, tensor_BHTS: Tensor, *, may_hide: bool = True) -> None:
        self.tensor_BHTS, self._may_hide = tensor_BHTS, may_hide

    def dense(self) -> Tensor:
        """Return the tensor itself."""
        return self.tensor_BHTS

    @property
    def may_hide(self) -> bool:
        """True if entries can be -inf, as the caller said."""
        return self._may_hide

    def to(self, dtype: torch.dtype) -> "DenseBias":
        """Return the term with its tensor in another dtype."""
        return DenseBias(self.tensor_BHTS.to(dtype), may_hide=self._may_hide)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor itself."""
        return (self.tensor_BHTS,)


class LowRankBias(Bias):
    """``bias[i, j] = query_factor[i] . key_factor[j]``, R numbers per token instead of one per pair.

    Args:
        query_factor_BHTR: (B or 1, H, T, R).
        key_factor_BHSR: (B or 1, H, S, R).
    """

    def __init__(self, query_factor_BHTR: Tensor, key_factor_BHSR: Tensor) -> None:
        self.query_factor_BHTR, self.key_factor_BHSR = query_factor_BHTR, key_factor_BHSR

    def dense(self) -> Tensor:
        """Return the product of the factors."""
        return self.query_factor_BHTR @ self.key_factor_BHSR.transpose(-1, -2)

    def to(self, dtype: torch.dtype) -> "LowRankBias":
        """Return the term with both factors in another dtype."""
        return LowRankBias(self.query_factor_BHTR.to(dtype), self.key_factor_BHSR.to(dtype))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Both factors."""
        return (self.query_factor_BHTR, self.key_factor_BHSR)


class ToeplitzBias(Bias):
    """``bias[i, j] = table[j - i + T - 1]``: one number per distance.

    Args:
        table_HW: per head the values for j - i = -(T-1) .. S-1, so W = T + S - 1.
        queries: T.
    """

    def __init__(self, table_HW: Tensor, queries: int, *, may_hide: bool = True) -> None:
        self.table_HW, self.queries, self._may_hide = table_HW, queries, may_hide

    @property
    def may_hide(self) -> bool:
        """True if entries can be -inf, as the caller said."""
        return self._may_hide

    @property
    def keys(self) -> int:
        """Number of keys, S."""
        return self.table_HW.shape[-1] - self.queries + 1

    def dense(self) -> Tensor:
        """Return the matrix with every diagonal filled with its number, (1, H, T, S)."""
        # index_select on one flat index: half the time of strided windows at N = 512; shapes stay symbolic in export
        queries, keys, device = self.queries, self.keys, self.table_HW.device
        column_TS = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] + queries - 1
        flat_HX = self.table_HW.index_select(-1, column_TS.flatten())
        return flat_HX.view(1, -1, queries, keys)

    def to(self, dtype: torch.dtype) -> "ToeplitzBias":
        """Return the term with its table in another dtype."""
        return ToeplitzBias(self.table_HW.to(dtype), self.queries, may_hide=self._may_hide)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The table."""
        return (self.table_HW,)


class SumBias(Bias):
    """The sum of terms, each of which keeps its structure."""

    def __init__(self, summands: Sequence[Bias]) -> None:
        self.summands = tuple(summands)

    def dense(self) -> Tensor:
        """Return the sum of the written-out terms."""
        total = self.summands[0].dense()
        for summand in self.summands[1:]:
            total = total + summand.dense()
        return total

    def to(self, dtype: torch.dtype) -> "SumBias":
        """Return the sum with every summand in another dtype."""
        return SumBias([summand.to(dtype) for summand in self.summands])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors of all summands."""
        return tuple(tensor for summand in self.summands for tensor in summand.tensors)

    @property
    def may_hide(self) -> bool:
        """True if entries of one of the summands can be -inf."""
        return any(summand.may_hide for summand in self.summands)

    def parts(self) -> tuple[Bias, ...]:
        """Return the summands."""
        return self.summands
