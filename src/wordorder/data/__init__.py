"""Text in, batches out: corpora, splits, tokenisers, segments, masking and the order of examples.

The names load when they are first used, so that reading a recipe (`DataConfig`) needs neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wordorder.data.corpora import Document
    from wordorder.data.documents import DataConfig, read_documents
    from wordorder.data.examples.collate import CollateLanes
    from wordorder.data.examples.datasets import PreparedData
    from wordorder.data.examples.lanes import Lanes, RunningText
    from wordorder.data.examples.order import EpochOrder, LengthGroupedEpochOrder
    from wordorder.data.preparation import exact_vocab_size, held_out_examples, prepare
    from wordorder.data.reading_log import ReadingLog
    from wordorder.data.settings import PACKINGS, TOKENIZER_KINDS, TokenizerConfig
    from wordorder.data.tokenizers.tokenizer import fixed_vocab_size, load_tokenizer

_NAMES = {
    "settings": ("TokenizerConfig", "TOKENIZER_KINDS", "PACKINGS"),
    "corpora": ("Document",),
    "documents": ("DataConfig", "read_documents"),
    "preparation": ("exact_vocab_size", "held_out_examples", "prepare"),
    "examples.datasets": ("PreparedData",),
    "examples.collate": ("CollateLanes",),
    "examples.lanes": ("Lanes", "RunningText"),
    "examples.order": ("EpochOrder", "LengthGroupedEpochOrder"),
    "reading_log": ("ReadingLog",),
    "tokenizers.tokenizer": ("fixed_vocab_size", "load_tokenizer"),
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
    "TokenizerConfig",
    "exact_vocab_size",
    "fixed_vocab_size",
    "held_out_examples",
    "load_tokenizer",
    "prepare",
    "read_documents",
]


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
