"""The four correlations of words and positions in the first layer: Fig. 2 of TUPE for any trained encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from wordorder.encodings import (
    Hybrid,
    Learned,
    NoEncoding,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScoresByContent,
    ReplacesEmbedding,
    Sinusoidal,
)
from wordorder.errors import BadInput
from wordorder.inspection.correlation import ScoreMap, name_of, score_maps
from wordorder.inspection.first_layer import FirstLayer, first_layer, real_scores, scores_of, shifts_of
from wordorder.networks import Encoder

WORDS = 1024
"""Words that the correlations are measured over by default; the standard error of a spread is then some 3 %."""


@dataclass(frozen=True)
class CorrelationTerm:
    """Size of one of the products that make up the scores of the first layer; per head, in logits.

    Args:
        mean_H: mean over all pairs.
        std_H: standard deviation over all pairs.
        spread_H: what softmax sees of it: root mean square after each query's mean over keys is taken off.
    """

    mean_H: Tensor
    std_H: Tensor
    spread_H: Tensor

    @property
    def spread(self) -> float:
        """Root mean square of the heads' spreads."""
        return float(self.spread_H.square().mean().sqrt())


@dataclass(frozen=True)
class WordPositionCorrelations:
    """The terms of the first layer's scores, in logits.

    Args:
        terms: by name, query first: "word-word", "word-position", "position-word", "position-position" (a model with
            positions on scores has the first and the last only); and "constant-word" and "constant-position", where the
            query is the constant that biases and norms add to every query. (Of a constant key softmax sees nothing.)
        panels: the mean over heads of the two or four terms, (n, n), n = the lesser of length and the number of words.
        position_position: that term per head, (H, N, N).
        word_ids: the words of the panels, in order, (n,).
        words: how many words the terms' numbers are over.
        explained: share of the variance (each query's mean over keys taken off) of the first layer's real scores, the
            words of the panels standing one per position, that the sum of the terms accounts for. 1 where no norm
            stands between the sum of word and position and W_Q, W_K; see `word_position_correlations`.
    """

    terms: dict[str, CorrelationTerm]
    panels: dict[str, Tensor]
    position_position: ScoreMap
    word_ids: Tensor
    words: int
    explained: float


def no_correlations_because(encoder: Encoder) -> str | None:
    """Return the reason why an encoder's scores are no sum of terms of words and of positions; None where they are."""
    if isinstance(encoder.embedding, ReplacesEmbedding):
        return "words and positions meet in the products that the embeddings are, so there is no sum to take apart"
    parts, where = encoder.encoding.parts_of(0), " of the first layer" if isinstance(encoder.encoding, Hybrid) else ""
    for part in parts:
        name = f"encoding {name_of(part)!r}{where}"
        if isinstance(part, OnScoresByContent):
            return f"{name} lets words meet distances, so the scores are no sum of terms of words and of positions"
        if isinstance(part, OnQueriesAndKeys) and shifts_of(part, 1, encoder.embedding.weight.device) is None:
            return f"{name} turns queries and keys, so every correlation depends on distance"
        if isinstance(part, OnEmbeddings) and not isinstance(part, Learned | Sinusoidal):
            return f"{name} does not add positions to the embeddings, so there is no sum to take apart"
    return f"encoding 'none'{where} has no word order" if all(isinstance(part, NoEncoding) for part in parts) else None


def word_position_correlations(
    model: nn.Module, length: int, *, words: Sequence[int] | Tensor | None = None
) -> WordPositionCorrelations:
    """Compute the four correlations of TUPE's Eq. 6 (Ke et al. 2021, https://arxiv.org/abs/2006.15595) and their sizes.

    With positions added to the embeddings, q.k in the first layer is, up to the scale, ::

        (w_i W_Q)(w_j W_K) + (w_i W_Q)(p_j W_K) + (p_i W_Q)(w_j W_K) + (p_i W_Q)(p_j W_K)

    Fig. 2 of the paper draws these for a trained BERT and a batch of sentences, and finds the mixed ones to look
    uniform. A panel is the same here for a list of words (w_i is the i-th of them, p_j the j-th position), as mean over
    heads; the numbers are per head, over all pairs of all words, from second moments: there is no matrix over pairs of
    words beyond the panel. Where the encoding adds to the scores (TUPE, T5, ALiBi) there are no mixed terms, and
    position-position is what it adds. The untied sum (BERT-A^d) has all four, with position projections of its own.

    The paper leaves the layer norm out that stands between the sum and W_Q; here it is followed, see `first_layer`, up
    to its division by the standard deviation of *the sum*, for which each word has its mean over positions, and each
    position its mean over words. ``explained`` says how good that is.

    Args:
        model: anything that contains an encoder of this package.
        length: positions, N.
        words: token ids, in the order in which the panels show them (the first N), repeated as often as they shall
            count: the ids of a text give its words the weight that they have in it. Default: a random sample of `WORDS`
            ids of the vocabulary, each once, the padding left out; the same sample in every call.

    Raises:
        BadInput: the model has no such encoder or its scores are no sum of such terms, with the reason.
        ValueError: length is not positive or beyond the model's table, or words are empty or outside the vocabulary.
    """
    encoder = next((module for module in model.modules() if isinstance(module, Encoder)), None)
    reason = "it has no encoder of this package" if encoder is None else no_correlations_because(encoder)
    if encoder is None or reason:
        raise BadInput(f"the model has no correlations of words and positions: {reason}")
    with torch.no_grad():
        maps = score_maps(model, length, layer=0)  # raises where the length does not fit
        ids_W = _sample(encoder, length) if words is None else _checked(encoder, words)
        layer = first_layer(encoder, ids_W, length)
        mixed = bool(layer.query.position_NHD.any())
        added = list(maps.values())[-1] if maps and not mixed else None
        terms, panels = _terms_and_panels(layer, added, min(len(ids_W), length))
        position, scale = (layer.query.position_NHD, layer.key.position_NHD), layer.scale
        position_position = added or ScoreMap(scores_of(*position, scale).float())
        shown_ids = ids_W[: panels["word-word"].shape[0]]
        explained = _explained(layer, real_scores(encoder, shown_ids))
    return WordPositionCorrelations(terms, panels, position_position, shown_ids.cpu(), len(ids_W), explained)


