"""The distances of contiguous positions: one for each diagonal of the scores, T + S - 1 for T queries and S keys."""

import torch
from torch import Tensor

from wordorder.ops.visibility import Visibility


def diagonal_distances(queries: int, keys: int, shift: int | Tensor, device: torch.device | None = None) -> Tensor:
    """Return ``position(key) - position(query)`` of each diagonal, ascending, long (W,) with W = T + S - 1.

    Args:
        queries: T.
        keys: S.
        shift: see `shift_between`; (B, 1) gives (B, W).
    """
    return torch.arange(1 - queries, keys, device=device) + shift


def diagonals_not_to_the_right(queries: int, keys: int, shift: int) -> int:
    """Return the number of diagonals, the first ones, that hold keys at their query's position or before it.

    Args:
        queries: T.
        keys: S.
    """
    return min(max(queries - shift, 0), queries + keys - 1)


def seen_diagonals(visible: Visibility | Tensor | None, left: int | None, diagonals: int) -> slice:
    """Return the diagonals on which some query can see its key, as far as the mask's type says.

    Args:
        visible: who sees whom; of a tensor nothing is known.
        left: from `diagonals_not_to_the_right`; None where it differs by example.
        diagonals: W.
    """
    # the ends of the slice depend on lengths, which exporters leave open
    if not isinstance(visible, Visibility) or left is None or torch.compiler.is_compiling():
        return slice(0, diagonals)
    return slice(left if visible.ahead else 0, left if visible.causal else diagonals)
