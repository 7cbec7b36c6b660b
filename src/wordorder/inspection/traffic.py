"""Bytes that a training step moves for the weights: what a table costs that arithmetic does not show."""

from dataclasses import dataclass

from torch import nn

from wordorder.encodings.wave_embedding import WaveEmbedding
from wordorder.networks import token_tables

FLOAT = 4
"""Bytes of a float32: weights, gradients and moments."""
ADAM = 7
"""Times that Adam moves a weight: it reads weight, gradient and two moments, and writes all but the gradient."""


@dataclass(frozen=True)
class Traffic:
    """Bytes per training step of one process, float32 weights and Adam, activations aside.

    A weight that is read whole (a matrix) moves ``1`` time forward, ``2`` times backward (read, and its gradient
    written) and ``7`` times in Adam. Of a table with R numbers a row, of which a batch of N tokens reads N rows, u of
    them different::

        matrix, P numbers       4 * 10 P
        table, V rows           4 * (3 N R + 8 V R)    gradient filled with 0, N rows added to it, Adam on all rows
        table, row by row       4 * (3 N R + 8 u R)    no row is touched that no token used; u = min(N, V) at most

    Args:
        dense: with dense gradients, as PyTorch has them by default.
        row_wise: with sparse gradients and `torch.optim.SparseAdam` for the tables of words that only look-ups read,
            see `token_tables`. A table tied to an output layer has a gradient in every row, and counts as a matrix in
            both.
    """

    dense: int
    row_wise: int


def traffic(model: nn.Module, *, tokens: int) -> Traffic:
    """Count the bytes that a step moves for the weights.

    Args:
        model: its parameters that require a gradient count; shapes alone are read.
        tokens: per step, N; each reads one row of every table.
    """
    tables, by_row = _tables(model), {id(table) for table in token_tables(model).values()}
    whole = table_dense = table_rows = 0
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        size = parameter.numel()
        if id(parameter) not in tables:
            whole += (3 + ADAM) * size
            continue
        row = size // parameter.shape[0]
        read = 3 * tokens * row
        table_dense += read + (1 + ADAM) * size
        table_rows += read + (1 + ADAM) * (min(tokens * row, size) if id(parameter) in by_row else size)
    return Traffic(dense=FLOAT * (whole + table_dense), row_wise=FLOAT * (whole + table_rows))


def _tables(model: nn.Module) -> set[int]:
    """Return the identities of the parameters that are read by row and by nothing else."""
    tables: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            tables.add(id(module.weight))
        elif isinstance(module, WaveEmbedding):
            tables |= {id(t) for t in module.named_tables().values() if t.shape[0] == module.vocabulary}
    read_whole = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    return tables - read_whole
