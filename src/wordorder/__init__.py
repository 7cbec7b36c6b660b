"""Positional encodings and memory for Transformers.

    import torch, wordorder

    encoder = wordorder.Encoder(30_000, width=256, layers=4, heads=4, encoding="rope")
    hidden = encoder(torch.randint(30_000, (8, 128))).hidden  # (8, 128, 256)

In plain PyTorch: `Encoder`, `Decoder`, `Seq2Seq` and their complex-valued forms are whole networks; `Positional` adds
an encoding by name to the attention of your own network, and `MultiheadAttention` is torch's with one; `CATALOG` lists
the encodings; `SegmentRecurrence` and `LookAheadMemory` are memories; `attention` is attention with a bias. With
transformers: `wordorder.models`. Comparisons and training: `wordorder.comparison`, `wordorder.training`, or the command
`wordorder`.

Every name loads on first use (PEP 562): `import wordorder` is instant, the names of plain PyTorch load torch alone, and
only `wordorder.models` and what stands on it need transformers.
"""

from wordorder.registry import lazy_names

# As typing's, which would be loaded for it alone: until the command line listens, Ctrl-C prints a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from wordorder.attention import attention as attention
    from wordorder.encodings import CATALOG as CATALOG
    from wordorder.encodings import TUPE as TUPE
    from wordorder.encodings import ComplexOrderEmbedding as ComplexOrderEmbedding
    from wordorder.encodings import ComplexVanillaEmbedding as ComplexVanillaEmbedding
    from wordorder.errors import BadInput as BadInput
    from wordorder.errors import MissingExtra as MissingExtra
    from wordorder.errors import RunFailed as RunFailed
    from wordorder.errors import Stopped as Stopped
    from wordorder.errors import WordOrderError as WordOrderError
    from wordorder.memory import LookAheadMemory as LookAheadMemory
    from wordorder.memory import SegmentRecurrence as SegmentRecurrence
    from wordorder.networks import ComplexDecoder as ComplexDecoder
    from wordorder.networks import ComplexEncoder as ComplexEncoder
    from wordorder.networks import Decoder as Decoder
    from wordorder.networks import Encoder as Encoder
    from wordorder.networks import MultiheadAttention as MultiheadAttention
    from wordorder.networks import Positional as Positional
    from wordorder.networks import Seq2Seq as Seq2Seq

__version__ = "0.2.0"

EXPORTS: dict[str, str] = {
    "BadInput": "wordorder.errors",
    "CATALOG": "wordorder.encodings",
    "ComplexDecoder": "wordorder.networks",
    "ComplexEncoder": "wordorder.networks",
    "ComplexOrderEmbedding": "wordorder.encodings",
    "ComplexVanillaEmbedding": "wordorder.encodings",
    "Decoder": "wordorder.networks",
    "Encoder": "wordorder.networks",
    "LookAheadMemory": "wordorder.memory",
    "MissingExtra": "wordorder.errors",
    "MultiheadAttention": "wordorder.networks",
    "Positional": "wordorder.networks",
    "RunFailed": "wordorder.errors",
    "SegmentRecurrence": "wordorder.memory",
    "Seq2Seq": "wordorder.networks",
    "Stopped": "wordorder.errors",
    "TUPE": "wordorder.encodings",
    "WordOrderError": "wordorder.errors",
    # Once its folder is loaded, `wordorder.attention` is that folder; it is callable and calls the function in it.
    "attention": "wordorder.attention",
}
"""The module that defines each public name."""

FOLDERS: tuple[str, ...] = (
    "comparison", "data", "encodings", "errors", "inference", "inspection", "memory", "models", "networks", "ops",
    "papers", "training",
)  # fmt: skip
"""Submodules that load on first use as attributes: `wordorder.models` needs no import line of its own."""


__getattr__, __dir__ = lazy_names(__name__, EXPORTS, FOLDERS)
