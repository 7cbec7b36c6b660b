"""Bias and mask in the forms that FlexAttention takes."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.ops import Bias, LowRankBias, Mask, Packed, ToeplitzBias

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

CHANNELS = 16
"""Query channels are padded to a multiple of this number, which tensor cores read at once."""


def block_mask(
    mask: Mask | Tensor | None, batch: int, heads: int, queries: int, keys: int, device: torch.device
) -> "BlockMask | None":
    """Return the mask as FlexAttention takes it: blocks that are hidden as a whole are never computed."""
    from torch.nn.attention.flex_attention import create_block_mask

    if mask is None:
        return None
    sizes = batch, heads if isinstance(mask, Tensor) else None, queries, keys
    return create_block_mask(_mask_mod(mask, batch, heads, queries, keys, device), *sizes, device=str(device))


def concatenate(q_BHTD: Tensor, k_BHSD: Tensor, bias: Bias | None, scale: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return queries and keys with the low-rank factors as further channels, and the tables of the Toeplitz parts."""
    queries, keys, tables = [q_BHTD * scale], [k_BHSD], list[Tensor]()
    for part in () if bias is None else bias.parts():
        if isinstance(part, LowRankBias):
            queries.append(part.query_factor_BHTR.to(q_BHTD.dtype).expand(*q_BHTD.shape[:3], -1))
            keys.append(part.key_factor_BHSR.to(k_BHSD.dtype).expand(*k_BHSD.shape[:3], -1))
        elif isinstance(part, ToeplitzBias):
            tables.append(part.table_HW.expand(q_BHTD.shape[1], -1))
        else:
            raise TypeError(f"backend 'flex' has no {type(part).__name__}; take backend=None")
    q, k = torch.cat(queries, -1), torch.cat(keys, -1)
    missing = -q.shape[-1] % CHANNELS
    return F.pad(q, (0, missing)), F.pad(k, (0, missing)), tables


def _mask_mod(
    mask: Mask | Tensor, batch: int, heads: int, queries: int, keys: int, device: torch.device
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return a function of (example, head, query, key) that is True for visible keys."""
    if isinstance(mask, Tensor):
        full = mask.expand(batch, heads, queries, keys)
        return lambda b, h, i, j: full[b, h, i, j]
    tokens_BS = None if mask.tokens_BS is None else mask.tokens_BS.to(device).expand(batch, -1)
    sequences = [s.sequence_BT.to(device).expand(batch, -1) for s in (mask.query, mask.key) if isinstance(s, Packed)]
    query_BT, key_BS = (positions.index_BT(device).expand(batch, -1) for positions in (mask.query, mask.key))
    low, high = mask.low, mask.high

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        del h
        visible = j >= 0
        if tokens_BS is not None:
            visible = visible & tokens_BS[b, j]
        if sequences:
            visible = visible & (sequences[0][b, i] == sequences[1][b, j])
        if high is not None:
            visible = visible & (key_BS[b, j] - query_BT[b, i] <= high)
        if low is not None:
            visible = visible & (key_BS[b, j] - query_BT[b, i] >= low)
        return visible

    return seen


@lru_cache(maxsize=2)
def flex_attention(device: str) -> Callable[..., Any]:
    """Return FlexAttention, compiled on CUDA; on other devices return the plain function, for tests."""
    from torch.nn.attention import flex_attention as torchs

    if device != "cuda":
        return torchs.flex_attention
    return torch.compile(torchs.flex_attention, dynamic=True)  # pyright: ignore[reportUnknownMemberType]
