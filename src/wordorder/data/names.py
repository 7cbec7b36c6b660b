"""Names and values that `[data]` and `[tokenizer]` of a recipe may hold."""

from typing import Literal, get_args

TokenizerKind = Literal["wordpiece", "bpe", "byte", "character", "word", "whitespace", "existing"]
TOKENIZER_KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)
NONE = "none"
"""Value of `test_source` where there is to be no test split."""
TEST_ONCE, BEST_ON_TEST = "test-once", "best-checkpoint-on-test"
TASK = "task"
"""Word before the colon of a source that is generated, `task:NAME`."""
DRAWN = ("train_examples", "test_examples", "train_lengths", "test_lengths")
"""Names of [data] that say what is drawn of a generated task."""
CROSS_VALIDATION = ("folds", "fold", "fold_kind", "protocol", *DRAWN)
"""Names of [data] that say how one source is divided and scored, and nothing about another source."""
LANES = "lanes"
Packing = Literal["full-sentences", "full-sentences-across-documents", "contiguous", "lanes"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
ERROR, IGNORE = "error", "ignore"
SPLITS = ("train", "validation", "test")


def generated_task(source: str) -> str | None:
    """Return the name of the generated task that a source `task:NAME` is; None for texts that are read."""
    kind, colon, name = source.partition(":")
    return name if kind == TASK and colon else None