def _terms_and_panels(
    layer: FirstLayer, added: ScoreMap | None, shown: int
) -> tuple[dict[str, CorrelationTerm], dict[str, Tensor]]:
    """Compute the terms, and the panels of the first words and positions.

    If a map is added, positions meet at the scores.
    """
    terms: dict[str, CorrelationTerm] = {}
    panels: dict[str, Tensor] = {}
    for query, key in product(("word", "position", "constant"), ("word", "position")):
        if added is None or (query != "position" and key == "word"):
            query_THD, key_SHD = layer.query.summand(query), layer.key.summand(key)
            terms[f"{query}-{key}"] = _term(query_THD, key_SHD, layer.scale)
            if query != "constant":
                panels[f"{query}-{key}"] = scores_of(query_THD[:shown], key_SHD[:shown], layer.scale).mean(0)
    if added is not None:
        terms["position-position"] = _term_of(added)
        panels["position-position"] = added.values_HNN.double().mean(0)[:shown, :shown]
    return terms, panels


def _term(query_THD: Tensor, key_SHD: Tensor, scale: float) -> CorrelationTerm:
    """Compute mean and spreads of ``scale * q.k`` over all pairs, from second moments of queries and keys."""
    mean_q_HD, mean_k_HD = query_THD.mean(0), key_SHD.mean(0)
    centred_SHD = key_SHD - mean_k_HD
    second_q_HDD = torch.einsum("thd,the->hde", query_THD, query_THD) / len(query_THD)
    covariance_k_HDD = torch.einsum("shd,she->hde", centred_SHD, centred_SHD) / len(key_SHD)
    seen_H = torch.einsum("hde,hde->h", second_q_HDD, covariance_k_HDD)
    # the rest of the variance: of the rows' means, which softmax cancels
    of_means_H = torch.einsum("thd,hd->th", query_THD - mean_q_HD, mean_k_HD).square().mean(0)
    mean_H = scale * (mean_q_HD * mean_k_HD).sum(-1)
    return CorrelationTerm(mean_H, scale * (seen_H + of_means_H).sqrt(), scale * seen_H.sqrt())


def _term_of(added: ScoreMap) -> CorrelationTerm:
    """Compute mean and spreads of a map, the reset of [CLS] left out."""
    first = int(added.skip_first)
    inner_HNN = added.values_HNN[:, first:, first:].double()
    mean_H11 = inner_HNN.mean((-1, -2), keepdim=True)
    std_H, spread_H = (
        (inner_HNN - mean).square().mean((-1, -2)).sqrt() for mean in (mean_H11, inner_HNN.mean(-1, keepdim=True))
    )
    return CorrelationTerm(mean_H11.flatten(), std_H, spread_H)


def _explained(layer: FirstLayer, real_HTT: Tensor) -> float:
    """Return the share of the variance of the real scores, rows centred, that the sum of the terms accounts for."""
    tokens = real_HTT.shape[-1]
    ours_HTT = scores_of(layer.query.together(tokens), layer.key.together(tokens), layer.scale)
    real, ours = (x - x.mean(-1, keepdim=True) for x in (real_HTT, ours_HTT))
    return 1 - float((real - ours).square().sum() / real.square().sum())


def _sample(encoder: Encoder, length: int) -> Tensor:
    """Draw ids from the vocabulary, those of the panels in order of their ids: related words often stand together."""
    table = encoder.embedding
    order = torch.randperm(table.num_embeddings, generator=torch.Generator().manual_seed(0))
    chosen_W = order[order != table.padding_idx][:WORDS] if table.padding_idx is not None else order[:WORDS]
    return torch.cat((chosen_W[:length].sort().values, chosen_W[length:])).to(table.weight.device)


def _checked(encoder: Encoder, words: Sequence[int] | Tensor) -> Tensor:
    ids_W, size = torch.as_tensor(words), encoder.embedding.num_embeddings
    if ids_W.dim() != 1 or len(ids_W) == 0 or ids_W.is_floating_point():
        raise ValueError(f"words must be a row of token ids, got {ids_W.dtype} {tuple(ids_W.shape)}")
    if int(ids_W.min()) < 0 or int(ids_W.max()) >= size:
        raise ValueError(f"words must lie in 0 .. {size - 1}, got {int(ids_W.min())} .. {int(ids_W.max())}")
    return ids_W.to(encoder.embedding.weight.device)
