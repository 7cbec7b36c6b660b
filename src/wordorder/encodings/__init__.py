"""Positional encodings, one file per published encoding; `CATALOG` maps names to classes."""

from wordorder.encodings.alibi import ALiBi
from wordorder.encodings.build import Use, WithMemory, build_encoding
from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.complex_order import ComplexOrder, ComplexOrderEmbedding
from wordorder.encodings.complex_vanilla import ComplexVanilla, ComplexVanillaEmbedding
from wordorder.encodings.composition import Composition, names_of, options_of, pattern_of, split_options
from wordorder.encodings.cope import CoPE
from wordorder.encodings.deberta import DeBERTa
from wordorder.encodings.fire import FIRE
from wordorder.encodings.hybrid import Hybrid
from wordorder.encodings.kerple import KERPLELog, KERPLEPower
from wordorder.encodings.learned import Learned
from wordorder.encodings.none import NoEncoding
from wordorder.encodings.places import (
    ContentScores,
    Encoding,
    Move,
    OnDistance,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    ReplacesEmbedding,
    Rotation,
    Shift,
)
from wordorder.encodings.position_terms import PositionTerms, PositionTermsByLayer
from wordorder.encodings.registration import Source, register_encoding, registered_encodings
from wordorder.encodings.rotary import LinearScaledRotary, NTKAwareRotary, Rotary, YaRNRotary
from wordorder.encodings.sandwich import Sandwich
from wordorder.encodings.shaw import Shaw
from wordorder.encodings.sinusoidal import Sinusoidal
from wordorder.encodings.t5 import T5
from wordorder.encodings.transformer_xl import TransformerXL
from wordorder.encodings.tupe import TUPE, TUPERelative
from wordorder.encodings.untied_sum import UntiedSum
from wordorder.encodings.xpos import XPos

__all__ = [
    "CATALOG",
    "FIRE",
    "T5",
    "TUPE",
    "ALiBi",
    "CoPE",
    "ComplexOrder",
    "ComplexOrderEmbedding",
    "ComplexVanilla",
    "ComplexVanillaEmbedding",
    "Composition",
    "ContentScores",
    "DeBERTa",
    "Encoding",
    "Hybrid",
    "KERPLELog",
    "KERPLEPower",
    "Learned",
    "LinearScaledRotary",
    "Move",
    "NTKAwareRotary",
    "NoEncoding",
    "OnDistance",
    "OnEmbeddings",
    "OnQueriesAndKeys",
    "OnScores",
    "OnScoresByContent",
    "PositionTerms",
    "PositionTermsByLayer",
    "ReplacesEmbedding",
    "Rotary",
    "Rotation",
    "Sandwich",
    "Shaw",
    "Shift",
    "Sinusoidal",
    "Source",
    "TUPERelative",
    "TransformerXL",
    "UntiedSum",
    "Use",
    "WithMemory",
    "XPos",
    "YaRNRotary",
    "build_encoding",
    "names_of",
    "options_of",
    "pattern_of",
    "register_encoding",
    "registered_encodings",
    "split_options",
]
