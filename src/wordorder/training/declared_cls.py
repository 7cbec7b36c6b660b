"""Whether texts begin with [CLS], as a recipe says it, for configurations that are made before the tokenizer is."""

import typing

if typing.TYPE_CHECKING:
    from wordorder.data import TokenizerConfig


def declared_cls(tokenizer: "TokenizerConfig | None") -> dict[str, int]:
    """Return the field of a model's configuration that declares [CLS], or none where texts have no special tokens.

    The id counts in the tokenizers that are trained here; of an existing one only that there is one is known so early.

    Args:
        tokenizer: of the recipe; None where it has faults.
    """
    return {"cls_token_id": 2} if tokenizer is None or tokenizer.add_special_tokens else {}
