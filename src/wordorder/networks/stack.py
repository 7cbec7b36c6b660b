"""The base of encoders and decoders: token embeddings, word order, layers, and a norm at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.attention import Backend, Call, LayerPlans, LayerStep, Source, plan_layers
from wordorder.encodings import Composition, ReplacesEmbedding, Use
from wordorder.encodings.places import check_positive
from wordorder.errors import BadInput
from wordorder.networks.options import TransformerOptions
from wordorder.ops import (
    Contiguous,
    Mask,
    Positions,
    PositionsLike,
    as_positions,
    check_positions_fit,
    valid_tokens,
)
from wordorder.ops.execution import has_values, is_sparse, run_layer, under_autocast, working_dtype
from wordorder.ops.tokens import check_embeddings, check_tensor, check_token_ids

if TYPE_CHECKING:
    from wordorder.memory import MemoryState, Segment, SegmentRead
    from wordorder.networks.cache import Cache

Run = tuple[Tensor, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]
"""Hidden states, and if asked for all hidden states, attentions, and attentions on a source."""


class Stack(nn.Module):
    """Token embeddings, an encoding, and layers; encoder and decoder say what a layer does.

    Args:
        vocabulary: number of token ids, V; positive.
        layer: makes a layer of the options.
        use: "encoder" or "decoder", for the encoding's defaults.
        embedding: in place of a table of all tokens; it has its own padding.

    Raises:
        BadInput: unknown encoding or option.
        ValueError: a size is out of range, an embedding comes with an encoding that replaces it, or the encoding's
            table has no place for a memory's slots and one token.
    """

    def __init__(
        self,
        vocabulary: int,
        options: TransformerOptions,
        *,
        layer: Callable[[TransformerOptions], nn.Module],
        use: Use,
        embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_positive(vocabulary=vocabulary)
        self.vocabulary, self.options = vocabulary, options
        self.heads, self.head_dim = options.heads, options.head_dim
        self.memory, self.causal = options.memory, use == "decoder"
        composition = options.composition(vocabulary, use)
        if embedding is not None and composition.replacement is not None:
            raise ValueError(f"encoding {options.encoding!r} replaces the token embeddings; leave embedding out")
        if embedding is not None:
            sizes = tuple(getattr(embedding, name, None) for name in ("num_embeddings", "embedding_dim"))
            if sizes != (vocabulary, options.channels):
                raise ValueError(
                    f"embedding must have num_embeddings and embedding_dim {vocabulary} and {options.channels}, as"
                    f" nn.Embedding(vocabulary, width) has, got {sizes[0]} and {sizes[1]}"
                )
        elif options.padding_idx is not None and not 0 <= options.padding_idx < vocabulary:
            raise ValueError(f"padding_idx must lie in 0 .. {vocabulary - 1}, got {options.padding_idx}")
        _check_room(options, composition)
        self.embedding: Any = composition.replacement or embedding
        if self.embedding is None:
            self.embedding = nn.Embedding(vocabulary, options.width, padding_idx=options.padding_idx)
        self.embedding_scale = options.embedding_scale
        self.encoding = composition
        normalise_embeddings = not options.pre if options.embedding_norm is None else options.embedding_norm
        self.embedding_norm = options.norm_layer() if normalise_embeddings else nn.Identity()
        self.dropout = options.dropout_layer()
        self.layers = nn.ModuleList(layer(options) for _ in range(options.layers))
        normalise_output = options.pre if options.final_norm is None else options.final_norm
        self.final_norm = options.norm_layer() if normalise_output else nn.Identity()
        self.read_out = options.read_out_layer()
        self.memory_weights = None if self.memory is None else self.memory.weights(options.layers, options.channels)
        self.gradient_checkpointing = False

    def embed(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        positions: PositionsLike | None,
        *,
        window: Positions | None = None,
        in_segment: Positions | None = None,
    ) -> tuple[Tensor, Positions]:
        """Return the input of the first layer, (B, T, channels), and the positions as typed values.

        Args:
            positions: where the tokens stand; None = 0 .. T - 1 for every example.
            window: where they stand in the window of a memory; see `Composition.embed`.
            in_segment: where they stand in a segment of a longer text, for embeddings that are waves over positions;
                None = there are no segments.

        Raises:
            ValueError: neither or both of input_ids and inputs_embeds are given, or ids are not integers (B, T) or
                outside the vocabulary (looked at on the CPU only); or as in `check_computable`.
        """
        ids_or_embeds = check_given(input_ids, inputs_embeds, self.embedding, self.options.channels)
        check_computable(ids_or_embeds, self)
        where = Contiguous(ids_or_embeds.shape[1]) if positions is None else as_positions(positions)
        check_positions_fit("positions", where, ids_or_embeds.shape[0], ids_or_embeds.shape[1])
        if inputs_embeds is not None:
            x_BTC = inputs_embeds
        elif reads_positions(self.embedding):
            x_BTC = self.embedding(ids_or_embeds, where if in_segment is None else in_segment)
        else:
            x_BTC = self.embedding(ids_or_embeds)
        if self.embedding_scale is not None:
            x_BTC = x_BTC * self.embedding_scale
        return self.dropout(self.embedding_norm(self.encoding.embed(x_BTC, where, window))), where

    def plan(
        self,
        positions: Positions,
        like_BTC: Tensor,
        *,
        key_positions: Positions | None = None,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> LayerPlans:
        """Prepare the encoding and plan self-attention, once for all layers.

        Args:
            key_positions: of all keys, where a cache holds earlier ones; None = those of the queries.
            key_padding_mask: bool (B, S), True where a key is padding; None = no padding.
            causal: a query sees only keys at its own position or before it.
        """
        keys = positions if key_positions is None else key_positions
        call = self._call(like_BTC, positions.length, keys.length, return_attentions=return_attentions)
        held = keys.length - positions.length
        # a cache drops keys beyond a window
        cut = held > 0 and isinstance(keys, Contiguous)
        terms = self.encoding.terms(positions, keys, dtype=call.dtype, device=call.device, within_windows=cut)
        tokens_BS = valid_tokens(key_padding_mask, call.batch, keys.length, cached=held, device=call.device)
        mask = Mask(positions, keys, high=0 if causal else None, tokens_BS=tokens_BS)
        return plan_layers(terms, mask, call, backend=self._backend(backend), trusted=self.encoding.trusted)

    def run_layers(
        self,
        x_BTC: Tensor,
        plans: LayerPlans,
        source: Source | None = None,
        cache: "Cache | None" = None,
        *,
        return_all_hidden: bool,
        return_attentions: bool,
    ) -> Run:
        """Run all layers, and finish their output."""
        all_hidden: list[Tensor] = []
        attentions: list[Tensor] = []
        cross_attentions: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            all_hidden.append(x_BTC)
            plan, extend, source_of_layer = plans.layer(index), None, source
            if cache is not None:
                # with gaps between tokens columns do not say which keys are beyond a window
                cut = plan.terms.positions is not None and isinstance(plan.terms.positions[1], Contiguous)
                extend = partial(cache.extend, index, window=plan.terms.window if cut else None)
                source_of_layer = None if source is None else source._replace(extend=partial(cache.source, index))
            step = LayerStep(
                plan,
                extend=extend,
                extend_input=None if cache is None else partial(cache.extend_input, index),
                source=source_of_layer,
                weights=return_attentions,
            )
            x_BTC, record = run_layer(layer, x_BTC, step, checkpointed=self.checkpointed)
            weights = record.weights
            if weights is not None and cache is not None:  # keys beyond the window have weight 0
                weights = F.pad(weights, (cache.length - weights.shape[-1], 0))
            attentions += [] if weights is None else [weights]
            cross_attentions += [] if record.source_weights is None else [record.source_weights]
        hidden = self.finish(x_BTC)
        return (
            hidden,
            (*all_hidden, hidden) if return_all_hidden else None,
            tuple(attentions) if return_attentions else None,
            tuple(cross_attentions) if return_attentions and source is not None else None,
        )

    def _backend(self, forced: str | None) -> str | Backend | None:
        """Return the backend of these blocks, or the one that the caller forces."""
        alone = self.options.backend
        if alone is None:
            return forced
        if forced not in (None, "reference"):
            raise ValueError(
                f"scores={alone.name!r} is in no fused kernel: backend must be 'reference' or None, got {forced!r}"
            )
        return alone

    def _call(self, like_BTC: Tensor, queries: int, keys: int, *, return_attentions: bool) -> Call:
        """Return what is known of attention in all layers."""
        return Call(
            batch=like_BTC.shape[0],
            heads=self.heads,
            queries=queries,
            keys=keys,
            head_dim=self.head_dim,
            dtype=working_dtype(like_BTC),  # of queries, keys and values
            device=like_BTC.device,
            layers=len(self.layers),
            dropout=self.options.attention_dropout if self.training else 0.0,
            return_weights=return_attentions,
        )

    @property
    def checkpointed(self) -> bool:
        """Whether layers are computed again in the backward pass instead of keeping what they hold."""
        # nothing is computed again where no gradient is: a sample in the middle of training may use a cache
        return self.gradient_checkpointing and self.training and torch.is_grad_enabled()

    def open_segment(self, state: "MemoryState | None" = None, *, keep: bool = False) -> "Segment":
        """Open a segment after the state that earlier ones left.

        Args:
            state: what the segment before left; None = nothing.
            keep: hold keys and values, so that the segment can be read in several steps (`read_segment`).

        Raises:
            ValueError: the network has no memory, or the state does not fit it.
        """
        from wordorder.memory.segment import Segment

        if self.memory is None:
            raise ValueError("memory was given to a network without one; build it with memory=LookAheadMemory(length)")
        return Segment.after(self.memory, state, layers=len(self.layers), keep=keep)

    def read_segment(
        self,
        segment: "Segment",
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None = None,
        *,
        positions: Positions | None = None,
        key_padding_mask: Tensor | None = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> "SegmentRead":
        """Read the next tokens of a segment, or all of them, and return what is found and the segment after them.

        A decoder's tokens see only what comes before them; an encoder must read a segment in one step.

        Args:
            segment: of `open_segment`, or of the step before.
            input_ids: long (B, T).
            inputs_embeds: instead of input_ids, (B, T, C).
            positions: where the tokens are in their texts; None = on from what was read before. Only encodings that
                act on embeddings without a table read them, and waves (complex-order), which are counted anew in every
                segment unless this is given.
            key_padding_mask: bool (B, T), True where one of these tokens is padding; None = none is.
            return_all_hidden: also return what each layer read of the tokens, and the final states.
            return_attentions: also return each layer's weights on slots and tokens, (B, H, T, M + tokens so far).

        Raises:
            ValueError: as in `embed` and `wordorder.memory.check_step`; or keys are to be kept under gradient
                checkpointing.
        """
        from wordorder.memory.segment import Step, check_step, read_step  # what networks without a memory never load

        ids_or_embeds = one_input(input_ids, inputs_embeds)
        if ids_or_embeds.dim() < 2:
            self.embed(input_ids, inputs_embeds, positions)  # says what is wrong
            raise AssertionError
        batch, tokens = ids_or_embeds.shape[:2]
        tokens_BT = valid_tokens(key_padding_mask, batch, tokens, device=ids_or_embeds.device)
        segment = segment if self.memory_weights is None else replace(segment, weights=self.memory_weights)
        learning = self.training and torch.is_grad_enabled() and not segment.keep
        step = Step(segment, ids_or_embeds.shape[1], tokens_BT, self.causal, self.encoding, learning)
        check_step(step, ids_or_embeds.shape[0], channels=self.options.channels, heads=self.heads)
        if segment.keep and self.checkpointed:
            raise ValueError("gradient checkpointing runs layers twice and would keep keys twice; pass keep=False")
        x_BTC, _ = self.embed(
            input_ids,
            inputs_embeds,
            positions or step.in_text,
            window=step.in_table,
            in_segment=positions or step.in_segment,
        )
        call = self._call(x_BTC, step.tokens, step.keys, return_attentions=return_attentions)
        read = read_step(
            self.layers,
            x_BTC,
            step.planned(call, backend=self._backend(backend)),
            checkpointed=self.checkpointed,
            return_all_hidden=return_all_hidden,
            return_attentions=return_attentions,
        )
        hidden = self.finish(read.hidden)
        return read._replace(hidden=hidden, all_hidden=(*read.all_hidden, hidden) if return_all_hidden else ())

    def read_whole(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        memory: "MemoryState | None",
        refused: Mapping[str, object],
        **wanted: Any,
    ) -> "tuple[Tensor, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None, MemoryState, Tensor | None]":
        """Read a segment in one step; refuse arguments, by name, that make no sense beside a memory.

        Returns:
            hidden states, all hidden states and attentions if asked for, the memory for the next segment, and what its
            weights learn from.

        Raises:
            ValueError: as in `open_segment` and `read_segment`; or something that is refused was given.
        """
        segment = self.open_segment(memory)
        for name, value in refused.items():
            if value is not None:
                kind = "a decoder" if self.causal else "an encoder"
                raise ValueError(f"{name} cannot be given to {kind} with a memory, which knows where its slots stand")
        read = self.read_segment(segment, input_ids, inputs_embeds, **wanted)
        return read.hidden, read.all_hidden or None, read.attentions or None, read.segment.close(), read.loss

    def finish(self, x_BTC: Tensor) -> Tensor:
        """Return the input of the heads, (B, T, C): the last layer's output after the final norm, and real."""
        return self.read_out(self.final_norm(x_BTC))


