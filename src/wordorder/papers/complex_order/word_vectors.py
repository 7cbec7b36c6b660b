"""Pre-trained word vectors, read line by line from word2vec's and GloVe's text formats."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from wordorder.encodings.wave_embedding import WaveEmbedding, WavesAsReal

_MOST_LETTERS, _LETTERS_OF_A_NUMBER = 2**16, 64  # of a word, and of each of its numbers


def load_word_vectors(
    embedding: nn.Embedding | WaveEmbedding | WavesAsReal, path: str | Path, words: Mapping[str, int]
) -> int:
    """Start token embeddings, or the amplitudes of complex ones, from vectors that were trained elsewhere.

    The file is text, one word per line and its numbers, separated by single spaces, as GloVe writes them, with or
    without word2vec's first line "words channels". Words may contain spaces; of a word that occurs twice the first
    vector counts. Words that the file does not have keep what was drawn, and padding stays 0.

    Args:
        embedding: changed in place.
        path: the file; word2vec's binary format is refused.
        words: token id by word.

    Returns:
        How many of the words the file has.

    Raises:
        ValueError: amplitudes are shared, a word's token id has no row, or the file does not exist, has none of the
            words, or a word's vector is of another width or not finite; nothing was changed.
    """
    waves = embedding.waves if isinstance(embedding, WavesAsReal) else embedding
    if isinstance(waves, WaveEmbedding) and waves.sharing["amplitude"] != "full":
        raise ValueError("pre-trained vectors need amplitude='full': one row per word and one column per channel")
    table, path = waves.amplitude if isinstance(waves, WaveEmbedding) else waves.weight, Path(path)
    if not path.is_file():
        raise ValueError(f"pre-trained vectors: there is no file {path}")
    outside = [index for index in words.values() if not 0 <= index < len(table)]
    if outside:
        raise ValueError(f"words must map to token ids in 0 .. {len(table) - 1}, got {outside[0]}")
    rows = _read(path, words, table.shape[1])
    with torch.no_grad():
        table[torch.tensor(list(rows), device=table.device)] = torch.stack(list(rows.values())).to(table)
        # Waves are 0 at padding whatever its amplitude.
        if isinstance(waves, nn.Embedding) and waves.padding_idx is not None:
            table[waves.padding_idx] = 0
    return len(rows)


def _read(path: Path, words: Mapping[str, int], width: int) -> dict[int, Tensor]:
    longest = _MOST_LETTERS + _LETTERS_OF_A_NUMBER * width
    beginnings = {word.partition(" ")[0] for word in words}
    rows: dict[int, Tensor] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(longest + 1), ""), start=1):
            if "\0" in line or len(line) > longest:
                raise ValueError(f"{path}, line {number} is binary or too long; word vectors are text, a word a line")
            if number == 1 and len(sizes := line.split()) == 2 and all(map(str.isdigit, sizes)):
                if int(sizes[1]) != width:
                    raise ValueError(f"{path} holds vectors of {sizes[1]} channels, but the embedding has {width}")
                continue
            if line.partition(" ")[0] not in beginnings:
                continue  # most lines of a large file: not split, not read
            text, place = line.rstrip("\n "), f"{path}, line {number}"
            word, *numbers = text.rsplit(" ", width)
            if word not in words:  # longer words take numbers for a part of them: "tea 1" and 2, 3 of "tea 1 2 3"
                first, *rest = text.split(" ")
                if first in words and all(map(_is_number, rest)):
                    raise ValueError(
                        f"{place}: {first!r} has {len(rest)} numbers, but the embedding has {width} channels"
                    )
            elif words[word] not in rows:
                rows[words[word]] = _vector(place, word, numbers, width)
    if not rows:
        raise ValueError(
            f"{path} has none of the {len(words)} words of the vocabulary with {width} channels; do spelling and case "
            "agree, and is the embedding as wide as the vectors?"
        )
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vector(place: str, word: str, numbers: list[str], width: int) -> Tensor:
    if len(numbers) != width:
        raise ValueError(f"{place}: {word!r} has {len(numbers)} numbers, but the embedding has {width} channels")
    try:
        vector = [float(number) for number in numbers]
    except ValueError:
        raise ValueError(f"{place}: what follows {word!r} is not all numbers") from None
    if not all(map(math.isfinite, vector)):
        raise ValueError(f"{place}: the vector of {word!r} holds NaN or infinity")
    return torch.tensor(vector)
