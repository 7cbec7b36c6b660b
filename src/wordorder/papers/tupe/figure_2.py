"""The four correlations of words and positions in the first layer: Fig. 2 of TUPE for any trained encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wordorder.encodings import (
    Learned,
    NoEncoding,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScoresByContent,
    ReplacesEmbedding,
    Shift,
    Sinusoidal,
)
from wordorder.errors import BadInput
from wordorder.inspection.figures import Drawing, colour_limit, new_figure, png_of
from wordorder.inspection.maps import ScoreMap, first_module, name_of, score_maps
from wordorder.networks import Encoder, EncoderLayer
from wordorder.ops import Contiguous

WORDS = 1024
"""Words that the correlations are measured over by default; the standard error of a spread is then some 3 %."""

_NUMBERS = 2**22
"""Most numbers of a tensor while words meet positions: 16 MiB in float32."""


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


def draw_correlations(correlations: WordPositionCorrelations) -> Drawing:
    """Draw the terms as Fig. 2 does, without each row's mean and on one colour scale.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    panels = {name: panel - panel.mean(-1, keepdim=True) for name, panel in correlations.panels.items()}
    shape = (1, 2) if len(panels) == 2 else (2, 2)
    figure = new_figure(3.5 * shape[1] + 0.9, 3.4 * shape[0])
    grid, image = figure.subplots(*shape, squeeze=False), None
    limit = colour_limit(panels.values())
    for axes, (name, panel) in zip(grid.flat, panels.items(), strict=True):
        image = axes.imshow(panel.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        query, key = name.split("-")
        axes.set(xlabel=f"Key {key}", ylabel=f"Query {query}")
        axes.set_title(f"{query} to {key}: spread {correlations.terms[name].spread:.2g}", fontsize="medium")
    figure.colorbar(image, ax=grid, label="Logits, each row's mean taken off", extend="both", shrink=0.8)
    spreads = ", ".join(f"{name.replace('-', ' to ')} {correlations.terms[name].spread:.2g}" for name in panels)
    terms = (
        "four terms" if len(panels) == 4 else "two terms: the mixed ones do not exist where positions meet at scores"
    )
    return Drawing(
        png_of(figure),
        "Words and positions in the first layer",
        f"The {terms}. A row is a query, a column a key; {len(correlations.word_ids)} words in the panels, mean over"
        " heads, one colour scale. Each row's mean is taken off, since softmax cancels it. Spread: root mean square"
        f" of that per head, over {correlations.words} words. All terms together explain {correlations.explained:.1%}"
        " of the variance of the first layer's real scores, with one of the words at each position.",
        f"Panels of correlations in the first layer; spreads in logits: {spreads}.",
    )


def _no_correlations_because(encoder: Encoder) -> str | None:
    if isinstance(encoder.embedding, ReplacesEmbedding):
        return "words and positions meet in the products that the embeddings are, so there is no sum to take apart"
    if not isinstance(encoder.embedding, nn.Embedding) or not isinstance(encoder.layers[0], EncoderLayer):
        return "a tool has wrapped the embeddings or the first layer, whose weights are read; take the model without it"
    parts, where = encoder.encoding.parts_of(0), " of the first layer" if encoder.encoding.kind_of_layer else ""
    for part in parts:
        name = f"encoding {name_of(part)!r}{where}"
        if isinstance(part, OnScoresByContent):
            return f"{name} lets words meet distances, so the scores are no sum of terms of words and of positions"
        if isinstance(part, OnQueriesAndKeys) and _shifts(part, 1, encoder.embedding.weight.device) is None:
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
    encoder = first_module(model, Encoder)
    reason = "it has no encoder of this package" if encoder is None else _no_correlations_because(encoder)
    if encoder is None or reason:
        raise BadInput(f"the model has no correlations of words and positions: {reason}")
    with torch.no_grad():
        maps = score_maps(model, length, layer=0)  # raises where the length does not fit
        ids_W = _sample(encoder, length) if words is None else _checked(encoder, words)
        layer = first_layer(encoder, ids_W, length)
        mixed = bool(layer.query.position_NHD.any())
        added = list(maps.values())[-1] if maps and not mixed else None
        terms, panels = _terms_and_panels(layer, added, min(len(ids_W), length))
        position_position = added or ScoreMap(layer.scores("position", "position").float())
        shown_ids = ids_W[: panels["word-word"].shape[0]]
        real_HTT, tokens = real_scores(encoder, shown_ids), len(shown_ids)
        ours_HTT = _scores(layer.query.together(tokens), layer.key.together(tokens), layer.scale)
        real, ours = (x - x.mean(-1, keepdim=True) for x in (real_HTT, ours_HTT))
        explained = 1 - float((real - ours).square().sum() / real.square().sum())
    return WordPositionCorrelations(terms, panels, position_position, shown_ids.cpu(), len(ids_W), explained)


def _terms_and_panels(
    layer: "FirstLayer", added: ScoreMap | None, shown: int
) -> tuple[dict[str, CorrelationTerm], dict[str, Tensor]]:
    """Compute the terms, and the panels of the first words and positions; with a map given, positions meet there."""
    terms: dict[str, CorrelationTerm] = {}
    panels: dict[str, Tensor] = {}
    for query, key in product(("word", "position", "constant"), ("word", "position")):
        if added is None or (query != "position" and key == "word"):
            terms[f"{query}-{key}"] = _term(layer.query.summand(query), layer.key.summand(key), layer.scale)
            if query != "constant":
                panels[f"{query}-{key}"] = layer.scores(query, key, shown).mean(0)
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
    inner_HNN = added.counted_HNN.double()
    mean_H11 = inner_HNN.mean((-1, -2), keepdim=True)
    std_H, spread_H = (
        (inner_HNN - mean).square().mean((-1, -2)).sqrt() for mean in (mean_H11, inner_HNN.mean(-1, keepdim=True))
    )
    return CorrelationTerm(mean_H11.flatten(), std_H, spread_H)


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


class Side(NamedTuple):
    """Queries, or keys, of W words and N positions in three summands; float64 on the CPU.

    Positions are 0 where they come in at the scores only; the constant is that of biases and norms, the same for all.
    """

    word_WHD: Tensor
    position_NHD: Tensor
    constant_HD: Tensor

    def summand(self, name: str) -> Tensor:
        return {"word": self.word_WHD, "position": self.position_NHD, "constant": self.constant_HD[None]}[name]

    def together(self, tokens: int) -> Tensor:
        return self.word_WHD[:tokens] + self.position_NHD[:tokens] + self.constant_HD


class FirstLayer(NamedTuple):
    """Queries and keys, with as many key heads as query heads, and the factor of their product."""

    query: Side
    key: Side
    scale: float

    def scores(self, query: str, key: str, shown: int | None = None) -> Tensor:
        """Return the scores of two summands, of the first ``shown`` queries and keys, (H, T, S)."""
        return _scores(self.query.summand(query)[:shown], self.key.summand(key)[:shown], self.scale)


def _scores(query_THD: Tensor, key_SHD: Tensor, scale: float) -> Tensor:
    return scale * torch.einsum("thd,shd->hts", query_THD, key_SHD)


def first_layer(encoder: Encoder, ids_W: Tensor, length: int) -> FirstLayer:
    """Take the first layer apart for these words and the positions 0 .. length - 1.

    The input of W_Q and W_K is ``norm(word + position)``, or two norms in a row, or the sum itself. Of a norm, centring
    and gain act on each summand, and its bias joins the constant; it divides by the standard deviation (or root mean
    square) of the sum, for which a word gets the mean over all positions, and a position that over the words given.
    """
    x_WC = encoder.embedding.weight[ids_W].float()
    # without positions on embeddings a norm does the same at every position
    meets = length if any(isinstance(part, OnEmbeddings) for part in encoder.encoding.parts_of(0)) else 1
    position_1NC = encoder.encoding.embed(torch.zeros_like(x_WC[:1, None]).expand(1, meets, -1), Contiguous(meets))
    words: list[Tensor] = []
    position_NC, constant_C = torch.zeros_like(position_1NC[0]), torch.zeros_like(x_WC[0])
    size = max(1, _NUMBERS // (meets * x_WC.shape[1]))
    for start in range(0, len(x_WC), size):
        chunk_wC = x_WC[start : start + size]
        total_wNC = encoder.encoding.embed(chunk_wC[:, None].expand(-1, meets, -1), Contiguous(meets))
        summands = (total_wNC - position_1NC, position_1NC, torch.zeros_like(position_1NC))
        word_wNC, found_wNC, constant_wNC = _through_norms(encoder, summands)
        words.append(word_wNC.mean(1))
        position_NC = position_NC + found_wNC.sum(0) * (len(chunk_wC) / len(found_wNC))
        constant_C = constant_C + constant_wNC.mean((0, 1)) * len(chunk_wC)
    position_NC = (position_NC / len(ids_W)).expand(length, -1)
    query, key = _projected(encoder, (torch.cat(words), position_NC, constant_C / len(ids_W)), length)
    return FirstLayer(query, key, encoder.encoding.scales[0])


def real_scores(encoder: Encoder, ids_T: Tensor) -> Tensor:
    """Return ``scale * q.k`` of the first layer for one text, (H, T, T), without what encodings add to the scores."""
    total_TC = encoder.encoding.embed(encoder.embedding.weight[ids_T].float()[None], Contiguous(len(ids_T)))[0]
    nothing_TC = torch.zeros_like(total_TC)
    word_TC, _, constant_TC = _through_norms(encoder, (total_TC, nothing_TC, nothing_TC))
    summands = (word_TC + constant_TC, nothing_TC, nothing_TC[0])
    query, key = (side.together(len(ids_T)) for side in _projected(encoder, summands, len(ids_T)))
    return _scores(query, key, encoder.encoding.scales[0])


def _shifts(part: OnQueriesAndKeys, length: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return what an encoding adds to queries and keys at each position, (N, H, D); None if it turns them instead."""
    where = Contiguous(length)
    query, key = part(where, where, device=device)
    if not (isinstance(query, Shift) and isinstance(key, Shift)):
        return None
    return query.vector_BHTD[0].transpose(0, 1), key.vector_BHTD[0].transpose(0, 1)


def _through_norms(encoder: Encoder, summands: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Pass word, position and constant through the norms before W_Q; their sum is what the model has there."""
    layer = encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    for norm in (encoder.embedding_norm, *((layer.attention_norm,) if layer.pre else ())):
        if isinstance(norm, nn.LayerNorm):
            summands = tuple(x - x.mean(-1, keepdim=True) for x in summands)  # pyright: ignore[reportAssignmentType]
        elif not isinstance(norm, nn.RMSNorm):
            assert isinstance(norm, nn.Identity), norm
            continue
        total = summands[0] + summands[1] + summands[2]
        eps = norm.eps if norm.eps is not None else torch.finfo(total.dtype).eps
        gain = norm.weight.float() * (total.square().mean(-1, keepdim=True) + eps).rsqrt()
        word, position, constant = (x * gain for x in summands)
        if isinstance(norm, nn.LayerNorm):
            constant = constant + norm.bias.float()
        summands = word, position, constant
    return summands


def _projected(encoder: Encoder, summands: tuple[Tensor, Tensor, Tensor], length: int) -> list[Side]:
    layer = encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    attention = layer.attention
    width, key_width = (heads * attention.head_dim for heads in attention.splits[:2])
    shifts = [
        found
        for part in encoder.encoding.parts_of(0)
        if isinstance(part, OnQueriesAndKeys)
        and (found := _shifts(part, length, encoder.embedding.weight.device)) is not None
    ]
    sides: list[Side] = []
    for index, rows in enumerate((slice(0, width), slice(width, width + key_width))):  # queries, keys
        weight, bias = attention.qkv.weight[rows].cpu().double(), attention.qkv.bias[rows].cpu().double()
        word_WC, position_NC, constant_C = (x.cpu().double() @ weight.T for x in summands)
        # heads of grouped queries share keys, which are repeated
        word_WHD, position_NHD, constant_HD = (
            x.reshape(*x.shape[:-1], -1, attention.head_dim).repeat_interleave(width // len(weight), dim=-2)
            for x in (word_WC, position_NC, constant_C + bias)
        )
        for found in shifts:
            position_NHD = position_NHD + found[index].cpu().double()
        sides.append(Side(word_WHD, position_NHD, constant_HD))
    return sides
