"""Checks of token ids, and of embeddings in their place, shared by embeddings and networks."""

import torch
from torch import Tensor

from wordorder.ops.execution import may_be_read


def check_token_ids(token_ids_BT: Tensor, vocabulary: int) -> None:
    """Raise ValueError where ids are not int64 or int32 (B, T), or outside the vocabulary (looked at on the CPU)."""
    if token_ids_BT.dim() != 2 or token_ids_BT.dtype not in (torch.int64, torch.int32):
        shape = tuple(token_ids_BT.shape)
        raise ValueError(
            f"token ids must be integers (batch, tokens), int64 or int32, got {token_ids_BT.dtype} {shape}"
        )
    if not token_ids_BT.numel() or not may_be_read(token_ids_BT):
        return
    low, high = (int(end) for end in token_ids_BT.aminmax())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"token ids must lie in 0 .. {vocabulary - 1}, got {low} .. {high}")


def check_embeddings(embeddings_BTC: Tensor, channels: int) -> None:
    """Raise ValueError where embeddings that stand for token ids are not floating-point (B, T, channels)."""
    if embeddings_BTC.dim() != 3 or embeddings_BTC.shape[-1] != channels or not embeddings_BTC.is_floating_point():
        shape = tuple(embeddings_BTC.shape)
        raise ValueError(
            f"inputs_embeds must be floating-point numbers (batch, tokens, {channels}), got {embeddings_BTC.dtype}"
            f" {shape}"
        )
