"""Prepare or describe the data of a recipe: `[data]` and `[tokenizer]` become datasets that a trainer can use."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wordorder.data.cache import default_cache_dir
from wordorder.data.corpora.read import find_files, kind_of
from wordorder.data.documents import DataConfig, read_and_count, token_faults
from wordorder.data.examples.datasets import PreparedData
from wordorder.data.examples.encode import encode_documents
from wordorder.data.reading_log import LEFT_OUT, ReadingLog
from wordorder.data.same_text import Duplicates, HeldOut, check_leakage
from wordorder.data.settings import LANES, NONE, TokenizerConfig, generated_task
from wordorder.data.split import Split, split_documents, training_texts
from wordorder.data.tokenizers.tokenizer import adds_special_tokens, characters, fixed_vocab_size, load_tokenizer
from wordorder.errors import BadInput, MissingExtra
from wordorder.streams import progress_bar
from wordorder.tasks import TASKS, Corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


MOST_UNSAID_UNKNOWN, MOST_UNKNOWN = 0.01, 0.5
"""Share of [UNK] among the tokens of a split from which on it is said, and from which on it is refused."""

MOST_COUNTED = 32 * 2**20
"""Bytes of the source's files up to which `exact_vocab_size` reads them."""


def prepare(data: DataConfig, tokenizer: TokenizerConfig, *, seed: int, cache_dir: Path | None = None) -> PreparedData:
    """Read, split, train the tokeniser on train alone, encode, and make the datasets.

    Args:
        data: the corpus and the task; its length must be set.
        seed: the run's seed, of the training masks. The split and the masks of validation and test come from data.seed.
        cache_dir: where trained tokenisers and encoded texts are kept; None: $WORDORDER_CACHE or ~/.cache/wordorder.

    Raises:
        BadInput: one line per fault of the data, or most of its tokens are [UNK]; nothing was written but the cache.
        MissingExtra: a package that the source or the tokeniser needs is not installed.
    """
    if data.length is None:
        raise BadInput("data.length is not set: give the tokens per example")
    faults = token_faults(data, tokenizer)
    if faults:
        raise BadInput(faults)
    task = TASKS[data.task]
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    log = ReadingLog(skip=data.skip_unreadable)
    documents, dropped_empty = read_and_count(data, log)
    split = split_documents(documents, data)
    parts = {name: part for name, part in split.parts().items() if part}
    held_out = HeldOut({name: part for name, part in parts.items() if name != "train"})
    check_leakage(split.train, held_out, data, log)
    trained = load_tokenizer(tokenizer, training_texts(split), cache_dir=cache_dir)
    if task.masks_tokens and trained.mask_token is None:
        raise BadInput(f"tokenizer.path {tokenizer.path} has no mask_token, which task {task.name} needs")
    if trained.pad_token_id in (trained.eos_token_id, trained.sep_token_id):
        log.notes.append(f"the tokenizer has no token for padding: {trained.pad_token}, its end token, pads")
    # examples have no segment ids, and so the tokenizer that is saved with the model gives none
    saved: Any = trained  # whose settings transformers types in part only
    saved.model_input_names = saved.init_kwargs["model_input_names"] = ["input_ids", "attention_mask"]
    if data.packing != LANES:  # a text in lanes may be of any length
        trained.model_max_length = data.length
    with progress_bar("Encoding") as progress:
        encoded = {
            name: encode_documents([d.text for d in part], trained, cache_dir=cache_dir, progress=progress)
            for name, part in parts.items()
        }
        encoded_pairs = {
            name: encode_documents([d.pair or "" for d in part], trained, cache_dir=cache_dir, progress=progress)
            for name, part in (parts.items() if data.pair_column or task.has_answers(data) else ())
        }
    known = list(trained.get_vocab().values())
    special = np.ones(max(known) + 1, np.bool_)
    special[known] = False
    special[trained.all_special_ids] = True
    corpus = Corpus(
        data=data,
        length=data.length,
        tokenizer=trained,
        parts=parts,
        encoded=encoded,
        encoded_pairs=encoded_pairs,
        special=special,
        dropped_empty=dropped_empty,
        dropped_duplicates=split.dropped_duplicates,
    )
    _check_unknown(corpus, log, finished=tokenizer.kind == "existing")
    if data.generated is not None and data.packing != LANES:
        _check_room(corpus, trained)
    prepared = task.prepare(corpus, seed)
    reported = "test" if split.test else "validation"
    lengths = () if data.generated is None else tuple(document.length or 0 for document in parts[reported])
    passed_over = {LEFT_OUT: log.summary()[LEFT_OUT]["files"]} if log.number(LEFT_OUT) else {}
    prepared = replace(
        prepared,
        reported=encoded[reported],
        reported_lengths=lengths,
        log=log,
        statistics={**prepared.statistics, **passed_over},
    )
    # one object, so that whoever scores all parts does not score this one twice
    return replace(prepared, validation=prepared.test) if split.validation is split.test else prepared


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


