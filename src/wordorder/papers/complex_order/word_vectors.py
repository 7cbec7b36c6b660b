"""Pre-trained word vectors, read line by line from word2vec's and GloVe's text formats, or from safetensors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from wordorder.encodings.wave_embedding import WaveEmbedding, WavesAsReal
from wordorder.errors import MissingExtra
from wordorder.limits import parse_json

_MOST_LETTERS, _LETTERS_OF_A_NUMBER = 2**16, 64  # of a word, and of each of its numbers


@dataclass(frozen=True)
class FoundVectors:
    """The vectors of a vocabulary that a file holds."""

    ids: Tensor
    """Token ids that were found, long (N,)."""
    vectors: Tensor
    """Their vectors, float32 (N, D)."""
    missing: int
    """Number of words that were not found."""


def load_word_vectors(
    embedding: nn.Embedding | WaveEmbedding | WavesAsReal, path: str | Path, words: Mapping[str, int] | None = None
) -> FoundVectors:
    """Start token embeddings, or the amplitudes of complex ones, from vectors that were trained elsewhere.

    Words that the file does not have keep what was drawn, and padding stays 0.

    Args:
        embedding: changed in place.
        path: a file in word2vec's or GloVe's text format, or .safetensors; `read_word_vectors` describes both.
        words: token id by word; needed unless the file holds one row per token id.

    Returns:
        Which token ids were found, and how many words were not.

    Raises:
        ValueError: amplitudes are shared, or the file cannot be read; nothing was changed.
    """
    waves = embedding.waves if isinstance(embedding, WavesAsReal) else embedding
    if isinstance(waves, WaveEmbedding):
        table, vocabulary, width = waves.amplitude, waves.vocabulary, waves.width
        if tuple(table.shape) != (vocabulary, width):
            raise ValueError("pre-trained vectors need amplitude='full': one row per word and one column per channel")
    else:
        table = waves.weight
        vocabulary, width = table.shape
    word_vectors = read_word_vectors(Path(path), words, vocabulary=vocabulary, width=width)
    with torch.no_grad():
        table[word_vectors.ids.to(table.device)] = word_vectors.vectors.to(table)
        # Waves are 0 at padding whatever its amplitude.
        if isinstance(waves, nn.Embedding) and waves.padding_idx is not None:
            table[waves.padding_idx] = 0
    return word_vectors


def read_word_vectors(path: Path, words: Mapping[str, int] | None, *, vocabulary: int, width: int) -> FoundVectors:
    """Read the vectors of a vocabulary's words; all other words of the file are skipped.

    Text: one word per line and D numbers, separated by single spaces, as GloVe writes them, with or without word2vec's
    first line "words channels". Words may contain spaces; of a word that occurs twice the first vector counts.
    Safetensors: one tensor with two axes, (words, D); the file's metadata may hold ``words``, a JSON list that names
    its rows. Without it row i is token id i. Nothing is unpickled, and word2vec's binary format is refused.

    Args:
        words: token id by word; None only for a file with a row per token id.
        vocabulary: number of token ids, V.
        width: channels that the vectors must have, D.

    Raises:
        ValueError: the file does not exist, is of another format or width, holds a number that is not finite, or has
            none of the words; names the file and the place.
        MissingExtra: a .safetensors file without the package safetensors.
    """
    if not path.is_file():
        raise ValueError(f"pre-trained vectors: there is no file {path}")
    outside = [index for index in (words or {}).values() if not 0 <= index < vocabulary]
    if outside:
        raise ValueError(f"words must map to token ids in 0 .. {vocabulary - 1}, got {outside[0]}")
    if path.suffix == ".safetensors":
        return _from_safetensors(path, words, vocabulary, width)
    if words is None:
        raise ValueError(f"{path} names its rows by words: pass words, the token id of each word")
    rows: dict[int, Tensor] = {}
    for number, word, numbers in _lines(path, words, width):
        if words[word] not in rows:
            rows[words[word]] = _vector(path, number, word, numbers)
    return _checked(path, list(rows), list(rows.values()), len(set(words.values())))


def _lines(path: Path, words: Mapping[str, int], width: int) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line number, word and numbers of every line whose word is in the vocabulary."""
    spaced = any(" " in word for word in words)
    with path.open(encoding="utf-8", errors="replace") as file:
        longest = _MOST_LETTERS + _LETTERS_OF_A_NUMBER * width
        for number, line in enumerate(iter(lambda: file.readline(longest + 1), ""), start=1):
            if "\0" in line:
                raise ValueError(f"{path} is binary; convert word2vec's .bin to text, which can be read without trust")
            if len(line) > longest:
                raise ValueError(
                    f"{path}, line {number} has more than {longest:,} characters, too many for a word and {width} "
                    "numbers; is it a file of word vectors, one word a line?"
                )
            text = line.rstrip("\n").rstrip(" ")
            if number == 1 and (header := text.split(" ")) and len(header) == 2 and all(map(str.isdigit, header)):
                if int(header[1]) != width:
                    raise ValueError(f"{path} holds vectors of {header[1]} channels, but the embedding has {width}")
                continue
            if not text:
                continue
            first = text.partition(" ")[0]
            if number > 2 and first not in words and not spaced:
                continue  # most lines of a large file: not split, not read
            word, *numbers = text.rsplit(" ", width)
            if number <= 2:  # every later line is of the same width, or is refused for what it is
                trailing = len(list(takewhile(_is_number, reversed(text.split(" ")[1:]))))
                if trailing != width:
                    raise ValueError(
                        f"{path}, line {number}: a word and {trailing} numbers, but the embedding has {width} channels"
                    )
            if len(numbers) == width and word in words:
                yield number, word, numbers
            elif first in words and all(map(_is_number, text.split(" ")[1:])):
                raise ValueError(f"{path}, line {number}: {first!r} has {text.count(' ')} numbers, not {width}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vector(path: Path, number: int, word: str, numbers: list[str]) -> Tensor:
    try:
        vector = torch.tensor([float(part) for part in numbers])
    except ValueError:
        raise ValueError(f"{path}, line {number}: what follows {word!r} is not all numbers") from None
    if not bool(vector.isfinite().all()):
        raise ValueError(f"{path}, line {number}: the vector of {word!r} holds NaN or infinity")
    return vector


def _checked(path: Path, ids: list[int], vectors: list[Tensor], wanted: int) -> FoundVectors:
    if not ids:
        raise ValueError(f"{path} has none of the {wanted} words of the vocabulary; do their spelling and case agree?")
    return FoundVectors(torch.tensor(ids), torch.stack(vectors), wanted - len(ids))


def _from_safetensors(path: Path, words: Mapping[str, int] | None, vocabulary: int, width: int) -> FoundVectors:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra("safetensors", "models") from None
    try:
        with cast("Any", safe_open)(str(path), framework="pt") as file:
            tables = [name for name in file.keys() if len(file.get_slice(name).get_shape()) == 2]
            if len(tables) != 1:
                raise ValueError(f"{path} must hold one tensor with two axes, got {len(tables)}: {', '.join(tables)}")
            rows = file.get_slice(tables[0])
            metadata = cast("dict[str, str]", file.metadata() or {})
            names = metadata.get("words")
            count, channels = rows.get_shape()
            if channels != width:
                raise ValueError(f"{path} holds vectors of {channels} channels, but the embedding has {width}")
            where = _rows_of(path, count, names, words, vocabulary)
            wanted = vocabulary if words is None or names is None else len(set(words.values()))
            vectors = [rows[row : row + 1][0].float() for row in where.values()]
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    for index, vector in zip(where, vectors, strict=True):
        if not bool(vector.isfinite().all()):
            raise ValueError(f"{path}: the vector of token id {index} holds NaN or infinity")
    return _checked(path, list(where), vectors, wanted)


def _rows_of(
    path: Path, count: int, names: str | None, words: Mapping[str, int] | None, vocabulary: int
) -> dict[int, int]:
    """Return the row of each token id that the file has."""
    if names is None:
        if count != vocabulary:
            raise ValueError(
                f"{path} has {count} rows and no words in its metadata, but the vocabulary has {vocabulary} token ids"
            )
        return {index: index for index in range(count)}
    if words is None:
        raise ValueError(f"{path} names its rows by words: pass words, the token id of each word")
    try:
        found: object = parse_json(names)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise ValueError(f"{path}: the metadata 'words' must be a JSON list, got {names[:40]!r}")
    listed = cast("list[str]", found)
    if len(listed) != count:
        raise ValueError(f"{path} has {count} rows, but its metadata names {len(listed)} words")
    return {words[word]: row for row, word in reversed(list(enumerate(listed))) if word in words}
