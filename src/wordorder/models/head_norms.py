"""Norms of queries and keys, as configurations of transformers have them."""

from typing import TYPE_CHECKING, Literal

from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# The classes decide, most have no field: each is compared with its modules by tests/models/test_head_norms.py.
_ALWAYS = {"qwen3", "qwen3_moe", "gemma3_text", "exaone4", "apertus", "doge"}
_NEVER = {"llama", "mistral", "mixtral", "ministral", "gemma", "gemma2", "qwen2", "qwen2_moe", "phi3", "gpt_oss"} | {
    *("granite", "starcoder2", "glm", "glm4", "smollm3", "seed_oss", "ernie4_5", "olmo", "gpt_neox", "helium"),
    *("arcee", "cohere2", "nemotron"),
}
# The field that asks for them, and the norm; None: another than `qk_norm` of our networks knows
_BY_FIELD: dict[str, tuple[str, Literal["rms", "layer"] | None]] = {
    "glm4_moe": ("use_qk_norm", "rms"),
    "phi": ("qk_layernorm", "layer"),
    "persimmon": ("qk_layernorm", "layer"),
    "cohere": ("use_qk_norm", None),
    "stablelm": ("qk_layernorm", None),
    "llama4_text": ("use_qk_norm", None),
}


def qk_norm_of(config: "PreTrainedConfig") -> Literal["rms", "layer", "none"]:
    """Return `qk_norm` of a network whose heads norm queries and keys as a configuration of transformers has it.

    Beside :func:`wordorder.encodings.from_rope_parameters`, for example in ``build_config("decoder",
    qk_norm=qk_norm_of(config), ...)``. Norms are those before the rotation, with a gain per channel of a head. (Gemma 3
    stores the gain less 1.)

    >>> from transformers import Qwen3Config
    >>> qk_norm_of(Qwen3Config())
    'rms'

    Raises:
        BadInput: the family is unknown, or it norms in another way: all heads at once (OLMo 2), with a gain per head
            (Cohere, StableLM) or after the rotation (Llama 4, Hunyuan).
    """
    family: str = config.model_type
    if family in _ALWAYS:
        return "rms"
    field, norm = _BY_FIELD.get(family, ("", None))
    if family in _NEVER or (field and not getattr(config, field)):
        return "none"
    if norm is None:
        families = ", ".join(sorted(_ALWAYS | _NEVER | {*_BY_FIELD}))
        raise BadInput(
            "config must be of a family without norms of queries and keys, or with one of each head before the"
            f" rotation ({families}), got {family}{f' with {field}' * bool(field)}: set qk_norm yourself"
        )
    return norm
