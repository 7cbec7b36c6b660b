"""The parts that all networks from a text to features share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.text.embedding import TextEmbedding
from wordorder.networks.text.pooling import pool
from wordorder.ops import PositionsLike

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


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


class TextBody(nn.Module, ABC):
    """The part of a text network that turns embeddings into one vector per text.

    Args:
        features: channels of that vector, F.
    """

    def __init__(self, *, features: int) -> None:
        super().__init__()
        self.features = features

    @abstractmethod
    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Map embeddings (B, T, C), exactly 0 where ``key_padding_mask`` is True, to features (B, F)."""


class TextNetwork(nn.Module):
    """Token ids -> embeddings with word order in them -> one vector per text.

    >>> import torch
    >>> from wordorder.networks import BagOfWords, TextEmbedding, TextNetwork
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


def check_activation(name: str) -> str:
    """Return the name if it is that of an activation that acts on each number alone.

    Raises:
        ValueError: it is not; "swiglu" needs two numbers for one.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return name


def activate(name: str, x: Tensor) -> Tensor:
    """Apply the activation to each number, any shape."""
    return ACTIVATIONS[name](x)


class BagOfWords(TextBody):
    """The mean of the vectors of a text's tokens; a linear layer on it is Fasttext's classifier.

    Joulin et al. 2017, "Bag of tricks for efficient text classification", https://arxiv.org/abs/1607.01759, Sec. 2::

        features = 1/n sum_t x_t

    The result is the same for every order of the words unless word and position meet in a product, as in complex-order
    embeddings: position vectors that are added to the embeddings have a sum that depends on the length alone.

    Args:
        width: channels of the embeddings, and features per text, C.
    """

    def __init__(self, width: int) -> None:
        super().__init__(features=width)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        """Take the mean of tokens, (B, T, C) -> features (B, C)."""
        return TextOutput(pool("mean", x_BTC, key_padding_mask=key_padding_mask), x_BTC)
