"""Layers and networks of complex numbers, held as pairs of real tensors or side by side, ``[real | imag]``."""

from wordorder.networks.complex_valued.attention import ComplexCrossAttention, ComplexSelfAttention
from wordorder.networks.complex_valued.encoder import ComplexDecoder, ComplexEncoder
from wordorder.networks.complex_valued.layers import (
    ComplexConvolution,
    ComplexLayer,
    ComplexLayerNorm,
    ComplexLinear,
    ComplexRMSNorm,
    ModReLU,
    PhaseDropout,
)
from wordorder.networks.complex_valued.options import (
    COMPLEX_EMBEDDINGS,
    COMPLEX_OPTIONS,
    ComplexFeedForward,
    ComplexKeywords,
    ComplexOptions,
)
from wordorder.networks.complex_valued.recurrent import ComplexLSTM

__all__ = [
    "COMPLEX_EMBEDDINGS",
    "COMPLEX_OPTIONS",
    "ComplexConvolution",
    "ComplexCrossAttention",
    "ComplexDecoder",
    "ComplexEncoder",
    "ComplexFeedForward",
    "ComplexKeywords",
    "ComplexLSTM",
    "ComplexLayer",
    "ComplexLayerNorm",
    "ComplexLinear",
    "ComplexOptions",
    "ComplexRMSNorm",
    "ComplexSelfAttention",
    "ModReLU",
    "PhaseDropout",
]
