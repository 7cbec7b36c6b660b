"""No word order at all: the network sees a bag of words (encoders) or what the causal mask tells (decoders)."""

from wordorder.encodings.places import Encoding


class NoEncoding(Encoding):
    """Adds nothing anywhere; the arm that says what word order is worth.

    Haviv et al. 2022, "Transformer language models without positional encodings still learn positional information",
    https://arxiv.org/abs/2203.16634, and Kazemnejad et al. 2023 (NoPE), https://arxiv.org/abs/2305.19466, for
    decoders. An encoder without an encoding is blind to order: permuting its tokens permutes its outputs.
    """

    paper = "Haviv et al. 2022, https://arxiv.org/abs/2203.16634"

    def __init__(self) -> None:  # nn.Module's own would take anything, and options are read off this signature
        super().__init__()
