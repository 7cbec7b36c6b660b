"""The base of grafted BERT and grafted RoBERTa: the encoding, its positions, and what they refuse."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# a mixin's base class is known only where it is mixed in, so what it inherits from there is Any
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportIncompatibleMethodOverride=false

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

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
from wordorder.models.config.encoding_defaults import complete_options
from wordorder.models.config.faults import MOST_LETTERS, backend_faults, class_faults, layer_faults
from wordorder.models.layout import one_input, tokens_of
from wordorder.models.length import first_position, longest_text
from wordorder.models.pretrained import LoadsEncoding
from wordorder.ops import Arbitrary, Contiguous, Positions
from wordorder.ops.precision import working_dtype

ATTENTIONS = ("sdpa", "flex_attention")
"""transformers' attention functions that read ``position_bias``; all others drop it without a word."""


class NoInputPositions(nn.Module):
    """A module in the place of the host's table of input positions that adds nothing."""

    def forward(self, position_ids: Tensor) -> Tensor:
        """Return one integer 0, which changes neither the values nor the dtype of what it is added to."""
        return position_ids.new_zeros(())


class GraftedPart(LoadsEncoding):
    """The base of body and heads: the attention functions that they allow. Mixed in before the host's class."""

    _supports_flash_attn = False

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        """Choose the attention function, of those that read the bias.

        Raises:
            BadInput: it would drop the bias.
        """
        if isinstance(attn_implementation, str):
            check_attention(attn_implementation)
        super().set_attn_implementation(attn_implementation, *args, **kwargs)


