"""The tokens of a checkpoint, from fairseq's dict.txt or a list of words, and tokenisers that look them up.

Fairseq's file has one "token count" a line and leaves out the special tokens, which the program adds:
`<s> <pad> </s> <unk>` in front, as ids 0 to 3, and `<mask>` at the end, by the task. TUPE's copy of fairseq adds
`<file> <email> <url>` behind the first four (fairseq/data/dictionary.py). The size of the vocabulary tells which of
the two it was.

The merges of the byte-pair encoding are in another file (fastBPE's codes), and so are the rules of the Moses tokeniser
that ran before it. So the tokenisers made here **look up pieces; they do not make them**: their input is text that has
been through the same preparation, pieces apart by spaces, such as "un@@ tied posi@@ tions".
"""

from collections import Counter
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from wordorder.errors import BadInput
from wordorder.files import read_bytes
from wordorder.papers.weights import listed

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
FIRST = (BOS, PAD, EOS, UNK)
ADDED_BY_TUPE = ("<file>", "<email>", "<url>")

UNKNOWN = ("<unk>", "<UNK>", "[UNK]")
END = ("<eos>", "<EOS>", "</s>")


def read_dictionary(path: Path, vocabulary: int) -> dict[str, int]:
    """Read a dict.txt, and number its tokens as the program did that made a vocabulary of this size.

    As in fairseq a token that the file has twice has its last id, and the first is unused; but `<s> <pad> </s> <unk>`
    are 0 to 3 whatever the file has.
    """
    tokens: list[str] = []
    for number, line in enumerate(_lines(path, "dictionary"), start=1):
        token, _, count = line.rpartition(" ")
        if not token or not count.isdecimal():
            raise BadInput(
                f'dictionary {path}: line {number} must be "token count" as fairseq writes it, got {line[:60]!r}'
            )
        tokens.append(token)
    for specials in (FIRST, FIRST + ADDED_BY_TUPE):
        listing = [*specials, *tokens, *(() if MASK in tokens else (MASK,))]
        if len(listing) == vocabulary:
            return {token: index for index, token in enumerate(listing)} | {t: i for i, t in enumerate(FIRST)}
    raise BadInput(
        f"dictionary {path} has {len(tokens):,} tokens, which makes a vocabulary of"
        f" {len(tokens) + 5:,} (with <s> <pad> </s> <unk> <mask>) or {len(tokens) + 8:,} (<file> <email> <url> too),"
        f" but the checkpoint's has {vocabulary:,}; name the dict.txt that the model was trained with"
    )


def read_words(path: Path, vocabulary: int) -> list[str]:
    words = _lines(path, "vocab")
    for number, word in enumerate(words, start=1):
        if word.split() != [word]:
            raise BadInput(f"vocab {path}: line {number} must be one word without white space, got {word[:60]!r}")
    twice = [word for word, count in Counter(words).items() if count > 1]
    if twice:
        raise BadInput(f"vocab {path}: words that stand there twice: {listed(twice, 5)}")
    if len(words) != vocabulary:
        raise BadInput(
            f"vocab {path} has {len(words):,} words, but the checkpoint's vocabulary has {vocabulary:,}; name the list"
            " that the model was trained with, one word a line in the order of ids"
        )
    return words


def _lines(path: Path, kind: str) -> list[str]:
    try:
        # not splitlines(): a word may be one of the characters that it takes for the end of a line
        lines = read_bytes(path).decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise BadInput(f"{kind} {path}: cannot be read: it is not UTF-8") from None
    except OSError as error:
        raise BadInput(f"{kind} {path}: cannot be read: {error.strerror}") from None
    return [line.removesuffix("\r") for line in lines]


def make_tokenizer(ids: dict[str, int], length: int) -> PreTrainedTokenizerFast:
    """Make a tokeniser that looks up pieces apart by spaces, for texts of at most ``length`` tokens.

    It writes `<s> text </s>` or `<s> text </s> </s> second </s>`.
    """
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNK))
    special = [AddedToken(token, special=True, normalized=False) for token in (*FIRST, MASK)]
    tokenizer.add_special_tokens(special)  # pyright: ignore[reportUnknownMemberType]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        pair=f"{BOS} $A {EOS} {EOS} $B {EOS}",
        special_tokens=[(BOS, ids[BOS]), (EOS, ids[EOS])],
    )
    roles = {"bos_token": BOS, "eos_token": EOS, "cls_token": BOS, "sep_token": EOS}
    roles |= {"pad_token": PAD, "unk_token": UNK, "mask_token": MASK}
    return _wrapped(tokenizer, model_max_length=length, **roles)


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """Make a tokeniser that looks up words apart by white space, and adds nothing."""
    ids = {word: index for index, word in enumerate(words)}
    names = {"unk_token": UNKNOWN, "eos_token": END}
    roles = {role: word for role, choices in names.items() for word in choices[::-1] if word in ids}  # the first wins
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=roles.get("unk_token")))
    return _wrapped(tokenizer, **roles)


def _wrapped(tokenizer: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],  # no segment embeddings, so no token_type_ids
        clean_up_tokenization_spaces=False,
        **options,
    )
