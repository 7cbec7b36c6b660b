"""Prepare the data of a recipe: `[data]`, `[task]` and `[tokenizer]` become datasets that a trainer can use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.cache import default_cache_dir
from wordorder.data.duplicates import check_leakage
from wordorder.data.examples.datasets import PreparedData
from wordorder.data.generated import GENERATED
from wordorder.data.reading_log import LEFT_OUT, ReadingLog
from wordorder.data.settings import SPLITS, DataSettings, TokenizerConfig
from wordorder.data.sources import find_parts
from wordorder.data.split import Split, TrainingTexts, divide, undivided
from wordorder.data.table import Integers, Texts, read_texts
from wordorder.data.tokenizers import adds_special_tokens, load_tokenizer
from wordorder.data.tokens import Tokens, encode_column
from wordorder.errors import BadInput
from wordorder.streams import progress_bar
from wordorder.tasks.catalog import TASKS, task_faults
from wordorder.tasks.task import Corpus, Task, TaskOptions, unknown_fraction

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


MOST_UNSAID_UNKNOWN, MOST_UNKNOWN = 0.01, 0.5
"""Share of [UNK] among the tokens of a split from which on it is said, and from which on it is refused."""

MOST_CLASSES = 100
"""Classes whose numbers are told."""

MOST_SMALL = 2**25
"""Bytes of the source's files up to which `prepare_small` prepares them."""


def read(
    data: DataSettings,
    options: TaskOptions,
    log: ReadingLog | None = None,
    *,
    cache_dir: Path | None = None,
    to_learn: bool = True,
) -> Texts:
    """Read all texts of the source; see `read_texts`.

    Args:
        log: takes what cannot be read, and notes on labels; None: nobody wants to know.
        cache_dir: None: $WORDORDER_CACHE or ~/.cache/wordorder.
        to_learn: refuse labels from which nothing can be learned; False: a trained model is scored on them.

    Raises:
        BadInput, MissingExtra: as `find_parts` and `read_texts`; or nothing can be learned from the labels.
    """
    log, task = ReadingLog(skip=data.skip_unreadable) if log is None else log, TASKS[options.name]
    columns = task.columns(data, options)
    parts = find_parts(data, columns, log)
    texts = read_texts(parts, data, columns, log, cache_dir=cache_dir or default_cache_dir())
    if task.labels and to_learn:
        labels = list(texts.strings("label"))
        if faults := task.label_faults(labels, _of_training(texts), data, options):
            raise BadInput(faults)
    if to_learn:
        log.notes += task.notes(texts, options)
    return texts


def split(texts: Texts, data: DataSettings, options: TaskOptions) -> Split:
    """Split texts into train, validation and test; see `divide`.

    Raises:
        BadInput: as `divide`; or what is left of the texts has labels that the task refuses.
    """
    task = TASKS[options.name]
    parts = divide(texts, data, task.columns(data, options))
    limited = data.limit_documents is not None and data.limit_documents < len(texts)
    if task.labels and (parts.dropped_duplicates or limited):
        # labels that were right before some texts were left out
        rows = np.unique(np.concatenate([parts.train, parts.validation, parts.test]))
        faults = task.label_faults(list(texts.strings("label", rows)), _of_training(texts)[rows], data, options)
        dropped = parts.dropped_duplicates
        reasons = [f"{dropped} {'copy was' if dropped == 1 else 'copies were'} dropped"] if dropped else []
        if data.limit_documents is not None:
            reasons.append("data.limit_documents kept some only: raise it")
        if faults:
            raise BadInput([f"{fault} ({'; '.join(reasons)})" for fault in faults])
    return parts


def _of_training(texts: Texts) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    return texts.numbers("split") <= SPLITS.index("train")  # or of no split


