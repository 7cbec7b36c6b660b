"""Word order, one file per published encoding; `CATALOG` maps names to classes."""

from wordorder.encodings.alibi import ALiBi
from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.complex_order import ComplexOrder, ComplexOrderEmbedding
from wordorder.encodings.complex_vanilla import ComplexVanilla, ComplexVanillaEmbedding
from wordorder.encodings.composition import (
    Composition,
    Use,
    WithMemory,
    build_encoding,
    names_of,
    options_of,
    split_options,
)
from wordorder.encodings.learned import Learned
from wordorder.encodings.none import NoEncoding
from wordorder.encodings.order import Order
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
from wordorder.encodings.rotary import LinearScaledRotary, NTKAwareRotary, Rotary, YaRNRotary
from wordorder.encodings.shaw import Shaw
from wordorder.encodings.sinusoidal import Sinusoidal
from wordorder.encodings.t5 import T5
from wordorder.encodings.transformer_xl import TransformerXL
from wordorder.encodings.tupe import TUPE, TUPERelative
from wordorder.encodings.untied_sum import UntiedSum

__all__ = [
    "CATALOG",
    "T5",
    "TUPE",
    "ALiBi",
    "ComplexOrder",
    "ComplexOrderEmbedding",
    "ComplexVanilla",
    "ComplexVanillaEmbedding",
    "Composition",
    "ContentScores",
    "Encoding",
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
    "Order",
    "ReplacesEmbedding",
    "Rotary",
    "Rotation",
    "Shaw",
    "Shift",
    "Sinusoidal",
    "TUPERelative",
    "TransformerXL",
    "UntiedSum",
    "Use",
    "WithMemory",
    "YaRNRotary",
    "build_encoding",
    "names_of",
    "options_of",
    "split_options",
]
