"""What encoders and decoders have in common: token embeddings, word order, layers, and a norm at the end."""

from collections.abc import Callable, Mapping
from typing import Any, NotRequired, TypedDict, cast

from torch import Tensor, nn
from torch.utils import checkpoint

from wordorder.attention import HybridPlan, Plan, describe, make_plan, plan_layers
from wordorder.encodings import HybridOrder, Order, ReplacesEmbedding, Use, build_encoding
from wordorder.memory import Memory, MemoryState, Segment
from wordorder.networks.blocks import Blocks
from wordorder.networks.segment_reading import SegmentRead, Step, check_step, open_segment, plans_of, run_step
from wordorder.ops import Contiguous, Positions, Visibility, as_padding_mask, as_positions, check_positions_fit
from wordorder.ops.precision import working_dtype
from wordorder.ops.token_ids import check_embeddings, check_token_ids


class StackSizes(TypedDict):
    """Arguments of `Stack` that an encoder's and a decoder's constructor hand on as they are."""

    layers: int
    max_positions: int
    encoding: str
    encoding_options: Mapping[str, Any] | None
    embedding_norm: bool | None
    padding_idx: int | None
    embedding: NotRequired[nn.Module | None]
    embedding_scale: NotRequired[float | None]
    final_norm: NotRequired[bool | None]
    memory: Memory | None


