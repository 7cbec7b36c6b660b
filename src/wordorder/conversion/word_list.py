"""A list of words, one a line, as the tokeniser of a model whose own vocabulary is a pickled object."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from wordorder.conversion.reference_names import listed
from wordorder.conversion.torch_files.foreign import printable
from wordorder.errors import BadInput
from wordorder.limits import MOST_WORDS, read_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNKNOWN = ("<unk>", "<UNK>", "[UNK]")
END = ("<eos>", "<EOS>", "</s>")


def read_words(path: Path, vocabulary: int) -> list[str]:
    """Read the words of a file, the first with id 0.

    Args:
        path: UTF-8, one word a line.

    Raises:
        BadInput: it cannot be read, is not UTF-8, or does not have so many different words without white space.
    """
    try:
        # not splitlines(): a word may be one of the characters that it takes for the end of a line
        words = read_bytes(path, MOST_WORDS).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise BadInput(f"vocab {path}: cannot be read: it is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"vocab {path}: cannot be read: {reason}") from None
    words = [word.removesuffix("\r") for word in words]
    for number, word in enumerate(words, start=1):
        if not word or word.split() != [word]:
            raise BadInput(f"vocab {path}: line {number} must be one word without white space, got {printable(word)!r}")
    twice = [word for word, count in Counter(words).items() if count > 1]
    if twice:
        raise BadInput(f"vocab {path}: words that stand there twice: {listed(twice, 5)}")
    if len(words) != vocabulary:
        raise BadInput(
            f"vocab {path} has {len(words):,} words, but the checkpoint's vocabulary has {vocabulary:,}; name the list"
            " that the model was trained with, one word a line in the order of ids"
        )
    return words


def word_tokenizer(words: list[str]) -> "PreTrainedTokenizerFast":
    """Make a tokeniser that looks up words apart by white space, and adds nothing.

    Args:
        words: by id.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {word: index for index, word in enumerate(words)}
    unknown = next((word for word in UNKNOWN if word in ids), None)
    end = next((word for word in END if word in ids), None)
    unknown_too = {} if unknown is None else {"unk_token": unknown}
    tokenizer = Tokenizer(models.WordLevel(ids, **unknown_too))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    roles = {"unk_token": unknown, "eos_token": end}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{role: word for role, word in roles.items() if word is not None},
    )
