"""Fairseq's dict.txt: the tokens of a checkpoint, from which a tokeniser for text in pieces can be made.

The file has one "token count" a line and leaves out the special tokens, which the program adds: `<s> <pad> </s> <unk>`
in front, as ids 0 to 3, and `<mask>` at the end, by the task. TUPE's copy of fairseq adds `<file> <email> <url>` behind
the first four (fairseq/data/dictionary.py). The size of the vocabulary tells which of the two it was.

The merges of the byte-pair encoding are in another file (fastBPE's codes), and so are the rules of the Moses tokeniser
that ran before it. So the tokeniser made here **looks up pieces; it does not make them**: its input is text that has
been through the same preparation, pieces apart by spaces, such as "un@@ tied posi@@ tions".
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wordorder.conversion.torch_files.foreign import printable
from wordorder.errors import BadInput
from wordorder.limits import MOST_WORDS, read_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
FIRST = (BOS, PAD, EOS, UNK)
ADDED_BY_TUPE = ("<file>", "<email>", "<url>")


@dataclass(frozen=True)
class Dictionary:
    """The vocabulary of a checkpoint.

    Args:
        ids: of each token. As in fairseq a token that the file has twice has its last id, and the first is unused; but
            `<s> <pad> </s> <unk>` are 0 to 3 whatever the file has.
        specials: those that the program added, in front.
        repeated: tokens that the file has more than once, or that it shares with the special ones.
    """

    ids: dict[str, int]
    specials: tuple[str, ...]
    repeated: tuple[str, ...]


def read_tokens(path: Path) -> list[str]:
    """Read the tokens of a dict.txt, in its order.

    Raises:
        BadInput: it cannot be read, is not UTF-8, or a line is no "token count".
    """
    try:
        # not splitlines(): a token may be one of the characters that it takes for the end of a line
        lines = read_bytes(path, MOST_WORDS).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise BadInput(f"dictionary {path}: cannot be read: it is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"dictionary {path}: cannot be read: {reason}") from None
    tokens: list[str] = []
    for number, line in enumerate(lines, start=1):
        token, space, count = line.removesuffix("\r").rpartition(" ")
        if not space or not token or not count.isdecimal():
            shown = printable(line, 60)
            raise BadInput(
                f'dictionary {path}: line {number} must be "token count" as fairseq writes it, got {shown!r}'
            )
        tokens.append(token)
    return tokens


def fit_dictionary(tokens: list[str], vocabulary: int, path: Path) -> Dictionary:
    """Number the tokens as the program did that made a vocabulary of this size.

    Args:
        vocabulary: rows of the checkpoint's embedding table.

    Raises:
        BadInput: no number of special tokens makes this size.
    """
    for specials in (FIRST, FIRST + ADDED_BY_TUPE):
        listing = [*specials, *tokens, *(() if MASK in tokens else (MASK,))]
        if len(listing) == vocabulary:
            repeated = tuple(token for token, count in Counter(listing).items() if count > 1)
            ids = {token: index for index, token in enumerate(listing)}
            return Dictionary(ids | {token: index for index, token in enumerate(FIRST)}, specials, repeated)
    raise BadInput(
        f"dictionary {path} has {len(tokens):,} tokens, which makes a vocabulary of"
        f" {len(tokens) + 5:,} (with <s> <pad> </s> <unk> <mask>) or {len(tokens) + 8:,} (<file> <email> <url> too),"
        f" but the checkpoint's has {vocabulary:,}; name the dict.txt that the model was trained with"
    )


def make_tokenizer(dictionary: Dictionary, length: int) -> "PreTrainedTokenizerFast":
    """Make a tokeniser that looks up pieces apart by spaces.

    It writes `<s> text </s>` or `<s> text </s> </s> second </s>`.

    Args:
        length: the model's longest text, in tokens.
    """
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = dictionary.ids
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [AddedToken(token, special=True, normalized=False) for token in (*FIRST, MASK)]
    tokenizer.add_special_tokens(special)  # pyright: ignore[reportUnknownMemberType]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}",
        pair=f"{BOS} $A {EOS} {EOS} $B {EOS}",
        special_tokens=[(BOS, ids[BOS]), (EOS, ids[EOS])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],  # no segment embeddings, so no token_type_ids
        model_max_length=length,
        clean_up_tokenization_spaces=False,
        bos_token=BOS,
        eos_token=EOS,
        cls_token=BOS,
        sep_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        mask_token=MASK,
    )
