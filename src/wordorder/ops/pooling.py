"""The pooling of one vector per token to one per text."""

from typing import Literal, get_args

import torch
from torch import Tensor

from wordorder.ops.mask import valid_tokens

Pooling = Literal["mean", "first", "last"]


def pool(kind: Pooling, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> Tensor:
    """Return the mean, the first or the last of a text's vectors; 0 for a text without tokens.

    The mean is taken in at least float32: a sum of many 16-bit numbers loses its last digits.

    Args:
        kind: "mean", "first" (such as [CLS]) or "last".
        x_BTC: one vector per token, (B, T, C).
        key_padding_mask: bool (B, T), True = padding; None = no padding.

    Raises:
        ValueError: unknown kind, or a padding mask that is not bool (B, T).
    """
    return pool_tokens(kind, x_BTC, valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1], device=x_BTC.device))


def pool_tokens(kind: Pooling, x_BTC: Tensor, valid_BT: Tensor | None) -> Tensor:
    """Pool as `pool` does, with ``valid_BT`` True where a token is."""
    if kind not in get_args(Pooling):
        raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {kind!r}")
    known_BT = torch.ones(x_BTC.shape[:2], dtype=torch.bool, device=x_BTC.device) if valid_BT is None else valid_BT
    if kind == "mean":
        wide = torch.promote_types(x_BTC.dtype, torch.float32)
        total_BC = without_padding(x_BTC.to(wide), valid_BT).sum(dim=1)
        return (total_BC / known_BT[..., None].to(wide).sum(dim=1).clamp(min=1)).type_as(x_BTC)
    index_B = first_token(known_BT) if kind == "first" else last_token(known_BT)
    chosen_BC = x_BTC.gather(1, index_B[:, None, None].expand(-1, 1, x_BTC.shape[-1]))[:, 0]
    return zero_if_empty(chosen_BC, valid_BT)


def first_token(valid_BT: Tensor) -> Tensor:
    """Return the column of each row's first token, long (B,); 0 where there is none."""
    return valid_BT.int().argmax(dim=1)


def last_token(valid_BT: Tensor) -> Tensor:
    """Return the column of each row's last token, long (B,); the last column where there is none."""
    return valid_BT.shape[1] - 1 - valid_BT.flip(1).int().argmax(dim=1)


def without_padding(x_BTC: Tensor, valid_BT: Tensor | None) -> Tensor:
    """Return the vectors with padding set to exactly 0, whatever stood there (NaN included)."""
    return x_BTC if valid_BT is None else x_BTC.masked_fill(~valid_BT[..., None], 0.0)


def zero_if_empty(features_BF: Tensor, valid_BT: Tensor | None) -> Tensor:
    """Set the vector of texts of padding alone to 0: such a text says nothing, so only the head's bias decides."""
    return features_BF if valid_BT is None else features_BF.masked_fill(~valid_BT.any(dim=1)[:, None], 0.0)
