"""Convert checkpoints of the papers' own code to Hugging Face folders; nothing in them is imported or called."""

from wordorder.conversion.hugging_face_folder import ConversionReport
from wordorder.conversion.transformer_xl import convert_lamemo, convert_transformer_xl
from wordorder.conversion.tupe import convert_tupe, to_reference_names

__all__ = ["ConversionReport", "convert_lamemo", "convert_transformer_xl", "convert_tupe", "to_reference_names"]
