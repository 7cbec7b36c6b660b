"""The one encoder of training, evaluation and prediction, and the tokens of many texts as one array in the cache."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wordorder.data.cache import content_hash, new_file, note_of, write_note
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from wordorder.data.table import Texts

Ids = npt.NDArray[np.int32] | npt.NDArray[np.uint16]
Integers = npt.NDArray[np.int64]

_FORMAT = "1"  # of the file, of ids and of sentence borders: raise it when any of them changes
_BATCH = 2**22
"""Characters that are encoded together, between two reports of progress."""
_SHARD = 2**28
"""Characters of a shard; what is encoded of a text of several of them survives a run that is killed."""
_LONGEST = 2**20
"""Characters after which a longer text is encoded in pieces, each of whole sentences."""

# After . ! ? and a closing quote or bracket, before white space and anything but a small letter; after the full-width
# marks of Chinese and Japanese, which no space follows; and at blank lines.
_SENTENCE_BORDER = re.compile(
    r"""(?:(?<=[.!?])|(?<=[.!?]["')\]\u201d\u2019]))(?=\s+[^\sa-z])"""
    r"|(?<=[\u3002\uff01\uff1f])(?=[^\s\u3002\uff01\uff1f])"
    r"|(?<=\S)(?=[^\S\n]*\n\s*\n)"
)


def sentence_borders(text: str) -> list[int]:
    """Return the places between the sentences of a text; a sentence has the white space before it.

    A simple rule for scripts that end sentences with . ! ? or their full-width forms, and for blank lines. It also cuts
    after abbreviations before a capital ("Mr. Smith") and never inside text without punctuation. For packing neither
    does harm: a sentence is only a place where a segment may end.
    """
    return [match.start() for match in _SENTENCE_BORDER.finditer(text)]


class Encoded(NamedTuple):
    """The tokens of a text, without special tokens."""

    ids: npt.NDArray[np.int32]
    sentence_ends: Integers
    """The end of each sentence in `ids`, the last of them the end of the text; empty where nobody asked for them."""


def encode_texts(
    texts: Sequence[str], tokenizer: "PreTrainedTokenizerFast", *, sentences: bool = False
) -> list[Encoded]:
    """Encode each text as it is trained with, evaluated and predicted from.

    A special token's name inside a text ("[MASK]") is encoded as the characters that it is, never as the token.

    Args:
        sentences: say where sentences end: between the tokens that begin before a border and those that do not.
    """
    return _encode(texts, encoder_of(tokenizer), sentences=sentences)


def encoder_of(tokenizer: "PreTrainedTokenizerFast") -> Any:
    """Return a copy of the tokeniser's own encoder that neither pads nor cuts nor reads special tokens in a text."""
    from tokenizers import Tokenizer

    encoder: Any = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True
    return encoder


def _encode(texts: Sequence[str], encoder: Any, *, sentences: bool) -> list[Encoded]:
    pieces = [_pieces(text) for text in texts]
    flat = [piece for parts in pieces for piece in parts]
    encode = encoder.encode_batch if sentences else encoder.encode_batch_fast  # the fast one knows no places
    encodings = iter(encode(flat, add_special_tokens=False))
    return [_joined([(piece, next(encodings)) for piece in parts], sentences=sentences) for parts in pieces]


def _pieces(text: str) -> list[str]:
    if len(text) <= _LONGEST:
        return [text]
    cuts = [0]
    for border in [*sentence_borders(text), len(text)]:
        if border - cuts[-1] >= _LONGEST or border == len(text):
            cuts.append(border)
    return [text[start:end] for start, end in pairwise(cuts)]


def _joined(parts: Sequence[tuple[str, Any]], *, sentences: bool) -> Encoded:
    ids = [np.asarray(encoding.ids, np.int32) for _, encoding in parts]
    ends = list[Integers]()
    before = 0
    for (text, encoding), tokens in zip(parts if sentences else (), ids, strict=False):
        first = np.array([start for start, _ in encoding.offsets], np.int64)
        inner = np.searchsorted(np.maximum.accumulate(first), sentence_borders(text))
        ends.append(np.unique([*inner, len(tokens)]) + before)
        before += len(tokens)
    joined = np.concatenate([np.empty(0, np.int32), *ids])
    borders = np.concatenate([np.empty(0, np.int64), *ends])
    return Encoded(joined, borders[borders > 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of many texts in one array, which may be mapped: each text is followed by [SEP], one without a token
    by nothing. The array is the running text."""

    ids: Ids
    starts: Integers
    """The start of each text in `ids`, and at last the end, shape (texts + 1,)."""
    sentence_ends: Integers | None = None
    """The end of each sentence in `ids`, without the [SEP] of its text, ascending; None: nobody asked for them."""
    unknown: int = 0
    """Number of tokens that are [UNK]."""
    path: Path | None = None
    """The file that is mapped."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __reduce__(self) -> Any:
        """Let another process map the file, instead of sending it what is in it."""
        if self.path is not None:
            return _opened_again, (self.path,)
        return _tokens, (self.ids, self.starts, self.sentence_ends, self.unknown)

    @property
    def ends(self) -> Integers:
        """The end of each text without its [SEP], shape (texts,)."""
        return self.starts[1:] - (self.starts[1:] > self.starts[:-1])

    @property
    def sizes(self) -> Integers:
        """Number of tokens of each text, [SEP] not counted, shape (texts,)."""
        return self.ends - self.starts[:-1]

    def document(self, number: int) -> Ids:
        """Return the tokens of a text, without [SEP]."""
        return self.ids[self.starts[number] : self.ends[number]]


def _opened_again(path: Path) -> Tokens:
    tokens = open_tokens(path)
    if tokens is None:
        raise BadInput(f"{path} is gone: the cache must stay while a run reads it; start the run again")
    return tokens


def _tokens(ids: Ids, starts: Integers, sentence_ends: Integers | None, unknown: int) -> Tokens:
    return Tokens(ids=ids, starts=starts, sentence_ends=sentence_ends, unknown=unknown)


def tokens_of(documents: Iterable[Sequence[int] | npt.NDArray[np.integer]], sep_id: int) -> Tokens:
    """Return tokens that are held in memory."""
    rows = [np.append(ids, sep_id) if len(ids) else np.empty(0) for ids in map(np.asarray, documents)]
    ids = np.concatenate([np.empty(0), *rows]).astype(np.int32)
    return Tokens(ids=ids, starts=np.cumsum([0, *map(len, rows)], dtype=np.int64))


def encode_column(
    texts: "Texts",
    column: str,
    rows: Integers,
    tokenizer: "PreTrainedTokenizerFast",
    *,
    sentences: bool,
    cache_dir: Path,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Tokens:
    """Encode a column of texts, or map what an earlier run encoded of the same texts by the same tokeniser.

    Args:
        column: "text" or "pair".
        cache_dir: tokens are kept in its folder `tokens`, 2 bytes each, or 4 of a vocabulary beyond 65,536.
        progress: called with the number of texts done and in all.
    """
    # the ids of [SEP], which is written, and of [UNK], which is counted, are no part of the tokeniser's own state
    special = tokenizer.sep_token_id, tokenizer.unk_token_id
    how = tokenizer.backend_tokenizer.to_str(), version("tokenizers"), repr(special), str(sentences)
    content = texts.hashes(f"{column}_hash")[rows].tobytes()
    path = cache_dir / "tokens" / f"{content_hash([_FORMAT, *how, content])}.ids"
    cached = open_tokens(path)
    if cached is not None:
        return cached
    shards = _shards(texts, rows)
    starts = np.cumsum([0, *map(len, shards)]).tolist()

    def of_shard(start: int) -> Callable[[int, int | None], None]:
        return lambda done, total: progress(start + done, len(rows))

    parts = (
        encode_column(
            texts, column, shard, tokenizer, sentences=sentences, cache_dir=cache_dir, progress=of_shard(start)
        )
        for shard, start in zip(shards, starts[:-1], strict=True)
    )
    if len(shards) < 2:
        parts = _encoded(texts.strings(column, rows), len(rows), tokenizer, sentences=sentences, progress=progress)
    wide = max(tokenizer.get_vocab().values()) >= 2**16
    with new_file(path) as file:
        with file.path.open("wb") as sink:
            note, done = _write(parts, sink, np.dtype(np.int32 if wide else np.uint16), sentences=sentences)
        tokens = _mapped(file.path, note)
    if not file.placed:
        return tokens
    write_note(path, note)
    for part in done:  # each shard has done its work: had this run been killed, the next would have begun with it
        for name in (part, part.with_suffix(".json")):
            name.unlink(missing_ok=True)
    return _mapped(path, note, path)


def _shards(texts: "Texts", rows: Integers) -> list[Integers]:
    """Divide rows into runs of about `_SHARD` characters."""
    total = np.cumsum(texts.numbers("characters")[rows])
    cuts = np.searchsorted(total, np.arange(_SHARD, int(total[-1]) if len(total) else 0, _SHARD))
    return [shard for shard in np.split(rows, np.unique(cuts)) if len(shard)]


def _encoded(
    texts: Iterator[str],
    count: int,
    tokenizer: "PreTrainedTokenizerFast",
    *,
    sentences: bool,
    progress: Callable[[int, int | None], None],
) -> Iterator[Tokens]:
    encoder, done, sep_id = encoder_of(tokenizer), 0, tokenizer.sep_token_id
    assert isinstance(sep_id, int), "load_tokenizer refuses a tokenizer without this special token"
    for batch in _batches(texts):
        encoded = _encode(batch, encoder, sentences=sentences)
        done += len(batch)
        tokens = tokens_of((one.ids for one in encoded), sep_id)
        ends = [one.sentence_ends + start for one, start in zip(encoded, tokens.starts[:-1], strict=True)]
        # None, which no token is, where the tokenizer has no [UNK]
        unknown: object = tokenizer.unk_token_id
        yield replace(
            tokens,
            sentence_ends=np.concatenate([np.empty(0, np.int64), *ends]) if sentences else None,
            unknown=int((tokens.ids == unknown).sum()),
        )
        progress(done, count)


def _write(
    parts: Iterable[Tokens], sink: IO[bytes], dtype: np.dtype[Any], *, sentences: bool
) -> tuple[dict[str, Any], list[Path]]:
    """Write the ids of all parts, then the places where texts begin and sentences end.

    Returns:
        The note that says where they are, and the files of the parts.
    """
    starts, ends, unknown, files = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], 0, list[Path]()
    for part in parts:
        before = starts[-1][-1]
        sink.write(part.ids.astype(dtype).tobytes())
        starts.append(part.starts[1:] + before)
        ends += [] if part.sentence_ends is None else [part.sentence_ends + before]
        unknown += part.unknown
        files += [part.path] if part.path is not None else []
    borders = np.concatenate(starts), np.concatenate(ends)
    sink.write(bytes(-sink.tell() % 8))
    for array in borders:
        sink.write(array.tobytes())
    note = {
        "dtype": dtype.name,
        "tokens": int(borders[0][-1]),
        "texts": len(borders[0]) - 1,
        "sentences": len(borders[1]) if sentences else None,
        "unknown": unknown,
    }
    return note, files


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def open_tokens(path: Path) -> Tokens | None:
    """Map tokens that were encoded before; None where there are none, or the file is not whole."""
    note = note_of(path)
    return None if note is None else _mapped(path, note, path)


def _mapped(file: Path, note: dict[str, Any], path: Path | None = None) -> Tokens:
    content = np.memmap(file, np.uint8, "r")  # never empty: it holds where the first text begins
    end = note["tokens"] * np.dtype(note["dtype"]).itemsize
    borders = content[end + -end % 8 :].view(np.int64)
    starts, sentence_ends = np.split(borders, [note["texts"] + 1])
    return Tokens(
        ids=content[:end].view(note["dtype"]),
        starts=starts,
        sentence_ends=None if note["sentences"] is None else sentence_ends,
        unknown=note["unknown"],
        path=path,
    )
