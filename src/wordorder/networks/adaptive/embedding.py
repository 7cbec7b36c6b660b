"""Token embeddings that are narrow for rare words, and projected to the model's channels: adaptive input."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.adaptive.clusters import AdaptiveClusters


class AdaptiveEmbedding(nn.Module):
    """One table per cluster of words, and a projection of each to the model's channels.

    Baevski & Auli 2019, "Adaptive input representations for neural language modeling",
    https://arxiv.org/abs/1809.10853, Sec. 3, as in Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860::

        x(w) = P_i e_i[w - start_i]      for a word w of cluster i,  P_i (C, C_i),  C_i = width // divisor ** i

    No step depends on which words there are, so nothing waits for the device and shapes stay those of the batch: each
    table is read for all words, rows of other clusters' words become 0, and one product projects what all tables gave,
    which costs C * sum C_i per token, less than 4/3 of one C x C map at a divisor of 4.

    Args:
        vocabulary: number of token ids, V, sorted by falling frequency.
        channels: of the model, C.
        cutoffs: the first id of every cluster but the first.
        divisor: how much narrower each cluster is than the one before; 1 = one table of all words.
        width: of the first cluster's vectors; None = channels. With a divisor of 1 nothing is projected then.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).

    Shape:
        token ids (B, T) -> (B, T, C).

    Raises:
        ValueError: an argument is out of range, as in `AdaptiveClusters`.
    """

    def __init__(
        self,
        vocabulary: int,
        channels: int,
        *,
        cutoffs: Sequence[int],
        divisor: int = 1,
        width: int | None = None,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.clusters = AdaptiveClusters(
            vocabulary=vocabulary, channels=channels, cutoffs=tuple(cutoffs), divisor=divisor, width=width
        )
        self.num_embeddings, self.embedding_dim, self.padding_idx = vocabulary, channels, padding_idx
        starts = self.clusters.ends if divisor > 1 else (0, vocabulary)
        inside = [
            padding_idx - start if padding_idx is not None and start <= padding_idx < end else None
            for start, end in pairwise(starts)
        ]
        tables = zip(self.clusters.tables, inside, strict=True)
        self.tables = nn.ModuleList(nn.Embedding(rows, narrow, padding_idx=row) for (rows, narrow), row in tables)
        self.projections = nn.ModuleList(
            nn.Linear(narrow, channels, bias=False)
            for _, narrow in (self.clusters.tables if self.clusters.projected else ())
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embed token ids, (B, T) -> (B, T, C)."""
        if len(self.tables) == 1:
            narrow = self.tables[0](input_ids)
        else:
            ends = pairwise(self.clusters.ends)
            parts = [self._of_cluster(i, input_ids, start, end) for i, (start, end) in enumerate(ends)]
            narrow = torch.cat(parts, dim=-1)
        if not self.projections:
            return narrow
        # a dtype of autocast is chosen here as for any linear map
        return F.linear(narrow, torch.cat([cast("Any", map_).weight for map_ in self.projections], dim=1))

    def _of_cluster(self, index: int, token_ids_BT: Tensor, start: int, end: int) -> Tensor:
        """Return this cluster's vectors, 0 where the word is of another cluster."""
        outside_BT = (token_ids_BT < start) | (token_ids_BT >= end)
        # words of others read the last row and give it a gradient of 0
        row_BT = (token_ids_BT - start).masked_fill(outside_BT, end - start - 1)
        return self.tables[index](row_BT).masked_fill(outside_BT[..., None], 0.0)

    def extra_repr(self) -> str:
        """Return the clusters, for `print`."""
        return f"cutoffs={list(self.clusters.cutoffs)}, widths={list(self.clusters.widths)}"
