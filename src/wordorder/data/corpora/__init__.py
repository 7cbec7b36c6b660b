"""Readers of text corpora, a file per kind; `read.py` holds the dicts that name them."""

from wordorder.data.corpora.document import Document, Part, Row
from wordorder.data.corpora.read import FILE_ENDINGS, NAMED_READERS

__all__ = ["FILE_ENDINGS", "NAMED_READERS", "Document", "Part", "Row"]
