"""Graft an encoding on a trained BERT or RoBERTa; until training moves it, it computes what it did before."""

# transformers' classes are typed in part only, and declare what they inherit anew
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleVariableOverride=false
# a mixin's base class is known only where it is mixed in, so what it inherits from there is Any
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportIncompatibleMethodOverride=false

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import transformers as hf
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.encodings import (
    CATALOG,
    Composition,
    Hybrid,
    OnScores,
    PositionTerms,
    ReplacesEmbedding,
    build_encoding,
    names_of,
)
from wordorder.errors import BadInput
from wordorder.models.attention_interface import NAME
from wordorder.models.config.configuration import complete_options
from wordorder.models.config.faults import MOST_LAYERS, size_faults, stranger_faults
from wordorder.models.layout import tokens_of
from wordorder.models.pretrained import LoadsEncoding
from wordorder.models.streaming import first_position, longest_text
from wordorder.networks.stack import one_input
from wordorder.ops import Arbitrary, Contiguous, Positions
from wordorder.ops.execution import working_dtype

ATTENTIONS = ("sdpa", "flex_attention", NAME)
"""Attention functions in transformers that read ``position_bias``; all others drop it without a word."""


class NoInputPositions(nn.Module):
    """A module in the place of the host's table of input positions that adds nothing."""

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return one integer 0, which changes neither the values nor the dtype of what it is added to."""
        return position_ids.new_zeros(())


class GraftedPart(LoadsEncoding):
    """The base of body and heads: the attention functions that they allow. Mixed in before the host's class."""

    _supports_flash_attn = False

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        """Choose the attention function, of those that read the bias; another is refused."""
        if isinstance(attn_implementation, str):
            check_attention(attn_implementation)
        super().set_attn_implementation(attn_implementation, *args, **kwargs)


