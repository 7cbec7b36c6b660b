"""Word order for networks of your own: one object that embeds, prepares and attends."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from wordorder.attention import Call, Keys, LayerPlans, LayerStep, Plan, attend, plan_layers
from wordorder.encodings import OnEmbeddings, TokenFeatures, build_encoding
from wordorder.encodings.places import NO_FEATURES, check_positive
from wordorder.errors import BadInput
from wordorder.networks.cache import KeyValueCache
from wordorder.networks.initialisation import initialise
from wordorder.networks.stack import check_left_padding
from wordorder.ops import Contiguous, Mask, Packed, Positions, PositionsLike, as_positions, valid_tokens
from wordorder.ops.execution import as_autocast_casts, working_dtype
from wordorder.ops.tokens import check_tensor


@dataclass(frozen=True)
class Prepared:
    """Attend in every layer with what `Positional.prepare` worked out for one forward pass."""

    plans: LayerPlans
    call: Call
    cache: KeyValueCache | None
    changed: set[int]
    """Layers whose input went through `input`."""

    def input(self, layer: int, x: Tensor) -> Tensor:
        """Return the input of a layer's attention, (B, T, C), with what the encoding adds to it there.

        Call it with every encoding, once per layer, and project queries, keys and values from what it returns: x itself
        where none acts there.

        Args:
            layer: which layer of the network attends, from 0.
            x: (B, T, C), in a block with its norm first what the norm gives.

        Raises:
            BadInput: the layer is out of range, x is of another size, or a cache has taken this layer's already.
        """
        self._check_layer(layer)
        plan = self.plans.layer(layer)
        if len(plan.terms.inputs) == 0:
            return x
        self._check_layer_input(x)
        if self.cache is None and self.call.keys != self.call.queries:
            raise BadInput("this encoding reads the input of earlier tokens: pass a cache in place of key_positions")
        if layer in self.changed and self.cache is not None:
            raise BadInput(f"the cache has taken the input of layer {layer}: call input once per layer and step")
        self.changed.add(layer)
        extend = None if self.cache is None else partial(self.cache.extend_input, layer)
        return LayerStep(plan, extend_input=extend).change_input(x)[0]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, x: Tensor | None = None) -> Tensor:
        """Return softmax(scores) v, (B, H, T, E), with the encoding, its scale and the mask in the scores.

        Queries and keys come straight from their projections: not rotated, and not divided by sqrt(D). A cache takes
        those of this step, and gives all so far.

        Args:
            layer: which layer of the network attends, from 0; encodings may have weights for each layer.
            q: queries (B, H, T, D).
            k: keys (B, G, S, D); G divides H (grouped queries).
            v: values (B, G, S, E).
            x: what q, k and v were projected from, (B, T, C), as `input` returned it: needed by encodings that read the
                layer's input (fox), and read by no other.

        Raises:
            BadInput: the layer is out of range; q, k, v or x is of another size, dtype or device than was prepared; x
                is missing; or `input` was not called where the encoding acts there.

        Warns:
            UserWarning: the bias learns, and this runs without gradients, as re-entrant checkpointing does.
        """
        self._check_layer(layer)
        call = self.call
        q, k, v = as_autocast_casts(q, k, v)  # a norm on q and k gives float32 there
        keys = call.keys if self.cache is None else call.queries
        for name, qkv, tokens in (("q", q, call.queries), ("k", k, keys), ("v", v, keys)):
            if qkv.dim() != 4:
                raise BadInput(
                    f"{name} must be (batch, heads, tokens, channels), got {tuple(qkv.shape)}; a projection's output is"
                    f" split by .unflatten(-1, (-1, {call.head_dim})).transpose(1, 2)"
                )
            if qkv.device != call.device:
                raise BadInput(f"{name} is on {qkv.device}, but x was on {call.device} in prepare; move one of them")
            if qkv.dtype != call.dtype:
                raise BadInput(
                    f"{name} is {qkv.dtype}, but attention was prepared for {call.dtype}; give prepare an x of the"
                    " dtype that q, k and v will have, and call both under autocast or neither"
                )
            if qkv.shape[0] != call.batch or qkv.shape[2] != tokens:
                of_cache = "" if self.cache is not None else ", with a cache by cache=positional.cache()"
                raise BadInput(
                    f"{name} must have batch {call.batch} and {tokens} tokens, as prepared, got"
                    f" {tuple(qkv.shape)}; its axes are (batch, heads, tokens, channels); call prepare once per forward"
                    f"{'' if name == 'q' else of_cache}"
                )
        if (q.shape[1], q.shape[3]) != (call.heads, call.head_dim):
            raise BadInput(
                f"q must have {call.heads} heads of {call.head_dim} channels, got {q.shape[1]} of {q.shape[3]}"
            )
        if k.shape[3] != call.head_dim or call.heads % k.shape[1]:
            raise BadInput(
                f"k must have heads that divide {call.heads}, of {call.head_dim} channels, got {k.shape[1]} of"
                f" {k.shape[3]}"
            )
        if v.shape[1] != k.shape[1]:
            raise BadInput(f"v must have as many heads as k, {k.shape[1]}, got {v.shape[1]}")
        if self.cache is not None:
            if (held := self.cache.tokens(layer)) + call.queries != call.keys:
                raise BadInput(
                    f"layer {layer} holds {held} earlier tokens in the cache, and {call.keys - call.queries} were there"
                    " in prepare: call prepare once per step, and attend once per layer; a step that broke off leaves a"
                    " cache that is of no use"
                )
        plan = self.plans.layer(layer)
        if len(plan.terms.inputs) > 0 and layer not in self.changed:
            raise BadInput(
                "this encoding acts on the input of each layer: write x = order.input(layer, x) before the projections"
                " of x"
            )
        features = self._features(plan, x)
        if self.cache is not None:
            new_keys = Keys(k, v, features.of_keys)
            k, v, of_keys = self.cache.extend(layer, new_keys, plan.terms.window).last(plan.call.keys)
            features = features._replace(of_keys=of_keys)
        tensors = () if plan.terms.bias is None else plan.terms.bias.tensors
        if not torch.is_grad_enabled() and not is_compiling() and any(tensor.requires_grad for tensor in tensors):
            warnings.warn(
                "attend runs without gradients, but prepare ran with them: if torch.utils.checkpoint computes this"
                " layer again, pass it use_reentrant=False, or torch refuses the backward pass of the second layer",
                stacklevel=2,
            )
        return attend(q, k, v, plan, features, dropout=call.dropout)[0]

    def _check_layer(self, layer: object) -> None:
        if type(layer) is not int:
            raise BadInput(
                f"layer, the first argument, must be the index of the layer, a whole number from 0, got"
                f" {type(layer).__name__}"
            )
        if not 0 <= layer < self.call.layers:
            raise BadInput(
                f"layer must lie between 0 and {self.call.layers - 1} (layers={self.call.layers}), got {layer}"
            )

    def _check_layer_input(self, x: Tensor) -> None:
        check_tensor("x", x)
        if x.dim() != 3 or x.shape[:2] != (self.call.batch, self.call.queries):
            raise BadInput(
                f"x must be (batch, tokens, channels) with {self.call.batch} rows of {self.call.queries} tokens, got"
                f" {tuple(x.shape)}"
            )

    def _features(self, plan: Plan, x: Tensor | None) -> TokenFeatures:
        """Return the features of the layer's input, of the queries and of their own keys."""
        if not plan.terms.reads_layer_input:
            return NO_FEATURES
        call = self.call
        if x is None:
            raise BadInput(
                "this encoding reads the input of each layer: pass attend(layer, q, k, v, x=x), x being what q, k and v"
                " were projected from, (batch, tokens, channels)"
            )
        self._check_layer_input(x)
        if self.cache is None and call.keys != call.queries:
            raise BadInput("this encoding reads the input of all keys: pass a cache in place of key_positions")
        return plan.terms.features(x)