def prepare(
    data: DataSettings,
    options: TaskOptions,
    tokenizer: TokenizerConfig,
    *,
    seed: int,
    cache_dir: Path | None = None,
    whole: bool = False,
) -> PreparedData:
    """Read, split, train the tokeniser on train alone, encode, and make the datasets.

    Args:
        data: the texts; their length must be set.
        options: the task, such as `MaskedLMOptions()`.
        seed: the run's seed, of the training masks. The split and the masks of validation and test come from data.seed.
        cache_dir: where texts, trained tokenisers and tokens are kept; None: $WORDORDER_CACHE or ~/.cache/wordorder.
        whole: all texts are the test, and nothing is trained on them: neither split nor labels are checked. An existing
            tokeniser is needed.

    Raises:
        BadInput: one line per fault of the data, or most of its tokens are [UNK]; nothing was written but the cache.
        MissingExtra: a package that the source or the tokeniser needs is not installed.
    """
    if data.length is None:
        raise BadInput("data.length is not set: give the tokens per example")
    faults = task_faults(data, options, tokenizer)
    if faults:
        raise BadInput(faults)
    task = TASKS[options.name]
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    log = ReadingLog(skip=data.skip_unreadable)
    texts = read(data, options, log, cache_dir=cache_dir, to_learn=not whole)
    divided = undivided(texts, data, task.columns(data, options)) if whole else split(texts, data, options)
    parts = {name: rows for name, rows in divided.parts().items() if len(rows)}
    check_leakage(texts, divided, data, log)
    trained = _tokenizer(tokenizer, texts, divided, cache_dir)
    if task.masks_tokens and trained.mask_token is None:
        raise BadInput(f"tokenizer.path {tokenizer.path} has no mask_token, which task {task.name} needs")
    if trained.pad_token_id in (trained.eos_token_id, trained.sep_token_id):
        log.notes.append(f"the tokenizer has no token for padding: {trained.pad_token}, its end token, pads")
    # examples have no segment ids, and so the tokenizer that is saved with the model gives none
    saved: Any = trained  # whose settings transformers types in part only
    saved.model_input_names = saved.init_kwargs["model_input_names"] = ["input_ids", "attention_mask"]
    if not options.in_lanes:  # a text in lanes may be of any length
        trained.model_max_length = data.length
    tokens = _tokens(texts, parts, trained, sentences=task.cuts_at_sentences, cache_dir=cache_dir)
    ids = list(trained.get_vocab().values())
    special = np.ones(max(ids) + 1, np.bool_)
    special[ids] = False
    special[trained.all_special_ids] = True
    corpus = Corpus(
        data=data,
        length=data.length,
        tokenizer=trained,
        texts=texts,
        parts=parts,
        tokens=tokens["text"],
        pair_tokens=tokens.get("pair", {}),
        special=special,
        dropped_duplicates=divided.dropped_duplicates,
    )
    _check_unknown(corpus, task, log, finished=tokenizer.kind == "existing")
    if data.generated is not None and not options.in_lanes:
        _check_room(corpus, task, trained)
    prepared = task.prepare(corpus, options, seed)
    reported = "test" if "test" in parts else "validation"
    lengths = () if data.generated is None else tuple(texts.numbers("length")[parts[reported]].tolist())
    left_out = {LEFT_OUT: log.summary()[LEFT_OUT]["files"]} if log.number(LEFT_OUT) else {}
    for name, counts in _classes(corpus, task).items():
        prepared.statistics[name]["classes"] = counts
    prepared = replace(
        prepared,
        reported=corpus.tokens[reported],
        reported_lengths=lengths,
        log=log,
        statistics={**prepared.statistics, **left_out},
    )
    # one object, so that whoever scores all parts does not score this one twice
    return replace(prepared, validation=prepared.test) if divided.validation is divided.test else prepared


def _tokenizer(config: TokenizerConfig, texts: Texts, divided: Split, cache_dir: Path) -> "PreTrainedTokenizerFast":
    with progress_bar("Training the tokenizer, texts") as progress:
        return load_tokenizer(config, TrainingTexts(texts, divided, progress), cache_dir=cache_dir)


def _classes(corpus: Corpus, task: Task[Any]) -> dict[str, dict[str, int]]:
    """Return how often each class is there in each split, or each answer of a task that has few: the most frequent."""
    drawn = GENERATED.get(corpus.data.generated or "")
    column = "label" if task.labels == "class" else "pair" if drawn is not None and drawn.answers else None
    if column is None:
        return {}
    parts = corpus.parts.items()
    return {name: dict(Counter(corpus.texts.strings(column, rows)).most_common(MOST_CLASSES)) for name, rows in parts}


def _tokens(
    texts: Texts,
    parts: Mapping[str, Integers],
    tokenizer: "PreTrainedTokenizerFast",
    *,
    sentences: bool,
    cache_dir: Path,
) -> dict[str, dict[str, Tokens]]:
    """Return the tokens of texts, and of pairs where there are any, of each split."""
    columns = ("text", "pair") if texts.has_pairs else ("text",)
    with progress_bar("Encoding, texts") as progress:
        return {
            column: {
                name: encode_column(
                    texts, column, rows, tokenizer, sentences=sentences, cache_dir=cache_dir, progress=progress
                )
                for name, rows in parts.items()
            }
            for column in columns
        }


