"""torch's MultiheadAttention with an encoding by name."""

# torch's class is typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Call, attend, attention_weights, plan_attention
from wordorder.encodings import OnEmbeddings, ReplacesEmbedding, build_encoding
from wordorder.errors import BadInput
from wordorder.networks.initialisation import initialise
from wordorder.networks.stack import check_left_padding
from wordorder.ops import Contiguous, DenseBias, Mask, PositionsLike, as_positions, check_positions_fit
from wordorder.ops.execution import as_autocast_casts

_NO_POSITION = "add_bias_kv and add_zero_attn add keys that stand at no position; leave them out"


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` that knows word order: the same arguments, weights and results, and an encoding.

    >>> import torch, wordorder
    >>> attention = wordorder.MultiheadAttention(64, 4, batch_first=True, encoding="rope")
    >>> x = torch.randn(2, 10, 64)
    >>> attention(x, x, x)[0].shape
    torch.Size([2, 10, 64])

    With "none" it gives what torch's class gives. The state dict is torch's, and the encoding's parameters beside it
    (``encoding.*``). Each module prepares its encoding by itself; in a network of your own `wordorder.Positional` does
    it once for all layers, and knows encodings that act on embeddings. `swap_in` puts it into torch's Transformer.

    Differs from torch's: a query that sees no key gives 0, where torch's may give NaN; returned weights are without
    dropout. Refused are no keys at all, nested tensors, ``add_bias_kv`` and ``add_zero_attn`` (keys at no position).
    torch's layers hand over no positions: within them pad on the right, or take encodings of distances.

    Args:
        embed_dim: channels, E; a multiple of num_heads.
        num_heads: H.
        dropout: probability that a weight is dropped in training.
        bias: of the projections.
        add_bias_kv: must be False.
        add_zero_attn: must be False.
        kdim: channels of the keys; None = embed_dim.
        vdim: channels of the values; None = embed_dim.
        batch_first: inputs and outputs are (B, T, E), else (T, B, E).
        device: of the weights.
        dtype: of the weights.
        encoding: a name of the catalogue, or several joined by "+"; none that acts on embeddings.
        encoding_options: of the encoding, as in `wordorder.Positional`.
        causal: always hide what comes after a query, beside the masks of a call; relative encodings are one-sided then.
        max_positions: longest text in tokens; limits encodings with a learned table only.

    Raises:
        BadInput: an unknown encoding or option, one that acts on embeddings, or an argument that is refused.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        encoding: str = "none",
        encoding_options: Mapping[str, Any] | None = None,
        causal: bool = False,
        max_positions: int = 512,
    ) -> None:
        if add_bias_kv or add_zero_attn:
            raise BadInput(_NO_POSITION)
        if "," in encoding or "*" in encoding:
            raise BadInput(
                f"encoding {encoding!r} is a pattern over layers, and this is one layer: give each its own, or take"
                " wordorder.Positional"
            )
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        # torch's layers skip `forward` in evaluation where this is True, and would do without the encoding
        self._qkv_same_embed_dim = False
        self.causal = causal
        self.encoding = build_encoding(
            encoding,
            width=embed_dim,
            heads=num_heads,
            layers=1,
            max_positions=max_positions,
            use="decoder" if causal else "encoder",
            options=encoding_options,
            vocabulary=1,
        )
        if {OnEmbeddings, ReplacesEmbedding} & {*self.encoding.place_of.values()} or self.encoding.replacement:
            raise BadInput(
                f"encoding {encoding!r} acts on embeddings, which attention does not see; take wordorder.Positional"
            )
        initialise(self.encoding)
        self.encoding.to(device=device, dtype=dtype)

    @classmethod
    def like(cls, attention: nn.MultiheadAttention, encoding: str, **options: Any) -> Self:
        """Return such a module with the sizes and the very weights of one of torch's.

        In an `nn.TransformerEncoder` set ``use_nested_tensor = False`` too, as `swap_in` does. The encoding's
        parameters are drawn from torch's generator, and so are some numbers that are not used.

        Args:
            **options: encoding_options, causal and max_positions.
        """
        if attention.bias_k is not None or attention.add_zero_attn:
            raise BadInput(_NO_POSITION)
        weight = attention.out_proj.weight
        attention_with_encoding = cls(
            attention.embed_dim,
            attention.num_heads,
            attention.dropout,
            cast("Tensor | None", attention.out_proj.bias) is not None,
            kdim=attention.kdim,
            vdim=attention.vdim,
            batch_first=attention.batch_first,
            device=weight.device,
            dtype=weight.dtype,
            encoding=encoding,
            **options,
        )
        for name, parameter in attention.named_parameters(recurse=False):
            setattr(attention_with_encoding, name, parameter)
        attention_with_encoding.out_proj = attention.out_proj
        return attention_with_encoding.train(attention.training)

    @classmethod
    def swap_in(cls, module: nn.Module, encoding: str, **options: Any) -> int:
        """Put such a module in the place of every self-attention of torch's Transformer layers, and count them.

        ``module`` is an `nn.TransformerEncoder` or `nn.TransformerDecoder`, or anything that holds some; it is changed
        in place, and keeps its weights, but not hooks on its attention. Cross-attention stays torch's. Of an
        `nn.Transformer` swap ``encoder`` and ``decoder`` (``causal=True``) one after the other.

        Args:
            **options: encoding_options, causal and max_positions, for all of them.

        Raises:
            BadInput: there are no such layers, or the attention of one is of another class; or as the class.
        """
        layers = [
            part
            for part in module.modules()
            if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
        ]
        if not layers:
            raise BadInput(
                f"{type(module).__name__} has no layers of nn.TransformerEncoder or nn.TransformerDecoder; for one"
                " nn.MultiheadAttention take MultiheadAttention.like(attention, encoding)"
            )
        for layer in layers:
            if type(layer.self_attn) is not nn.MultiheadAttention:
                raise BadInput(
                    f"self_attn of a layer is a {type(layer.self_attn).__name__}, and not torch's MultiheadAttention:"
                    " swap before it is wrapped, and once"
                )
        swapped = [cls.like(layer.self_attn, encoding, **options) for layer in layers]
        for layer, attention in zip(layers, swapped, strict=True):
            layer.self_attn = attention
        for part in module.modules():
            if isinstance(part, nn.TransformerEncoder):
                part.use_nested_tensor = False  # in which padding is no mask any more
        return len(layers)

    def _reset_parameters(self) -> None:
        """Draw torch's weights anew, and those of the encoding where it is there already."""
        same, self._qkv_same_embed_dim = self._qkv_same_embed_dim, self.in_proj_weight is not None  # pyright: ignore
        super()._reset_parameters()
        self._qkv_same_embed_dim = same
        if "encoding" in self._modules:
            initialise(self.encoding)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        positions: PositionsLike | None = None,
        key_positions: PositionsLike | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend as `torch.nn.MultiheadAttention` does, at positions.

        Args:
            query: (B, T, E) with batch_first, else (T, B, E), or (T, E) for one text.
            key: (B, S, kdim) and so on.
            value: (B, S, vdim) and so on.
            key_padding_mask: (B, S), or (S,) for one text; bool, True = padding, or float, added to the scores.
            need_weights: also return the weights, (B, T, S), or (B, H, T, S) without average_attn_weights.
            attn_mask: (T, S) or (B * H, T, S); bool, True = hidden, or float, added to the scores. An encoding on the
                input of attention reads the tokens before a query whatever it hides.
            average_attn_weights: over heads.
            is_causal: hide what comes after a query, beside the masks.
            positions: where the queries stand, (T,) or (B, T); None = 0 .. T - 1.
            key_positions: where the keys stand; None = as the queries where there are as many, else 0 .. S - 1.

        Raises:
            BadInput: shapes of inputs, masks or positions do not fit, or inputs are nested tensors; padding on the
                left without positions, where the encoding counts them (looked at on the CPU only); or key is not query
                where the encoding reads the layer's input (fox), or value is not where it acts there.
        """
        self._check_inputs(query, key, value)
        if self.encoding.reads_layer_input and key is not query:
            raise BadInput("this encoding reads the input of all tokens between query and key: pass one tensor as both")
        if self.encoding.changes_layer_input:
            if key is not query or value is not query:
                raise BadInput("this encoding acts on the input of attention: pass one tensor as query, key and value")
            if not self.causal and (is_causal or attn_mask is not None):
                raise BadInput(
                    "this encoding reads tokens on both sides, whatever a mask hides: build the module with causal=True"
                )
        single = query.dim() == 2
        if single:
            query, key, value = (x.unsqueeze(0 if self.batch_first else 1) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if self.encoding.changes_layer_input:
            query = key = value = self._changed(query, key_padding_mask, positions)
        q, k, v = as_autocast_casts(*self._heads(query, key, value))
        call = Call.of(q, k, v, dropout=self.dropout if self.training else 0.0)
        plan = self._plan(call, key_padding_mask, attn_mask, is_causal, positions, key_positions)
        features = plan.terms.features(query)
        mixed_BHTD, _ = attend(q, k, v, plan, features, dropout=call.dropout)
        output = self.out_proj(mixed_BHTD.transpose(1, 2).flatten(2))
        weights = attention_weights(q, k, plan, features) if need_weights else None
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights[0] if single else weights
        if not self.batch_first:
            output = output.transpose(0, 1)
        return output.squeeze(0 if self.batch_first else 1) if single else output, weights

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Refuse inputs that do not fit: attention would broadcast them, or read what is not there."""
        if query.is_nested or key.is_nested or value.is_nested:
            raise BadInput(
                "query, key and value must not be nested: pass padded tensors, and key_padding_mask; nn"
                ".TransformerEncoder nests them itself: set its use_nested_tensor = False, as swap_in does"
            )
        shapes = [tuple(x.shape) for x in (query, key, value)]
        batch = 0 if self.batch_first else 1
        fits = query.dim() == key.dim() in (2, 3) and shapes[1][:-1] == shapes[2][:-1]
        fits = fits and (query.dim() == 2 or query.shape[batch] == key.shape[batch])
        if not fits or [shape[-1] for shape in shapes] != [self.embed_dim, self.kdim, self.vdim]:
            order = "(batch, tokens, channels)" if self.batch_first else "(tokens, batch, channels)"
            raise BadInput(
                f"query, key and value must be {order}, or all (tokens, channels), of {self.embed_dim}, {self.kdim} and"
                f" {self.vdim} channels, and key and value of as many tokens, got {', '.join(map(str, shapes))}"
            )

    def _changed(self, x_BTC: Tensor, key_padding_mask: Tensor | None, positions: PositionsLike | None) -> Tensor:
        """Return the input with what the encoding adds to it."""
        at = Contiguous(x_BTC.shape[1]) if positions is None else as_positions(positions)
        check_positions_fit("positions", at, *x_BTC.shape[:2])
        rows_BTC = x_BTC
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, [tuple(x_BTC.shape[:2])])
            rows_BTC = x_BTC.masked_fill(_hidden(key_padding_mask)[..., None], 0)
        terms = self.encoding.terms(at, at, dtype=x_BTC.dtype, device=x_BTC.device).layer(0)
        return terms.change_input(x_BTC, rows_BTC)

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, H, T or S, D)."""
        weights: tuple[Any, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:  # pyright: ignore[reportUnnecessaryComparison]
            weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)  # pyright: ignore
        projected = map(F.linear, (query, key, value), weights, biases)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected)
        return q, k, v

    def _plan(
        self,
        call: Call,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        positions: PositionsLike | None,
        key_positions: PositionsLike | None,
    ) -> Any:
        """Plan attention with the encoding's terms and torch's masks: bool ones hide, float ones are added."""
        batch, queries, keys = call.batch, call.queries, call.keys
        added: list[Tensor] = []
        padding_BS = hidden_BHTS = None
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, [(batch, keys)])
            if key_padding_mask.dtype == torch.bool:
                padding_BS = key_padding_mask
            else:
                added.append(key_padding_mask[:, None, None])
            check_left_padding(self.encoding, positions, _hidden(key_padding_mask))
        if attn_mask is not None:
            _check_mask("attn_mask", attn_mask, [(queries, keys), (batch * call.heads, queries, keys)])
            attn_mask = attn_mask[None, None] if attn_mask.dim() == 2 else attn_mask.unflatten(0, (batch, -1))
            if attn_mask.dtype == torch.bool:
                hidden_BHTS = attn_mask
            else:
                added.append(attn_mask)
        query_at = Contiguous(queries) if positions is None else as_positions(positions)
        if key_positions is not None:
            key_at = as_positions(key_positions)
        else:
            key_at = query_at if queries == keys else Contiguous(keys)
        check_positions_fit("positions", query_at, batch, queries)
        check_positions_fit("key_positions", key_at, batch, keys)
        terms = self.encoding.terms(query_at, key_at, dtype=call.dtype, device=call.device).layer(0)
        for number in added:
            bias = DenseBias(number.to(torch.promote_types(number.dtype, torch.float32)))
            terms = replace(terms, bias=bias if terms.bias is None else bias + terms.bias)
        tokens_BS = None if padding_BS is None else ~padding_BS
        mask: Mask | Tensor = Mask(query_at, key_at, None, 0 if self.causal or is_causal else None, tokens_BS)
        if hidden_BHTS is not None:
            visible = mask.dense(call.device)
            mask = ~hidden_BHTS if visible is None else visible & ~hidden_BHTS
        return plan_attention(terms, mask, call)


def _hidden(key_padding_mask: Tensor) -> Tensor:
    """Return where a mask, bool or added to the scores, hides a key."""
    if key_padding_mask.dtype == torch.bool:
        return key_padding_mask
    return key_padding_mask <= torch.finfo(key_padding_mask.dtype).min


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if not isinstance(mask, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"{name} must be a tensor, got {type(mask).__name__}")
    fits = tuple(mask.shape) in shapes
    if not fits or not (mask.dtype == torch.bool or mask.is_floating_point()):
        expected = " or ".join(map(str, shapes))
        raise BadInput(
            f"{name} must be {expected}, bool (True = hidden) or floating point (added to the scores), got"
            f" {mask.dtype} {tuple(mask.shape)}"
        )
