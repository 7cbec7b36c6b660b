"""Attention over long texts on a GPU, with the bias inside torch's FlexAttention, so that no score is written out.

A mask is: `create_block_mask` makes T x S booleans for a moment.

The low-rank part becomes further channels of queries and keys, so that one product gives content and position::

    score[i, j] = [scale q_i, a_i] . [k_j, c_j] + table[j - i + T - 1]

The Toeplitz part is read from its table by a `score_mod`. FlexAttention (Dong et al. 2024,
https://arxiv.org/abs/2412.05496) writes the gradient of the table by atomic additions: one per score, spread over
2 N - 1 distances (not over 32 buckets, where they would collide).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.encodings import PositionTerms
from wordorder.ops import LowRankBias, Packed, ToeplitzBias, Visibility

CHANNELS = 16
"""Query channels are padded to a multiple of this number, which tensor cores read at once."""


def attend(
    q_BHTD: Tensor, k_BHSD: Tensor, v_BHSE: Tensor, order: PositionTerms, mask: Visibility | Tensor | None
) -> Tensor:
    """Return the attention output (B, H, T, E); the order's bias must be of low-rank and Toeplitz parts."""
    from torch.nn.attention.flex_attention import create_block_mask

    q, k, tables = _concatenate(q_BHTD, k_BHSD, order)
    queries, score_mod, blocks = q.shape[2], None, None
    if tables:
        table_HW = torch.stack(tables).sum(0) if len(tables) > 1 else tables[0]

        def add_relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            del b
            return score + table_HW[h, j - i + (queries - 1)]

        score_mod = add_relative
    if mask is not None:  # blocks that are hidden as a whole are never computed
        mask_mod, batch, heads = _mask_mod(mask, q, k)
        blocks = create_block_mask(mask_mod, batch, heads, queries, k.shape[2], device=str(q.device))
    return _flex_attention(q.device.type)(q, k, v_BHSE, score_mod=score_mod, block_mask=blocks, scale=1.0)


def _concatenate(q_BHTD: Tensor, k_BHSD: Tensor, order: PositionTerms) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return queries and keys with the low-rank factors as further channels, and the tables of the Toeplitz parts."""
    queries, keys, tables = [q_BHTD * order.scale], [k_BHSD], list[Tensor]()
    for part in order.bias.parts() if order.bias is not None else ():
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
    mask: Visibility | Tensor, q: Tensor, k: Tensor
) -> tuple[Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], int | None, int | None]:
    """Return a function of (example, head, query, key) that is True for visible keys, and the axes that it reads."""
    if isinstance(mask, Tensor):
        full = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        return (lambda b, h, i, j: full[b, h, i, j]), q.shape[0], q.shape[1]
    device, batch = q.device, q.shape[0]
    valid_BS = None if mask.valid_BS is None else mask.valid_BS.to(device).expand(batch, -1)
    sequences = [s.sequence_BT.to(device).expand(batch, -1) for s in (mask.query, mask.key) if isinstance(s, Packed)]
    query_BT, key_BS = (positions.index_BT(device).expand(batch, -1) for positions in (mask.query, mask.key))
    causal, ahead, within = mask.causal, mask.ahead, mask.within

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        del h
        visible = j >= 0
        if valid_BS is not None:
            visible = visible & valid_BS[b, j]
        if sequences:
            visible = visible & (sequences[0][b, i] == sequences[1][b, j])
        if causal:
            visible = visible & (query_BT[b, i] >= key_BS[b, j])
        if ahead:
            visible = visible & (query_BT[b, i] < key_BS[b, j])
        if within is not None:
            visible = visible & (query_BT[b, i] - key_BS[b, j] < within)
        return visible

    return seen, batch, None


@lru_cache(maxsize=2)
def _flex_attention(device: str) -> Callable[..., Any]:
    """Return FlexAttention, compiled on CUDA; on other devices return the plain function, for tests."""
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cuda":
        return flex_attention
    return torch.compile(flex_attention, dynamic=False)  # pyright: ignore[reportUnknownMemberType]
