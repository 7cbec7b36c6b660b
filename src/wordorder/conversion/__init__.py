"""Convert checkpoints of the papers' own code to Hugging Face folders; nothing in them is imported or called."""

from wordorder.conversion.to_reference import to_reference_names
from wordorder.conversion.transformer_xl import convert_lamemo, convert_transformer_xl
from wordorder.conversion.tupe import ConversionReport, convert_tupe

__all__ = ["ConversionReport", "convert_lamemo", "convert_transformer_xl", "convert_tupe", "to_reference_names"]
