"""Name the projections that an adapter such as LoRA is put on, which the library peft calls target modules."""

from typing import Any

CONTENT = ("qkv", "out", "q", "kv", "query", "key", "value")
"""Projections of attention: queries, keys and values together, back, those of cross-attention, and a graft's host's."""

POSITIONS = ("query_projection", "key_projection")
"""TUPE's projections of positions, which all layers share."""


def lora_targets(model: Any, *, positions: bool = False) -> list[str]:
    """Return names for ``LoraConfig(target_modules=...)`` of any model of this package, grafted ones too.

    Hu et al. 2021, "LoRA", https://arxiv.org/abs/2106.09685, adapt the projections of attention and nothing else;
    so does this. Each of these modules is called wherever it is used, memory's slots included, so that the adapter
    acts on all of them.

    >>> from wordorder.models import build_config, build_model
    >>> sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = build_model(build_config("encoder", encoding="tupe-a", **sizes), "masked-lm", seed=0)
    >>> lora_targets(model, positions=True)
    ['qkv', 'out', 'query_projection', 'key_projection']

    Args:
        positions: also TUPE's projections of positions, where the model has them.

    Raises:
        ValueError: the model has none of these modules, or no projections of positions.
    """
    held = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    found = [name for name in CONTENT if name in held]
    if not found:
        raise ValueError(f"model must have attention ({', '.join(CONTENT)}), got {type(model).__name__}")
    own = [name for name in POSITIONS if name in held]
    if positions and not own:
        raise ValueError(f"positions: encoding {model.config.encoding!r} has no projections of positions; leave it out")
    return found + own if positions else found
