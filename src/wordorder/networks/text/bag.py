"""Bag of words: the mean of a text's embeddings."""

from torch import Tensor

from wordorder.networks.text.network import TextBody, TextOutput
from wordorder.networks.text.pooling import pool


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
