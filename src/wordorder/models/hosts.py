"""Models of transformers in recipes: the class of a task, and the model of a folder with its encoding swapped."""

# transformers' functions and attributes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
import transformers as hf
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from wordorder.errors import BadInput
from wordorder.models.saved_folder import load_config, load_with_new_head
from wordorder.models.swap.families import FAMILIES
from wordorder.models.swap.folder import SwappedFields
from wordorder.models.swap.order import MODEL

HOST_FIELDS: Mapping[str, type] = {
    "encoding": str,
    "encoding_options": dict,
    "encoding_start": str,
    "max_position_embeddings": int,
}
"""Types of the fields of [model] beside `pretrained` for a model of transformers, whose folder says all others."""

_AUTO: dict[str, tuple[Any, Any]] = {
    "ForCausalLM": (hf.AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "ForMaskedLM": (hf.AutoModelForMaskedLM, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    "ForSequenceClassification": (
        hf.AutoModelForSequenceClassification,
        modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    ),
}
"""End of the name of a task's class -> the Auto class, and its table from types of models to names of classes."""


def class_of_host(kind: str, head: str) -> type[PreTrainedModel] | None:
    """Return the class of a family for a head such as "ForMaskedLM"; None if it has none."""
    if head not in _AUTO or FAMILIES[kind].t5_bias:
        return None  # T5's classifier looks for ends among its tokens, so that nothing counts it before training
    if head == "ForCausalLM" and not FAMILIES[kind].causal:
        return None  # it would see what it predicts
    name = _AUTO[head][1].get(kind)
    return None if name is None else getattr(hf, name)


def built(config: PreTrainedConfig, kind: type[PreTrainedModel]) -> PreTrainedModel:
    """Build a model of a class as its configuration says; only the Auto classes know what a swapped one says."""
    if config.model_type not in FAMILIES:
        return kind(config)
    return _auto(config, kind).from_config(config)


def _auto(config: PreTrainedConfig, kind: type[PreTrainedModel]) -> Any:
    return next(auto for auto, names in _AUTO.values() if names.get(config.model_type) == kind.__name__)


def host_config(folder: Path, kind: type[PreTrainedModel], fields: Mapping[str, Any], labels: Mapping[str, Any]) -> Any:
    """Return the configuration of a folder's model with the encoding of [model], without making weights.

    Args:
        folder: of transformers' model, checked by `check_model_of`.
        kind: class of the task.
        fields: those of `HOST_FIELDS`, encoding among them.
        labels: fields of the configuration that the data decides: num_labels, id2label, label2id, problem_type.

    Raises:
        BadInput: the encoding, or one of its options, is not for this model.
    """
    with torch.device("meta"):
        return _swapped(built(_config(folder, labels), kind), fields, seed=0).config


def load_host(
    folder: Path,
    kind: type[PreTrainedModel],
    fields: Mapping[str, Any],
    labels: Mapping[str, Any],
    *,
    seed: int,
    weights: bool,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Build a folder's model with its weights, then swap its encoding; what is new is drawn by name from the seed.

    Arguments and faults are those of `host_config`, and ``weights``: read them; without, all are to be replaced by
    those of a checkpoint.

    Returns:
        The model; and loaded, the number of weights from the folder, and the names of those that only the model (new)
        or only the folder has (unused).
    """
    config = _config(folder, labels)
    if not weights:
        return _swapped(built(config, kind), fields, seed=seed), {}
    model, new, unused = load_with_new_head(_auto(config, kind), folder, config=config, seed=seed)
    before = set(model.state_dict())
    model = _swapped(model, fields, seed=seed)
    after = set(model.state_dict())
    names = {"new": [*new, *sorted(after - before)], "unused": [*unused, *sorted(before - after)]}
    return model, {"loaded": len((before & after) - set(new)), **names}


def _config(folder: Path, labels: Mapping[str, Any]) -> Any:
    config = load_config(hf.AutoConfig, folder)
    config.dtype = torch.float32  # also of weights in bfloat16, which would not move by small steps
    for name, value in labels.items():
        setattr(config, name, value)
    return config


def _swapped(model: PreTrainedModel, fields: Mapping[str, Any], *, seed: int) -> PreTrainedModel:
    from wordorder.models import swap_encoding

    encoding, options = str(fields["encoding"]), fields.get("encoding_options")
    if encoding != MODEL:
        if isinstance(model.config, SwappedFields):
            raise BadInput(
                f"model.pretrained: its encoding was swapped already, for {model.config.wordorder['encoding']!r}; name"
                f" the folder of the plain model, or leave model.encoding out to train it as it is"
            )
        longest, start = fields.get("max_position_embeddings"), cast(Any, fields.get("encoding_start"))
        return swap_encoding(model, encoding, options=options, max_positions=longest, start=start, seed=seed)
    unread = [name for name in HOST_FIELDS if name != "encoding" and fields.get(name)]
    if unread:
        raise BadInput(f'model.{unread[0]}: encoding "model" has none, the folder says all; leave it out')
    return model
