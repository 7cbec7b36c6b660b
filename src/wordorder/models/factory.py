"""Build models by the names that recipes use, register them with transformers, and name what LoRA adapts in them."""

# transformers' registration functions are typed in part only
# pyright: reportUnknownMemberType=false

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import torch
import transformers as hf
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from wordorder.errors import BadInput
from wordorder.hints import describe, fits
from wordorder.models import decoder, encoder, seq2seq
from wordorder.models.configuration import (
    FOLLOWING_SIZES,
    PARTS_OF_BLOCK,
    WordOrderConfig,
    WordOrderDecoderConfig,
    WordOrderEncoderConfig,
    WordOrderSeq2SeqConfig,
)
from wordorder.models.faults import unknown_fields
from wordorder.models.hosts import class_of_host
from wordorder.models.swap.families import FAMILIES
from wordorder.networks import initialise
from wordorder.networks.options import BLOCKS

MODELS: dict[type[WordOrderConfig], dict[Any, type[PreTrainedModel]]] = {
    WordOrderEncoderConfig: {
        hf.AutoModel: encoder.WordOrderEncoderModel,
        hf.AutoModelForMaskedLM: encoder.WordOrderEncoderForMaskedLM,
        hf.AutoModelForQuestionAnswering: encoder.WordOrderEncoderForQuestionAnswering,
        hf.AutoModelForSequenceClassification: encoder.WordOrderEncoderForSequenceClassification,
        hf.AutoModelForTokenClassification: encoder.WordOrderEncoderForTokenClassification,
    },
    WordOrderDecoderConfig: {
        hf.AutoModel: decoder.WordOrderDecoderModel,
        hf.AutoModelForCausalLM: decoder.WordOrderDecoderForCausalLM,
    },
    WordOrderSeq2SeqConfig: {
        hf.AutoModel: seq2seq.WordOrderSeq2SeqModel,
        hf.AutoModelForSeq2SeqLM: seq2seq.WordOrderSeq2SeqForConditionalGeneration,
    },
}
NETWORK_TASKS: dict[str, tuple[str, ...]] = {
    "encoder": ("masked-lm", "classification", "regression", "token-classification", "question-answering"),
    "decoder": ("causal-lm",),
    "seq2seq": ("translation",),
    "classifier": ("classification", "regression"),
}
"""Network of recipes -> names of tasks that `build_model` takes for it; the classifier is in papers/."""
HEADS: dict[str, str] = {
    "masked-lm": "ForMaskedLM",
    "causal-lm": "ForCausalLM",
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "translation": "ForConditionalGeneration",
}
"""Name that `build_model` takes -> end of the name of the class. A task of recipes says this end itself."""


def config_fields(network: str) -> dict[str, Any]:
    """Return the fields that ``[model]`` may set for this network, with their defaults."""
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    fields = dataclasses.fields(config_class(network))
    return {f.name: f.default for f in fields if f.name not in inherited and f.name != "wordorder_version"}


def filled_fields(
    network: str, fields: Mapping[str, object], *, following: bool = True, one_block: bool = True
) -> dict[str, object]:
    """Return the fields of ``[model]`` with all defaults, so that they mean the same after a default changes.

    What only the data knows (vocab_size, special tokens) stays out, and so do options of the encoding; and with
    ``following=False`` those that follow others, such as intermediate_size = 4 * hidden_size; with ``one_block=False``
    those that follow the block.
    """
    known = config_fields(network)
    filled: dict[str, Any] = {**fields}
    for name, default in known.items():
        if default is not None and name != "vocab_size":
            filled.setdefault(name, default)
    for name, part in PARTS_OF_BLOCK.items() if one_block else ():
        if filled.get(name) is None:
            filled[name] = BLOCKS[filled["block"]][part]
    for name, (followed, factor) in _FOLLOWING.items() if following else ():
        if name in known and filled.get(name) is None:
            filled[name] = factor * filled[followed]
    if following and filled.get("embedding_norm") is None:
        filled["embedding_norm"] = filled["norm_placement"] == "post"
    return filled


_FOLLOWING = {
    **FOLLOWING_SIZES,
    "decoder_layers": ("num_hidden_layers", 1),
    "classifier_dropout": ("hidden_dropout_prob", 1),
}
"""Fields whose default is None, those that networks take in their place, and the factor; see the configurations."""
FOLLOWED = frozenset({"network", "pretrained", "norm_placement", *(followed for followed, _ in _FOLLOWING.values())})
"""Fields of ``[model]`` that others follow; see `filled_fields`."""


def build_config(network: str, **fields: Any) -> PreTrainedConfig:
    """Build a configuration from the fields of a recipe, and transformers' on labels, such as ``num_labels``.

    Raises:
        BadInput: one line per unknown field, wrong type or value out of range.
    """
    kind = config_class(network)
    allowed = set(config_fields(network)) | {"num_labels", "id2label", "label2id", "problem_type"}
    faults = unknown_fields((key for key in fields if key not in allowed), allowed)
    hints = {f.name: f.type for f in dataclasses.fields(kind) if not isinstance(f.type, str)}
    wrong = {name for name, value in fields.items() if name in hints and not fits(hints[name], value)}
    faults += [f"{name} must be {describe(hints[name])}, got {fields[name]!r}" for name in fields if name in wrong]
    try:
        config = kind(**{name: fields[name] for name in fields if name in allowed and name not in wrong})
    except BadInput as error:
        raise BadInput([*faults, *error.faults]) from None
    if faults:
        raise BadInput(faults)
    return config


