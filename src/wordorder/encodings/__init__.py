"""Positional encodings, one file per published encoding; `CATALOG` maps names to classes.

Everything imported here is public. The classes of the catalogue load on first use: a network loads its own alone.
"""

from typing import TYPE_CHECKING

from wordorder.encodings.build import Use as Use
from wordorder.encodings.build import build_encoding as build_encoding
from wordorder.encodings.build import options_of as options_of
from wordorder.encodings.build import register_encoding as register_encoding
from wordorder.encodings.build import registered_encodings as registered_encodings
from wordorder.encodings.build import split_options as split_options
from wordorder.encodings.catalog import CATALOG as CATALOG
from wordorder.encodings.composition import Composition as Composition
from wordorder.encodings.composition import encoding_parameters as encoding_parameters
from wordorder.encodings.pattern import LayerKind as LayerKind
from wordorder.encodings.pattern import canonical_name as canonical_name
from wordorder.encodings.pattern import names_in as names_in
from wordorder.encodings.pattern import names_of as names_of
from wordorder.encodings.pattern import pattern_of as pattern_of
from wordorder.encodings.places import ContentTerm as ContentTerm
from wordorder.encodings.places import Encoding as Encoding
from wordorder.encodings.places import InputTerm as InputTerm
from wordorder.encodings.places import Move as Move
from wordorder.encodings.places import OnDenominator as OnDenominator
from wordorder.encodings.places import OnDistance as OnDistance
from wordorder.encodings.places import OnEmbeddings as OnEmbeddings
from wordorder.encodings.places import OnLayerInput as OnLayerInput
from wordorder.encodings.places import OnQueriesAndKeys as OnQueriesAndKeys
from wordorder.encodings.places import OnScores as OnScores
from wordorder.encodings.places import OnScoresByContent as OnScoresByContent
from wordorder.encodings.places import OnScoresByInput as OnScoresByInput
from wordorder.encodings.places import ReplacesEmbedding as ReplacesEmbedding
from wordorder.encodings.places import Rotation as Rotation
from wordorder.encodings.places import Shift as Shift
from wordorder.encodings.places import SinkTerm as SinkTerm
from wordorder.encodings.places import TokenFeatures as TokenFeatures
from wordorder.encodings.terms import LayerTerms as LayerTerms
from wordorder.encodings.terms import Terms as Terms
from wordorder.registry import Registered as Registered
from wordorder.registry import lazy_names

if TYPE_CHECKING:
    from wordorder.encodings.alibi import ALiBi as ALiBi
    from wordorder.encodings.complex_order import ComplexOrder as ComplexOrder
    from wordorder.encodings.complex_order import ComplexOrderEmbedding as ComplexOrderEmbedding
    from wordorder.encodings.complex_vanilla import ComplexVanilla as ComplexVanilla
    from wordorder.encodings.complex_vanilla import ComplexVanillaEmbedding as ComplexVanillaEmbedding
    from wordorder.encodings.cope import CoPE as CoPE
    from wordorder.encodings.dape import DAPE as DAPE
    from wordorder.encodings.deberta import DeBERTa as DeBERTa
    from wordorder.encodings.fire import FIRE as FIRE
    from wordorder.encodings.fox import Fox as Fox
    from wordorder.encodings.kerple import KERPLELog as KERPLELog
    from wordorder.encodings.kerple import KERPLEPower as KERPLEPower
    from wordorder.encodings.learned import Learned as Learned
    from wordorder.encodings.log_n import LogN as LogN
    from wordorder.encodings.none import NoEncoding as NoEncoding
    from wordorder.encodings.path import PaTH as PaTH
    from wordorder.encodings.pope import PoPE as PoPE
    from wordorder.encodings.relative_logits import RelativeLogits as RelativeLogits
    from wordorder.encodings.rope import DynamicRotary as DynamicRotary
    from wordorder.encodings.rope import LinearScaledRotary as LinearScaledRotary
    from wordorder.encodings.rope import Llama3Rotary as Llama3Rotary
    from wordorder.encodings.rope import LongRotary as LongRotary
    from wordorder.encodings.rope import NTKAwareRotary as NTKAwareRotary
    from wordorder.encodings.rope import Rotary as Rotary
    from wordorder.encodings.rope import YaRNRotary as YaRNRotary
    from wordorder.encodings.rope import from_rope_parameters as from_rope_parameters
    from wordorder.encodings.sandwich import Sandwich as Sandwich
    from wordorder.encodings.shaw import Shaw as Shaw
    from wordorder.encodings.shift import TokenShift as TokenShift
    from wordorder.encodings.sinusoidal import Sinusoidal as Sinusoidal
    from wordorder.encodings.softmax_sink import SoftmaxSink as SoftmaxSink
    from wordorder.encodings.t5 import T5 as T5
    from wordorder.encodings.transformer_xl import TransformerXL as TransformerXL
    from wordorder.encodings.tupe import TUPE as TUPE
    from wordorder.encodings.tupe import TUPERelative as TUPERelative
    from wordorder.encodings.untied_sum import UntiedSum as UntiedSum
    from wordorder.encodings.xpos import XPos as XPos

_MODULES = CATALOG.modules | {
    "from_rope_parameters": "wordorder.encodings.rope",
    "ComplexOrderEmbedding": "wordorder.encodings.complex_order",
    "ComplexVanillaEmbedding": "wordorder.encodings.complex_vanilla",
}
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
