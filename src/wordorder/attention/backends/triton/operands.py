"""The bias and the mask of a call in the forms that the kernels read, made without waiting for the GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.errors import BadInput
from wordorder.ops import Bias, Contiguous, DenseBias, LowRankBias, Mask, Packed, ToeplitzBias


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
            shape = sizes if tensor is None else tensor.shape[: len(sizes)]
            if any(a != b and (a != 1 or at >= free) for at, (a, b) in enumerate(zip(shape, sizes, strict=True))):
                raise BadInput(
                    f"the bias's {name} must begin with the sizes {sizes}, the first {free} of which may be 1, got"
                    f" {tuple(shape)}; build it for this number of queries and keys"
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


@dataclass(frozen=True)
class KernelMask:
    """A query i sees a key j where all of these allow it."""

    low: int | None = None
    """The lowest position(j) - position(i) that is seen."""
    high: int | None = None
    """The highest one."""
    shift_B: Tensor | None = None
    """position(j) - position(i) - (j - i) of each example, int32, where it is the same for all pairs."""
    positions: tuple[Tensor, Tensor] | None = None
    """Positions of queries and keys, int32 (1 or B, T) and (1 or B, S), where no such number is."""
    ids: tuple[Tensor, Tensor] | None = None
    """The packed sequence of each query and key, int32 (B, T) and (B, S)."""
    tokens_BS: Tensor | None = None
    """Keys that are tokens, uint8 (1 or B, S)."""
    bounds_B2: Tensor | None = None
    """The first key that is a token, and the one after the last, int32."""
    visible_BHTS: Tensor | None = None
    """Any other mask, uint8, each axis of 1 or of its full size."""


def kernel_mask(mask: Mask | Tensor | None, batch: int, device: torch.device) -> KernelMask:
    """Return a mask of so many examples as the kernels read it."""
    if mask is None:
        return KernelMask()
    if isinstance(mask, Tensor):
        return KernelMask(visible_BHTS=mask.to(device).view(torch.uint8))  # no copy, which would fill axes of stride 0
    conditions = KernelMask()
    if mask.tokens_BS is not None:
        tokens_BS = mask.tokens_BS.to(device)
        bounds_B2 = token_bounds(tokens_BS).expand(batch, -1).contiguous()
        conditions = KernelMask(tokens_BS=tokens_BS.to(torch.uint8).contiguous(), bounds_B2=bounds_B2)
    if isinstance(mask.query, Packed) and isinstance(mask.key, Packed):
        ids = _as_rows(mask.query.sequence_BT, device), _as_rows(mask.key.sequence_BT, device)
        conditions = replace(conditions, ids=ids)
    if not mask.has_band:
        return conditions
    if mask.diagonals is not None:
        low, high = mask.diagonals
        return replace(conditions, low=low, high=high)
    conditions = replace(conditions, low=mask.low, high=mask.high)
    if isinstance(mask.query, Contiguous) and isinstance(mask.key, Contiguous):
        shift_B = torch.as_tensor(mask.key.offset) - torch.as_tensor(mask.query.offset)
        return replace(conditions, shift_B=shift_B.to(device, torch.int32).expand(batch).contiguous())
    positions = _as_rows(mask.query.index_BT(device), device), _as_rows(mask.key.index_BT(device), device)
    return replace(conditions, positions=positions)


def _as_rows(number_BT: Tensor, device: torch.device) -> Tensor:
    """Return integers as the kernels read them, a row after the other: `Tensor.to` alone would keep another layout."""
    return number_BT.to(device, torch.int32).contiguous()


def token_bounds(tokens_BS: Tensor) -> Tensor:
    """Return the first key that is a token and the one after the last, int32 (B, 2); (0, 0) where there is none."""
    keys = tokens_BS.shape[1]
    number = torch.arange(keys, device=tokens_BS.device, dtype=torch.int32)
    stop_B = torch.where(tokens_BS, number + 1, 0).amax(1)
    start_B = torch.where(tokens_BS, number, keys).amin(1)
    return torch.stack([torch.minimum(start_B, stop_B), stop_B], 1).to(torch.int32)


def blocks_of_same_ids(own_BT: Tensor, other_BS: Tensor, own_block: int, other_block: int) -> Tensor:
    """Return for each block of tokens the first block of the others with a common id, and the one after the last.

    Blocks between them are computed as well, so that few are skipped where ids are not ascending. int32 (B, blocks, 2).
    """
    low_BM1, high_BM1 = (ends[:, :, None] for ends in _ends(own_BT, own_block))
    low_BN, high_BN = _ends(other_BS, other_block)
    common_BMN = (low_BM1 <= high_BN[:, None]) & (high_BM1 >= low_BN[:, None])
    number = torch.arange(low_BN.shape[1], device=own_BT.device, dtype=torch.int32)
    stop_BM = torch.where(common_BMN, number + 1, 0).amax(2)
    start_BM = torch.where(common_BMN, number, low_BN.shape[1]).amin(2)
    return torch.stack([torch.minimum(start_BM, stop_BM), stop_BM], 2).to(torch.int32)


def _ends(ids_BT: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest id of each block."""
    batch, length = ids_BT.shape
    filled = torch.cat([ids_BT, ids_BT[:, -1:].expand(batch, -length % block)], 1).view(batch, -1, block)
    return filled.amin(2), filled.amax(2)
