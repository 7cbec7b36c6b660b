"""Names and values that `[data]` and `[tokenizer]` of a recipe may hold."""

TOKENIZER_KINDS = ("wordpiece", "bpe", "byte", "character", "word", "whitespace", "existing")
NONE = "none"
"""Value of `test_source` where there is to be no test split."""
FOLD_KINDS = ("disjoint", "independent")
TEST_ONCE, BEST_ON_TEST = "test-once", "best-checkpoint-on-test"
PROTOCOLS = (TEST_ONCE, BEST_ON_TEST)
CROSS_VALIDATION = (
    *("folds", "fold", "fold_kind", "protocol"),
    *("streaming", "shuffle_buffer", "tokenizer_documents", "cache_shards"),
)
"""Names of [data] that say how one source is divided, scored and read, and nothing about another source."""
LANES = "lanes"
PACKINGS = ("full-sentences", "full-sentences-across-documents", "contiguous", LANES)
RESETS = ("never", "documents")
WARN, ERROR, IGNORE = "warn", "error", "ignore"
LEAKAGE = (WARN, ERROR, IGNORE)
UNTRAINED_KINDS = ("byte", "existing")
"""Kinds of tokenisers that learn nothing from the text."""
SPLITS = ("train", "validation", "test")