class GraftedBody(GraftedPart):
    """A host's body (`BertModel`, `RobertaModel`) whose attention also reads an encoding of this package.

    The encoding's term is computed once per forward and handed to every layer through transformers' ``position_bias``.
    The scores are ``q.k / sqrt(d) + bias``: the content scale stays the host's, as its weights were trained with it
    (TUPE's own 1/sqrt(2 d) and weights larger by sqrt 2 would give the same scores).

    Positions are counted as everywhere in this package: 0 is the first token that ``attention_mask`` (B, T) allows,
    on either side of padding, and the host's ``position_ids`` are followed where they are given. So the bias of a text
    is the same with padding on the left and on the right; whether the host's own input positions are is the host's
    affair (RoBERTa's are, BERT's are not).
    """

    def __init__(self, config: PreTrainedConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        check_attention(attention_of(config))
        self.encoding: Composition = encoding_of(config, longest_text(config))
        if not config.keep_input_positions:
            cast("Any", self).embeddings.position_embeddings = NoInputPositions()
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        # transformers asks for the modules that hold weights, not for the encoding as a whole
        silent = {id(p) for part in _terms(getattr(self, "encoding", None)) for p in part.zero_init_parameters()}
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
                for, or the call is one of a decoder.
            ValueError: both or neither of input_ids and inputs_embeds, or a position beyond the table.
        """
        given = one_input(input_ids, inputs_embeds)
        self._check_call(kwargs)
        kwargs["position_bias"] = self.position_bias((given.shape[0], given.shape[1]), attention_mask, position_ids)
        return cast("Any", super()).forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )

    def position_bias(
        self, shape: tuple[int, int], attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Tensor:
        """Return the term that every layer adds to its scores, (B or 1, H, T, T), in the dtype of queries and keys."""
        like = cast("Tensor", self.get_input_embeddings().weight)
        positions = self._positions(shape[1], attention_mask, position_ids)
        order = self.encoding.prepare(positions, dtype=like.dtype, device=like.device)
        assert isinstance(order, PositionTerms)  # one for all layers
        assert order.bias is not None  # every part acts on scores
        bias_BHTT = order.bias.written_out(working_dtype(like))
        # flex_attention indexes the bias by example, and reads past the end of a bias that is one for all
        return bias_BHTT.expand(shape[0], -1, -1, -1) if attention_of(self.config) == "flex_attention" else bias_BHTT

    def _positions(self, length: int, attention_mask: Tensor | None, position_ids: Tensor | None) -> Positions:
        if position_ids is not None:
            # RoBERTa gives padding an id below the first; nobody sees it
            return Arbitrary((position_ids - first_position(self.config)).clamp(min=0))
        if attention_mask is None or attention_mask.dim() != 2:
            return Contiguous(length)
        return Contiguous(length, -tokens_of(attention_mask).int().argmax(dim=1))

    def _check_call(self, kwargs: dict[str, object]) -> None:
        check_attention(attention_of(self.config))
        for name in ("encoder_hidden_states", "past_key_values", "position_bias"):
            if kwargs.get(name) is not None:
                raise BadInput(
                    f"{name} was given, but a grafted model is an encoder with a bias of its own; leave it out"
                )
        if kwargs.get("output_attentions"):
            raise BadInput(
                "output_attentions=True was given, but the attention functions that read the position bias return no"
                " weights, and eager attention drops the bias; leave it out: the learned maps are in"
                f" {self._where_maps_are()}"
            )
        checkpoint = getattr(self, "_gradient_checkpointing_func", None)
        if self.training and getattr(checkpoint, "keywords", {}).get("use_reentrant"):
            raise BadInput(
                "use_reentrant=True would lose the gradient of the bias, which all layers share; take"
                " gradient_checkpointing_kwargs={'use_reentrant': False}, transformers' default"
            )

    def _where_maps_are(self) -> str:
        """Return the expression that gives the encoding's terms, from the head that the caller most likely has."""
        body = f"model.{self.base_model_prefix}"
        parts = [f"{body}.encoding.parts[{name!r}].maps(positions)" for name in self.encoding.parts if name == "tupe"]
        return parts[0] if parts else f"{body}.position_bias((1, T))"


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
        settle_graft(self, kwargs)
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
    """Refuse attention functions that drop the bias.

    Raises:
        BadInput: names the function and the remedy.
    """
    if implementation not in ATTENTIONS:
        raise BadInput(
            f"attn_implementation {implementation!r} drops the position bias without a word; take one of"
            f" {', '.join(ATTENTIONS)}: model.set_attn_implementation('sdpa'), or"
            " from_pretrained(..., attn_implementation='sdpa')"
        )


def encoding_of(config: PreTrainedConfig, longest: int) -> Composition:
    """Build the encoding that a grafted configuration describes.

    Raises:
        BadInput: the configuration is of a decoder; or the encoding or an option is unknown, acts elsewhere than on
            the scores, differs by layer, or cannot be 0 and ``keep_input_positions`` asks for it.
    """
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
        options = complete_options(
            config.encoding, config.encoding_options, version=config.wordorder_version, has_cls=True
        )
        encoding = build_encoding(config.encoding, **sizes, max_positions=longest, options=options)
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


def settle_graft(config: Any, given: Mapping[str, Any]) -> None:
    """Refuse what `encoding_of` refuses, without memory for the weights, and note the version that wrote the rest.

    First what would take for ever, or run code of the Hub, before that is found out.

    Args:
        given: what the configuration was given beside its fields.

    Raises:
        BadInput: one line per fault.
    """
    from wordorder import __version__

    counts = {name: getattr(config, name) for name in ("num_hidden_layers", "num_attention_heads")}
    faults = layer_faults({name: count for name, count in counts.items() if isinstance(count, int)})
    faults += class_faults(given.get("num_labels"), config.id2label) + backend_faults(given)
    if len(str(config.encoding)) > MOST_LETTERS:
        faults.append(f"encoding has {len(str(config.encoding)):,} letters, more than the {MOST_LETTERS:,} of any name")
    if faults:
        raise BadInput(faults)
    with torch.device("meta"):
        encoding_of(config, longest_text(config))
    if config.wordorder_version is None:
        config.wordorder_version = __version__


def _terms(encoding: Composition | None) -> list[OnScores]:
    return [] if encoding is None else [part for part in encoding.parts.values() if isinstance(part, OnScores)]
