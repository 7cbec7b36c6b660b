"""Checks of token ids, and of embeddings in their place."""

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops.execution import is_sparse, may_be_read


def check_tensor(name: str, value: object) -> None:
    """Raise BadInput where an argument is no tensor, such as a list or an array of NumPy, or sparse; None passes."""
    if value is None:
        return
    if not isinstance(value, Tensor):
        raise BadInput(
            f"{name} must be a tensor (batch, tokens), got {type(value).__name__}; make it one, as with torch.tensor"
        )
    if is_sparse(value):
        raise BadInput(f"{name} must be a dense tensor, got {value.layout}; take {name}.to_dense()")


def check_token_ids(token_ids_BT: Tensor, vocabulary: int | None) -> None:
    """Raise ValueError where ids are not int64 or int32 (B, T), or outside the vocabulary (looked at on the CPU).

    A vocabulary of None is unknown: the table itself refuses what it does not have.
    """
    check_tensor("token ids", token_ids_BT)
    if token_ids_BT.dim() != 2 or token_ids_BT.dtype not in (torch.int64, torch.int32):
        shape = tuple(token_ids_BT.shape)
        raise ValueError(
            f"token ids must be integers (batch, tokens), int64 or int32, got {token_ids_BT.dtype} {shape}"
        )
    if vocabulary is None or not token_ids_BT.numel() or not may_be_read(token_ids_BT):
        return
    lowest, highest = token_ids_BT.aminmax()
    low, high = int(lowest), int(highest)
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
