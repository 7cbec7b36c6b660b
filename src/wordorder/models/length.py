"""Check how long a text may be for a model."""

from transformers import PreTrainedConfig

from wordorder.encodings import CATALOG, names_of
from wordorder.errors import BadInput


def takes_any_length(config: PreTrainedConfig) -> bool:
    """Tell whether a model's heads read texts of any length, whatever its encoding: in segments, with a memory."""
    return getattr(config, "reads_documents", False) and getattr(config, "memory", "none") != "none"


def first_position(config: PreTrainedConfig) -> int:
    """Return the position id of a text's first token: 0, but RoBERTa counts from ``pad_token_id + 1``."""
    return (config.pad_token_id or 0) + 1 if config.model_type == "wordorder-grafted-roberta" else 0


def longest_text(config: PreTrainedConfig) -> int:
    """Return the longest text in tokens that the model was made for; only a learned table is a limit."""
    return config.max_position_embeddings - first_position(config)


def check_length(config: PreTrainedConfig, length: int, *, with_memory: bool = True) -> None:
    """Refuse texts that are longer than the model's learned table, or than that of the model it was grafted on.

    Heads that read documents take texts of any length. Of another model with a memory the length is that of a segment,
    beside which the memory stands, unless ``with_memory`` is False.

    Raises:
        BadInput: names the limit and the remedy.
    """
    if not takes_any_length(config):
        slots = getattr(config, "memory_length", None) if with_memory else None
        check_positions(config, length, slots=slots or 0)


def check_positions(config: PreTrainedConfig, length: int, *, slots: int = 0) -> None:
    """Refuse more tokens at a time than the model's learned table has positions for, or that of its graft's host.

    Args:
        slots: of a memory, over which a table is read as well.

    Raises:
        BadInput: names the limit and the remedy.
    """
    limit = longest_text(config) - slots
    bounded = [name for name in names_of(config.encoding) if CATALOG[name].bounded]
    taken = f", of which memory_length={slots} are the memory's" if slots else ""
    host = ["input positions"] if getattr(config, "keep_input_positions", False) else []
    if (bounded or host) and length > limit:
        raise BadInput(
            f"length {length} is longer than the position table of encoding {'+'.join(bounded or host)!r}:"
            f" max_position_embeddings={limit + slots}{taken}; raise model.max_position_embeddings or lower data.length"
        )
