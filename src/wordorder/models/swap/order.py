"""The encoding of a swapped model, a sub-module of its body: what it hands to the layers in each forward pass."""

# transformers' modules are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import DynamicCache, EncoderDecoderCache

from wordorder.encodings import (
    Composition,
    Encoding,
    LayerKind,
    LayerTerms,
    OnEmbeddings,
    OnLayerInput,
    OnScoresByInput,
)
from wordorder.errors import BadInput
from wordorder.models.cached_features import make_room
from wordorder.models.swap.call import NAME, Call, Columns, LayerOrder, ModelRotation
from wordorder.models.swap.families import Host
from wordorder.ops import Arbitrary, Contiguous, Packed, Positions

MODEL = "model"
"""The name of the positions that a model has of its own."""


class WordOrder(nn.Module):
    """The encoding of a swapped model, a sub-module of its body: what it adds, worked out once per forward pass."""

    def __init__(self, host: Host, encoding: Composition, kinds: tuple[LayerKind, ...]) -> None:
        super().__init__()
        self.encoding = encoding
        self._host = (host,)  # a tuple, in which torch registers nothing
        self.layers = tuple(
            LayerOrder(keeps=MODEL in kind.names, factor=factor)
            for kind, factor in zip(kinds, _factors(host, encoding, kinds), strict=True)
        )
        self.reading_layers = _layers_with(OnScoresByInput, encoding, len(kinds))
        """Layers whose input an encoding reads."""
        self.changing_layers = _layers_with(OnLayerInput, encoding, len(kinds))
        """Layers to whose input an encoding adds."""
        self.argument_names = tuple(inspect.signature(type(host.body).forward).parameters)[1:]
        self.in_function = False
        """Whether the attention function of this package computes the scores."""
        self.rotated_in_function: tuple[int, ...] = ()
        """Layers in which that function rotates queries and keys as the model would have."""
        self.removed: tuple[tuple[nn.Module, str, nn.Module], ...] = ()
        """Modules taken out of the model: the one above, the path, and the module; tables without numbers."""
        self.changed: list[tuple[Any, str, Any]] = []
        """Attributes of the model that were changed: of which module, the name, and the value before."""
        self.hooks: list[RemovableHandle] = []

    @property
    def host(self) -> Host:
        """The body and its parts."""
        return self._host[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> "WordOrder":
        """Copy it with its model; alone, as PEFT copies what it trains, the model around it stays one."""
        if id(self.host.body) not in memo:
            memo |= {id(thing): thing for thing in (self._host, self.removed, self.changed, self.hooks)}
        result = memo[id(self)] = object.__new__(type(self))
        result.__setstate__(copy.deepcopy(self.__dict__, memo))
        return result

    def begin(self, body: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        """Embed, and hand down what the layers read; `begin` calls it."""
        inputs = dict(zip(self.argument_names, args, strict=False)) | kwargs
        self._check(inputs)
        ids, x = inputs.get("input_ids"), inputs.get("inputs_embeds")
        if ids is None and x is None:
            return (), inputs  # the model says what is missing
        first: Any = ids if x is None else x
        tokens, device = first.shape[1], first.device

        # Columns count a row's tokens from 0, padding included; positions count them from the row's first token.
        cache = self._cache(inputs)
        past = 0 if cache is None else _past(cache)
        mask, position_ids = inputs.get("attention_mask"), self._position_ids(inputs)
        if self.changing_layers and cache is None and position_ids is None and not _is_by_token(mask):
            raise BadInput(
                "the encoding reads neighbouring tokens, and an attention_mask with four axes does not say where texts"
                " begin: pass position_ids too, or a mask (batch, tokens)"
            )
        padding = _padding(mask, position_ids, past, tokens, cached=cache is not None)
        positions = self._positions(tokens, past, padding, mask, position_ids, cached=cache is not None)
        if cache is not None and position_ids is not None and not torch.compiler.is_compiling():
            _check_consecutive(position_ids, positions.index_BT(device), _of_step(mask, past, tokens))

        if OnEmbeddings in self.encoding.place_of.values():
            if self.host.first_id and ids is not None and inputs.get("position_ids") is None:
                # RoBERTa counts tokens by their ids, which it will not see
                token = (ids != self.host.first_id - 1).long()
                inputs["position_ids"] = token.cumsum(1) * token + self.host.first_id - 1
            x = cast(Any, body).get_input_embeddings()(ids) if x is None else x
            inputs["inputs_embeds"], inputs["input_ids"] = self.encoding.embed(x, positions), None
        types_from_buffer = hasattr(getattr(body, "embeddings", None), "token_type_ids")
        if types_from_buffer and inputs.get("token_type_ids") is None:
            # BERT's buffer is no longer than the table, which may be gone
            inputs["token_type_ids"] = torch.zeros(first.shape[:2], dtype=torch.long, device=device)
        if not self.in_function:
            return (), inputs

        # Keys of layers with a window of the model's own are fewer, and begin later.
        numbers = range(len(self.layers))
        columns = tuple((tokens, 0) if cache is None else tuple(cache.get_mask_sizes(tokens, n)) for n in numbers)
        dtype = next((p.dtype for p in self.host.attentions[0].parameters() if p.is_floating_point()), torch.float32)
        terms: dict[Columns, LayerTerms] = {}
        rotations: dict[int, tuple[ModelRotation, ModelRotation]] = {}
        # Distances alone are the same between columns, whose offsets are known numbers: one row for all examples. The
        # model's mask keeps packed texts apart.
        by_column = not isinstance(positions, Arbitrary) and not self.encoding.position_dependent
        by_column = by_column and not (isinstance(positions, Packed) and self.encoding.changes_layer_input)
        if by_column:
            positions = Contiguous(tokens, _offset(past))
        for count, start in dict.fromkeys(columns):
            keys = positions
            if by_column:
                keys = Contiguous(count, start) if cache is not None else positions
            elif cache is not None:
                clamped = bool(self.encoding.bounded)
                keys = _key_positions(count, start, padding, past + tokens, device, clamped=clamped)
            of_layers = self.encoding.terms(positions, keys, dtype=dtype, device=device, neighbours=True)
            # windows go by column, whatever position ids say, as the model's own do
            column_pair = Contiguous(tokens, _offset(past)), Contiguous(count, start)
            kinds = tuple(replace(kind, positions=column_pair) for kind in of_layers.kinds)
            terms[count, start] = replace(of_layers, kinds=kinds)
            layers = [n for n in self.rotated_in_function if columns[n] == (count, start)]
            rotations |= self._rotations(body, layers, positions, keys, torch.empty(0, dtype=dtype, device=device))
        inputs["wordorder"] = Call(
            layers=self.layers,
            columns=columns,
            terms=terms,
            rotations=rotations,
            causal=self.host.causal,
            scaled_queries=self.host.family.scaled_queries,
            cache=cache,
            tokens_BT=_tokens_of_step(mask, padding, past, tokens) if self.changing_layers else None,
            checkpointed=self._checkpointed(body),
        )
        return (), inputs

    def change_input(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Hand a layer its input with what encodings add; a pre-hook of its attention, before `read_input`."""
        call = _call_of(module, kwargs)
        if args:
            return (call.change_input(module.layer_idx, args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": call.change_input(module.layer_idx, kwargs["hidden_states"])}

    def read_input(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compute features of a layer's input; a pre-hook of its attention, inside what checkpointing repeats."""
        _call_of(module, kwargs).read_input(module.layer_idx, args[0] if args else kwargs["hidden_states"])

    def no_rotation(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Take the model's rotation from a layer; a forward pre-hook of its attention."""
        cos, sin = kwargs["position_embeddings"]
        return args, {**kwargs, "position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))}

    def no_bias(self, module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Hand a T5 layer one 0 in place of a bias, which it would else write out; a pre-hook of its attention."""
        x: Tensor = args[0] if args else kwargs["hidden_states"]
        return args, {**kwargs, "position_bias": x.new_zeros(())}

    def _check(self, inputs: Mapping[str, Any]) -> None:
        """Refuse calls whose terms would be lost or wrong in silence."""
        host, config = self.host, self.host.config
        if self.in_function and config._attn_implementation != NAME:
            raise BadInput(
                f"attn_implementation is {config._attn_implementation!r} now, which would drop the terms of"
                f" encoding {config.wordorder['encoding']!r}; set it to {NAME!r} again"
            )
        checkpoint = getattr(host.layers[0], "_gradient_checkpointing_func", None)
        if self.in_function and self.training and getattr(checkpoint, "keywords", {}).get("use_reentrant"):
            raise BadInput(
                "use_reentrant=True would lose the gradient of terms that layers share; take"
                " gradient_checkpointing_kwargs={'use_reentrant': False}, transformers' default"
            )
        ids = inputs.get("position_ids")
        if not host.family.packs and ids is not None and not torch.compiler.is_compiling():
            steps = cast(Tensor, ids).diff(dim=-1)
            if inputs.get("attention_mask") is None and bool((steps < 0).any()):
                raise BadInput(
                    f"position_ids begin anew within a row, but {type(host.body).__name__} lets such texts see each"
                    " other; give each text a row"
                )

    def _cache(self, inputs: dict[str, Any]) -> Any:
        """Return the cache of the self-attention; with room for features where keys have some.

        For those, and for rows of the layers' input, a cache is made where the model would make one later.
        """
        name = "cache" if "cache" in self.argument_names else "past_key_values"
        cache = inputs.get(name)
        cache = inputs.get("past_key_values") if cache is None else cache  # the older name is taken too
        needs_cache = self.encoding.features_of_keys or self.encoding.changes_layer_input
        if needs_cache and self.host.causal and cache is None and not self._no_cache(inputs):
            cache = inputs[name] = DynamicCache(config=self.host.config)
            if inputs.get("encoder_hidden_states") is not None:
                cache = inputs[name] = EncoderDecoderCache(cache, DynamicCache(config=self.host.config))
        cache = getattr(cache, "self_attention_cache", cache)
        if cache is not None and not hasattr(cache, "get_mask_sizes"):
            raise BadInput(
                f"a swapped model does not read a {type(cache).__name__}; take a DynamicCache or StaticCache"
            )
        if cache is not None and self.encoding.features_of_keys:
            make_room(cache, len(self.layers))
        return cache

    def _no_cache(self, inputs: Mapping[str, Any]) -> bool:
        use_cache = inputs.get("use_cache")
        return self._checkpointed(self.host.body) or not (
            getattr(self.host.config, "use_cache", False) if use_cache is None else use_cache
        )

    def _checkpointed(self, body: nn.Module) -> bool:
        """Tell whether layers are computed again for their gradients, by transformers or by torch's wrapper."""
        first: Any = next(body.get_submodule(self.host.family.layers).children())
        return self.training and (
            bool(getattr(first, "gradient_checkpointing", False)) or hasattr(first, "_checkpoint_wrapped_module")
        )

    def _position_ids(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Return the position ids that were given, counted from 0."""
        ids = inputs.get("position_ids")
        return ids - self.host.first_id if ids is not None and self.host.first_id else ids

    def _positions(
        self,
        tokens: int,
        past: int | Tensor,
        padding: Tensor | None,
        mask: Any,
        position_ids: Tensor | None,
        *,
        cached: bool,
    ) -> Positions:
        """Return the positions of the queries, as narrowly typed as is known without reading a tensor."""
        if position_ids is not None and not cached:
            if mask is not None and (_is_by_token(mask) or not self.changing_layers):
                return Arbitrary(position_ids.clamp(min=0))
            # transformers' rule: without a mask, a step other than 1 begins another text. So it does for neighbours
            # where a mask with four axes says who sees whom
            begins = position_ids.diff(dim=1) != 1
            if torch.compiler.is_compiling() or bool(begins.any()):
                text = begins.long().cumsum(1)
                return Packed(position_ids, torch.cat((torch.zeros_like(text[:, :1]), text), dim=1))
            return Contiguous(tokens, position_ids[:, 0])
        if padding is None:
            return Contiguous(tokens, _offset(past))
        return Contiguous(tokens, past - padding)

    def _rotations(
        self, body: nn.Module, layers: list[int], queries: Positions, keys: Positions, like: Tensor
    ) -> dict[int, tuple[ModelRotation, ModelRotation]]:
        """Return the model's own rotations of queries and keys in these layers."""
        if not layers:
            return {}
        module: Any = body.get_submodule(cast(str, self.host.family.rotary))
        takes_type = "layer_type" in inspect.signature(module.forward).parameters
        by_type: dict[str, tuple[ModelRotation, ModelRotation]] = {}
        rotations: dict[int, tuple[ModelRotation, ModelRotation]] = {}
        for layer in layers:
            kind = self.host.config.layer_types[layer] if takes_type else ""
            if kind not in by_type:
                more = (kind,) if takes_type else ()
                turns = (module(like, where.index_BT(like.device), *more) for where in (queries, keys))
                of_queries, of_keys = (ModelRotation(cos[:, None], sin[:, None]) for cos, sin in turns)
                by_type[kind] = of_queries, of_keys
            rotations[layer] = by_type[kind]
        return rotations


def begin(body: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
    """Call the encoding that the body has now, which may be the copy that PEFT trains; a forward pre-hook of it."""
    return cast(Any, body).wordorder.begin(body, args, kwargs)


def _factors(host: Host, encoding: Composition, kinds: tuple[LayerKind, ...]) -> tuple[float, ...]:
    """Return what each layer's scale is multiplied by; beside the model's positions it stays the model's."""
    scales = [encoding.scales[kind] for kind in encoding.kind_of_layer] or encoding.scales * len(kinds)
    root = math.sqrt(host.head_dim)
    return tuple(1.0 if MODEL in kind.names else s * root for kind, s in zip(kinds, scales, strict=True))


def _layers_with(place: type[Encoding], encoding: Composition, layers: int) -> tuple[int, ...]:
    """Return the layers in which an encoding acts at a place."""
    names = {name for name, its_place in encoding.place_of.items() if its_place is place}
    return tuple(layer for layer in range(layers) if names & {*encoding.kind_of(layer).names})


def _call_of(module: nn.Module, kwargs: Mapping[str, Any]) -> Call:
    """Return what the model hands to each of its layers."""
    call = kwargs.get("wordorder")
    if call is None:
        raise BadInput(f"{type(module).__name__} was handed no terms: call the model, not one of its layers")
    return call


def _past(cache: Any) -> int | Tensor:
    """Return the column of the first query: the number of tokens in the cache, before the layers add theirs."""
    past = (getattr(cache, "get_query_offset", None) or cache.get_seq_length)()
    return past.clone() if isinstance(past, Tensor) else past


def _offset(past: int | Tensor) -> int | Tensor:
    """Return the first column as `Contiguous` takes it: a number, or a tensor (1,)."""
    return past.reshape(1) if isinstance(past, Tensor) else past


def _padding(mask: Any, position_ids: Tensor | None, past: int | Tensor, tokens: int, *, cached: bool) -> Tensor | None:
    """Return how many columns of padding each row begins with, (B,); None = nobody says that there are any."""
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return mask.int().argmax(dim=1)
    if cached and position_ids is not None:  # `generate` gives masks with four axes to static caches, and ids always
        return past + tokens - 1 - position_ids[:, -1]
    return None


def _tokens_of_step(mask: Any, padding: Tensor | None, past: int | Tensor, tokens: int) -> Tensor | None:
    """Return which of a step's columns are tokens, bool (B, T); None = nobody says that one is not."""
    tokens_BT = _of_step(mask, past, tokens)
    if tokens_BT is not None:
        return tokens_BT
    return None if padding is None else Contiguous(tokens, past - padding).index_BT() >= 0


def _is_by_token(mask: Any) -> bool:
    """Tell whether there is no mask, or one that says of each token whether it is padding."""
    return mask is None or (isinstance(mask, Tensor) and mask.dim() == 2)


def _of_step(mask: Any, past: int | Tensor, tokens: int) -> Tensor | None:
    """Return the columns of a step in a mask with two axes, bool (B, T), which may be as long as a static cache."""
    if mask is None or not _is_by_token(mask):
        return None
    if isinstance(past, Tensor):
        return mask.index_select(1, past.reshape(1) + torch.arange(tokens, device=mask.device)).bool()
    return mask[:, past : past + tokens].bool()


def _check_consecutive(position_ids: Tensor, positions_BT: Tensor, tokens_BT: Tensor | None) -> None:
    """Refuse position ids that a cache does not hold: the positions of its keys are those of their columns."""
    other = (position_ids != positions_BT) & (positions_BT >= 0)
    if tokens_BT is not None:
        other = other & tokens_BT  # ids of padding are nobody's
    if bool(other.any()):
        raise BadInput(
            "position_ids must count a row's tokens one by one where a swapped model has a cache; leave them out, or"
            " pass use_cache=False"
        )


def _key_positions(
    count: int, start: int, padding: Tensor | None, end: int | Tensor, device: torch.device, *, clamped: bool
) -> Positions:
    """Return the positions of ``count`` keys from column ``start`` on; clamped to the last query's for tables."""
    keys = Contiguous(count, start if padding is None else start - padding)
    if not clamped:
        return keys
    last = end - 1 if padding is None else (end - 1 - padding)[:, None]
    # empty slots of a static cache lie beyond the last query, and may lie beyond the table
    return Arbitrary(keys.index_BT(device).clamp(min=0).minimum(torch.as_tensor(last, device=device).clamp(min=0)))
