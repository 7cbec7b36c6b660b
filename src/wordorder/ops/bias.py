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
from torch.nn import functional as F

from wordorder.errors import BadInput
from wordorder.ops.execution import no_autocast


class Bias(ABC):
    """A term of the attention scores, (B or 1, H, T, S) when written out."""

    may_hide: bool = False
    """Whether entries can be -inf; False spares backends the search for rows that see nothing."""

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
        return ToeplitzBias(self.table_HW.to(dtype), self.queries, may_hide=self.may_hide)

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
        return SumBias([summand.to(dtype) for summand in self.summands])

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


def relative_shift(product_BHTW: Tensor, keys: int) -> Tensor:
    """Return ``shifted[i, j] = product[i, j - i + T - 1]``, (..., T, W) -> (..., T, S) with W = T + S - 1.

    The term ``q_i . r[j - i]`` of Transformer-XL (Dai et al. 2019, https://arxiv.org/abs/1901.02860, App. B) has one
    column per distance, j - i = -(T-1) .. S-1, where scores have one per key. Row i of the result begins W - 1 elements
    after row i - 1 does, where a row of the product begins W after: seen as rows of W - 1 elements, from element T - 1
    on, the columns stand in place. So the shift is a view: no padding, no gather, no copy.

    Raises:
        ValueError: W is not T + S - 1.
    """
    queries, width = product_BHTW.shape[-2:]
    if width != queries + keys - 1:
        raise ValueError(f"the last axis must be T + S - 1 = {queries + keys - 1} distances, got {width}")
    if torch.compiler.is_compiling():  # a further column keeps lengths symbolic: 2 N - 2 columns could be N of them
        product_BHTW, width = F.pad(product_BHTW, (0, 1)), width + 1
    elif queries == 1:
        return product_BHTW
    flat = product_BHTW.flatten(-2)[..., queries - 1 : queries - 1 + queries * (width - 1)]
    return flat.view(*flat.shape[:-1], queries, width - 1)[..., :keys]


@dataclass(frozen=True, eq=False)
class RelativeBias(Bias):
    """``bias[i, j] = query[i] . row[j - i + T - 1 - first]``: one vector per distance, met by every query.

    Raises:
        ValueError: there are rows beyond the T + S - 1 distances.
    """

    query_BHTD: Tensor
    """(B or 1, H, T, D)."""
    row_BHRD: Tensor
    """(B or 1, H, R, D), the vectors of R distances in a row; at all others the bias is 0."""
    keys: int
    first: int = field(default=0, kw_only=True)
    """The first of those distances, counted from j - i = -(T-1), the lowest there is."""

    def __post_init__(self) -> None:
        if self.first < 0 or self._missing < 0:
            raise ValueError(
                f"rows {self.first} .. {self.first + self.row_BHRD.shape[2] - 1} do not lie within the "
                f"{self.queries + self.keys - 1} distances of {self.queries} queries and {self.keys} keys"
            )

    @property
    def queries(self) -> int:
        """Number of queries, T."""
        return self.query_BHTD.shape[2]

    @property
    def _missing(self) -> int:
        """Number of distances after the last row."""
        return self.queries + self.keys - 1 - self.first - self.row_BHRD.shape[2]

    def dense(self) -> Tensor:
        rows_BHWD = F.pad(self.row_BHRD, (0, 0, self.first, self._missing))
        return relative_shift(self.query_BHTD @ rows_BHWD.transpose(-1, -2), self.keys)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.queries, self.keys

    def to(self, dtype: torch.dtype) -> "RelativeBias":
        return RelativeBias(self.query_BHTD.to(dtype), self.row_BHRD.to(dtype), self.keys, first=self.first)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.query_BHTD, self.row_BHRD)


class RelativeKeyBias(Bias):
    """``bias[i, j] = key[j] . row[i - j + S - 1 - first]``: one vector per distance, met by every key.

    `RelativeBias` with the two sides exchanged, and transposed; note that its rows go the other way, from the key that
    is furthest to the right of its query to the one that is furthest to the left.

    Args:
        key_BHSD: (B or 1, H, S, D).
        row_BHRD: (B or 1, H, R, D), the vectors of R distances in a row; at all others the bias is 0.
        queries: T.
        first: the first of those distances, counted from i - j = -(S-1), the lowest there is.

    Raises:
        ValueError: there are rows beyond the T + S - 1 distances.
    """

    def __init__(self, key_BHSD: Tensor, row_BHRD: Tensor, queries: int, *, first: int = 0) -> None:
        self.exchanged = RelativeBias(key_BHSD, row_BHRD, queries, first=first)
        self.queries, self.keys, self.first = queries, key_BHSD.shape[2], first

    def dense(self) -> Tensor:
        return self.exchanged.dense().transpose(-1, -2)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.queries, self.keys

    def to(self, dtype: torch.dtype) -> "RelativeKeyBias":
        key_BHSD, row_BHRD = self.tensors
        return RelativeKeyBias(key_BHSD.to(dtype), row_BHRD.to(dtype), self.queries, first=self.first)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.exchanged.tensors
