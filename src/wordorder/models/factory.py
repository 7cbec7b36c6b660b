"""Models by the names that recipes use: a network, a task, and the configuration's fields."""

import dataclasses
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.errors import BadInput
from wordorder.models.classification import (
    WordOrderEncoderForSequenceClassification,
    WordOrderEncoderForTokenClassification,
)
from wordorder.models.configuration import WordOrderEncoderConfig, type_faults, unknown_field
from wordorder.models.masked_lm import WordOrderEncoderForMaskedLM
from wordorder.models.question_answering import WordOrderEncoderForQuestionAnswering
from wordorder.networks import initialise

CONFIGS: dict[str, type[PreTrainedConfig]] = {"encoder": WordOrderEncoderConfig}
CLASSES: dict[str, dict[str, type[PreTrainedModel]]] = {
    "encoder": {
        "masked-lm": WordOrderEncoderForMaskedLM,
        "classification": WordOrderEncoderForSequenceClassification,
        "regression": WordOrderEncoderForSequenceClassification,
        "token-classification": WordOrderEncoderForTokenClassification,
        "question-answering": WordOrderEncoderForQuestionAnswering,
    },
}
NETWORK_TASKS: dict[str, tuple[str, ...]] = {network: tuple(tasks) for network, tasks in CLASSES.items()}


def config_fields(network: str) -> dict[str, Any]:
    """The fields that ``[model]`` may set for this network, with their defaults.

    Raises:
        BadInput: unknown network.
    """
    inherited = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    fields = dataclasses.fields(_config_class(network))
    return {f.name: f.default for f in fields if f.name not in inherited and f.name != "wordorder_version"}


def build_config(network: str, **fields: Any) -> PreTrainedConfig:
    """A configuration from the fields of a recipe.

    Args:
        network: "encoder".
        **fields: of the configuration, and transformers' ``num_labels``, ``id2label``, ``label2id``,
            ``problem_type``.

    Raises:
        BadInput: one line per unknown field, wrong type or value out of range.
    """
    config_class = _config_class(network)
    known = set(config_fields(network)) | {"num_labels", "id2label", "label2id", "problem_type"}
    faults = [unknown_field(key, known) for key in fields if key not in known]
    wrong = type_faults(config_class, fields)
    sound = {k: v for k, v in fields.items() if k in known and not any(line.startswith(f"{k} must") for line in wrong)}
    try:
        config = config_class(**sound)
    except BadInput as error:
        raise BadInput([*faults, *wrong, *error.faults]) from None
    if faults or wrong:
        raise BadInput([*faults, *wrong])
    return config


def model_class(network: str, task: str) -> type[PreTrainedModel]:
    """The class for a network and a task.

    Raises:
        BadInput: unknown network, or a task that the network does not do.
    """
    _config_class(network)
    if task not in CLASSES[network]:
        raise BadInput(f"model.network {network!r} does not do task {task!r}; it does: {', '.join(CLASSES[network])}")
    return CLASSES[network][task]


def build_model(config: PreTrainedConfig, task: str, *, seed: int) -> PreTrainedModel:
    """A model whose weights are drawn per parameter name from ``seed``.

    Two models share every initial weight whose name and shape they have in common, whatever else differs: so arms of
    a comparison start alike.

    Raises:
        BadInput: the configuration's network does not do the task.
    """
    network = config.model_type.removeprefix("wordorder-")
    model = model_class(network, task)(config)
    initialise(model, seed=seed, std=config.initializer_range)
    model.tie_weights()
    return model


def _config_class(network: str) -> type[PreTrainedConfig]:
    if network not in CONFIGS:
        raise BadInput(f"unknown model.network {network!r}; known: {', '.join(CONFIGS)}")
    return CONFIGS[network]
