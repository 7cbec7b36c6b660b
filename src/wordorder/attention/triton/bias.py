"""The bias of a call in the three forms that the kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.errors import BadInput
from wordorder.ops import Bias, DenseBias, LowRankBias, ToeplitzBias


@dataclass(frozen=True)
class KernelBias:
    """The sum of ``a c'``, of a table by distance and of a matrix."""

    a_BHTR: Tensor | None = None
    """(B or 1, H, T, R), float32, the factors of all low-rank parts side by side; R as `padded_rank` has it."""
    c_BHSR: Tensor | None = None
    """(B or 1, H, S, R), float32."""
    table_HW: Tensor | None = None
    """(H or 1, T + S - 1), float32."""
    dense_BHTS: Tensor | None = None
    """(B or 1, H or 1, T, S)."""

    def fitted(self, batch: int, heads: int, queries: int, keys: int) -> "KernelBias":
        """Return the bias with a dense part of all pairs; kernels would read tensors of other sizes beyond their end.

        Raises:
            BadInput: a tensor is of other sizes.
        """
        dense = self.dense_BHTS
        for name, tensor, sizes, free in (
            ("factor of the queries", self.a_BHTR, (batch, heads, queries), 2),
            ("factor of the keys", self.c_BHSR, (batch, heads, keys), 2),
            ("table", self.table_HW, (heads, queries + keys - 1), 1),
            ("dense part", dense, (batch, heads, queries, keys), 4),
        ):
            given = sizes if tensor is None else tensor.shape[: len(sizes)]
            if any(a != b and (a != 1 or at >= free) for at, (a, b) in enumerate(zip(given, sizes, strict=True))):
                raise BadInput(
                    f"the bias's {name} must begin with the sizes {sizes}, the first {free} of which may be 1, got"
                    f" {tuple(given)}; build it for this number of queries and keys"
                )
        return self if dense is None else replace(self, dense_BHTS=dense.expand(-1, -1, queries, keys))


def kernel_bias(bias: Bias | None, heads: int, dtype: torch.dtype) -> KernelBias:
    """Return a bias as the kernels read it; parts with a vector for each distance are written out in ``dtype``."""
    parts = () if bias is None else bias.parts()
    low_rank = [part for part in parts if isinstance(part, LowRankBias)]
    tables = [part.table_HW.float() for part in parts if isinstance(part, ToeplitzBias)]
    others = [part for part in parts if not isinstance(part, LowRankBias | ToeplitzBias)]
    dense = [part.tensor_BHTS if isinstance(part, DenseBias) else part.written_out(dtype) for part in others]
    queries, keys = ([part.query_factor_BHTR for part in low_rank], [part.key_factor_BHSR for part in low_rank])
    return KernelBias(
        _side_by_side(queries, heads) if low_rank else None,
        _side_by_side(keys, heads) if low_rank else None,
        sum(tables[1:], tables[0]) if tables else None,
        sum(dense[1:], dense[0]) if dense else None,
    )


def padded_rank(rank: int) -> tuple[int, int]:
    """Return the two numbers of channels that hold the factors: powers of 2, at least 16, the second one may be 0.

    TUPE's factors have d + 2 channels: with one number 66 would become 128, with two it becomes 64 + 16.
    """
    whole = padded_channels(rank)
    half = whole // 2
    rest = 0 if half < 16 else padded_channels(rank - half)
    return (half, rest) if 0 < rest < half else (whole, 0)


def padded_channels(channels: int) -> int:
    """Return the power of 2, at least 16, that holds so many channels."""
    return max(16, 1 << (channels - 1).bit_length())


def _side_by_side(factors: Sequence[Tensor], heads: int) -> Tensor:
    """Return the factors of one side in one tensor, float32, with zeros up to a number of channels for the kernels."""
    batch = max(factor.shape[0] for factor in factors)
    joined = torch.cat([factor.float().expand(batch, heads, -1, -1) for factor in factors], -1)
    return F.pad(joined, (0, sum(padded_rank(joined.shape[-1])) - joined.shape[-1]))