def _check_unknown(corpus: Corpus, log: ReadingLog, *, finished: bool) -> None:
    second = "translations" if TASKS[corpus.data.task].translates else "second texts"
    shares = {f"texts of {name}": corpus.unknown_fraction(part) for name, part in corpus.encoded.items()}
    shares |= {f"{second} of {name}": corpus.unknown_fraction(part) for name, part in corpus.encoded_pairs.items()}
    fault = unknown_note(shares, finished=finished)
    if not fault:
        return
    if max(shares.values()) > MOST_UNKNOWN:
        raise BadInput(fault)
    log.notes.append(fault)


def _check_room(corpus: Corpus, tokenizer: "PreTrainedTokenizerFast") -> None:
    data = corpus.data
    texts, answers = (
        max((int(np.diff(part.borders).max()) for part in parts.values()), default=0)
        for parts in (corpus.encoded, corpus.encoded_pairs)
    )
    if TASKS[data.task].translates:
        needed = max(texts + 2, answers + 1)
    elif corpus.encoded_pairs:
        sizes = [np.diff(corpus.encoded[n].borders) + np.diff(p.borders) for n, p in corpus.encoded_pairs.items()]
        needed = int(np.concatenate(sizes).max()) + 3  # [CLS] text [SEP] answer [SEP]
    else:
        needed = texts + 2 * adds_special_tokens(tokenizer)
    if needed > corpus.length:
        raise BadInput(
            f"data.length {corpus.length} is too short for {data.source}: its longest example has {needed} tokens; set "
            f"data.length and model.max_position_embeddings to {needed} at least, or lower data.test_lengths"
        )


def exact_vocab_size(data: DataConfig, tokenizer: TokenizerConfig) -> int | None:
    """Return the size of the vocabulary where it is cheap to know, or else None.

    Cheap are byte and existing, which no text decides, any of a generated task, and characters of a source on this
    machine that is small and not packed. A source that cannot be read gives None: `prepare` says what is wrong with it.

    Raises:
        BadInput, MissingExtra: as in `fixed_vocab_size`.
    """
    fixed = fixed_vocab_size(tokenizer)
    if fixed is None and data.generated is not None:
        texts = training_texts(split_documents(read_and_count(data)[0], data))
        vocabulary = load_tokenizer(tokenizer, texts, cache_dir=default_cache_dir()).get_vocab()
        return max(vocabulary.values()) + 1
    if fixed is not None or tokenizer.kind != "character":
        return fixed
    split = _small_split(data)
    return None if split is None else len(characters(training_texts(split), tokenizer))


