"""One forward pass of a swapped model: what its layers add to their scores, and the attention function that adds it."""

# transformers' modules are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from wordorder.attention import Backend, LayerPlans, Plan, attend, attention_weights, plan_attention, plan_layers
from wordorder.attention import Call as AttentionCall
from wordorder.attention.backends.reference import Reference, WrittenOut
from wordorder.encodings import LayerTerms, Terms, TokenFeatures
from wordorder.encodings.places import NO_FEATURES, Move
from wordorder.errors import BadInput
from wordorder.models.cached_features import extend_features, extend_input
from wordorder.ops import Bias, Contiguous, DenseBias, Mask, Positions
from wordorder.ops.execution import as_autocast_casts

NAME = "wordorder"
"""Name of the attention function in transformers."""

CROSS = "is_wordorder_cross_attention"
"""Attribute of attention modules that have no term."""

REFUSED = ("s_aux", "sinks", "cache")
"""Arguments of an attention function that are not computed here: attention sinks, paged caches."""

FEWEST_SCORES = 512 * 512
"""Scores of a head from which a mask is read: at fewer no backend is faster with its conditions."""

Columns = tuple[int, int]
"""Number of keys, and the column of the first one: columns count a row's tokens from 0, padding included."""


@dataclass(frozen=True)
class ModelRotation(Move):
    """The model's own rotation of queries or keys: cosines and sines (B or 1, 1, T, R), R at most D."""

    cos_B1TR: Tensor
    sin_B1TR: Tensor

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Rotate the first R channels, pairs (x[m], x[m + R/2])."""
        rotated, rest = x_BHTD.split((self.cos_B1TR.shape[-1], x_BHTD.shape[-1] - self.cos_B1TR.shape[-1]), dim=-1)
        a, b = rotated.chunk(2, dim=-1)
        rotated = rotated * self.cos_B1TR + torch.cat((-b, a), dim=-1) * self.sin_B1TR
        return torch.cat((rotated, rest), dim=-1).type_as(x_BHTD)


@dataclass(frozen=True, kw_only=True)
class LayerOrder:
    """The settings of a layer that a swap decides, the same in every forward pass."""

    keeps: bool
    """The model's own positions act in it."""
    factor: float
    """On the model's own scale of q.k: TUPE's 1/sqrt(2); 1 beside the model's positions."""


