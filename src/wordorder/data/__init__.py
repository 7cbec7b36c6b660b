"""Text in, batches out: corpora, splits, tokenisers, segments, masking and the order of examples.

The names load when they are first used, so that reading a recipe (`DataConfig`) needs neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from wordorder.lazy import lazy_names

if TYPE_CHECKING:
    from wordorder.data.corpora import Document as Document
    from wordorder.data.documents import DataConfig as DataConfig
    from wordorder.data.documents import read_documents as read_documents
    from wordorder.data.examples.collate import CollateLanes as CollateLanes
    from wordorder.data.examples.datasets import PreparedData as PreparedData
    from wordorder.data.examples.lanes import Lanes as Lanes
    from wordorder.data.examples.lanes import RunningText as RunningText
    from wordorder.data.examples.order import EpochOrder as EpochOrder
    from wordorder.data.examples.order import LengthGroupedEpochOrder as LengthGroupedEpochOrder
    from wordorder.data.preparation import exact_vocab_size as exact_vocab_size
    from wordorder.data.preparation import held_out_examples as held_out_examples
    from wordorder.data.preparation import prepare as prepare
    from wordorder.data.reading_log import ReadingLog as ReadingLog
    from wordorder.data.settings import PACKINGS as PACKINGS
    from wordorder.data.settings import TOKENIZER_KINDS as TOKENIZER_KINDS
    from wordorder.data.settings import TokenizerConfig as TokenizerConfig
    from wordorder.data.tokenizers.tokenizer import fixed_vocab_size as fixed_vocab_size
    from wordorder.data.tokenizers.tokenizer import load_tokenizer as load_tokenizer

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

__getattr__, __dir__ = lazy_names(
    __name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
)
