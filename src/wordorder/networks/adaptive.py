"""Spend fewer channels on rare tokens: embedding and softmax over clusters of a large vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.networks.initialisation import initialise

Table = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, kw_only=True)
class AdaptiveClusters:
    """A vocabulary sorted by falling frequency, in clusters whose vectors become narrower by a divisor.

    Grave et al. 2017, https://arxiv.org/abs/1609.04309; names of Dai et al. 2019, https://arxiv.org/abs/1901.02860
    (``cutoffs``, ``div_val``). Cluster i holds the ids ``ends[i] .. ends[i + 1] - 1`` of ``ends = (0, *cutoffs, V)``;
    its vectors have ``width // divisor ** i`` channels. Arguments as in `AdaptiveEmbedding`.
    """

    vocabulary: int
    channels: int
    cutoffs: tuple[int, ...]
    divisor: int = 1
    width: int | None = None

    def __post_init__(self) -> None:
        check_positive(vocabulary=self.vocabulary, channels=self.channels, divisor=self.divisor)
        check_positive(width=1 if self.width is None else self.width)
        if not self.cutoffs:
            raise ValueError("cutoffs must name at least one id; without clusters leave them out")
        if any(end <= start for start, end in pairwise(self.ends)):
            raise ValueError(
                f"cutoffs must grow and lie within 1 .. {self.vocabulary - 1}, got {', '.join(map(str, self.cutoffs))}"
            )
        if self.widths[-1] == 0:
            raise ValueError(
                f"divisor={self.divisor} leaves no channel to cluster {len(self.cutoffs)} of a width of"
                f" {self.widths[0]}; lower divisor, or take fewer cutoffs"
            )

    @property
    def ends(self) -> tuple[int, ...]:
        """Ends of the clusters: 0, the cutoffs, V."""
        return (0, *self.cutoffs, self.vocabulary)

    @property
    def count(self) -> int:
        """Number of clusters, the first one included."""
        return len(self.cutoffs) + 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each cluster's vectors."""
        return tuple((self.width or self.channels) // self.divisor**index for index in range(self.count))

    @property
    def tables(self) -> tuple[tuple[int, int], ...]:
        """Sizes (rows, channels) of each table: one of all words where all clusters have one width."""
        if self.divisor == 1:
            return ((self.vocabulary, self.widths[0]),)
        sizes = (end - start for start, end in pairwise(self.ends))
        return tuple(zip(sizes, self.widths, strict=True))

    @property
    def projected(self) -> bool:
        """True if vectors are projected to and from the model's channels: always where clusters differ in width.

        The first cluster is then projected too, however wide it is, as in the code of Transformer-XL and of adaptive
        input.
        """
        return self.divisor > 1 or self.widths[0] != self.channels


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
        cutoffs: the first id of every cluster but the first; growing, within 1 .. V - 1; at least one.
        divisor: how much narrower each cluster is than the one before; 1 = one table of all words.
        width: of the first cluster's vectors; None = channels. With a divisor of 1 nothing is projected then.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).

    Shape:
        token ids (B, T) -> (B, T, C).

    Raises:
        ValueError: an argument is out of range.
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
        initialise(self)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embed token ids, (B, T) -> (B, T, C)."""
        if len(self.tables) == 1:
            narrow = self.tables[0](input_ids)
        else:
            parts: list[Tensor] = []
            for table, (start, end) in zip(self.tables, pairwise(self.clusters.ends), strict=True):
                outside_BT = (input_ids < start) | (input_ids >= end)
                # words of other clusters read the last row and give it a gradient of 0
                row_BT = (input_ids - start).masked_fill(outside_BT, end - start - 1)
                parts.append(table(row_BT).masked_fill(outside_BT[..., None], 0.0))
            narrow = torch.cat(parts, dim=-1)
        if not self.projections:
            return narrow
        # a dtype of autocast is chosen here as for any linear map
        return F.linear(narrow, torch.cat([cast("Any", map_).weight for map_ in self.projections], dim=1))

    def extra_repr(self) -> str:
        return f"cutoffs={list(self.clusters.cutoffs)}, widths={list(self.clusters.widths)}"


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of words, of which rare ones are computed only where a label asks for them.

    Grave et al. 2017, "Efficient softmax approximation for GPUs", https://arxiv.org/abs/1609.04309, Sec. 4, in the form
    of Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860: biases and projections in every cluster, all
    of which may be tied to an `AdaptiveEmbedding`. It is exact (no sampling), a distribution of its own::

        z_i = P_i^T h                                              (C_i,), or h itself where nothing is projected
        a   = log_softmax([E_0 z_0 + b_0 ; G z_0 + g])             words of cluster 0, then the clusters 1 .. K
        log p(w | h) = a[w]                                        w in cluster 0
                     = a[n_0 + i - 1] + log_softmax(E_i z_i + b_i)[w - start_i]       w in cluster i

    Training computes the n_0 + K logits of every token, and of cluster i only those of the tokens whose label is in
    it: how many there are is read from the device once per cluster. Torch's `nn.AdaptiveLogSoftmaxWithLoss` is the same
    function without ties, biases in the clusters, a projection of the first one and labels that may be absent.

    Parameters: ``tables.i.weight`` (n_i, C_i) is E_i and ``tables.i.bias`` b_i (one table of all words with a divisor
    of 1), ``projections.i.weight`` (C, C_i) is P_i, ``clusters.weight`` (K, C_0) is G and ``clusters.bias`` g.

    Args:
        channels: of the model, C; further arguments as in `AdaptiveEmbedding`.
        bias: of words and of clusters.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        channels: int,
        vocabulary: int,
        *,
        cutoffs: Sequence[int],
        divisor: int = 1,
        width: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.sizes = AdaptiveClusters(
            vocabulary=vocabulary, channels=channels, cutoffs=tuple(cutoffs), divisor=divisor, width=width
        )
        self.tables = nn.ModuleList(nn.Linear(narrow, rows, bias=bias) for rows, narrow in self.sizes.tables)
        self.clusters = nn.Linear(self.sizes.widths[0], len(self.sizes.cutoffs), bias=bias)
        self.projections = nn.ModuleList(
            nn.Linear(narrow, channels, bias=False) for narrow in (self.sizes.widths if self.sizes.projected else ())
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities of all words, (..., C) -> (..., V): logits of a plain output layer, normalised."""
        tables = self._tables()
        words, clusters, normaliser = self._first(hidden, tables[0])
        parts = [words - normaliser[..., None]]
        for index in range(1, self.sizes.count):
            within = self._within(index, hidden, tables[index])
            parts.append(within + (clusters[..., index - 1] - normaliser)[..., None])
        return torch.cat(parts, dim=-1)

    def negative_log_likelihood(self, hidden_NC: Tensor, label_N: Tensor) -> Tensor:
        """Return ``-log p(label | hidden)`` in nats and at least float32, (N,), without a matrix (N, V).

        Raises:
            ValueError: there is not one label for each row.
        """
        if hidden_NC.dim() != 2 or label_N.shape != hidden_NC.shape[:1]:
            raise ValueError(f"labels must be one for each row of {tuple(hidden_NC.shape)}, got {tuple(label_N.shape)}")
        tables = self._tables()
        words_NV, clusters_NK, normaliser_N = self._first(hidden_NC, tables[0])
        cluster_N = torch.stack([label_N >= start for start in self.sizes.cutoffs]).sum(dim=0)
        common_N = cluster_N == 0
        word_N = words_NV.gather(1, label_N.masked_fill(~common_N, 0)[:, None])[:, 0]
        rare_N = clusters_NK.gather(1, (cluster_N - 1).clamp(min=0)[:, None])[:, 0]
        likelihood_N = torch.where(common_N, word_N, rare_N) - normaliser_N
        for index, start in enumerate(self.sizes.cutoffs, start=1):
            # Also of no row at all: its parameters then have a gradient of 0 and not none, which DDP would wait for.
            row_M = (cluster_N == index).nonzero()[:, 0]
            within_MV = self._within(index, hidden_NC[row_M], tables[index])
            found_M = within_MV.gather(1, (label_N[row_M] - start)[:, None])[:, 0]
            likelihood_N = likelihood_N.index_add(0, row_M, found_M)
        return -likelihood_N

    def ties(self, *, projections: bool | Sequence[bool] = False) -> dict[str, str]:
        """Return the parameters that can be those of an `AdaptiveEmbedding` of the same sizes: name here -> name there.

        Args:
            projections: also all projections, or those of the clusters that are True (all tables are tied in any case;
                an embedding of one width has one projection, that of all clusters).

        Raises:
            ValueError: there is not one choice for each cluster, or nothing is projected.
        """
        tied = {f"tables.{index}.weight": f"tables.{index}.weight" for index in range(len(self.tables))}
        chosen = [projections] * self.sizes.count if isinstance(projections, bool) else list(projections)
        if len(chosen) != self.sizes.count:
            raise ValueError(f"tied projections must be one choice for each of {self.sizes.count} clusters")
        if any(chosen) and not self.sizes.projected:
            raise ValueError("tied projections: vectors of the model's width are not projected, there is none to tie")
        one = len(self.tables) == 1
        return tied | {
            f"projections.{index}.weight": f"projections.{0 if one else index}.weight"
            for index, tie in enumerate(chosen)
            if tie
        }

    def tie(self, embedding: AdaptiveEmbedding, *, projections: bool | Sequence[bool] = False) -> None:
        """Share parameters with an embedding of the same vocabulary, cutoffs, divisor and width from now on.

        Raises:
            ValueError: the embedding has other sizes.
        """
        if embedding.clusters != self.sizes:
            raise ValueError(f"the embedding's clusters are {embedding.clusters}, those of the output {self.sizes}")
        for ours, theirs in self.ties(projections=projections).items():
            cast("Any", self.get_submodule(ours.removesuffix(".weight"))).weight = embedding.get_parameter(theirs)

    def extra_repr(self) -> str:
        return f"cutoffs={list(self.sizes.cutoffs)}, widths={list(self.sizes.widths)}"

    def _first(self, hidden: Tensor, table: Table) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of first-cluster words (..., n_0) and of the others (..., K), and their common normaliser."""
        narrow = self._narrow(0, hidden)
        words, clusters = _wide(F.linear(narrow, *table)), _wide(self.clusters(narrow))
        return words, clusters, torch.logaddexp(words.logsumexp(dim=-1), clusters.logsumexp(dim=-1))

    def _within(self, index: int, hidden: Tensor, table: Table) -> Tensor:
        """Return the log-probabilities of the words of a cluster within it, (..., n_i)."""
        return _wide(F.linear(self._narrow(index, hidden), *table)).log_softmax(dim=-1)

    def _narrow(self, index: int, hidden: Tensor) -> Tensor:
        return hidden @ cast("Any", self.projections[index]).weight if self.projections else hidden

    def _tables(self) -> list[Table]:
        """Return the weight and bias of each cluster's words.

        One table is split once and not sliced: the gradients of slices would each be as large as the table.
        """
        found: list[Any] = [(table.weight, table.bias) for table in self.tables]
        if len(found) > 1:
            return found
        (weight, bias), ends = found[0], self.sizes.ends
        sizes = [end - start for start, end in pairwise(ends)]
        biases = [None] * len(sizes) if bias is None else bias.split(sizes)
        return list(zip(weight.split(sizes), biases, strict=True))


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