@dataclass
class Call:
    """The terms and columns of one forward pass, worked out before the layers run and read by each of them."""

    layers: tuple[LayerOrder, ...]
    columns: tuple[Columns, ...]
    """The columns of the keys of each layer."""
    terms: dict[Columns, LayerTerms]
    rotations: dict[int, tuple[ModelRotation, ModelRotation]]
    """The model's own rotations of queries and keys, by layer, where the function applies them."""
    causal: bool
    scaled_queries: bool
    """Queries come times the model's scale."""
    cache: Any = None
    """The cache of the self-attention of all layers; features of layer n are in its layer n + number of layers."""
    tokens_BT: Tensor | None = None
    """True at tokens, False at padding, (B, T); None = all are tokens."""
    checkpointed: bool = False
    """Layers are computed again for their gradients, so that nothing that they make may be kept for the next one."""
    features: dict[int, TokenFeatures] = field(default_factory=dict)
    """By layer the features of its queries, and of all keys."""
    plans: list[tuple[tuple[Any, ...], Tensor | None, LayerPlans]] = field(default_factory=list)
    """For layers with the same terms, columns and mask."""

    def change_input(self, layer: int, x_BTC: Tensor) -> Tensor:
        """Return a layer's input with what encodings add to it."""
        terms, rows_BNC = self.terms[self.columns[layer]].layer(layer), x_BTC
        if self.tokens_BT is not None:
            rows_BNC = x_BTC.masked_fill(~self.tokens_BT[..., None], 0)
        if self.cache is not None:
            rows_BNC = extend_input(self.cache, layer, len(self.layers), rows_BNC, terms.rows_before)
        return terms.change_input(x_BTC, rows_BNC)

    def read_input(self, layer: int, x_BTC: Tensor) -> None:
        """Compute the features of a layer's input."""
        of_queries, of_keys = self.terms[self.columns[layer]].layer(layer).features(x_BTC)
        if self.cache is not None:
            of_keys = extend_features(self.cache, layer, len(self.layers), of_keys)
        self.features[layer] = TokenFeatures(of_queries, of_keys)

    def attend(
        self,
        module: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        scale: float,
        dropout: float,
        softcap: float | None,
        position_bias: Tensor | None,
        window: int | None,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output of a layer, (B, T, H, E), and its weights (B, H, T, S) where they are asked for."""
        layer = module.layer_idx
        keys = self.columns[layer][0]
        if keys != k.shape[2]:
            raise BadInput(f"layer {layer} has {k.shape[2]} keys, and its cache had announced {keys}")
        if mask is not None and mask.dtype != torch.bool:
            raise BadInput(
                f"attention_mask with four axes must be bool (True = visible) for a swapped model, got {mask.dtype}"
            )
        if not q.dtype == k.dtype == v.dtype:  # rotation by float32 gives that dtype under autocast
            q, k, v = as_autocast_casts(q, k, v)
        if self.scaled_queries:
            q, scale = q / module.scaling, module.scaling
        scale = scale * self.layers[layer].factor
        backend = None if softcap is None else SoftCapped(softcap)
        call = AttentionCall.of(q, k, v, layers=len(self.layers), dropout=dropout, return_weights=weights)
        plan = self._plan(layer, q, k, mask, position_bias, window, call, backend)
        plan = replace(plan, terms=replace(plan.terms, scale=scale))
        features = self.features.get(layer, NO_FEATURES)
        if not weights:
            return attend(q, k, v, plan, features, dropout=dropout)[0].transpose(1, 2).contiguous(), None
        dropped = F.dropout(attention_weights(q, k, plan, features), dropout)
        output = dropped @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        return output.transpose(1, 2).contiguous(), dropped

    def _plan(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        position_bias: Tensor | None,
        window: int | None,
        call: AttentionCall,
        backend: Backend | None,
    ) -> Plan:
        """Return the plan of a layer: one for all layers with the same terms, columns and mask."""
        # A bias of T5's own and the model's own rotation are of this layer alone.
        alone = layer in self.rotations or (position_bias is not None and self.layers[layer].keeps)
        key = (self.columns[layer], call.dropout > 0, call.return_weights)
        if not alone and not self.checkpointed:
            for its_key, its_mask, plans in self.plans:
                if its_key == key and its_mask is mask:
                    return plans.layer(layer)
        visible: Mask | Tensor | None = mask
        positions = self.terms[self.columns[layer]].kinds[0].positions
        if mask is None and self.causal and positions is not None and not _sees_all(*positions):
            # transformers leaves a mask out where it is the lower triangle, or where a single query sees every key: the
            # empty ones too in a static cache with rows beside it
            visible = Mask(*positions, high=0)
        if mask is not None and positions is not None:
            visible = _conditions(mask, *positions, causal=self.causal, window=window)
        if alone:
            terms = self._terms_of(layer, q, k, position_bias)
            return plan_attention(terms, visible, replace(call, layers=1), backend=backend)
        plans = plan_layers(self.terms[self.columns[layer]], visible, call, backend=backend)
        self.plans.append((key, mask, plans))
        return plans.layer(layer)

    def _terms_of(self, layer: int, q: Tensor, k: Tensor, position_bias: Tensor | None) -> Terms:
        """Return all terms of one layer."""
        terms = self.terms[self.columns[layer]].layer(layer)
        if position_bias is not None and self.layers[layer].keeps:
            matrix = position_bias.expand(-1, -1, q.shape[2], k.shape[2]).contiguous()
            terms = _with_bias(terms, DenseBias(matrix, may_hide=False))
        if layer in self.rotations:
            of_queries, of_keys = self.rotations[layer]
            terms = replace(
                terms,
                query_moves=(of_queries, *terms.query_moves),
                key_moves=(of_keys, *terms.key_moves),
            )
        return terms


def _conditions(mask: Tensor, query: Positions, key: Positions, *, causal: bool, window: int | None) -> Mask | Tensor:
    """Return the conditions that a long text's mask consists of, padding and causal or a window; else the mask itself.

    transformers writes out all that it hides, and backends for long texts read conditions.
    """
    has_numbers = type(mask) is Tensor and mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if not has_numbers or mask.shape[-2] * mask.shape[-1] < FEWEST_SCORES:
        return mask
    if mask.shape[1:] != (1, query.length, key.length) or not all(isinstance(x, Contiguous) for x in (query, key)):
        return mask
    tokens_BS = mask[:, 0].any(dim=1)
    whole = Mask(query, key, high=0 if causal else None, tokens_BS=None if tokens_BS.all() else tokens_BS)
    for conditions in (whole, *(() if window is None else (whole.windowed(window),))):
        written_B1TS = conditions.dense(mask.device)
        if bool((mask if written_B1TS is None else written_B1TS == mask).all()):
            return conditions
    return mask


def _sees_all(query: Positions, key: Positions) -> bool:
    """Tell whether a query is alone and the last key stands at its column, as in a cache that grows."""
    if query.length > 1 or not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        return False
    if not (isinstance(query.offset, int) and isinstance(key.offset, int)):
        return False
    return key.offset + key.length == query.offset + 1


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    wordorder: Call | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a swapped model: its scores with the terms of `Call`, under the model's own mask.

    Cross-attention, which has no term, is computed as for "sdpa".

    Raises:
        BadInput: the layer was handed no `Call`, or something that is not computed here (`REFUSED`).
    """
    if wordorder is None:
        raise BadInput(
            f"{type(module).__name__} has attn_implementation {NAME!r} and was handed no terms of an encoding: swap the"
            " model's encoding (wordorder.models.swap_encoding), and call the model, not one of its layers"
        )
    refused = [name for name in REFUSED if kwargs.get(name) is not None]
    if refused:
        raise BadInput(f"a swapped model does not compute {', '.join(refused)}, which {type(module).__name__} asks for")
    if getattr(module, CROSS, False):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False
        )
    return wordorder.attend(
        module,
        query,
        key,
        value,
        attention_mask,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout,
        softcap=softcap,
        position_bias=position_bias,
        window=kwargs.get("sliding_window"),
        weights=bool(kwargs.get("output_attentions")),
    )


def register_attention() -> None:
    """Make the function, and the mask that transformers makes for it, known to transformers."""
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _with_bias(terms: Terms, bias: Bias) -> Terms:
    return replace(terms, bias=bias if terms.bias is None else terms.bias + bias)


class SoftCapped(Reference):
    """Scores by content within ``cap tanh(scores / cap)``, as in Gemma 2; bias and mask stand outside of it."""

    name = "soft-capped"

    def __init__(self, cap: float) -> None:
        self.cap = cap

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, prepared: WrittenOut, added: Bias | None, scale: float) -> Tensor:
        inner_BHTS = super().scores(q_BHTD, k_BHSD, WrittenOut(None, None), added, scale)
        scores_BHTS = self.cap * torch.tanh(inner_BHTS / self.cap)
        if prepared.bias is not None:
            scores_BHTS = scores_BHTS + prepared.bias.written_out(scores_BHTS.dtype)
        return scores_BHTS if prepared.mask_B1TS is None else scores_BHTS.masked_fill(~prepared.mask_B1TS, -torch.inf)
