"""Checkpoints of the papers' own code, made into Hugging Face folders; nothing in them is imported or called."""

from wordorder.checkpoints.to_reference import to_reference_names
from wordorder.checkpoints.tupe import ConversionReport, convert_tupe

__all__ = ["ConversionReport", "convert_tupe", "to_reference_names"]
