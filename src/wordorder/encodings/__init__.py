"""Positional encodings, one file per published encoding; `CATALOG` maps names to classes.

Everything imported here is public. There is no `__all__`: type checkers read one only where it is written out, and the
classes of the catalogue are not written here again.
"""

from wordorder.encodings.build import Use as Use
from wordorder.encodings.build import WithMemory as WithMemory
from wordorder.encodings.build import build_encoding as build_encoding
from wordorder.encodings.build import options_of as options_of
from wordorder.encodings.build import split_options as split_options
from wordorder.encodings.catalog import *  # noqa: F403 - CATALOG and the classes in it
from wordorder.encodings.complex_order import ComplexOrderEmbedding as ComplexOrderEmbedding
from wordorder.encodings.complex_vanilla import ComplexVanillaEmbedding as ComplexVanillaEmbedding
from wordorder.encodings.composition import Composition as Composition
from wordorder.encodings.composition import encoding_parameters as encoding_parameters
from wordorder.encodings.pattern import LayerKind as LayerKind
from wordorder.encodings.pattern import canonical_name as canonical_name
from wordorder.encodings.pattern import names_in as names_in
from wordorder.encodings.pattern import names_of as names_of
from wordorder.encodings.pattern import pattern_of as pattern_of
from wordorder.encodings.places import ContentTerm as ContentTerm
from wordorder.encodings.places import Encoding as Encoding
from wordorder.encodings.places import Move as Move
from wordorder.encodings.places import OnDistance as OnDistance
from wordorder.encodings.places import OnEmbeddings as OnEmbeddings
from wordorder.encodings.places import OnQueriesAndKeys as OnQueriesAndKeys
from wordorder.encodings.places import OnScores as OnScores
from wordorder.encodings.places import OnScoresByContent as OnScoresByContent
from wordorder.encodings.places import ReplacesEmbedding as ReplacesEmbedding
from wordorder.encodings.places import Rotation as Rotation
from wordorder.encodings.places import Shift as Shift
from wordorder.encodings.registration import Source as Source
from wordorder.encodings.registration import register_encoding as register_encoding
from wordorder.encodings.registration import registered_encodings as registered_encodings
from wordorder.encodings.terms import LayerTerms as LayerTerms
from wordorder.encodings.terms import Terms as Terms
