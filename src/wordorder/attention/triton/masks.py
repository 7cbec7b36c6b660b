"""The mask of a call in the numbers and tensors that the kernels read, without waiting for the GPU."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wordorder.ops import Contiguous, Packed, Visibility


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
    valid_BS: Tensor | None = None
    """Keys that are tokens, uint8 (1 or B, S)."""
    bounds_B2: Tensor | None = None
    """The first key that is a token, and the one after the last, int32."""
    visible_BHTS: Tensor | None = None
    """Any other mask, uint8, each axis of 1 or of its full size."""


def kernel_mask(mask: Visibility | Tensor | None, batch: int, device: torch.device) -> KernelMask:
    """Return a mask of so many examples as the kernels read it."""
    if mask is None:
        return KernelMask()
    if isinstance(mask, Tensor):
        return KernelMask(visible_BHTS=mask.to(device).view(torch.uint8))  # no copy, which would fill axes of stride 0
    found = KernelMask()
    if mask.valid_BS is not None:
        valid_BS = mask.valid_BS.to(device)
        bounds_B2 = token_bounds(valid_BS).expand(batch, -1).contiguous()
        found = KernelMask(valid_BS=valid_BS.to(torch.uint8).contiguous(), bounds_B2=bounds_B2)
    if isinstance(mask.query, Packed) and isinstance(mask.key, Packed):
        ids = _as_rows(mask.query.sequence_BT, device), _as_rows(mask.key.sequence_BT, device)
        found = replace(found, ids=ids)
    if not (mask.causal or mask.ahead):
        return found
    if mask.diagonals is not None:
        low, high = mask.diagonals
        return replace(found, low=low, high=high)
    low, high = (1, None) if mask.ahead else (None if mask.within is None else 1 - mask.within, 0)
    found = replace(found, low=low, high=high)
    if isinstance(mask.query, Contiguous) and isinstance(mask.key, Contiguous):
        shift_B = torch.as_tensor(mask.key.offset) - torch.as_tensor(mask.query.offset)
        return replace(found, shift_B=shift_B.to(device, torch.int32).expand(batch).contiguous())
    positions = _as_rows(mask.query.index_BT(device), device), _as_rows(mask.key.index_BT(device), device)
    return replace(found, positions=positions)


def _as_rows(number_BT: Tensor, device: torch.device) -> Tensor:
    """Return integers as the kernels read them, a row after the other: `Tensor.to` alone would keep another layout."""
    return number_BT.to(device, torch.int32).contiguous()


def token_bounds(valid_BS: Tensor) -> Tensor:
    """Return the first key that is a token and the one after the last, int32 (B, 2); (0, 0) where there is none."""
    keys = valid_BS.shape[1]
    number = torch.arange(keys, device=valid_BS.device, dtype=torch.int32)
    stop_B = torch.where(valid_BS, number + 1, 0).amax(1)
    start_B = torch.where(valid_BS, number, keys).amin(1)
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
