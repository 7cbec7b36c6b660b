"""Split queries and keys of an encoder's first layer into summands of words, of positions and of biases."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from wordorder.encodings import OnEmbeddings, OnQueriesAndKeys, Shift
from wordorder.networks import Encoder, EncoderLayer
from wordorder.ops import Contiguous

_NUMBERS = 2**22
"""Most numbers of a tensor while words meet positions: 16 MiB in float32."""


@dataclass(frozen=True)
class Side:
    """Queries, or keys, of W words and N positions in three summands; float64 on the CPU.

    Args:
        word_WHD: of each word.
        position_NHD: of each position; 0 where positions come in at the scores only.
        constant_HD: of biases and norms, the same for all.
    """

    word_WHD: Tensor
    position_NHD: Tensor
    constant_HD: Tensor

    def summand(self, name: str) -> Tensor:
        """Return the summand "word", "position" or "constant", (W, N or 1, H, D)."""
        return {"word": self.word_WHD, "position": self.position_NHD, "constant": self.constant_HD[None]}[name]

    def together(self, tokens: int) -> Tensor:
        """Return the sum of the three for word t at position t, (tokens, H, D)."""
        return self.word_WHD[:tokens] + self.position_NHD[:tokens] + self.constant_HD


@dataclass(frozen=True)
class FirstLayer:
    """Queries and keys, with as many key heads as query heads, and the factor of their product."""

    query: Side
    key: Side
    scale: float


def scores_of(query_THD: Tensor, key_SHD: Tensor, scale: float) -> Tensor:
    """Return ``scale * q.k``, (H, T, S)."""
    return scale * torch.einsum("thd,shd->hts", query_THD, key_SHD)


def first_layer(encoder: Encoder, ids_W: Tensor, length: int) -> FirstLayer:
    """Take the first layer apart for these words and the positions 0 .. length - 1.

    The input of W_Q and W_K is ``norm(word + position)``, or two norms in a row, or the sum itself. A norm is followed
    exactly but for one thing: centring and gain are linear and act on each summand, its bias joins the constant; but
    it divides by the standard deviation (or root mean square) of the sum, which depends on both. So a word gets the
    mean over all positions of what the norm leaves of it, and a position the mean over the words given.

    Args:
        encoder: its positions are added to the embeddings, or to queries and keys, or come in at the scores.
        ids_W: token ids, not empty.
        length: N, within the encoder's tables.
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
    sides = _projected(encoder, (torch.cat(words), position_NC, constant_C / len(ids_W)), length)
    return FirstLayer(*sides, encoder.encoding.scale)


def real_scores(encoder: Encoder, ids_T: Tensor) -> Tensor:
    """Return ``scale * q.k`` of the first layer as the model computes it for one text, (H, T, T).

    What encodings add to the scores is left out.
    """
    where = Contiguous(len(ids_T))
    total_TC = encoder.encoding.embed(encoder.embedding.weight[ids_T].float()[None], where)[0]
    nothing_TC = torch.zeros_like(total_TC)
    word_TC, _, constant_TC = _through_norms(encoder, (total_TC, nothing_TC, nothing_TC))
    summands = (word_TC + constant_TC, nothing_TC, nothing_TC[0])
    query, key = (side.together(len(ids_T)) for side in _projected(encoder, summands, len(ids_T)))
    return scores_of(query, key, encoder.encoding.scale)


def shifts_of(part: OnQueriesAndKeys, length: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return what an encoding adds to queries and to keys at each position, (N, H, D).

    None if it turns them instead.
    """
    where = Contiguous(length)
    query, key = part.prepare(where, where, dtype=torch.float32, device=device)
    if not (isinstance(query, Shift) and isinstance(key, Shift)):
        return None
    return query.vector_BHTD[0].transpose(0, 1), key.vector_BHTD[0].transpose(0, 1)


def _through_norms(encoder: Encoder, summands: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Pass word, position and constant through the norms before W_Q; their sum is what the model has there."""
    layer = cast(EncoderLayer, encoder.layers[0])
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
        bias = getattr(norm, "bias", None)
        summands = word, position, constant if bias is None else constant + bias.float()
    return summands


def _projected(encoder: Encoder, summands: tuple[Tensor, Tensor, Tensor], length: int) -> tuple[Side, Side]:
    """Project the summands, (W, C), (N, C) and (C,), to queries and keys."""
    attention = cast(EncoderLayer, encoder.layers[0]).attention
    width, key_width, _ = attention.splits
    device = encoder.embedding.weight.device
    shifts = [
        found
        for part in encoder.encoding.parts_of(0)
        if isinstance(part, OnQueriesAndKeys) and (found := shifts_of(part, length, device)) is not None
    ]
    sides: list[Side] = []
    for index, rows in enumerate((slice(0, width), slice(width, width + key_width))):  # queries, keys
        weight, bias = attention.qkv.weight[rows].cpu().double(), attention.qkv.bias[rows].cpu().double()
        word_WC, position_NC, constant_C = (x.cpu().double() @ weight.T for x in summands)
        sizes = attention.head_dim, width // len(weight)
        position_NHD = _heads(position_NC, *sizes)
        for found in shifts:
            position_NHD = position_NHD + found[index].cpu().double()
        sides.append(Side(_heads(word_WC, *sizes), position_NHD, _heads(constant_C + bias, *sizes)))
    return sides[0], sides[1]


def _heads(projected: Tensor, head_dim: int, repeats: int) -> Tensor:
    """Split (..., channels) into heads, (..., H, D); heads of grouped queries share keys, which are repeated."""
    heads = projected.reshape(*projected.shape[:-1], -1, head_dim)
    return heads.repeat_interleave(repeats, dim=-2)
