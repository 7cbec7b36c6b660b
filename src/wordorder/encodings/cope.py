"""Contextual position encoding (CoPE): positions that count only the tokens that matter to the query."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from wordorder.encodings.contextual_counts import interpolated_by_count
from wordorder.encodings.places import ContentScores, OnScoresByContent
from wordorder.ops import Arbitrary, PositionsLike, Visibility, as_positions


class CoPE(OnScoresByContent):
    """Count, backwards from each query, the keys that it gates, and add its product with a vector of the count.

    Golovneva et al. 2024, "Contextual position encoding: learning to count what's important",
    https://arxiv.org/abs/2405.18719, Eq. 2 to 5 and the listing in its appendix. Over the keys that i sees::

        gate[h, i, j] = sigmoid(scale * q_i^h . k_j^h)
        p[h, i, j]    = min(sum of gate[h, i, m] over m = j .. i, max_position)
        e[p]          = (p - floor p) e[ceil p] + (1 - (p - floor p)) e[floor p]
        term[h, i, j] = q_i^h . e[p[h, i, j]]

    As in the listing and unlike Eq. 2 and 5: gates are of the *scaled* scores, the term is not scaled, and hidden keys
    (padding, later tokens, other packed texts) have gate 0. One table of positions per layer, shared by its heads.

    Differs from the listing: the table is drawn like every other matrix of the network (there it starts at 0); at a p
    that is a whole number the derivative by p is that from the right (there it is 0). The paper's variants with keys
    of their own for gates, or gates of values, are not here. Where encodings act together, gates are computed from
    queries and keys before any rotation and without the other terms of the scores.

    The counts need every pair's gate: time and memory of B H T S numbers, several times over, whatever the backend.

    Args:
        head_dim: channels per head, D; positive.
        layers: number of tables; positive.
        max_position: the largest count p_max, from which on all counts are alike; positive. The table has one row
            more (the listing's ``npos_max``). The paper takes 64 for texts of 1,024 tokens.

    Shape:
        q (B, H, T, D), k (B, H, S, D) -> term (B, H, T, S) in at least float32, undefined at hidden pairs.

    Raises:
        ValueError: an argument is out of range.
    """

    paper = "Golovneva et al. 2024, https://arxiv.org/abs/2405.18719"
    refused_in: ClassVar[Mapping[str, str]] = {
        "encoder": "it counts from a key up to the query, so that only keys before the query have a count; the paper"
        " defines none for keys to the right. Take 'shaw', 'deberta' or 'transformer-xl'",
        "cross-attention": "it counts the keys between a key and the query, and a query of another text has no position"
        " among the keys",
        "look-ahead": "slots of this memory attend to keys to their right, which have no count; take"
        " memory='segment-recurrence'",
    }

    def __init__(self, head_dim: int, *, layers: int, max_position: int = 64) -> None:
        super().__init__()
        for name, value in (("head_dim", head_dim), ("layers", layers), ("max_position", max_position)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        self.max_position = max_position
        self.tables = nn.ModuleList(nn.Embedding(max_position + 1, head_dim) for _ in range(layers))

    def prepare(
        self, query_positions: PositionsLike, key_positions: PositionsLike, *, device: torch.device | None = None
    ) -> "CoPEScores":
        """Return the term with the order in which keys are counted: by position where positions are arbitrary."""
        del query_positions
        key, rank_BS = as_positions(key_positions), None
        if isinstance(key, Arbitrary):
            rank_BS = key.index_BT(device).argsort(dim=-1, stable=True)
        return CoPEScores(self, rank_BS, 0)


@dataclass(frozen=True)
class CoPEScores(ContentScores):
    """The term of CoPE in one forward pass and one layer.

    Args:
        rank_BS: indices of the keys from the lowest position to the highest, (1 or B, S); None = as they come.
        index: the layer, from 0.
    """

    encoding: CoPE
    rank_BS: Tensor | None
    index: int

    def layer(self, index: int) -> "CoPEScores":
        """Return the term with the table of layer ``index``."""
        return replace(self, index=index)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None) -> Tensor:
        """Return the term as a matrix (B, H, T, S)."""
        table = self.encoding.tables[self.index]
        assert isinstance(table, nn.Embedding)
        if self.rank_BS is None:
            return interpolated_by_count(q_BHTD, k_BHSD, table.weight, scale, visible)
        rank_BHS = self.rank_BS[:, None].expand(*k_BHSD.shape[:2], -1)
        ordered_BHSD = k_BHSD.gather(2, rank_BHS[..., None].expand_as(k_BHSD))
        shape = (*q_BHTD.shape[:3], k_BHSD.shape[2])
        seen = visible.dense(q_BHTD.device) if isinstance(visible, Visibility) else visible
        if seen is not None:
            seen = seen.expand(shape).gather(-1, rank_BHS[:, :, None].expand(shape))
        term_BHTS = interpolated_by_count(q_BHTD, ordered_BHSD, table.weight, scale, seen)
        return term_BHTS.gather(-1, rank_BHS.argsort(-1)[:, :, None].expand(shape))
