"""The encoder and the decoder over complex layers: complex inside, real where heads read."""

from typing import Unpack

from torch import nn

from wordorder.networks.complex_valued.options import ComplexKeywords, ComplexOptions
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder


class ComplexEncoder(Encoder):
    """A bidirectional Transformer of complex numbers: complex-order embeddings, complex layers, real hidden states.

    Wang et al. 2020, "Encoding word order in complex embeddings", https://arxiv.org/abs/1912.12333.

    >>> import torch, wordorder
    >>> encoder = wordorder.ComplexEncoder(1000, width=64, layers=2, heads=4, encoding="complex-order+t5")
    >>> encoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    To an encoding, a complex network of C channels is a real one of 2C: tables, biases and rotations are sized so, and
    all backends of attention apply. Of ``all_hidden`` only the last is real; the others are stacked, (B, T, 2C).

    Args:
        vocabulary: number of token ids, V; positive.
        options: sizes and style as one value, in place of keywords.
        **keywords: fields of `ComplexOptions`: those of `TransformerOptions`, encoding="complex-order",
            shared_weights=False, read_out="linear" and so on. The encoding is "complex-order" or "complex-vanilla",
            alone or joined to others by "+"; in a pattern over the layers (see `build_encoding`), in every part.

    Raises:
        BadInput: unknown encoding or option, or no complex embedding.
        TypeError: an unknown keyword.
        ValueError: a size is out of range, or an unknown style.
    """

    def __init__(
        self, vocabulary: int, options: ComplexOptions | None = None, **keywords: Unpack[ComplexKeywords]
    ) -> None:
        super().__init__(vocabulary, ComplexOptions.of(type(self).__name__, options, keywords))


class ComplexDecoder(Decoder):
    """A causal Transformer of complex numbers; arguments as in `ComplexEncoder`, all others as in `Decoder`.

    >>> import torch, wordorder
    >>> decoder = wordorder.ComplexDecoder(1000, width=64, layers=2, heads=4)
    >>> decoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    The source that cross-attention reads is stacked, (B, S, 2C): that of a `ComplexEncoder` with ``read_out="none"``.
    """

    def __init__(
        self,
        vocabulary: int,
        options: ComplexOptions | None = None,
        *,
        cross_attention: bool = False,
        embedding: nn.Module | None = None,
        tied_head: bool = False,
        **keywords: Unpack[ComplexKeywords],
    ) -> None:
        options = ComplexOptions.of(type(self).__name__, options, keywords)
        super().__init__(vocabulary, options, cross_attention=cross_attention, embedding=embedding, tied_head=tied_head)