class Positional(nn.Module):
    """Any encoding of the catalogue, for attention in a network of your own.

    >>> import torch, wordorder
    >>> positional = wordorder.Positional("tupe-r", width=64, heads=4, layers=2, max_positions=128)
    >>> x = positional.embed(torch.randn(8, 10, 64))  # once, before the first layer
    >>> order = positional.prepare(x)  # once per forward pass
    >>> x = order.input(0, x)  # in each layer, before its projections
    >>> q, k, v = torch.randn(3, 8, 4, 10, 16)  # what these made of it
    >>> order.attend(0, q, k, v, x=x).shape
    torch.Size([8, 4, 10, 16])

    Every encoding is used in the same way. `embed` adds what acts on embeddings, and returns x as it is where nothing
    does: call it before every `prepare`, and go on with what it returns. `Prepared.input` does the same in each layer,
    for what acts on the input of attention (short convolutions). `attend` does the rest: rotations, biases,
    terms with weights per layer, the scale of the scores (TUPE: 1/sqrt(2 D), most others: 1/sqrt(D)) and the mask. The
    parameters are trained and saved with the network. To generate token by token make a `cache` and hand it to both.

    Args:
        encoding: a name of the catalogue ("rope", see `wordorder list`), several joined by "+" ("rope+tupe-a"), or
            a pattern over the layers ("rope*3,none", "rope@512*3,none"; see `wordorder.encodings.pattern_of`).
        width: channels of the network, C; a multiple of heads, unless head_dim is given.
        heads: query heads, H.
        layers: layers that attend.
        max_positions: longest text in tokens; limits encodings with a learned table only.
        causal: whether a token attends only to itself and to tokens before it. It sets the mask and, as in
            `wordorder.Decoder`, makes relative encodings one-sided.
        options: of the encoding, such as ``{"base": 500_000.0}`` for rope or ``{"cls": "position-0"}`` for TUPE on
            texts that begin with [CLS]; ``{"name": {...}}`` where several are joined.
        vocabulary: number of token ids; needed by encodings that replace the embedding table (complex-order).
        padding_idx: token id whose embedding those keep at 0.
        dropout: probability that an attention weight is dropped in training.
        head_dim: channels per head of queries and keys, D; None = width / heads.

    Raises:
        BadInput: an unknown encoding or option, or an encoding that is not defined for this use.
        ValueError: a size is out of range.
    """

    def __init__(
        self,
        encoding: str,
        *,
        width: int,
        heads: int,
        layers: int,
        max_positions: int = 512,
        causal: bool = False,
        options: Mapping[str, Any] | None = None,
        vocabulary: int | None = None,
        padding_idx: int | None = None,
        dropout: float = 0.0,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        check_positive(width=width, heads=heads, layers=layers)
        if head_dim is None:
            if width % heads:
                raise ValueError(
                    f"width must be a multiple of heads, got width={width}, heads={heads}; or pass head_dim, the"
                    " channels of a head"
                )
            head_dim = width // heads
        check_positive(head_dim=head_dim)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        self.name, self.width, self.heads, self.layers = encoding, width, heads, layers
        self.head_dim, self.causal, self.dropout = head_dim, causal, dropout
        self.encoding = build_encoding(
            encoding,
            width=width,
            heads=heads,
            layers=layers,
            max_positions=max_positions,
            head_dim=head_dim,
            use="decoder" if causal else "encoder",
            options=options,
            vocabulary=vocabulary,
            padding_idx=padding_idx,
        )
        self.embedding: nn.Module | None = self.encoding.replacement
        """The table that replaces nn.Embedding; None with most encodings."""
        self._may_lack_embed = self.changes_embeddings  # until somebody embeds, or was told to
        initialise(self)

    @property
    def changes_embeddings(self) -> bool:
        """Tell whether `embed` does anything: some encodings act on the embeddings, or replace them."""
        return self.embedding is not None or OnEmbeddings in self.encoding.place_of.values()

    def embed(
        self,
        x: Tensor | None = None,
        *,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return what the first layer reads, (B, T, C): call it with every encoding, before `prepare`.

        Args:
            x: token embeddings (B, T, C).
            input_ids: token ids (B, T), in place of x, for encodings that replace the embedding table.
            positions: where the tokens stand, integers (T,) or (B, T); None = 0 .. T - 1, or on from the cache.
            cache: of earlier tokens.

        Raises:
            BadInput: x where the encoding needs input_ids, or the other way round; or a tensor of another shape.
        """
        if self.embedding is None and (x is None or input_ids is not None):
            raise BadInput(
                f"encoding {self.name!r} does not replace the embedding table: pass embed(x), x being token embeddings"
                f" (batch, tokens, {self.width}) of a table of your own"
            )
        if self.embedding is not None and (input_ids is None or x is not None):
            raise BadInput(f"encoding {self.name!r} replaces the embedding table: pass embed(input_ids=ids)")
        given = x if input_ids is None else input_ids
        assert given is not None
        if x is not None:
            self._check_x(x)
        check_tensor("input_ids", input_ids)
        if x is None and given.dim() != 2:
            raise BadInput(f"input_ids must be (batch, tokens), got shape {tuple(given.shape)}")
        where = _standing(given.shape[1], positions, cache)
        if self._may_lack_embed:
            self._may_lack_embed = False
        return self.encoding.embed(given if self.embedding is None else self.embedding(given, where), where)

    def prepare(
        self,
        x: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        positions: PositionsLike | None = None,
        key_positions: PositionsLike | None = None,
        cache: KeyValueCache | None = None,
    ) -> Prepared:
        """Work out once per forward pass what positions and mask decide; every layer then calls `attend` on it.

        Checkpoint layers by ``torch.utils.checkpoint.checkpoint(layer, ..., use_reentrant=False)``: the other kind
        walks the graph of a learned bias, which all layers share, once per layer, and torch refuses the second time.

        Args:
            x: what the first layer reads, (B, T, C): gives batch, length, device and dtype (of q, k and v; under
                autocast that of autocast).
            key_padding_mask: bool (B, S), True = padding, as in `torch.nn.MultiheadAttention`; None = no padding.
            positions: as given to `embed`; for texts padded on the left count from the first token.
            key_positions: where the S keys stand, if you hold keys of earlier tokens yourself (as their projection gave
                them); with ``positions``. None = those of x.
            cache: of earlier tokens, one text without gaps in each row; `attend` then takes the keys and values of
                these tokens alone. S counts all tokens.

        Raises:
            BadInput: key_positions without positions, or beside a cache; padding on the left without positions, where
                the encoding counts them (looked at on the CPU only); packed texts with a cache, or one of another
                batch; or a tensor has another shape or dtype.

        Warns:
            UserWarning: `embed` was never called, and the encoding acts there.
        """
        self._check_x(x)
        if key_positions is not None and positions is None:
            raise BadInput("key_positions says where the keys stand: pass positions too, where the tokens of x stand")
        if cache is not None:
            self._check_cache(cache, x.shape[0], key_positions)
        check_left_padding(self.encoding, positions, key_padding_mask)
        self._warn_without_embed()
        where = _standing(x.shape[1], positions, cache)
        if key_positions is not None:
            keys = _typed("key_positions", key_positions)
        else:
            keys = where if cache is None or not cache.length else _with_earlier(where, cache.length)
        cached = keys.length - where.length if key_positions is None else 0
        tokens_BS = valid_tokens(key_padding_mask, x.shape[0], keys.length, cached=cached, device=x.device)
        mask = Mask(where, keys, high=0 if self.causal else None, tokens_BS=tokens_BS)
        call = Call(
            batch=x.shape[0],
            heads=self.heads,
            queries=x.shape[1],
            keys=keys.length,
            head_dim=self.head_dim,
            dtype=working_dtype(x),
            device=x.device,
            layers=self.layers,
            dropout=self.dropout if self.training else 0.0,
        )
        cut = cache is not None and isinstance(keys, Contiguous)
        terms = self.encoding.terms(where, keys, dtype=call.dtype, device=x.device, within_windows=cut)
        return Prepared(plan_layers(terms, mask, call), call, cache, set())

    def cache(self) -> KeyValueCache:
        """Return an empty cache for token-by-token decoding, for one text or batch of texts.

        Raises:
            BadInput: this is not causal, so that earlier tokens would change.
        """
        cache = KeyValueCache()
        self._check_cache(cache, None, None)
        return cache

    def _check_cache(self, cache: object, batch: int | None, key_positions: object) -> None:
        if not isinstance(cache, KeyValueCache):
            raise BadInput(f"cache must be one of positional.cache(), got {type(cache).__name__}")
        if not self.causal:
            raise BadInput("a cache is for causal networks, whose earlier tokens do not change; pass causal=True")
        if key_positions is not None:
            raise BadInput("key_positions: a cache knows where its keys stand; leave it out")
        cache.check_rows(batch)

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """Raise BadInput, which says what to call: positions act in more than one place."""
        raise BadInput(
            "a Positional is not called itself: x = positional.embed(x), then order = positional.prepare(x), once per"
            " forward pass, and order.attend(layer, q, k, v) in each layer"
        )

    def extra_repr(self) -> str:
        return f"{self.name!r}, width={self.width}, heads={self.heads}, layers={self.layers}, causal={self.causal}"

    def _check_x(self, x: Tensor) -> None:
        check_tensor("x", x)
        if x.dim() != 3 or x.shape[-1] != self.width or not x.is_floating_point():
            raise BadInput(
                f"x must be embeddings (batch, tokens, width={self.width}) of floating point, got {x.dtype}"
                f" {tuple(x.shape)}"
            )

    def _warn_without_embed(self) -> None:
        if not self._may_lack_embed or is_compiling():
            return
        self._may_lack_embed = False  # said once
        call = "embed(input_ids=ids)" if self.embedding is not None else "embed(x)"
        warnings.warn(
            f"encoding {self.name!r} acts on embeddings, and embed was never called: unless x comes from elsewhere with"
            f" its positions, write x = positional.{call} before prepare(x)",
            stacklevel=3,
        )


def _standing(tokens: int, positions: PositionsLike | None, cache: KeyValueCache | None) -> Positions:
    """Return where tokens stand: as given, else from 0 or from the end of the cache on."""
    if positions is None:
        return Contiguous(tokens, 0 if cache is None else cache.length)
    typed = _typed("positions", positions)
    if cache is not None and isinstance(typed, Packed):
        raise BadInput("positions say that several texts are packed, which a cache cannot hold; give each a row")
    return typed


def _with_earlier(positions: Positions, held: int) -> Contiguous:
    """Return the positions of a text without gaps, from the first token that a cache holds to the last of these."""
    length = held + positions.length
    if isinstance(positions, Contiguous):
        return Contiguous(length, positions.offset - held)
    return Contiguous(length, positions.position_BT[:, -1] - (length - 1))


def _typed(name: str, positions: PositionsLike) -> Positions:
    """Return typed positions; a number, which elsewhere is a count of tokens, is refused."""
    if isinstance(positions, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"{name} must be a tensor, such as torch.arange(first, end), got {positions}")
    return as_positions(positions)
