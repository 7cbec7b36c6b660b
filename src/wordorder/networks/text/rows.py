"""Moving texts within their rows, so that a recurrence meets no padding before or between tokens."""

import torch
from torch import Tensor


class Rows:
    """Rows of texts whose tokens are moved to the front, in order, so that a recurrence meets no padding before them.

    Packing (``torch.nn.utils.rnn``) would do it too, but needs the lengths on the CPU and cannot be compiled.

    Args:
        x_BTC: gives shape and device.
        valid_BT: bool, False where a token is padding; None = no padding.
    """

    def __init__(self, x_BTC: Tensor, valid_BT: Tensor | None) -> None:
        self.column_BT = None if valid_BT is None else (~valid_BT).int().argsort(dim=1, stable=True)
        self.valid_BT = None if valid_BT is None else valid_BT.gather(1, self.columns())
        self.step_T = torch.arange(x_BTC.shape[1], device=x_BTC.device)

    def columns(self) -> Tensor:
        """Return the caller's column of each moved column."""
        assert self.column_BT is not None
        return self.column_BT

    def to_front(self, x_BTC: Tensor) -> Tensor:
        """Move tokens to the front, padding after them."""
        return x_BTC if self.column_BT is None else _gather(x_BTC, self.column_BT)

    def back(self, x_BTC: Tensor) -> Tensor:
        """Undo `to_front`."""
        return x_BTC if self.column_BT is None else _gather(x_BTC, self.column_BT.argsort(dim=1))

    def reverse(self, x_BTC: Tensor) -> Tensor:
        """Turn each text around, from its last token to its first; its own inverse."""
        if self.valid_BT is None:
            return x_BTC.flip(1)
        length_B1 = self.valid_BT.sum(dim=1, keepdim=True)
        column_BT = torch.where(self.step_T < length_B1, length_B1 - 1 - self.step_T, self.step_T)
        return _gather(x_BTC, column_BT)


def _gather(x_BTC: Tensor, column_BT: Tensor) -> Tensor:
    return x_BTC.gather(1, column_BT[..., None].expand_as(x_BTC))
