"""Text in, batches out: corpora, splits, tokenisers, segments, masking and the order of examples.

The names load when they are first used, so that reading a recipe needs neither torch nor transformers.
"""

from typing import TYPE_CHECKING

from wordorder.registry import lazy_names

if TYPE_CHECKING:
    from wordorder.data.examples.collate import CollateLanes as CollateLanes
    from wordorder.data.examples.datasets import PreparedData as PreparedData
    from wordorder.data.examples.lanes import Lanes as Lanes
    from wordorder.data.examples.lanes import RunningText as RunningText
    from wordorder.data.examples.order import EpochOrder as EpochOrder
    from wordorder.data.examples.order import LengthGroupedEpochOrder as LengthGroupedEpochOrder
    from wordorder.data.reading_log import ReadingLog as ReadingLog
    from wordorder.data.settings import TOKENIZER_KINDS as TOKENIZER_KINDS
    from wordorder.data.settings import DataSettings as DataSettings
    from wordorder.data.settings import TokenizerConfig as TokenizerConfig
    from wordorder.data.table import Text as Text
    from wordorder.data.table import Texts as Texts
    from wordorder.data.tokenizers import fixed_vocab_size as fixed_vocab_size
    from wordorder.data.tokenizers import load_tokenizer as load_tokenizer

_NAMES = {
    "settings": ("DataSettings", "TokenizerConfig", "TOKENIZER_KINDS"),
    "examples.datasets": ("PreparedData",),
    "examples.collate": ("CollateLanes",),
    "examples.lanes": ("Lanes", "RunningText"),
    "examples.order": ("EpochOrder", "LengthGroupedEpochOrder"),
    "reading_log": ("ReadingLog",),
    "table": ("Text", "Texts"),
    "tokenizers": ("fixed_vocab_size", "load_tokenizer"),
}

__getattr__, __dir__ = lazy_names(
    __name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
)
