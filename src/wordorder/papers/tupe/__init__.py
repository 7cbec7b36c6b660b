"""TUPE (Ke et al. 2021): checkpoints of its code, and its names for the weights of a model."""

from wordorder.papers.folder import ConversionReport as ConversionReport
from wordorder.papers.tupe.convert import convert_tupe as convert_tupe
from wordorder.papers.tupe.convert import to_reference_names as to_reference_names
