"""No positional encoding: encoders see a bag of words, decoders only the order given by the causal mask."""

from wordorder.encodings.places import Encoding


class NoEncoding(Encoding):
    """Add nothing: the baseline without a positional encoding.

    Haviv et al. 2022, "Transformer language models without positional encodings still learn positional information",
    https://arxiv.org/abs/2203.16634, and Kazemnejad et al. 2023 (NoPE), https://arxiv.org/abs/2305.19466, for
    decoders. An encoder without an encoding is blind to order: permuting its tokens permutes its outputs.
    """

    purpose = "no positions, for comparison"
    paper = "Haviv et al. 2022, https://arxiv.org/abs/2203.16634"

    def __init__(self) -> None:  # nn.Module's own takes any argument, and options are read from this signature
        super().__init__()
