"""Find the beginnings of words among tokens, and shuffle words within windows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from wordorder.data.randomness import counter_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Flags = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]

_SHUFFLE = 0x5AFE  # keeps these draws apart from others


def word_starts(tokenizer: PreTrainedTokenizerFast) -> Flags:
    """Return True for each id of the vocabulary that begins a word, shape (vocabulary,).

    A piece that goes on with a word (##ing) does not; of tokens that hold their white space (bytes, characters, pieces
    of them) one that begins with it does, so that white space belongs to the word after it.

    Args:
        tokenizer: of any kind that `wordorder.data` makes, or an existing one.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    before = json.dumps(state.get("pre_tokenizer"))
    found = np.ones(max(vocabulary.values()) + 1, np.bool_)
    prefix = state["model"].get("continuing_subword_prefix")
    marks = "ĠĊĉč" if "ByteLevel" in before else "▁" if "Metaspace" in before else ""
    has_spaces = any(token.isspace() for token in vocabulary)
    for token, number in vocabulary.items():
        if prefix:
            found[number] = not token.startswith(prefix)
        elif marks:
            found[number] = token[:1] in marks
        elif has_spaces:
            found[number] = token[:1].isspace()
    return found


def fixed_tokens(tokenizer: PreTrainedTokenizerFast) -> Flags:
    """Return True for each id that keeps its place: [CLS], [SEP] and [PAD], between which words are shuffled."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    found = np.zeros(max(vocabulary.values()) + 1, np.bool_)
    found[[cast("int", getattr(tokenizer, f"{role}_token_id")) for role in ("cls", "sep", "pad")]] = True
    return found


def shuffled_order(ids: Ids, starts: Flags, fixed: Flags, *, window: int | None, seed: int, index: int) -> Ids:
    """Return the token that comes to each place, (T,), when words are shuffled within windows.

    A word's tokens stay together and in order. Windows are counted from the beginning of the text and anew after each
    token that keeps its place. Which order comes about depends on the seed, the index and the text alone.

    Args:
        ids: the tokens of a text, (T,).
        starts: by id, see `word_starts`.
        fixed: by id, see `fixed_tokens`.
        window: words of a window; None = all words between two tokens that keep their places.
        seed: a whole number.
        index: of the text.
    """
    if not len(ids):
        return np.empty(0, np.int64)
    fixed_T = fixed[ids]
    after_fixed_T = np.concatenate([[True], fixed_T[:-1]])
    begins_T = starts[ids] | fixed_T | after_fixed_T
    word_T = np.cumsum(begins_T) - 1
    first_W = np.flatnonzero(begins_T)
    run_W = np.cumsum(fixed_T | after_fixed_T)[first_W]
    number_W = np.arange(len(first_W)) - np.searchsorted(run_W, run_W)  # number of the word in its run
    window_W = number_W * 0 if window is None else number_W // window
    chance_W = counter_hash(seed, _SHUFFLE, index, np.arange(len(first_W)))
    order_W = np.lexsort((chance_W, window_W, run_W))
    place_W = np.empty(len(order_W), np.int64)
    place_W[order_W] = np.arange(len(order_W))
    return np.lexsort((np.arange(len(ids)), place_W[word_T]))
