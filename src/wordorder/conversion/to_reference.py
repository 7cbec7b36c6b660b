"""Rename a model's weights to the names of TUPE's reference code, the inverse of `convert_tupe`."""

from typing import TYPE_CHECKING, Any

from wordorder.conversion.reference_names import Form, to_theirs
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

# Values that the reference code can express, by field of the configuration.
_FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("wordorder-encoder",),
    "encoding": ("tupe-a", "tupe-r"),
    "norm": ("layer",),
    "layer_norm_eps": (1e-5,),
    "hidden_act": ("gelu", "relu"),
    "tie_word_embeddings": (True,),
}
_OPTIONS: dict[str, Any] = {"cls": "position-0", "theta": "table-rows", "projection_bias": True, "norm_eps": 1e-5}
_RELATIVE_OPTIONS: dict[str, Any] = {
    "reset": "reference-code",
    "buckets": 32,
    "max_distance": 128,
    "bidirectional": True,
}


def to_reference_names(
    model: "PreTrainedModel", *, head: str = "sentence_classification_head", prefix: str = "decoder."
) -> "dict[str, Tensor]":
    """Return the state dict that the reference code would load: `wordorder.conversion.convert_tupe` backwards.

    Args:
        model: an encoder of this package with a masked language modelling or text classification head.
        head: name of the classification head there.
        prefix: of all names but the classification head's; "" for a bare `TransformerSentenceEncoder` with heads.

    Returns:
        The reference's names and detached weights. ``lm_head.weight`` shares its memory with the token embeddings.

    Raises:
        BadInput: one line for each thing in which the model differs from any that the reference code can build.
    """
    form = _form(model, head)
    weights: dict[str, Tensor] = {name: weight.detach() for name, weight in model.state_dict().items()}
    found = to_theirs(weights, form)
    return {name if name.startswith("classification_heads.") else prefix + name: found[name] for name in found}


def _form(model: "PreTrainedModel", head: str) -> Form:
    config = model.config
    faults = [
        f"{name}={getattr(config, name, None)!r}, where it has {' or '.join(repr(value) for value in values)}"
        for name, values in _FIXED.items()
        if getattr(config, name, None) not in values
    ]
    if not faults:
        faults = _finer_faults(config)
    architecture = type(model).__name__
    kinds = ("WordOrderEncoderForMaskedLM", "WordOrderEncoderForSequenceClassification")
    if architecture not in kinds:
        faults.append(f"{architecture}, where it has {' or '.join(kinds)}")
    if faults:
        raise BadInput([f"TUPE's reference code has no {fault}" for fault in faults])
    classifies = architecture == kinds[1]
    return Form(
        layers=config.num_hidden_layers,
        relative=config.encoding == "tupe-r",
        embedding_norm=config.norm_placement == "post" if config.embedding_norm is None else config.embedding_norm,
        final_norm=config.norm_placement == "pre",
        lm_head=not classifies,
        head=head if classifies else None,
        head_dense=config.classifier_dense,
    )


def _finer_faults(config: Any) -> list[str]:
    from wordorder.encodings import CATALOG, options_of

    faults: list[str] = []
    if config.num_key_value_heads not in (None, config.num_attention_heads):
        faults.append(f"num_key_value_heads={config.num_key_value_heads}, where it has as many as query heads")
    if config.head_act != config.hidden_act:
        faults.append(
            f"head_act={config.head_act!r} beside hidden_act={config.hidden_act!r}, where it has one for both"
        )
    chosen = options_of(CATALOG[config.encoding]) | config.options_for("encoder")[config.encoding]
    wanted = _OPTIONS | (_RELATIVE_OPTIONS if config.encoding == "tupe-r" else {})
    faults += [
        f"encoding option {name}={chosen[name]!r}, where it has {value!r}"
        for name, value in wanted.items()
        if chosen[name] != value
    ]
    return faults
