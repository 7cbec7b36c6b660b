"""Run models of transformers on this package's attention: ``attn_implementation="wordorder"``.

transformers hands queries, keys, values, a mask and, in T5 and its relatives, a ``position_bias`` to the function that
is registered under a name. Importing `wordorder.models` registers `attention_forward` and `attention_mask`.
"""

# transformers' modules are typed in part only, and a mixin knows its base class only where it is mixed in
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MODEL_MAPPING, AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from wordorder.attention import AttentionSizes, Plan, attention, attention_weights, plan_attention
from wordorder.attention.choice import LARGEST_MATRIX
from wordorder.encodings import PositionTerms
from wordorder.errors import BadInput
from wordorder.ops import Bias, Contiguous, DenseBias, ToeplitzBias, Visibility

NAME = "wordorder"
"""The name of the attention function in transformers."""

REFUSED = ("softcap", "s_aux", "sinks", "cache")
"""Arguments that a model may hand over, each of which changes the scores or the keys and is not computed here: Gemma
2's limit of scores, attention sinks, and the paged cache of continuous batching."""

T5_ATTENTIONS = (
    "T5Attention",
    "MT5Attention",
    "UMT5Attention",
    "LongT5Attention",
    "SwitchTransformersAttention",
    "Pop2PianoAttention",
    "Pix2StructTextAttention",
)
"""Classes of transformers with T5's code: a table of buckets, `compute_bias`, and zeros for bias in cross-attention."""


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | Bias | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers' eager functions do, ``softmax(scaling * q.k + position_bias + mask) v``.

    On a CPU, training with a bias takes tiles, so that the gradient of a bias that all examples share is summed while
    it is computed (`wordorder.attention`). A query that sees no key has output 0; transformers' functions give it the
    mean of all values.

    Args:
        module: the attention layer; its ``is_causal`` counts where the argument is None.
        query: (B, H, T, D).
        key: (B, G, S, D); G divides H.
        value: (B, G, S, E).
        attention_mask: bool that broadcasts to (B, H, T, S), True = visible; or numbers of that shape, which are added;
            or None.
        scaling: factor on q.k; None = 1/sqrt(D).
        dropout: probability that a weight is dropped.
        is_causal: a query sees the keys up to its own; read only without a mask and with more than one query.
        position_bias: broadcasts to (B, H, T, S); or a `Bias` (`linear_t5_bias`).
        kwargs: ``output_attentions=True`` returns the weights, which are then written out.

    Returns:
        Output (B, T, H, E), and the weights (B, H, T, S) or None.

    Raises:
        BadInput: the model hands over something that is not computed here (`REFUSED`), or a mask of integers.
    """
    given = [name for name in REFUSED if kwargs.get(name) is not None]
    if given:
        raise BadInput(
            f"attn_implementation 'wordorder' does not compute {', '.join(given)}, which {type(module).__name__} asks"
            " for; take model.set_attn_implementation('eager')"
        )
    if _is_cross_attention(module):
        position_bias = None
    bias = _bias(position_bias, attention_mask, query.shape[2], key.shape[2])
    order = PositionTerms(query.shape[-1] ** -0.5 if scaling is None else scaling, bias)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask = _mask(attention_mask, query.shape[2], key.shape[2], causal=causal)
    if not kwargs.get("output_attentions"):
        # a re-entrant checkpoint computes again with gradients, and must draw the same weights
        drawn_again = dropout > 0 and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        with torch.set_grad_enabled(drawn_again or torch.is_grad_enabled()):
            query = query.detach().requires_grad_() if drawn_again else query
            read = attention(query, key, value, order, mask, dropout=dropout)
        return (read.detach() if drawn_again else read).transpose(1, 2).contiguous(), None
    plan = plan_attention(order, mask, AttentionSizes.of(query, key), return_weights=True)
    assert isinstance(plan, Plan)  # a bias does not differ by layer
    weights = F.dropout(attention_weights(query, key, plan), dropout)
    read = weights @ value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
    return read.transpose(1, 2).contiguous(), weights


def attention_mask(
    *,
    q_length: int,
    mask_function: Callable[..., Any] = causal_mask_function,
    allow_is_bidirectional_skip: bool = False,
    **options: Any,
) -> Tensor | None:
    """Make the mask as transformers does for "sdpa", but padding alone as bool (B, 1, 1, S) instead of (B, 1, T, S).

    None where nothing is hidden, or where ``is_causal`` says it all.

    Raises:
        BadInput: the model computes attention by code of its own, which would add the mask to the scores.
    """
    if not torch.compiler.is_compiling():
        config: object = options.get("config")
        _check_uses_interface(type(config))
    if allow_is_bidirectional_skip and mask_function is bidirectional_mask_function:
        q_length = 1  # every query sees the same keys
    return sdpa_mask(
        q_length=q_length,
        mask_function=mask_function,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip,
        **options,
    )


@cache
def _check_uses_interface(config: type) -> None:
    """Refuse a model of transformers whose module never looks an attention function up."""
    if config not in MODEL_MAPPING:
        return
    models: Any = MODEL_MAPPING[config]
    model = models[0] if isinstance(models, tuple) else models
    module = sys.modules[model.__module__]
    if module.__name__.startswith("transformers.") and not hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        raise BadInput(
            f"attn_implementation 'wordorder' is not for {model.__name__}, which computes attention by code of its own;"
            " load it with attn_implementation='eager'"
        )


def register_attention() -> None:
    """Make both functions known to transformers."""
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)


def linear_t5_bias(model: PreTrainedModel) -> PreTrainedModel:
    """Let a T5 hand its table of distances to the attention, so that memory grows with the length, not its square.

    transformers writes T5's bias out as H * T * S numbers, and as many for its gradient. Here the T + S - 1 numbers per
    head that the matrix is made of go to the attention function, which is set to "wordorder". Cross-attention, whose
    bias is 0 in T5, gets none.

    The model is changed in place and returned. Its weights, their names, its configuration and so its saved folder stay
    what they were: call this again after ``from_pretrained``. Under another attention function, ``torch.compile``,
    re-entrant checkpointing, and in short texts without gradients the matrix is written out once for all layers.

    >>> from transformers import T5Config, T5EncoderModel
    >>> import wordorder.models
    >>> sizes = {"vocab_size": 32, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    >>> model = wordorder.models.linear_t5_bias(T5EncoderModel(T5Config(**sizes)))
    >>> model.config._attn_implementation
    'wordorder'

    Args:
        model: a T5, mT5, UMT5, Switch Transformers, Pop2Piano, LongT5 (its decoder), or Pix2Struct (its text decoder)
            of transformers, with any head.

    Raises:
        BadInput: the model has none of these attention layers.
    """
    modules = list(model.modules())
    found = [module for module in modules if _is_t5(module)]
    if not found and not any(isinstance(module, _HandsOverTable) for module in modules):
        known = ", ".join(name.removesuffix("Attention") for name in T5_ATTENTIONS)
        raise BadInput(
            f"model must have T5's attention layers ({known}), got {type(model).__name__}; any model that reads"
            " position_bias runs with model.set_attn_implementation('wordorder') alone"
        )
    for part in modules:
        if isinstance(part, PreTrainedModel):  # T5's halves have configurations of their own, which 5.17 does not reach
            part.set_attn_implementation(NAME)
    for module in found:
        if _is_cross_attention(module):
            module.__class__ = _mixed(_HandsOverNothing, type(module))
        elif module.has_relative_attention_bias:
            module.__class__ = _mixed(_HandsOverTable, type(module))
    return model


class _Mixed:
    """A class made here, which pickle cannot find by name: it is made again where a copy is read."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        _, (_, *arguments), *state = super().__reduce_ex__(protocol)
        return _new, (type(self).__bases__, *arguments), *state


class _HandsOverTable(_Mixed):
    """The part of a T5 attention layer that makes the bias. Mixed in before the layer's class."""

    config: Any

    def compute_bias(
        self, query_length: int, key_length: int, device: torch.device | None = None, past_seen_tokens: int | Tensor = 0
    ) -> Tensor | Bias:
        """Return the bias of queries that stand after ``past_seen_tokens`` keys: a matrix, or its table."""
        layer: Any = super()
        checkpoint = getattr(self, "_gradient_checkpointing_func", None)
        # a re-entrant checkpoint follows gradients through tensors alone
        reentrant = getattr(checkpoint, "keywords", {}).get("use_reentrant")
        if self.config._attn_implementation != NAME or reentrant:
            return layer.compute_bias(query_length, key_length, device=device, past_seen_tokens=past_seen_tokens)
        # the last query alone, with as many keys as there are distances
        row_1H1W = layer.compute_bias(
            1, query_length + key_length - 1, device=device, past_seen_tokens=past_seen_tokens + query_length - 1
        )
        bias = ToeplitzBias(row_1H1W[0, :, 0], query_length, may_hide=False)
        matrix_bytes = bias.table_HW.shape[0] * query_length * key_length * bias.table_HW.element_size()
        once = torch.compiler.is_compiling() or (not torch.is_grad_enabled() and matrix_bytes <= LARGEST_MATRIX)
        return bias.dense() if once else bias


class _HandsOverNothing(_Mixed):
    """The part of a T5 cross-attention layer that makes the bias, which is none. Mixed in before the layer's class."""

    has_relative_attention_bias = property(lambda self: True)  # transformers would write zeros out

    def compute_bias(self, *args: object, **kwargs: object) -> None:
        """Return no bias."""


@cache
def _mixed(part: type, layer: type) -> type:
    return type(f"{part.__name__}{layer.__name__}", (part, layer), {})


def _new(bases: tuple[type, type], *arguments: Any) -> Any:
    """Return an empty module of the class that `_mixed` makes of these."""
    made = _mixed(*bases)
    return made.__new__(made, *arguments)


def _is_t5(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ in T5_ATTENTIONS and kind.__module__.startswith("transformers.models.")


def _is_cross_attention(module: nn.Module) -> bool:
    """Tell whether the module is a cross-attention of T5, whose bias is all zeros."""
    if not _is_t5(module) or module.is_causal or module.has_relative_attention_bias:
        return False
    return bool(getattr(module, "is_decoder", True))  # (Pix2Struct's text layers are of decoders)


def _bias(position_bias: Tensor | Bias | None, attention_mask: Tensor | None, queries: int, keys: int) -> Bias | None:
    """Return what is added to the scores: the position bias, and a mask of numbers."""
    bias = position_bias
    if isinstance(bias, Tensor):  # (tiles read rows, which T5's bias has in another order)
        bias = DenseBias(bias.expand(-1, -1, queries, keys).contiguous(), may_hide=False)
    if attention_mask is not None and attention_mask.is_floating_point():
        added = DenseBias(attention_mask.expand(-1, -1, queries, keys))
        bias = added if bias is None else bias + added
    return bias


def _mask(attention_mask: Tensor | None, queries: int, keys: int, *, causal: bool) -> Visibility | Tensor | None:
    """Return who sees whom, as conditions where the mask's shape says enough."""
    if attention_mask is None:  # a single query is the last one
        return Visibility(Contiguous(queries), Contiguous(keys), causal=True) if causal and queries > 1 else None
    if attention_mask.is_floating_point():
        return None
    if attention_mask.shape[1:3] == (1, 1):
        return Visibility(Contiguous(queries), Contiguous(keys), valid_BS=attention_mask[:, 0, 0])
    return attention_mask
