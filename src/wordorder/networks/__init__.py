"""Networks in plain torch: encoder, decoder and both together with any encoding, and the blocks they are made of."""

from typing import TYPE_CHECKING

from wordorder.networks.initialisation import initialise as initialise
from wordorder.networks.initialisation import initialise_module as initialise_module
from wordorder.networks.layer import DecoderLayer as DecoderLayer
from wordorder.networks.layer import EncoderLayer as EncoderLayer
from wordorder.networks.multi_head import SelfAttention as SelfAttention
from wordorder.networks.options import FeedForward as FeedForward
from wordorder.networks.options import TransformerKeywords as TransformerKeywords
from wordorder.networks.options import TransformerOptions as TransformerOptions
from wordorder.networks.stack import Stack as Stack
from wordorder.registry import lazy_names

if TYPE_CHECKING:
    from wordorder.networks.cache import Cache as Cache
    from wordorder.networks.cache import KeyValueCache as KeyValueCache
    from wordorder.networks.complex_valued import ComplexDecoder as ComplexDecoder
    from wordorder.networks.complex_valued import ComplexEncoder as ComplexEncoder
    from wordorder.networks.complex_valued import ComplexOptions as ComplexOptions
    from wordorder.networks.cross_attention import CrossAttention as CrossAttention
    from wordorder.networks.decoder import Decoder as Decoder
    from wordorder.networks.decoder import DecoderOutput as DecoderOutput
    from wordorder.networks.encoder import Encoder as Encoder
    from wordorder.networks.encoder import EncoderOutput as EncoderOutput
    from wordorder.networks.encoding_checks import Finding as Finding
    from wordorder.networks.encoding_checks import check_encoding as check_encoding
    from wordorder.networks.memory_checks import check_memory as check_memory
    from wordorder.networks.multihead_attention import MultiheadAttention as MultiheadAttention
    from wordorder.networks.positional import Positional as Positional
    from wordorder.networks.positional import Prepared as Prepared
    from wordorder.networks.seq2seq import Seq2Seq as Seq2Seq
    from wordorder.networks.seq2seq import Seq2SeqOutput as Seq2SeqOutput

_MODULES = {
    "Cache": "wordorder.networks.cache",
    "KeyValueCache": "wordorder.networks.cache",
    "CrossAttention": "wordorder.networks.cross_attention",
    "ComplexDecoder": "wordorder.networks.complex_valued",
    "ComplexEncoder": "wordorder.networks.complex_valued",
    "ComplexOptions": "wordorder.networks.complex_valued",
    "Decoder": "wordorder.networks.decoder",
    "DecoderOutput": "wordorder.networks.decoder",
    "Encoder": "wordorder.networks.encoder",
    "EncoderOutput": "wordorder.networks.encoder",
    "Finding": "wordorder.networks.encoding_checks",
    "check_encoding": "wordorder.networks.encoding_checks",
    "check_memory": "wordorder.networks.memory_checks",
    "MultiheadAttention": "wordorder.networks.multihead_attention",
    "Positional": "wordorder.networks.positional",
    "Prepared": "wordorder.networks.positional",
    "Seq2Seq": "wordorder.networks.seq2seq",
    "Seq2SeqOutput": "wordorder.networks.seq2seq",
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