class GraftedBody(GraftedPart):
    """A host's body (`BertModel`, `RobertaModel`) whose attention also reads an encoding of this package.

    The encoding's term is computed once per forward and handed to every layer through transformers' ``position_bias``.
    The scores are ``q.k / sqrt(d) + bias``: the content scale stays the host's; see `graft`.

    Positions are counted as everywhere in this package: 0 is the first token that ``attention_mask`` (B, T) allows,
    on either side of padding, and the host's ``position_ids`` are followed where they are given. So the bias of a text
    is the same with padding on the left and on the right; whether the host's own input positions are is the host's
    affair (RoBERTa's are, BERT's are not).
    """

    def __init__(self, config: PreTrainedConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        check_attention(attention_of(config))
        self.encoding: Composition = encoding_of(config)
        if not config.keep_input_positions:
            cast("Any", self).embeddings.position_embeddings = NoInputPositions()
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # transformers asks for the modules that hold weights, not for the encoding as a whole
        encoding = getattr(self, "encoding", None)
        parts = encoding.parts.values() if isinstance(encoding, Composition) else ()
        silent = {id(p) for part in parts if isinstance(part, OnScores) for p in part.zero_init_parameters()}
        for parameter in module.parameters(recurse=False):
            if id(parameter) in silent:
                nn.init.zeros_(parameter)  # which transformers guards: loaded weights stay

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute the host's forward with the encoding's term in every layer's scores.

        Args:
            attention_mask: (B, T), 1 = token, 0 = padding, on either side; leave it out where nothing is padded: the
                bias is then one for all examples.
            position_ids: long (B or 1, T), as the host reads them (RoBERTa's begin at ``pad_token_id + 1``).

        Raises:
            BadInput: the attention function drops the bias, checkpointing is re-entrant, attention weights are asked
                for (other than of "wordorder"), or the call is one of a decoder.
            ValueError: both or neither of input_ids and inputs_embeds, or a position beyond the table.
        """
        given = one_input(input_ids, inputs_embeds)
        self._check_call(kwargs)
        shape = given.shape[0], given.shape[1]
        kwargs["position_bias"] = self.position_bias(shape, attention_mask, position_ids, device=given.device)
        if token_type_ids is None and not self.config.keep_input_positions:
            # the host would take as many from a buffer, which is no longer than the table that is left out
            token_type_ids = torch.zeros(given.shape[:2], dtype=torch.long, device=given.device)
        return cast("Any", super()).forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )

    def position_bias(
        self,
        shape: tuple[int, int],
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        device: torch.device | None = None,
    ) -> Tensor:
        """Return the term that every layer adds to its scores, (B or 1, H, T, T), in the dtype of queries and keys.

        ``device`` is that of the input, None = that of the token embeddings, which offloading keeps elsewhere.
        """
        weight = cast("Tensor", self.get_input_embeddings().weight)
        like = weight.new_empty(0, device=device or weight.device)
        positions: Positions = Contiguous(shape[1])
        if position_ids is not None:
            # RoBERTa gives padding an id below the first; nobody sees it
            positions = Arbitrary((position_ids - first_position(self.config)).clamp(min=0))
        elif attention_mask is not None and attention_mask.dim() == 2:
            positions = Contiguous(shape[1], -tokens_of(attention_mask).int().argmax(dim=1))
        order = self.encoding.prepare(positions, dtype=like.dtype, device=like.device)
        assert isinstance(order, PositionTerms)  # one for all layers
        assert order.bias is not None  # every part acts on scores
        bias_BHTT = order.bias.written_out(working_dtype(like))
        # flex_attention indexes the bias by example, and reads past the end of a bias that is one for all
        return bias_BHTT.expand(shape[0], -1, -1, -1) if attention_of(self.config) == "flex_attention" else bias_BHTT

    def _check_call(self, kwargs: dict[str, object]) -> None:
        check_attention(attention_of(self.config))
        for name in ("encoder_hidden_states", "past_key_values", "cache", "position_bias"):
            if kwargs.get(name) is not None:
                raise BadInput(
                    f"{name} was given, but a grafted model is an encoder with a bias of its own; leave it out"
                )
        if kwargs.get("output_attentions") and attention_of(self.config) != NAME:
            has_maps = "tupe" in self.encoding.parts
            learned = "encoding.parts['tupe'].maps(positions)" if has_maps else "position_bias((1, T))"
            raise BadInput(
                "output_attentions=True was given, but transformers' attention functions that read the position bias"
                " return no weights, and eager attention drops the bias; take set_attn_implementation('wordorder'), or"
                f" leave it out: the learned maps are in model.{self.base_model_prefix}.{learned}"
            )
        checkpoint = getattr(self, "_gradient_checkpointing_func", None)
        if self.training and getattr(checkpoint, "keywords", {}).get("use_reentrant"):
            raise BadInput(
                "use_reentrant=True would lose the gradient of the bias, which all layers share; take"
                " gradient_checkpointing_kwargs={'use_reentrant': False}, transformers' default"
            )


@dataclass(kw_only=True, repr=False, eq=False)  # as the host prints and compares
class GraftFields:
    """The fields that a graft adds to its host's configuration. Mixed in before the host's class.

    Args:
        encoding: a name of the catalogue that acts on scores, or several joined by "+".
        encoding_options: options of the encoding; nested by name for several.
        keep_input_positions: the host's own position embeddings stay.
        wordorder_version: version that wrote the configuration.

    Raises:
        BadInput: one line per fault.
    """

    encoding: str = "tupe-r"
    encoding_options: dict[str, Any] | None = None
    keep_input_positions: bool = True
    wordorder_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check what is given, then let transformers set the rest."""
        from wordorder import __version__

        # first what would take for ever, or run code of the Hub, before that is found out
        faults = size_faults(self, ("num_hidden_layers", "num_attention_heads"), MOST_LAYERS)
        faults += stranger_faults(kwargs, self.id2label)
        if faults:
            raise BadInput(faults)
        with torch.device("meta"):
            encoding_of(cast("PreTrainedConfig", self))
        self.wordorder_version = self.wordorder_version or __version__
        super().__post_init__(**kwargs)


class GraftedHead(GraftedPart):
    """A host's head (`BertForMaskedLM`, ...) on a grafted body. Mixed in before the host's class."""

    body_class: type[GraftedBody]

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        check_attention(attention_of(config))
        # the host's class has built a plain body and thereby said whether this head pools
        pools = getattr(self, self.base_model_prefix).pooler is not None
        setattr(self, self.base_model_prefix, self.body_class(config, add_pooling_layer=pools))
        self.post_init()


def attention_of(config: PreTrainedConfig) -> str:
    """Return the name of the attention function that a model with this configuration uses."""
    return str(cast("Any", config)._attn_implementation)


def check_attention(implementation: str) -> None:
    """Refuse attention functions that drop the bias."""
    if implementation not in ATTENTIONS:
        raise BadInput(
            f"attn_implementation {implementation!r} drops the position bias without a word; take one of"
            f" {', '.join(ATTENTIONS)}: model.set_attn_implementation('sdpa'), or"
            " from_pretrained(..., attn_implementation='sdpa')"
        )


def encoding_of(config: PreTrainedConfig) -> Composition:
    """Build the encoding that a grafted configuration describes."""
    faults = [
        f"{name}=True was given, but only encoders can be grafted; take a configuration with {name}=False"
        for name in ("is_decoder", "add_cross_attention")
        if getattr(config, name, False)
    ]
    sizes = {"width": config.hidden_size, "heads": config.num_attention_heads, "layers": config.num_hidden_layers}
    known = ", ".join(name for name, kind in CATALOG.items() if issubclass(kind, OnScores))
    unreached = "encoding {name!r} acts on {place}, which a graft cannot reach; it can be: {known}"
    try:
        for name in names_of(config.encoding):
            if issubclass(CATALOG[name], ReplacesEmbedding):
                raise BadInput(unreached.format(name=name, place=CATALOG[name].place, known=known))
        # texts of BERT and RoBERTa begin with [CLS], or <s>
        options = complete_options(config.encoding, config.encoding_options, has_cls=True)
        encoding = build_encoding(config.encoding, **sizes, max_positions=longest_text(config), options=options)
    except BadInput as error:
        raise BadInput([*faults, *error.faults]) from None
    except ValueError as error:
        raise BadInput([*faults, f"encoding {config.encoding!r}: {error}"]) from None
    if isinstance(encoding, Hybrid):
        faults.append(
            f"encoding {config.encoding!r} differs by layer, but the layers of a grafted model share one position bias;"
            " name one encoding for all of them"
        )
    for name, part in zip(names_of(config.encoding), encoding.parts.values(), strict=True):
        if not isinstance(part, OnScores):
            faults.append(unreached.format(name=name, place=CATALOG[name].place, known=known))
        elif config.keep_input_positions and not part.zero_init_parameters():
            faults.append(
                f"encoding {name!r} has no weights that make it 0, so the grafted model would not begin where the"
                " host is; pass keep_input_positions=False to have it all the same"
            )
    if faults:
        raise BadInput(faults)
    return encoding


@strict
class GraftedBertConfig(GraftFields, hf.BertConfig):
    """BERT's configuration and what was grafted."""

    model_type = "wordorder-grafted-bert"


class GraftedBertModel(GraftedBody, hf.BertModel):
    """BERT without a head, its scores with an encoding's term."""

    config: GraftedBertConfig
    config_class = GraftedBertConfig


@strict
class GraftedRobertaConfig(GraftFields, hf.RobertaConfig):
    """RoBERTa's configuration and what was grafted."""

    model_type = "wordorder-grafted-roberta"


class GraftedRobertaModel(GraftedBody, hf.RobertaModel):
    """RoBERTa without a head, its scores with an encoding's term.

    RoBERTa's position ids begin at ``pad_token_id + 1``, and its table has as many rows more than the longest text:
    514 for 512 tokens. The encoding counts from 0.
    """

    config: GraftedRobertaConfig
    config_class = GraftedRobertaConfig


def _head(host: type[PreTrainedModel], body: type[GraftedBody]) -> type[GraftedPart]:
    """Return the class of a host's head on a grafted body; heads differ in the host's class alone."""
    own = {"body_class": body, "config_class": body.config_class, "__module__": __name__, "__doc__": host.__doc__}
    return type(f"Grafted{host.__name__}", (GraftedHead, host), own)


_HEADS: dict[type[GraftedBody], tuple[type[PreTrainedModel], ...]] = {
    GraftedBertModel: (
        hf.BertForPreTraining,
        hf.BertForMaskedLM,
        hf.BertForNextSentencePrediction,
        hf.BertForSequenceClassification,
        hf.BertForMultipleChoice,
        hf.BertForTokenClassification,
        hf.BertForQuestionAnswering,
    ),
    GraftedRobertaModel: (
        hf.RobertaForMaskedLM,
        hf.RobertaForSequenceClassification,
        hf.RobertaForMultipleChoice,
        hf.RobertaForTokenClassification,
        hf.RobertaForQuestionAnswering,
    ),
}
_GRAFTED = [kind for body, hosts in _HEADS.items() for kind in (body, *(_head(host, body) for host in hosts))]
globals().update({kind.__name__: kind for kind in _GRAFTED})  # pickle looks classes up by name
GRAFTS: dict[type[PreTrainedModel], tuple[Any, type[GraftedPart]]] = {
    kind.__bases__[-1]: (getattr(hf, re.sub("Grafted(Bert|Roberta)(Model)?", "AutoModel", kind.__name__)), kind)
    for kind in _GRAFTED
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
        model: a BERT or RoBERTa of transformers, with any head, whose attention is "sdpa", "flex_attention" or
            "wordorder".
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
    dropped = ("model_type", "architectures", "transformers_version")
    fields = {name: value for name, value in model.config.to_dict().items() if name not in dropped}
    fields |= {
        "encoding": encoding,
        "encoding_options": None if encoding_options is None else dict(encoding_options),
        "keep_input_positions": keep_input_positions,
    }
    config = cast("Any", grafted_class.config_class).from_dict(fields)
    config._attn_implementation = attention_of(model.config)
    grafted = cast("Any", grafted_class)(config)
    grafted.to(device=model.device, dtype=model.dtype)
    _copy_weights(model, grafted)
    grafted.train(model.training)
    return grafted


def register_grafts() -> None:
    """Make the grafted models known to transformers' Auto classes."""
    for config_class in (GraftedBertConfig, GraftedRobertaConfig):
        hf.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    for auto, grafted_class in GRAFTS.values():
        auto.register(grafted_class.config_class, grafted_class, exist_ok=True)


def _graft_of(model: PreTrainedModel) -> type[GraftedPart]:
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


@torch.no_grad()
def _copy_weights(host: PreTrainedModel, grafted: PreTrainedModel) -> None:
    """Copy every weight of the host, with its dtype and device and whether it is frozen; they must be its own."""
    targets = dict(grafted.named_parameters())
    sources = dict(host.named_parameters())
    foreign = [n for n in sources if n not in targets and "embeddings.position_embeddings." not in n]
    if foreign:
        raise BadInput(
            f"model holds weights that are not its architecture's ({', '.join(foreign[:3])}, ...); graft it before"
            " adding adapters, or merge them"
        )
    for name, source in sources.items():
        if name in targets:
            targets[name].data = source.detach().clone()
            targets[name].requires_grad_(source.requires_grad)
