"""Layers and networks of complex numbers, held as pairs of real tensors or side by side, ``[real | imag]``."""

from wordorder.networks.complex_valued.attention import ComplexCrossAttention as ComplexCrossAttention
from wordorder.networks.complex_valued.attention import ComplexSelfAttention as ComplexSelfAttention
from wordorder.networks.complex_valued.attention import ModulusScores as ModulusScores
from wordorder.networks.complex_valued.encoder import ComplexDecoder as ComplexDecoder
from wordorder.networks.complex_valued.encoder import ComplexEncoder as ComplexEncoder
from wordorder.networks.complex_valued.layers import ComplexLayer as ComplexLayer
from wordorder.networks.complex_valued.layers import ComplexLayerNorm as ComplexLayerNorm
from wordorder.networks.complex_valued.layers import ComplexLinear as ComplexLinear
from wordorder.networks.complex_valued.layers import ComplexRMSNorm as ComplexRMSNorm
from wordorder.networks.complex_valued.layers import ModReLU as ModReLU
from wordorder.networks.complex_valued.layers import PhaseDropout as PhaseDropout
from wordorder.networks.complex_valued.options import COMPLEX_EMBEDDINGS as COMPLEX_EMBEDDINGS
from wordorder.networks.complex_valued.options import COMPLEX_OPTIONS as COMPLEX_OPTIONS
from wordorder.networks.complex_valued.options import ComplexFeedForward as ComplexFeedForward
from wordorder.networks.complex_valued.options import ComplexKeywords as ComplexKeywords
from wordorder.networks.complex_valued.options import ComplexOptions as ComplexOptions