def held_out_examples(data: DataConfig, tokenizer: TokenizerConfig) -> dict[str, int] | None:
    """Return about how many examples validation and test have, or None where it is not cheap to know.

    Of text that is cut into segments, a token is taken for one character, or for four where tokens are pieces of words.
    Cheap is what `exact_vocab_size` calls so.
    """
    if data.generated is not None:
        return None
    split = _small_split(data)
    if split is None:
        return None
    parts = {"validation": split.validation, "test": split.test}
    task = TASKS[data.task]
    if task.labels is not None or task.translates:
        return {name: len(documents) for name, documents in parts.items()}
    letters = (data.length or 1) * (1 if tokenizer.kind in ("character", "byte") else 4)
    return {name: -(-sum(len(document.text) for document in documents) // letters) for name, documents in parts.items()}


def _small_split(data: DataConfig) -> Split | None:
    try:
        return split_documents(read_and_count(data)[0], data) if _is_small(data) else None
    except (BadInput, MissingExtra, OSError):
        return None


def _is_small(data: DataConfig) -> bool:
    size = 0
    for name in ("", "validation_", "test_"):
        for option in (f"{name}source", f"{name}target_source"):
            source: str | None = getattr(data, option)
            if source in (None, NONE, "sotu") or generated_task(source) is not None:
                continue
            path = Path(source).expanduser()
            if source.startswith("hub:"):
                return False
            files = [path] if path.is_file() else find_files(f"data.{option}", source)[1]
            if any(kind_of(file).endswith((".gz", ".parquet")) for file in files):  # what they unpack to is not known
                return False
            size += sum(file.stat().st_size for file in files)
    return size <= MOST_COUNTED


def describe(
    data: DataConfig, tokenizer: TokenizerConfig, *, examples: int = 3, cache_dir: Path | None = None
) -> dict[str, Any]:
    """Count documents, tokens and lengths, and look for duplicates within and between splits.

    Args:
        tokenizer: trained on train, as for training.
        examples: to show for each pair of splits.

    Returns:
        splits: split -> documents, characters, words, tokens, unknown_fraction, and tokens_per_document, a table of
        min, median, 95%, max and mean. dropped_duplicates and dropped_empty as in `PreparedData.statistics`;
        passed_over, see `ReadingLog.summary`; vocab_size; and what `Duplicates.report` gives, without any texts for a
        generated task.

    Raises:
        BadInput: as `prepare`.
    """
    faults = token_faults(data, tokenizer)
    if faults:
        raise BadInput(faults)
    cache_dir = default_cache_dir() if cache_dir is None else cache_dir
    log, found = ReadingLog(skip=data.skip_unreadable), Duplicates()
    read, dropped_empty = read_and_count(data, log)
    split = split_documents(read, data)
    parts = {
        name: [f"{document.text} {document.pair or ''}".strip() for document in part]
        for name, part in split.parts().items()
        if part and not (name == "validation" and split.validation is split.test)
    }
    trained = load_tokenizer(tokenizer, training_texts(split), cache_dir=cache_dir)
    # generated texts are drawn apart, and all are nearly the same: strings of few words
    sought = found if data.generated is None else None
    splits = {name: _numbers(name, texts, trained, sought, cache_dir) for name, texts in parts.items()}
    return {
        "splits": splits,
        "dropped_duplicates": split.dropped_duplicates,
        "dropped_empty": dropped_empty,
        "passed_over": log.summary(),
        "vocab_size": len(trained),
        **found.report(examples=examples),
    }


def _numbers(
    name: str, texts: list[str], tokenizer: "PreTrainedTokenizerFast", found: Duplicates | None, cache_dir: Path
) -> dict[str, Any]:
    if found is not None:
        for text in texts:
            found.add(name, text)
    encoded = encode_documents(texts, tokenizer, cache_dir=cache_dir)
    tokens = np.diff(encoded.borders)
    unknown: object = tokenizer.unk_token_id  # None, which no token is, where there is no [UNK]
    values = np.percentile(tokens, [0, 50, 95, 100], method="lower").tolist() if len(tokens) else [0] * 4
    table = dict(zip(("min", "median", "95%", "max"), values, strict=True))
    return {
        "documents": len(tokens),
        "characters": sum(map(len, texts)),
        "words": sum(len(text.split()) for text in texts),
        "tokens": int(tokens.sum()),
        "unknown_fraction": float((encoded.ids == unknown).sum()) / max(1, len(encoded.ids)),
        "tokens_per_document": {**table, "mean": round(tokens.mean(), 1) if len(tokens) else 0.0},
    }
