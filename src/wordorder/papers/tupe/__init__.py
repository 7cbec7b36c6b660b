"""TUPE (Ke et al. 2021): checkpoints of its code; `figure_2` and `parts` are loaded by their names alone."""

from wordorder.papers.folder import ConversionReport as ConversionReport
from wordorder.papers.tupe.convert import convert_tupe as convert_tupe