def unknown_note(shares: Mapping[str, float], *, finished: bool) -> str:
    """Return a sentence on each share of [UNK] that costs scores, or "" where none does.

    Args:
        shares: kind of text -> share of its tokens that are [UNK].
        finished: the tokenizer learns nothing more, so that the texts must suit it.
    """
    shown = ", ".join(f"{share:.1%} of the {what}" for what, share in shares.items() if share > MOST_UNSAID_UNKNOWN)
    if not shown:
        return ""
    remedy = 'raise tokenizer.vocab_size, or take tokenizer.kind="bpe" or "byte", which know every letter'
    if finished:
        remedy = "give texts of the language that it learned, or take a model that learned theirs"
    return f"[UNK] stands for tokens that the tokenizer does not know: {shown}; {remedy}"


def _check_unknown(corpus: Corpus, task: Task[Any], log: ReadingLog, *, finished: bool) -> None:
    second = "translations" if task.translates else "second texts"
    shares = {f"texts of {name}": unknown_fraction(tokens) for name, tokens in corpus.tokens.items()}
    shares |= {f"{second} of {name}": unknown_fraction(tokens) for name, tokens in corpus.pair_tokens.items()}
    fault = unknown_note(shares, finished=finished)
    if not fault:
        return
    if max(shares.values()) > MOST_UNKNOWN:
        raise BadInput(fault)
    log.notes.append(fault)


def _check_room(corpus: Corpus, task: Task[Any], tokenizer: "PreTrainedTokenizerFast") -> None:
    data = corpus.data
    texts, answers = (
        max((int(part.sizes.max(initial=0)) for part in parts.values()), default=0)
        for parts in (corpus.tokens, corpus.pair_tokens)
    )
    if task.translates:
        needed = max(texts + 2, answers + 1)
    elif corpus.pair_tokens:
        sizes = [corpus.tokens[name].sizes + answered.sizes for name, answered in corpus.pair_tokens.items()]
        needed = int(np.concatenate(sizes).max()) + 3  # [CLS] text [SEP] answer [SEP]
    else:
        needed = texts + 2 * adds_special_tokens(tokenizer)
    if needed > corpus.length:
        raise BadInput(
            f"data.length {corpus.length} is too short for {data.source}: its longest example has {needed} tokens; set "
            f"data.length and model.max_position_embeddings to {needed} at least, or lower data.test_lengths"
        )


def prepare_small(
    data: DataSettings, options: TaskOptions, tokenizer: TokenizerConfig, *, cache_dir: Path | None = None
) -> PreparedData | None:
    """Return what `prepare` does where that takes seconds; None for more text.

    It takes seconds for a generated task, and for files of this machine that have `MOST_SMALL` bytes in all.

    Raises:
        BadInput, MissingExtra: as `prepare`, where it is called; as `find_parts` else.
    """
    return prepare(data, options, tokenizer, seed=data.seed, cache_dir=cache_dir) if _is_small(data, options) else None


def small_vocabulary(data: DataSettings, options: TaskOptions, tokenizer: TokenizerConfig) -> int | None:
    """Return the number of tokens that training would have, where `prepare_small` prepares.

    Nothing is encoded, so faults that `prepare` finds by tokens are not found.
    """
    if not _is_small(data, options):
        return None
    cache_dir = default_cache_dir()
    texts = read(data, options, cache_dir=cache_dir)
    trained = _tokenizer(tokenizer, texts, split(texts, data, options), cache_dir)
    return 1 + max(trained.get_vocab().values())


def _is_small(data: DataSettings, options: TaskOptions) -> bool:
    if any(str(source).startswith("hub:") for source in (data.source, data.validation_source, data.test_source)):
        return False  # of any size, and perhaps yet to be loaded
    if data.generated is not None:
        return True
    log = ReadingLog(skip=data.skip_unreadable)
    stamps = [part.stamp for part in find_parts(data, TASKS[options.name].columns(data, options), log)]
    return None not in stamps and sum(size for stamp in stamps for _, size, _, _ in stamp or ()) <= MOST_SMALL
