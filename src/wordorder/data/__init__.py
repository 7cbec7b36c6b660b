"""Text in, batches out: corpora, splits, tokenisers, segments, masking and the order of examples.

The names load when they are first used, so that reading a recipe (`DataConfig`) needs neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wordorder.data.config import DataConfig
    from wordorder.data.corpora import Document
    from wordorder.data.documents import read_documents
    from wordorder.data.examples.collate import CollateLanes
    from wordorder.data.examples.lanes import Lanes, RunningText
    from wordorder.data.examples.order import EpochOrder, LengthGroupedEpochOrder, StreamOrder
    from wordorder.data.names import PACKINGS, TOKENIZER_KINDS
    from wordorder.data.preparation import exact_vocab_size, held_out_examples, prepare
    from wordorder.data.prepared import PreparedData
    from wordorder.data.quality.reading_log import ReadingLog
    from wordorder.data.settings import TokenizerConfig
    from wordorder.data.streaming import Sharing, TextStream
    from wordorder.data.tokenizers.tokenizer import fixed_vocab_size, load_tokenizer

_HOMES = {
    "DataConfig": "config",
    "TokenizerConfig": "settings",
    "TOKENIZER_KINDS": "names",
    "PACKINGS": "names",
    "Document": "corpora",
    "read_documents": "documents",
    "PreparedData": "prepared",
    "exact_vocab_size": "preparation",
    "held_out_examples": "preparation",
    "prepare": "preparation",
    "CollateLanes": "examples.collate",
    "Lanes": "examples.lanes",
    "RunningText": "examples.lanes",
    "EpochOrder": "examples.order",
    "LengthGroupedEpochOrder": "examples.order",
    "StreamOrder": "examples.order",
    "TextStream": "streaming",
    "Sharing": "streaming",
    "ReadingLog": "quality.reading_log",
    "fixed_vocab_size": "tokenizers.tokenizer",
    "load_tokenizer": "tokenizers.tokenizer",
}

__all__ = [
    "PACKINGS",
    "TOKENIZER_KINDS",
    "CollateLanes",
    "DataConfig",
    "Document",
    "EpochOrder",
    "Lanes",
    "LengthGroupedEpochOrder",
    "PreparedData",
    "ReadingLog",
    "RunningText",
    "Sharing",
    "StreamOrder",
    "TextStream",
    "TokenizerConfig",
    "exact_vocab_size",
    "fixed_vocab_size",
    "held_out_examples",
    "load_tokenizer",
    "prepare",
    "read_documents",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
