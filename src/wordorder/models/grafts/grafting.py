"""Give a trained BERT or RoBERTa an encoding; until training moves it, it computes what it did before."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from typing import Any, cast

import torch
import transformers as hf
from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.errors import BadInput
from wordorder.models.grafts import hosts
from wordorder.models.grafts.grafted import GraftedPart, attention_of, check_attention

GRAFTS: dict[type[PreTrainedModel], tuple[Any, type[GraftedPart]]] = {
    hf.BertModel: (hf.AutoModel, hosts.GraftedBertModel),
    hf.BertForPreTraining: (hf.AutoModelForPreTraining, hosts.GraftedBertForPreTraining),
    hf.BertForMaskedLM: (hf.AutoModelForMaskedLM, hosts.GraftedBertForMaskedLM),
    hf.BertForNextSentencePrediction: (
        hf.AutoModelForNextSentencePrediction,
        hosts.GraftedBertForNextSentencePrediction,
    ),
    hf.BertForSequenceClassification: (
        hf.AutoModelForSequenceClassification,
        hosts.GraftedBertForSequenceClassification,
    ),
    hf.BertForMultipleChoice: (hf.AutoModelForMultipleChoice, hosts.GraftedBertForMultipleChoice),
    hf.BertForTokenClassification: (hf.AutoModelForTokenClassification, hosts.GraftedBertForTokenClassification),
    hf.BertForQuestionAnswering: (hf.AutoModelForQuestionAnswering, hosts.GraftedBertForQuestionAnswering),
    hf.RobertaModel: (hf.AutoModel, hosts.GraftedRobertaModel),
    hf.RobertaForMaskedLM: (hf.AutoModelForMaskedLM, hosts.GraftedRobertaForMaskedLM),
    hf.RobertaForSequenceClassification: (
        hf.AutoModelForSequenceClassification,
        hosts.GraftedRobertaForSequenceClassification,
    ),
    hf.RobertaForMultipleChoice: (hf.AutoModelForMultipleChoice, hosts.GraftedRobertaForMultipleChoice),
    hf.RobertaForTokenClassification: (
        hf.AutoModelForTokenClassification,
        hosts.GraftedRobertaForTokenClassification,
    ),
    hf.RobertaForQuestionAnswering: (hf.AutoModelForQuestionAnswering, hosts.GraftedRobertaForQuestionAnswering),
}
"""The host's class -> the Auto class that loads its graft, and the graft."""


def graft(
    model: PreTrainedModel,
    encoding: str = "tupe-r",
    *,
    encoding_options: Mapping[str, object] | None = None,
    keep_input_positions: bool = True,
) -> PreTrainedModel:
    """Give a trained BERT or RoBERTa an encoding that acts on scores, TUPE above all.

    With ``keep_input_positions`` the grafted model computes what the host computes, up to rounding, until a step of
    training moves it: the host's input positions stay; the content scale stays the host's 1/sqrt(d), which makes up
    for the sqrt 2 by which TUPE's is smaller; TUPE's query projection is 0 and its key projection, table and norm are
    drawn from the host's initial range, so the correlation of positions and both [CLS] numbers are 0; TUPE-R's
    relative numbers are 0. The query projection and the relative numbers learn from the first step on, the others
    from the second.

    The host is left as it was: its weights are copied, to the same dtypes and devices, along with which of them are
    frozen and whether the model trains. What was not there yet is drawn from torch's generator.

    The result is a transformers model of its own type (`GraftedBertForMaskedLM`, ... with model types
    ``wordorder-grafted-bert`` and ``wordorder-grafted-roberta``): it is saved, loaded by the Auto classes after
    ``import wordorder.models``, and trained by any Trainer.

    >>> from transformers import BertConfig, BertForMaskedLM
    >>> import wordorder.models
    >>> sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    >>> type(wordorder.models.graft(BertForMaskedLM(BertConfig(**sizes)), "tupe-r")).__name__
    'GraftedBertForMaskedLM'

    Args:
        model: a BERT or RoBERTa of transformers, with any head, whose attention is "sdpa" or "flex_attention".
        encoding: a name of the catalogue that acts on scores whatever the tokens say (tupe-a, tupe-r, t5), or several
            joined by "+".
        encoding_options: options of the encoding; nested by name for several.
        keep_input_positions: False takes the host's input positions out, as TUPE has none. The grafted model then
            does **not** begin where the host is, and must be trained before it is of use; encodings without a
            start at 0 (alibi) are allowed only so.

    Raises:
        BadInput: the model is neither BERT nor RoBERTa, is a decoder, is grafted already, is quantised or holds
            adapters, its attention drops the bias ("eager", flash attention), or the encoding is unknown or acts
            elsewhere.
    """
    grafted_class = _graft_of(model)
    check_attention(attention_of(model.config))
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise BadInput("the model is quantised; graft it first, then quantise")
    config = _config(
        grafted_class,
        model.config,
        encoding=encoding,
        encoding_options=None if encoding_options is None else dict(encoding_options),
        keep_input_positions=keep_input_positions,
    )
    grafted = cast("Any", grafted_class)(config)
    grafted.to(device=model.device, dtype=model.dtype)
    _copy_weights(model, grafted)
    grafted.train(model.training)
    return grafted


def register_grafts() -> None:
    """Make the grafted models known to transformers' Auto classes."""
    for config_class in (hosts.GraftedBertConfig, hosts.GraftedRobertaConfig):
        hf.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    for auto, grafted_class in GRAFTS.values():
        auto.register(grafted_class.config_class, grafted_class, exist_ok=True)


def _graft_of(model: PreTrainedModel) -> type[GraftedPart]:
    """Return the class of the graft.

    Raises:
        BadInput: there is none, with the reason.
    """
    name = type(model).__name__
    if isinstance(model, GraftedPart):
        raise BadInput(f"model is grafted already ({name}, encoding {model.config.encoding!r}); graft a plain one")
    config = getattr(model, "config", None)
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise BadInput(f"model is a decoder or has cross-attention ({name}); graft takes encoders")
    if type(model) not in GRAFTS:
        known = ", ".join(host.__name__ for host in GRAFTS)
        raise BadInput(f"model must be a BERT or RoBERTa of transformers, got {name}; graft takes: {known}")
    return GRAFTS[type(model)][1]


def _config(grafted_class: type[GraftedPart], host: PreTrainedConfig, **fields: Any) -> PreTrainedConfig:
    """Return the host's configuration with sizes, labels and all, as the graft's type."""
    kept = {k: v for k, v in host.to_dict().items() if k not in ("model_type", "architectures", "transformers_version")}
    config = cast("Any", grafted_class.config_class).from_dict({**kept, **fields})
    config._attn_implementation = attention_of(host)
    return config


@torch.no_grad()
def _copy_weights(host: PreTrainedModel, grafted: PreTrainedModel) -> None:
    """Copy every weight of the host, with its dtype and device and whether it is frozen.

    Raises:
        BadInput: the host holds weights that are not BERT's or RoBERTa's own.
    """
    targets = dict(grafted.named_parameters())
    sources = dict(host.named_parameters())
    foreign = [n for n in sources if n not in targets and "embeddings.position_embeddings." not in n]
    if foreign:
        raise BadInput(f"model holds weights that are not its architecture's ({', '.join(foreign[:3])}, ...); graft it"
                       " before adding adapters, or merge them")  # fmt: skip
    for name, source in sources.items():
        if name in targets:
            targets[name].data = source.detach().clone()
            targets[name].requires_grad_(source.requires_grad)