class Stack(nn.Module):
    """Token embeddings, an encoding, and layers made of `Blocks`; encoder and decoder say what a layer does.

    Args:
        vocabulary: number of token ids, V; positive.
        blocks: sizes and style of the layers.
        layer: makes a layer of the blocks.
        layers: number of layers; positive.
        use: "encoder" or "decoder", for the encoding's defaults.
        max_positions: longest text in tokens, for encodings with a table.
        encoding: a name of the catalogue, several joined by "+", or a pattern over the layers; see `build_encoding`.
        encoding_options: options of the encoding; see `build_encoding`.
        embedding_norm: normalise the embeddings; None = with post-norm only.
        padding_idx: token id whose embedding is 0 and stays 0 (unless tied to an output layer).
        embedding: in place of a table of all tokens, such as `AdaptiveEmbedding`; it has its own padding.
        embedding_scale: embeddings, also those given in place of token ids, are multiplied by it, before positions are
            added; None = 1.
        final_norm: normalise the last layer's output; None = with pre-norm only.
        memory: of earlier segments; None = there is none.

    Raises:
        BadInput: unknown encoding or option.
        ValueError: a size is out of range, memory is none, or an embedding beside an encoding that replaces it.
    """

    def __init__(
        self,
        vocabulary: int,
        blocks: Blocks,
        *,
        layer: Callable[[Blocks], nn.Module],
        layers: int,
        use: Use,
        max_positions: int,
        encoding: str,
        encoding_options: Mapping[str, Any] | None,
        embedding_norm: bool | None,
        padding_idx: int | None,
        embedding: nn.Module | None = None,
        embedding_scale: float | None = None,
        final_norm: bool | None = None,
        memory: Memory | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("layers", layers)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if memory is not None and not isinstance(cast("object", memory), Memory):
            raise ValueError(f"memory must be a LookAheadMemory, a SegmentRecurrence or None, got {memory!r}")
        self.blocks, self.heads, self.head_dim, self.memory = blocks, blocks.heads, blocks.head_dim, memory
        self.causal = use == "decoder"
        composition = build_encoding(
            encoding,
            width=blocks.channels,
            heads=blocks.heads,
            layers=layers,
            max_positions=max_positions,
            use=use,
            options=encoding_options,
            vocabulary=vocabulary,
            padding_idx=padding_idx,
            complex_valued=blocks.channels != blocks.width,
            with_memory="none" if memory is None else memory.name,
        )
        if embedding is not None and composition.replacement is not None:
            raise ValueError(f"encoding {encoding!r} replaces the token embeddings; leave embedding out")
        self.embedding: Any = composition.replacement or embedding
        if self.embedding is None:
            self.embedding = nn.Embedding(vocabulary, blocks.width, padding_idx=padding_idx)
        self.embedding_scale = embedding_scale
        self.encoding = composition
        normalise_embeddings = not blocks.pre if embedding_norm is None else embedding_norm
        self.embedding_norm = blocks.norm_layer() if normalise_embeddings else nn.Identity()
        self.dropout = blocks.dropout_layer()
        self.layers = nn.ModuleList(layer(blocks) for _ in range(layers))
        normalise_output = blocks.pre if final_norm is None else final_norm
        self.final_norm = blocks.norm_layer() if normalise_output else nn.Identity()
        self.read_out = blocks.read_out()
        self.gradient_checkpointing = False

    def embed(
        self,
        token_ids_BT: Tensor | None,
        embeddings_BTC: Tensor | None,
        positions: Positions | Tensor | None,
        *,
        window: Positions | None = None,
        in_segment: Positions | None = None,
    ) -> tuple[Tensor, Positions]:
        """What the first layer reads, (B, T, channels), and the positions as typed values.

        Args:
            token_ids_BT: long (B, T).
            embeddings_BTC: instead of token ids, (B, T, C).
            positions: where the tokens stand; None = 0 .. T - 1 for every example.
            window: where they stand in the window of a memory; see `Composition.embed`.
            in_segment: where they stand in a segment of a longer text, for embeddings that are waves over positions;
                None = there are no segments.

        Raises:
            ValueError: neither or both of ids and embeddings are given, or ids are not integers (B, T) or outside the
                vocabulary (looked at on the CPU only).
        """
        if (token_ids_BT is None) == (embeddings_BTC is None):
            raise ValueError("pass exactly one of token_ids and embeddings")
        if token_ids_BT is not None:
            check_token_ids(token_ids_BT, self.embedding.num_embeddings)
        if embeddings_BTC is not None:
            check_embeddings(embeddings_BTC, self.blocks.channels)
        given = token_ids_BT if embeddings_BTC is None else embeddings_BTC
        assert given is not None
        where = Contiguous(given.shape[1]) if positions is None else as_positions(positions)
        check_positions_fit("positions", where, given.shape[0], given.shape[1])
        if embeddings_BTC is not None:
            x_BTC = embeddings_BTC
        elif isinstance(self.embedding, ReplacesEmbedding):
            x_BTC = self.embedding(token_ids_BT, where if in_segment is None else in_segment)
        else:
            x_BTC = self.embedding(token_ids_BT)
        if self.embedding_scale is not None:
            x_BTC = x_BTC * self.embedding_scale
        return self.dropout(self.embedding_norm(self.encoding.embed(x_BTC, where, window))), where

    def plan_self_attention(
        self,
        positions: Positions,
        like_BTC: Tensor,
        *,
        key_positions: Positions | None = None,
        valid_BS: Tensor | None = None,
        causal: bool = False,
        backend: str | None = None,
        return_attentions: bool = False,
    ) -> Plan | HybridPlan:
        """Word order and mask, prepared once for all layers.

        Args:
            positions: of the queries.
            like_BTC: the input of the first layer.
            key_positions: of all keys, where a cache holds earlier ones; None = those of the queries.
            valid_BS: bool, False where a key is padding; None = no padding.
            causal: a query sees only keys at its own position or before it.
            backend: of attention, as in `choose_backend`; None chooses.
            return_attentions: attention weights are wanted.
        """
        keys = positions if key_positions is None else key_positions
        order = self.encoding.prepare(positions, key_positions, dtype=working_dtype(like_BTC), device=like_BTC.device)
        valid_BS = as_padding_mask("valid_BS" if self.causal else "valid_BT", valid_BS)
        mask = Visibility(positions, keys, causal, valid_BS)
        return self.plan_layers(order, mask, like_BTC, backend=backend, return_attentions=return_attentions)

    def plan_layers(
        self, order: Order | HybridOrder, mask: Visibility, like_BTC: Tensor, **wanted: Any
    ) -> Plan | HybridPlan:
        """A plan for all layers, or one for each kind of them; arguments as in `plan_attention`."""

        def plan(of_kind: Order, layers: int) -> Plan:
            return self.plan_attention(of_kind, mask, like_BTC, layers=layers, **wanted)

        return plan_layers(order, plan, layers=len(self.layers))

    def plan_attention(
        self,
        order: Order,
        mask: Visibility,
        like_BTC: Tensor,
        *,
        layers: int | None = None,
        backend: str | None = None,
        return_attentions: bool = False,
        return_lse: bool = False,
    ) -> Plan:
        """Order and mask in the form that the backend wants, for all layers; arguments as in `plan_self_attention`.

        Args:
            order: what the encodings prepared.
            mask: who sees whom.
            like_BTC: see there.
            layers: how many will read the plan; None = all.
            backend: see there.
            return_attentions: see there.
            return_lse: log-sum-exps are wanted.
        """
        call = describe(
            order,
            mask,
            batch=like_BTC.shape[0],
            heads=self.heads,
            queries=mask.query.length,
            keys=mask.key.length,
            head_dim=self.head_dim,
            dtype=working_dtype(like_BTC),  # of queries, keys and values
            device=like_BTC.device,
            dropout=self.blocks.attention_dropout if self.training else 0.0,
            return_lse=return_lse,
            return_weights=return_attentions,
        )
        return make_plan(order, mask, call, backend=backend or self.blocks.backend, layers=layers or len(self.layers))

    def open_segment(self, state: MemoryState | None = None, *, keep: bool = False) -> Segment:
        """A segment about to be read beside what earlier ones left.

        Args:
            state: what the segment before left; None = nothing.
            keep: hold keys and values, so that the segment can be read in several steps (`read_segment`).

        Raises:
            ValueError: the network has no memory, or the state does not fit it.
        """
        if self.memory is None:
            raise ValueError("memory was given to a network without one; build it with memory=LookAheadMemory(length)")
        return open_segment(self.memory, state, layers=len(self.layers), keep=keep)

    def read_segment(
        self,
        segment: Segment,
        token_ids_BT: Tensor | None,
        embeddings_BTC: Tensor | None = None,
        *,
        positions: Positions | None = None,
        valid_BT: Tensor | None = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The next tokens of a segment, or all of them: final states (B, T, C), and what else was asked for.

        A decoder's tokens see only what stands before them; an encoder must read a segment in one step.

        Args:
            segment: of `open_segment`; it takes note of the tokens.
            token_ids_BT: long (B, T).
            embeddings_BTC: instead of token ids, (B, T, C).
            positions: where the tokens stand in their texts; None = on from what was read before. Only encodings that
                act on embeddings without a table read them, and waves (complex-order), which are counted anew in every
                segment unless this is given.
            valid_BT: bool, False where one of these tokens is padding; None = none is.
            backend: of attention, as in `choose_backend`; None chooses.
            return_all_hidden: give what each layer read of the tokens, and the final states.
            return_attentions: give each layer's weights on slots and tokens, (B, H, T, M + tokens so far).

        Raises:
            ValueError: as in `embed` and `segment_reading.check_step`; or keys are to be kept under gradient
                checkpointing.
        """
        memory, given = self.memory, token_ids_BT if embeddings_BTC is None else embeddings_BTC
        assert memory is not None
        if given is None or given.dim() < 2:
            self.embed(token_ids_BT, embeddings_BTC, positions)  # says what is wrong
            raise AssertionError
        by_place = any(part.bounded or part.position_dependent for part in self.encoding.parts.values())
        step = Step(segment, given.shape[1], as_padding_mask("valid_BT", valid_BT), self.causal, by_place)
        check_step(step, given.shape[0], channels=self.blocks.channels, heads=self.heads)
        if segment.keep and self.gradient_checkpointing and self.training:
            raise ValueError("gradient checkpointing runs layers twice and would keep keys twice; pass keep=False")
        x_BTC, _ = self.embed(
            token_ids_BT,
            embeddings_BTC,
            positions or step.in_text,
            window=step.in_table,
            in_segment=positions or step.in_segment,
        )
        like = x_BTC

        def prepare(query: Positions, key: Positions) -> Order | HybridOrder:
            return self.encoding.prepare(query, key, dtype=working_dtype(like), device=like.device)

        def plan(order: Order | HybridOrder, mask: Visibility, *, return_lse: bool) -> Plan | HybridPlan:
            return self.plan_layers(
                order, mask, like, backend=backend, return_attentions=return_attentions, return_lse=return_lse
            )

        plans = plans_of(step, memory, prepare, plan)
        wanted = {"return_all_hidden": return_all_hidden, "return_attentions": return_attentions}
        x_BTC, all_hidden, attentions = run_step(step, plans, self.layers, x_BTC, self.run_layer, **wanted)
        hidden = self.finish(x_BTC)
        return hidden, [*all_hidden, hidden] if return_all_hidden else [], attentions

    def read_whole(
        self,
        token_ids_BT: Tensor | None,
        embeddings_BTC: Tensor | None,
        memory: MemoryState | None,
        refused: Mapping[str, object],
        **wanted: Any,
    ) -> SegmentRead:
        """A segment in one step, and what it leaves.

        Args:
            token_ids_BT: long (B, T).
            embeddings_BTC: instead of token ids, (B, T, C).
            memory: what the segment before left; None = the beginning of a text.
            refused: what else was given that makes no sense beside a memory, by name.
            **wanted: further arguments of `read_segment`.

        Raises:
            ValueError: as in `open_segment` and `read_segment`; or something that is refused was given.
        """
        segment = self.open_segment(memory)
        for name, value in refused.items():
            if value is not None:
                kind = "a decoder" if self.causal else "an encoder"
                raise ValueError(f"{name} cannot be given to {kind} with a memory, which knows where its slots stand")
        hidden, all_hidden, attentions = self.read_segment(segment, token_ids_BT, embeddings_BTC, **wanted)
        return SegmentRead(hidden, tuple(all_hidden) or None, tuple(attentions) or None, segment.close())

    def run_layer(self, layer: nn.Module, *arguments: Any) -> Tensor:
        """A layer's output, computed again in the backward pass where gradient checkpointing is on."""
        if self.gradient_checkpointing and self.training:
            # Re-entrant checkpointing would walk the shared bias's graph once per layer and fail.
            checkpointed = cast("Any", checkpoint).checkpoint
            return checkpointed(layer, *arguments, use_reentrant=False)
        return layer(*arguments)

    def finish(self, x_BTC: Tensor) -> Tensor:
        """What heads read, (B, T, C): the last layer's output after the final norm, and real."""
        return self.read_out(self.final_norm(x_BTC))