def _check_room(options: TransformerOptions, encoding: Composition) -> None:
    """Refuse a table that the memory alone would fill."""
    if options.memory is not None and encoding.bounded and options.memory.length >= options.max_positions:
        raise ValueError(
            f"max_positions={options.max_positions} must hold the memory's {options.memory.length} slots and a segment:"
            f" encoding {'+'.join(encoding.bounded)!r} has a table of positions; raise max_positions or shorten the"
            " memory"
        )


def reads_positions(embedding: nn.Module) -> bool:
    """Tell whether embeddings are called with positions, within the wrapper of a tool too."""
    if isinstance(embedding, nn.Embedding):
        return False
    return any(isinstance(module, ReplacesEmbedding) for module in embedding.modules())


def check_left_padding(encoding: Composition, positions: object, key_padding_mask: Tensor | None) -> None:
    """Refuse padding on the left without positions where an encoding counts them.

    A GPU is waited for; whoever passes positions does not wait. A compiled network checks as it runs.

    Args:
        key_padding_mask: of all keys, (B, S), those of a cache first, so that column 0 is a text's first.

    Raises:
        BadInput: a token would stand as far from the beginning as its row has padding; RuntimeError where compiled.
    """
    if positions is not None or key_padding_mask is None or not encoding.counts_positions:
        return
    if not isinstance(cast("object", key_padding_mask), Tensor) or key_padding_mask.dtype != torch.bool:
        return  # refused for what it is
    if key_padding_mask.dim() != 2 or is_sparse(key_padding_mask) or not key_padding_mask.numel():
        return
    message = (
        "key_padding_mask hides the first tokens of a row, and this encoding counts positions, so it must be told"
        " where the tokens stand: pass positions=Contiguous(T, offset), with an offset per row that is minus the"
        " number of its padding tokens (on from the cache: plus the tokens that it holds)"
    )
    hidden = (key_padding_mask[:, 0] & ~key_padding_mask.all(1)).any()
    if has_values(hidden):
        if bool(hidden):
            raise BadInput(message)
    elif torch.compiler.is_compiling():
        torch._assert_async(~hidden, message)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def one_input(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """Return the one of the two that was given; raise ValueError for both, none, or what is no tensor."""
    ids_or_embeds = input_ids if inputs_embeds is None else inputs_embeds
    if ids_or_embeds is None or (input_ids is not None and inputs_embeds is not None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    check_tensor("input_ids" if inputs_embeds is None else "inputs_embeds", ids_or_embeds)
    return ids_or_embeds


def check_given(input_ids: Tensor | None, inputs_embeds: Tensor | None, embedding: Any, channels: int) -> Tensor:
    """Return the token ids (B, T) or the embeddings (B, T, channels) that were given; raise ValueError for others."""
    ids_or_embeds = one_input(input_ids, inputs_embeds)
    if input_ids is not None:
        # adapters and wrappers do not say how many rows their table has
        check_token_ids(input_ids, getattr(embedding, "num_embeddings", None))
    else:
        check_embeddings(ids_or_embeds, channels)
    return ids_or_embeds


def check_computable(ids_or_embeds: Tensor, network: Stack) -> None:
    """Refuse what surely cannot be computed with: ids without values, or embeddings of another dtype than the weights.

    Embeddings are left to torch under autocast, in a compiler, and where a tool may cast them: adapters, quantised or
    sharded weights, hooks.

    Raises:
        BadInput: names the dtypes, or the device, and the remedy.
    """
    if torch.compiler.is_compiling():
        return
    name = "inputs_embeds" if ids_or_embeds.is_floating_point() else "input_ids"
    if ids_or_embeds.is_meta and not all(weight.is_meta for weight in network.parameters()):
        raise BadInput(f"{name} is on the meta device, without values, and the network is not: make it with values")
    if not ids_or_embeds.is_floating_point() or under_autocast(ids_or_embeds.device):
        return
    first_layer = network.layers[0]
    weight = next(first_layer.parameters(), None)
    if weight is None or weight.dtype == ids_or_embeds.dtype:
        return
    dtype = _common_dtype((network.encoding, network.embedding_norm, first_layer))
    if dtype not in (None, ids_or_embeds.dtype):
        raise BadInput(
            f"{name} is {ids_or_embeds.dtype}, and the network's weights are {dtype}: take {name}.to({dtype}) or"
            f" network.to({ids_or_embeds.dtype}), or call the network under torch.autocast"
        )


def _common_dtype(parts: Sequence[nn.Module]) -> torch.dtype | None:
    """Return the dtype of all weights of these parts; None where they differ or where a tool may cast their input."""
    dtypes: set[torch.dtype] = set()
    for module in (module for part in parts for module in part.modules()):
        attributes = vars(module)
        # sharding and quantisation change the class of modules or weights; accelerate sets a forward of its own
        if not type(module).__module__.startswith(("torch.nn.modules.", "wordorder.")):
            return None
        if attributes["_forward_pre_hooks"] or "forward" in attributes:
            return None
        for weight in module.parameters(recurse=False):
            if type(weight) not in (Tensor, nn.Parameter) or not weight.is_floating_point() or not weight.numel():
                return None
            dtypes.add(weight.dtype)
    return dtypes.pop() if len(dtypes) == 1 else None
