"""Token ids to vectors with word order in them, for networks without attention."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from wordorder.encodings import (
    CATALOG,
    NoEncoding,
    OnEmbeddings,
    ReplacesEmbedding,
    build_encoding,
    names_of,
    pattern_of,
)
from wordorder.errors import BadInput
from wordorder.networks.text.pooling import without_padding
from wordorder.ops import Contiguous, Positions, PositionsLike, as_positions, valid_tokens
from wordorder.ops.token_ids import check_embeddings, check_token_ids


class TextEmbedding(nn.Module):
    """Embeddings of tokens, with the encodings that act on embeddings applied, exactly 0 where padding is.

    Args:
        vocabulary: number of token ids, V; positive.
        width: channels, C; positive.
        encoding: a name of the catalogue that acts on embeddings, or several joined by "+".
        encoding_options: options of the encoding; see `build_encoding`.
        max_positions: longest text in tokens, for encodings with a table.
        dropout: on the embeddings.
        padding_idx: token id whose embedding is 0 and stays 0.

    Raises:
        BadInput: unknown encoding or option, or an encoding that needs attention.
        ValueError: a size is out of range.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        encoding: str = "none",
        encoding_options: Mapping[str, Any] | None = None,
        max_positions: int = 512,
        dropout: float = 0.0,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("width", width)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        check_without_attention(encoding)
        self.encoding = build_encoding(
            encoding,
            width=width,
            heads=1,
            layers=1,
            max_positions=max_positions,
            options=encoding_options,
            vocabulary=vocabulary,
            padding_idx=padding_idx,
        )
        plain = None if self.encoding.replacement else nn.Embedding(vocabulary, width, padding_idx=padding_idx)
        self.embedding: nn.Embedding | ReplacesEmbedding = plain or cast(ReplacesEmbedding, self.encoding.replacement)
        self.dropout: nn.Module = nn.Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return vectors (B, T, C); arguments and errors as in `TextNetwork.forward`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            check_token_ids(input_ids, self.embedding.num_embeddings)
        if inputs_embeds is not None:
            check_embeddings(inputs_embeds, self.embedding.embedding_dim)
        given = cast(Tensor, input_ids if inputs_embeds is None else inputs_embeds)
        where = Contiguous(given.shape[1]) if positions is None else as_positions(positions)
        valid_BT = valid_tokens(key_padding_mask, given.shape[0], given.shape[1])
        x_BTC = self._read(given, where) if inputs_embeds is None else inputs_embeds
        return without_padding(self.dropout(self.encoding.embed(x_BTC, where)), valid_BT)

    def _read(self, token_ids_BT: Tensor, positions: Positions) -> Tensor:
        if isinstance(self.embedding, ReplacesEmbedding):
            return self.embedding(token_ids_BT, positions)
        return self.embedding(token_ids_BT)


def check_without_attention(encoding: str) -> None:
    """Refuse encodings that act where only a network with attention has something to act on.

    Raises:
        BadInput: says which encoding acts where, and which ones work.
    """
    faults = [
        f"encoding {name!r} acts on {CATALOG[name].place}, which only attention has; without attention use one of: "
        f"{', '.join(n for n in CATALOG if _works(n))}, or architecture 'transformer'"
        for name in names_of(encoding)
        if not _works(name)
    ]
    if len(pattern_of(encoding)) > 1:
        faults.append(
            f"encoding {encoding!r} takes turns over layers with attention; without attention name one for all"
        )
    if faults:
        raise BadInput(faults)


def _works(name: str) -> bool:
    return issubclass(CATALOG[name], OnEmbeddings | ReplacesEmbedding | NoEncoding)
