"""Log-n scaling: queries grow with the logarithm of their position, as the number of keys that they see does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from wordorder.encodings.places import Move, OnQueriesAndKeys, check_positive
from wordorder.ops import Positions

_KEYS_SEEN = "its factor grows with the number of keys that a query sees, which follows its position only where "


@dataclass(frozen=True)
class Scaling(Move):
    """A multiplication by one number for each position, (B or 1, 1, T, 1), at least float32."""

    factor_B1T1: Tensor

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Multiply x; computed in the wider of both dtypes, returned in that of x."""
        return (x_BHTD * self.factor_B1T1).type_as(x_BHTD)


class LogN(OnQueriesAndKeys):
    """Multiply queries by a factor that grows with the logarithm of their position.

    Nakanishi 2025, "Scalable-softmax is superior for attention", https://arxiv.org/abs/2501.19399, in the form of the
    public models Inkling and, with ``floor``, Llama 4 (transformers, ``models/inkling`` and ``models/llama4``)::

        s_i = 1 + alpha * log(max(1, (i + 1) / n0)),            i = 0 .. T - 1
        s_i = 1 + alpha * log(floor((i + 1) / n0) + 1)          floor=True

    The query at i sees i + 1 keys: without the factor the softmax over more keys is flatter. Keys are left alone. The
    terms of other encodings are not multiplied (Inkling multiplies its relative logits too). With a memory i is the
    position in the window.

    Differs from the paper: s is 1 up to n0 tokens, alpha does not learn, and there is no term without log n.

    Args:
        max_positions: longest text of the network in tokens; n0 where ``original_positions`` is not given.
        alpha: how fast the factor grows; positive.
        original_positions: original length n0 in tokens, that is the length of pre-training; positive.
        floor: grow in steps, each time that the position passes a multiple of n0, as in Llama 4.

    Shape:
        positions (B or 1, T) -> factors of queries (B or 1, 1, T, 1), at least float32. Negative positions, of left
        padding, have factor 1.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "beside another encoding"
    paper = "Nakanishi 2025, https://arxiv.org/abs/2501.19399"
    refused_in: ClassVar[Mapping[str, str]] = {
        "encoder": f"{_KEYS_SEEN}later keys are hidden; in an encoder every token sees every key, wherever it stands",
        "cross-attention": f"{_KEYS_SEEN}keys are of its own text; of a source it sees every key, wherever it stands",
        "right": f"{_KEYS_SEEN}later keys are hidden; slots of such a memory see keys to their right",
    }
    position_dependent = True

    def __init__(
        self,
        *,
        max_positions: int,
        alpha: float = 0.1,
        original_positions: int | None = None,
        floor: bool = False,
    ) -> None:
        super().__init__()
        original_positions = max_positions if original_positions is None else original_positions
        check_positive(alpha=alpha, original_positions=original_positions)
        self.alpha, self.original_positions, self.floor = alpha, original_positions, floor

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> tuple[Scaling, None]:
        """Return the factors of the queries; keys are not moved."""
        del key
        wide = torch.promote_types(dtype, torch.float32)
        keys_seen_B1T1 = query.index_BT(device)[:, None, :, None] + 1
        if self.floor:  # in integers, which are exact anywhere
            ratio_B1T1 = (keys_seen_B1T1 // self.original_positions + 1).to(wide)
        else:
            ratio_B1T1 = keys_seen_B1T1.to(wide) / self.original_positions
        return Scaling(1 + self.alpha * ratio_B1T1.clamp(min=1).log()), None
