"""Sums over a text in the order of its positions."""

import torch
from torch import Tensor

from wordorder.ops.positions import Arbitrary, Positions


def running_sum(x_BHS: Tensor, key: Positions | None) -> Tensor:
    """Return the sums over a text up to each token, in the order of positions (B, H, S); None = that of the columns.

    In packed texts the sums go on from one text to the next: differences within one are right.
    """
    if not isinstance(key, Arbitrary):
        return x_BHS.cumsum(-1)
    order_BHS = key.index_BT(x_BHS.device).argsort(dim=-1, stable=True)[:, None].expand(x_BHS.shape)
    return torch.zeros_like(x_BHS).scatter(-1, order_BHS, x_BHS.gather(-1, order_BHS).cumsum(-1))
