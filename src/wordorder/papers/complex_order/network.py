"""Networks from a text to one vector: token ids to embeddings, a body, and the pooling of one vector per token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings import (
    CATALOG,
    NoEncoding,
    OnEmbeddings,
    ReplacesEmbedding,
    build_encoding,
    names_of,
    pattern_of,
)
from wordorder.encodings.places import check_positive
from wordorder.errors import BadInput
from wordorder.networks.complex_valued import ComplexLinear, PhaseDropout
from wordorder.networks.complex_valued.options import complex_encoding_options
from wordorder.networks.encoder import Encoder
from wordorder.networks.stack import check_given, check_left_padding, reads_positions
from wordorder.ops import Contiguous, PositionsLike, as_positions, pool, valid_tokens
from wordorder.ops.complex import modulus, split
from wordorder.ops.pooling import pool_tokens, without_padding, zero_if_empty


@dataclass(frozen=True)
class TextOutput:
    """The output of a text network.

    Args:
        features: one vector per text, (B, F); 0 for a text without tokens.
        hidden: one vector per token, (B, T, C): the last layer's where layers give one, else the embeddings.
        all_hidden: embeddings and every layer's output, if asked for.
        attentions: every layer's attention weights, if asked for.
    """

    features: Tensor
    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class TextEmbedding(nn.Module):
    """Embeddings of tokens, with the encodings that act on embeddings applied, exactly 0 where padding is.

    Args:
        vocabulary: number of token ids, V; positive.
        width: channels, C; positive.
        complex_valued: C complex channels, (B, T, 2C) as ``[real | imag]``; dropout keeps their phase. The encoding is
            then "complex-order" or "complex-vanilla", alone or joined to others.
        encoding: a name of the catalogue that acts on embeddings, or several joined by "+".
        encoding_options: options of the encoding; see `build_encoding`.
        max_positions: longest text in tokens, for encodings with a table.
        dropout: on the embeddings.
        padding_idx: token id whose embedding is 0 and stays 0.

    Raises:
        BadInput: unknown encoding or option, an encoding that needs attention, or no complex embedding.
        ValueError: a size is out of range.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int,
        complex_valued: bool = False,
        encoding: str = "none",
        encoding_options: Mapping[str, Any] | None = None,
        max_positions: int = 512,
        dropout: float = 0.0,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(vocabulary=vocabulary, width=width)
        check_without_attention(encoding)
        channels = 2 * width if complex_valued else width
        self.encoding = build_encoding(
            encoding,
            width=channels,
            heads=1,
            layers=1,
            max_positions=max_positions,
            options=complex_encoding_options(encoding, encoding_options) if complex_valued else encoding_options,
            vocabulary=vocabulary,
            padding_idx=padding_idx,
        )
        replacement = self.encoding.replacement
        self.embedding = replacement or nn.Embedding(vocabulary, channels, padding_idx=padding_idx)
        self.channels: int = self.embedding.embedding_dim
        self.dropout: nn.Module = PhaseDropout(dropout) if complex_valued else nn.Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return vectors (B, T, C); arguments and errors as in `TextNetwork.forward`."""
        ids_or_embeds = check_given(input_ids, inputs_embeds, self.embedding, self.channels)
        check_left_padding(self.encoding, positions, key_padding_mask)
        where = Contiguous(ids_or_embeds.shape[1]) if positions is None else as_positions(positions)
        valid_BT = valid_tokens(
            key_padding_mask, ids_or_embeds.shape[0], ids_or_embeds.shape[1], device=ids_or_embeds.device
        )
        if input_ids is None:
            x_BTC = ids_or_embeds
        elif reads_positions(self.embedding):
            x_BTC = self.embedding(input_ids, where)
        else:
            x_BTC = self.embedding(input_ids)
        return without_padding(self.dropout(self.encoding.embed(x_BTC, where)), valid_BT)


def check_without_attention(encoding: str) -> None:
    """Raise BadInput for encodings that act where only a network with attention has something to act on."""
    known = [name for name in CATALOG if issubclass(CATALOG[name], OnEmbeddings | ReplacesEmbedding | NoEncoding)]
    faults = [
        f"encoding {name!r} acts on {CATALOG[name].place}, which only attention has; without attention use one of: "
        f"{', '.join(known)}, or architecture 'transformer'"
        for name in names_of(encoding)
        if name not in known
    ]
    first, *others = pattern_of(encoding)
    if others or first.window:
        faults.append(
            f"encoding {encoding!r} says what layers of attention have; without attention name one for all, without '@'"
        )
    if faults:
        raise BadInput(faults)


class TextBody(nn.Module):
    """The part of a text network that turns embeddings into one vector per text.

    Its ``forward(x_BTC, key_padding_mask=None)`` maps embeddings (B, T, C), exactly 0 where ``key_padding_mask`` is
    True, to a `TextOutput`. Complex numbers are stacked, ``[real | imag]``, and read out by their modulus, as in Wang
    et al. 2020, https://arxiv.org/abs/1912.12333, Sec. 3.1.

    Args:
        features: channels of the vector of a text, F.
    """

    def __init__(self, *, features: int) -> None:
        super().__init__()
        self.features = features


class TextNetwork(nn.Module):
    """Token ids -> embeddings with word order in them -> one vector per text.

    >>> import torch
    >>> from wordorder.papers.complex_order import BagOfWords, TextEmbedding, TextNetwork
    >>> network = TextNetwork(TextEmbedding(1000, width=64, encoding="sinusoidal"), BagOfWords(64))
    >>> network(torch.randint(1000, (2, 16))).features.shape
    torch.Size([2, 64])

    Args:
        words: token ids to vectors.
        body: vectors to features.
    """

    def __init__(self, words: TextEmbedding, body: TextBody) -> None:
        super().__init__()
        self.words, self.body = words, body

    @property
    def features(self) -> int:
        """Channels of the vector per text, F."""
        return self.body.features

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> TextOutput:
        """Summarise texts.

        Args:
            input_ids: long (B, T).
            positions: where the tokens stand; typed, or a long tensor (B, T); default 0 .. T - 1 for every example.
                For rows padded on the left pass ``Contiguous(T, offset)`` with one (negative) offset per example.
            inputs_embeds: instead of input_ids, (B, T, C); encodings that add to embeddings are still applied.
            key_padding_mask: bool (B, T), True = padding, on either side; None = no padding.

        Raises:
            ValueError: neither or both of input_ids and inputs_embeds are given, or they are of a wrong kind or shape.
        """
        x_BTC = self.words(input_ids, positions, inputs_embeds=inputs_embeds, key_padding_mask=key_padding_mask)
        return self.body(x_BTC, key_padding_mask=key_padding_mask)


class TextTransformer(nn.Module):
    """An encoder's hidden states, and their mean as the text's features.

    Args:
        encoder: with any encoding of the catalogue.
        width: channels of its hidden states, and features per text, C.
    """

    def __init__(self, encoder: Encoder, width: int) -> None:
        super().__init__()
        self.encoder, self.features = encoder, width

    def forward(self, *inputs: Any, key_padding_mask: Tensor | None = None, **options: Any) -> TextOutput:
        """Summarise texts; arguments and errors as in `Encoder.forward`."""
        encoded = self.encoder(*inputs, key_padding_mask=key_padding_mask, **options)
        features_BC = pool("mean", encoded.hidden, key_padding_mask=key_padding_mask)
        return TextOutput(features_BC, encoded.hidden, encoded.all_hidden, encoded.attentions)


class BagOfWords(TextBody):
    """The mean of the vectors of a text's tokens; a linear layer on it is Fasttext's classifier.

    Joulin et al. 2017, "Bag of tricks for efficient text classification", https://arxiv.org/abs/1607.01759, Sec. 2::

        features = 1/n sum_t x_t

    The result is the same for every order of the words unless word and position meet in a product, as in complex-order
    embeddings: position vectors that are added to the embeddings have a sum that depends on the length alone.

    Of complex vectors with the mean ``x + iy`` a complex dense layer ``A + iB`` comes next (Wang et al. 2020, Eq. 10)::

        z = relu(A x - B y + b_r) + i relu(B x + A y + b_i),    features = |z|

    The paper's code has neither: it sums both parts and puts a real linear layer on them.

    Args:
        width: channels of the embeddings, and features per text, C.
        complex_valued: they are complex.
    """

    def __init__(self, width: int, *, complex_valued: bool = False) -> None:
        super().__init__(features=width)
        self.dense = ComplexLinear(width, width) if complex_valued else None

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Take the mean of tokens, (B, T, C or 2C) -> features (B, C)."""
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1], device=x_BTC.device)
        mean_BC = pool_tokens("mean", x_BTC, valid_BT)
        if self.dense is None:
            return TextOutput(mean_BC, x_BTC)
        z_BC = F.relu(self.dense(mean_BC))
        return TextOutput(zero_if_empty(modulus(split(z_BC)), valid_BT), x_BTC)