def class_with_head(network: str, head: str) -> type[PreTrainedModel] | None:
    """Return the network's model class whose name ends in ``head``, such as "ForMaskedLM"; None if it has none.

    The network is also the type of a model of transformers whose encoding can be swapped, such as "llama".
    """
    if network in FAMILIES:
        return class_of_host(network, head)
    classes = MODELS[config_class(network)].values()
    return next((kind for kind in classes if kind.__name__.endswith(head)), None)


def model_class(network: str, task: str) -> type[PreTrainedModel]:
    """Return the class for a network and a task.

    Raises:
        BadInput: unknown network, or a task that the network does not do.
    """
    config_class(network)
    kind = class_with_head(network, HEADS[task]) if task in HEADS else None
    if kind is None:
        tasks = ", ".join(NETWORK_TASKS[network])
        raise BadInput(f"model.network {network!r} does not do task {task!r}; it does: {tasks}")
    return kind


def build_model(config: PreTrainedConfig, task: str | type[PreTrainedModel], *, seed: int) -> PreTrainedModel:
    """Build a model for a task, or of a class, whose weights are drawn per parameter name from ``seed``.

    Two models share every initial weight whose name and shape they have in common: so arms of a comparison start alike.

    Raises:
        BadInput: the configuration's network does not do the task.
    """
    kind = model_class(config.model_type.removeprefix("wordorder-"), task) if isinstance(task, str) else task
    registered = getattr(config, "own_encodings", None)  # their constructors may draw from torch's global generator
    with cast("Any", torch.random).fork_rng(devices=[], enabled=bool(registered)):
        if registered:
            torch.default_generator.manual_seed(seed)
        model = kind(config)
    initialise(model, seed=seed, std=config.initializer_range)
    model.tie_weights()
    return model


def config_class(network: str) -> type[WordOrderConfig]:
    """Return the class of a network's configurations, and refuse an unknown network, as all that take a name do.

    Those of papers/ are loaded here, and nowhere else.
    """
    if network not in NETWORK_TASKS:
        raise BadInput(f"unknown model.network {network!r}; known: {', '.join(NETWORK_TASKS)}")
    model_type = f"wordorder-{network}"
    if not any(config.model_type == model_type for config in MODELS):
        from wordorder.papers import register

        register()
    return next(config for config in MODELS if config.model_type == model_type)


class ClassifierConfigOnDemand(PreTrainedConfig):
    """Stand for the configuration of the model type "wordorder-classifier" until one is built."""

    model_type = "wordorder-classifier"

    def __new__(cls, **fields: Any) -> Any:
        return config_class("classifier")(**fields)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return config_class("classifier").from_dict(config_dict, **kwargs)


def register_network(config: type[WordOrderConfig], classes: dict[Any, type[PreTrainedModel]]) -> None:
    """Make a network known to `build_model` and to transformers' Auto classes: its configuration and its models."""
    MODELS[config] = classes
    hf.AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto, model in classes.items():
        auto.register(config, model, exist_ok=True)
        if auto is hf.AutoModelForCausalLM:
            # transformers' Trainer smooths labels itself, and shifts them for the classes of this list alone
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type] = model.__name__


def register_models() -> None:
    """Register every model here with transformers' Auto classes, and the classifiers of papers/ by their type."""
    for config, classes in list(MODELS.items()):
        register_network(config, classes)
    hf.AutoConfig.register(ClassifierConfigOnDemand.model_type, ClassifierConfigOnDemand, exist_ok=True)


CONTENT = ("qkv", "out", "q", "kv", "query", "key", "value")
"""Projections of attention: queries, keys and values together, back, those of cross-attention, and a BERT's."""

POSITIONS = ("query_projection", "key_projection")
"""TUPE's projections of positions, which all layers share."""


def lora_targets(model: Any, *, positions: bool = False) -> list[str]:
    """Return names for ``LoraConfig(target_modules=...)`` of any model of this package, and of a swapped BERT.

    As Hu et al. 2021, "LoRA", https://arxiv.org/abs/2106.09685, these are the projections of attention alone, each
    called wherever it is used, memory's slots included; with ``positions`` also TUPE's projections of positions.

    >>> from wordorder.models import build_config, build_model
    >>> sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = build_model(build_config("encoder", encoding="tupe-a", **sizes), "masked-lm", seed=0)
    >>> lora_targets(model, positions=True)
    ['qkv', 'out', 'query_projection', 'key_projection']

    Raises:
        ValueError: the model has none of these modules, or no projections of positions.
    """
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    content = [name for name in CONTENT if name in names]
    if not content:
        raise ValueError(f"model must have attention ({', '.join(CONTENT)}), got {type(model).__name__}")
    positional = [name for name in POSITIONS if name in names]
    if positions and not positional:
        config = model.config
        encoding = config.wordorder["encoding"] if hasattr(config, "wordorder") else config.encoding
        raise ValueError(f"positions: encoding {encoding!r} has no projections of positions; leave it out")
    return content + positional if positions else content
