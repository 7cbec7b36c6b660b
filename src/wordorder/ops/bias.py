"""Additive terms of attention scores, described by their structure: dense, low-rank, Toeplitz, relative, or a sum.

The types follow the theory of TUPE (Ke et al. 2021, https://arxiv.org/abs/2006.15595, Sec. 3.3): the untied absolute
term is a matrix of low rank, the relative term a Toeplitz matrix with 2N - 1 freedoms per head. A backend looks at the
type and picks the cheapest exact way to add it; every type can also say ``dense()``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops.execution import no_autocast


class Bias(ABC):
    """A term of the attention scores, (B or 1, H, T, S) when written out."""

    may_hide: bool = False
    """Whether entries can be -inf; False spares backends the search for rows that see nothing."""
    edges: tuple[int, int] | None = None
    """The columns beyond which a `ToeplitzBias` is constant: see there."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the term written out, (B or 1, H or 1, T, S); axes of a `DenseBias` may be 1 wherever it is."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors that the term is made of; gradients flow into these."""

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, int]:
        """Numbers of queries and keys, (T, S)."""

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
        if torch.is_grad_enabled():
            for tensor in self.tensors:
                if tensor.requires_grad:
                    return True
        return False

    def parts(self) -> tuple["Bias", ...]:
        """Return the summands; every type but a sum has a single one, itself."""
        return (self,)

    def __add__(self, other: "Bias") -> "Bias":
        return SumBias((*self.parts(), *other.parts()))


@dataclass(frozen=True, eq=False)
class DenseBias(Bias):
    """A term given entry by entry, (B or 1, H or 1, T, S); attention reads a single query or key as all of them."""

    tensor_BHTS: Tensor
    may_hide: bool = field(default=True, kw_only=True)

    def dense(self) -> Tensor:
        return self.tensor_BHTS

    @property
    def lengths(self) -> tuple[int, int]:
        return self.tensor_BHTS.shape[-2], self.tensor_BHTS.shape[-1]

    def to(self, dtype: torch.dtype) -> "DenseBias":
        return DenseBias(self.tensor_BHTS.to(dtype), may_hide=self.may_hide)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor_BHTS,)


@dataclass(frozen=True, eq=False)
class LowRankBias(Bias):
    """``bias[i, j] = query_factor[i] . key_factor[j]``, R numbers per token instead of one per pair."""

    query_factor_BHTR: Tensor
    """(B or 1, H, T, R)."""
    key_factor_BHSR: Tensor
    """(B or 1, H, S, R)."""

    def dense(self) -> Tensor:
        return self.query_factor_BHTR @ self.key_factor_BHSR.transpose(-1, -2)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.query_factor_BHTR.shape[-2], self.key_factor_BHSR.shape[-2]

    def to(self, dtype: torch.dtype) -> "LowRankBias":
        return LowRankBias(self.query_factor_BHTR.to(dtype), self.key_factor_BHSR.to(dtype))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_factor_BHTR, self.key_factor_BHSR)


@dataclass(frozen=True, eq=False)
class ToeplitzBias(Bias):
    """``bias[i, j] = table[j - i + T - 1]``: one number per distance."""

    table_HW: Tensor
    """Per head the values for j - i = -(T-1) .. S-1, so W = T + S - 1."""
    queries: int
    may_hide: bool = field(default=True, kw_only=True)
    edges: tuple[int, int] | None = field(default=None, kw_only=True)
    """Columns a and b: one number up to a, one from b on, whose gradient may stand in one column; None = unknown."""

    @property
    def keys(self) -> int:
        """Number of keys, S."""
        return self.table_HW.shape[-1] - self.queries + 1

    def dense(self) -> Tensor:
        # index_select on one flat index: half the time of strided windows at N = 512; shapes stay symbolic in export
        queries, keys, device = self.queries, self.keys, self.table_HW.device
        column_TS = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] + queries - 1
        flat_HX = self.table_HW.index_select(-1, column_TS.flatten())
        return flat_HX.view(1, -1, queries, keys)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.queries, self.keys

    def to(self, dtype: torch.dtype) -> "ToeplitzBias":
        return ToeplitzBias(self.table_HW.to(dtype), self.queries, may_hide=self.may_hide, edges=self.edges)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.table_HW,)


class SumBias(Bias):
    """The sum of terms, each of which keeps its structure."""

    def __init__(self, summands: Sequence[Bias]) -> None:
        self.summands, self.may_hide, self._tensors = tuple(summands), False, ()
        for summand in self.summands:
            self.may_hide |= summand.may_hide
            self._tensors += summand.tensors

    def dense(self) -> Tensor:
        total = self.summands[0].dense()
        for summand in self.summands[1:]:
            total = total + summand.dense()
        return total

    @property
    def lengths(self) -> tuple[int, int]:
        return self.summands[0].lengths

    def to(self, dtype: torch.dtype) -> "SumBias":
        for tensor in self._tensors:
            if tensor.dtype != dtype:
                return SumBias([summand.to(dtype) for summand in self.summands])
        return self

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self._tensors

    def parts(self) -> tuple[Bias, ...]:
        return self.summands


def check_bias_fits(bias: Bias, *, batch: int, heads: int, queries: int, keys: int) -> None:
    """Refuse a term of other sizes, which a backend would broadcast, or cut tiles from, and give wrong numbers.

    Raises:
        BadInput: a part has other lengths, or tensors that are not of 1 or ``batch`` examples and 1 or ``heads`` heads.
    """
    for part in bias.parts():
        own = (part.table_HW[None],) if isinstance(part, ToeplitzBias) else part.tensors
        fits = all(tensor.shape[0] in (1, batch) and tensor.shape[1] in (1, heads) for tensor in own)
        for found, wanted in zip(part.lengths, (queries, keys), strict=True):
            fits &= found == wanted or (found == 1 and isinstance(part, DenseBias))
        if not fits:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in part.tensors)
            raise BadInput(
                f"a {type(part).__name__} of {part.lengths[0]} x {part.lengths[1]} positions, tensors {shapes}, does"
                f" not fit {batch} examples, {heads} heads, {queries} queries and {keys} keys"
            )
