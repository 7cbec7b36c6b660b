"""Convert checkpoints of the papers' own code to Hugging Face folders; nothing in them is imported or called."""

from wordorder.checkpoints.lamemo import convert_lamemo
from wordorder.checkpoints.to_reference import to_reference_names
from wordorder.checkpoints.transformer_xl import convert_transformer_xl
from wordorder.checkpoints.tupe import ConversionReport, convert_tupe

__all__ = ["ConversionReport", "convert_lamemo", "convert_transformer_xl", "convert_tupe", "to_reference_names"]
