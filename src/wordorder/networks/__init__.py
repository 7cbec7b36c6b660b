"""Networks in plain torch: encoder, decoder and both together with any encoding, and the blocks they are made of."""

from wordorder.networks.adaptive import AdaptiveEmbedding, AdaptiveSoftmax
from wordorder.networks.cache import Cache, KeyValueCache
from wordorder.networks.complex_valued import ComplexDecoder, ComplexEncoder, ComplexOptions
from wordorder.networks.decoder import Decoder, DecoderOutput
from wordorder.networks.encoder import Encoder, EncoderOutput
from wordorder.networks.encoding_checks import Finding, check_encoding
from wordorder.networks.initialisation import initialise, initialise_module
from wordorder.networks.layer import DecoderLayer, EncoderLayer
from wordorder.networks.multi_head import CrossAttention, Extend, SelfAttention
from wordorder.networks.options import FeedForward, TransformerKeywords, TransformerOptions
from wordorder.networks.positional import Positional, PreparedPositions
from wordorder.networks.seq2seq import Seq2Seq, Seq2SeqOutput
from wordorder.networks.stack import Stack
from wordorder.networks.text.complex import (
    ComplexBagOfWords,
    ComplexTextConvolution,
    ComplexTextEmbedding,
    ComplexTextRecurrent,
)
from wordorder.networks.text.convolution import TextConvolution
from wordorder.networks.text.network import BagOfWords, TextEmbedding, TextNetwork, TextOutput, TextTransformer, pool
from wordorder.networks.text.recurrent import TextRecurrent

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "BagOfWords",
    "Cache",
    "ComplexBagOfWords",
    "ComplexDecoder",
    "ComplexEncoder",
    "ComplexOptions",
    "ComplexTextConvolution",
    "ComplexTextEmbedding",
    "ComplexTextRecurrent",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderOutput",
    "Encoder",
    "EncoderLayer",
    "EncoderOutput",
    "Extend",
    "FeedForward",
    "Finding",
    "KeyValueCache",
    "Positional",
    "PreparedPositions",
    "SelfAttention",
    "Seq2Seq",
    "Seq2SeqOutput",
    "Stack",
    "TextConvolution",
    "TextEmbedding",
    "TextNetwork",
    "TextOutput",
    "TextRecurrent",
    "TextTransformer",
    "TransformerKeywords",
    "TransformerOptions",
    "check_encoding",
    "initialise",
    "initialise_module",
    "pool",
]
