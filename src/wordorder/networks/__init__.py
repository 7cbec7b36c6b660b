"""Networks in plain torch: an encoder that takes any encoding, and the blocks that it is made of."""

from wordorder.networks.blocks import FeedForward, SelfAttention
from wordorder.networks.encoder import Encoder, EncoderLayer, EncoderOutput
from wordorder.networks.initialisation import initialise, initialise_module

__all__ = [
    "Encoder",
    "EncoderLayer",
    "EncoderOutput",
    "FeedForward",
    "SelfAttention",
    "initialise",
    "initialise_module",
]
