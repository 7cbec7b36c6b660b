"""Rows of a learned table at typed positions, with one clear error where the table ends."""

import torch
from torch import Tensor

from wordorder.ops.positions import Contiguous, Positions


def check_within_table(positions: Positions, limit: int) -> None:
    """Raise where positions leave a table of ``limit`` rows.

    Lengths are compared for `Contiguous` positions with one offset. Positions in tensors are read only on the CPU and
    in eager mode: reading them on a GPU would stop the stream, and under compile would break the graph.

    Raises:
        ValueError: the table is too short, or a position is negative.
    """
    if isinstance(positions, Contiguous) and isinstance(positions.offset, int):
        lowest, highest = positions.offset, positions.offset + positions.length - 1
    elif torch.compiler.is_compiling():
        return
    else:
        index_BT = positions.index_BT()
        if index_BT.device.type != "cpu" or index_BT.numel() == 0:
            return
        # left padding has negative positions, which nobody sees
        lowest = 0 if isinstance(positions, Contiguous) else int(index_BT.min())
        highest = int(index_BT.max())
    if highest >= limit:
        raise ValueError(
            f"position {highest} lies beyond the learned table of max_positions={limit}; shorten the text to {limit}"
            " tokens, or build the network with a larger max_positions (Hugging Face models: max_position_embeddings),"
            " or with an encoding without a table"
        )
    if lowest < 0:
        raise ValueError(f"positions must not be negative for a learned table, got {lowest}")


def rows(table_PC: Tensor, positions: Positions, limit: int, *, first_row: int = 0) -> Tensor:
    """Return ``table[first_row + position]``, (1 or B, T, C): a slice if one offset serves all examples, else a gather.

    Raises:
        ValueError: a position lies outside 0 .. limit - 1.
    """
    check_within_table(positions, limit)
    if isinstance(positions, Contiguous) and isinstance(positions.offset, int):
        start = first_row + positions.offset
        return table_PC[start : start + positions.length][None]
    index_BT = positions.index_BT(table_PC.device).clamp(min=0) + first_row
    return torch.nn.functional.embedding(index_BT, table_PC)
