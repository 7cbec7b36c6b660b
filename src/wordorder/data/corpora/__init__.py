"""Readers of text corpora. One file per format; `read.py` holds the two dicts that name them."""

from wordorder.data.corpora.document import Document, Part, Row
from wordorder.data.corpora.read import FILE_READERS, NAMED_READERS

__all__ = ["FILE_READERS", "NAMED_READERS", "Document", "Part", "Row"]
