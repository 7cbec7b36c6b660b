"""The terms that encodings add to attention, worked out once per forward pass and read by every layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor

from wordorder.encodings.places import NO_FEATURES, ContentTerm, InputTerm, Move, SinkTerm, TokenFeatures
from wordorder.errors import BadInput
from wordorder.ops import Bias, Positions

Term = tuple[Move | None, Move | None] | Bias | ContentTerm | InputTerm | SinkTerm
"""The term of one encoding: moves of queries and keys (None: not moved), a bias, a term by content or the input, or a
sink."""


@dataclass(frozen=True)
class Terms:
    """The terms of attention scores: ``scale * move(q_i) . move(k_j) + bias[i, j] + content`` for query i and key j."""

    scale: float
    """The factor on q.k, 1/sqrt(D) unless an encoding sets another (TUPE: 1/sqrt(2 D))."""
    bias: Bias | None = None
    """The content-independent bias, the sum over all encodings."""
    query_moves: tuple[Move | None, ...] = ()
    """Moves of the queries, in the order in which they are applied; None = not moved."""
    key_moves: tuple[Move | None, ...] = ()
    content: tuple[ContentTerm, ...] = ()
    inputs: tuple[InputTerm, ...] = ()
    """Added to the layer's input, before queries, keys and values are projected from it."""
    sinks: tuple[SinkTerm, ...] = ()
    """Added to the denominator of the softmax."""
    window: int | None = None
    """Tokens that a query sees on a visible side, itself included; None = all that the mask lets it see."""
    positions: tuple[Positions, Positions] | None = field(default=None, compare=False)
    """Positions of the queries and of the keys; None = unknown, and not checked."""
    two_sided: bool = field(default=False, compare=False)
    """Whether an encoding has separate weights for keys on the right, which a causal mask would hide."""
    head_dim: int | None = field(default=None, compare=False)
    """Channels per head, D, that the encodings were built for; None = unknown, and not checked."""

    @property
    def moves(self) -> bool:
        """Tell whether queries or keys are moved before their product."""
        return bool(self.query_moves or self.key_moves)

    @property
    def widening(self) -> int:
        """The number of channels of moved queries and keys for each channel before."""
        widening = 1
        for move in self.query_moves:  # a compiler traces no product of a generator
            widening *= 1 if move is None else move.widening
        return widening

    @property
    def by_layer(self) -> bool:
        """Tell whether a term differs by layer."""
        by_layer = len(self.content) + len(self.inputs) + len(self.sinks) > 0
        for move in (*self.query_moves, *self.key_moves):
            by_layer |= move is not None and move.by_layer
        return by_layer

    @property
    def rows_before(self) -> int:
        """The number of earlier rows that the terms of the input read."""
        rows = 0
        for term in self.inputs:  # a compiler traces no max of a generator
            rows = max(rows, term.rows_before)
        return rows

    def change_input(self, x_BTC: Tensor, rows_BNC: Tensor) -> Tensor:
        """Return the input of attention with its terms added.

        Args:
            x_BTC: the layer's rows.
            rows_BNC: the same, 0 where they are padding, behind the earlier ones that terms read.
        """
        for term in self.inputs:
            x_BTC = x_BTC + term.added(rows_BNC)[:, -x_BTC.shape[1] :]
        return x_BTC

    @property
    def reads_layer_input(self) -> bool:
        """Tell whether a term has features of the layer's input."""
        return any(term.reads_layer_input for term in self.content)

    def features(self, x_BSC: Tensor, queries: int | None = None) -> TokenFeatures:
        """Return the features of a layer's input; of queries those of the last ``queries`` rows, None = of all."""
        total = NO_FEATURES
        for term in self.content:
            features = term.features(x_BSC)
            if features is NO_FEATURES:
                continue
            of_queries = features.of_queries
            if queries is not None:
                of_queries = {name: feature[:, :, -queries:] for name, feature in of_queries.items()}
            total = TokenFeatures(total.of_queries | of_queries, total.of_keys | features.of_keys)
        return total

    def move_queries(self, q_BHTD: Tensor) -> Tensor:
        """Move queries by their positions."""
        for move in self.query_moves:
            q_BHTD = q_BHTD if move is None else move.apply(q_BHTD)
        return q_BHTD

    def move_keys(self, k_BHSD: Tensor) -> Tensor:
        """Move keys by their positions."""
        for move in self.key_moves:
            k_BHSD = k_BHSD if move is None else move.apply(k_BHSD)
        return k_BHSD


class LayerNumbers(NamedTuple):
    """For each term of a layer's kind that differs by layer, the number of layers before it that have the term."""

    moves: tuple[int, ...]
    content: tuple[int, ...]
    inputs: tuple[int, ...]
    sinks: tuple[int, ...]


@dataclass(frozen=True)
class LayerTerms:
    """The terms of all layers of a network: one `Terms` for each kind of layer."""

    kinds: tuple[Terms, ...]
    kind_of_layer: tuple[int, ...] = ()
    """For each layer the index of its kind; empty where all layers are of one kind."""
    numbers_of_layer: tuple[LayerNumbers, ...] = ()
    """For each layer the numbers that its terms have for it; empty where all layers are of one kind."""

    def layer(self, index: int) -> Terms:
        """Return the terms of layer ``index`` (from 0).

        Raises:
            BadInput: there is no such layer.
        """
        if index < 0 or (self.kind_of_layer and index >= len(self.kind_of_layer)):
            last = f" .. {len(self.kind_of_layer) - 1}" if self.kind_of_layer else " on"
            raise BadInput(f"index must be that of a layer, from 0{last}, got {index}")
        terms = self.kinds[self.kind_of_layer[index] if self.kind_of_layer else 0]
        others = len(terms.content) + len(terms.inputs) + len(terms.sinks)  # a tracer knows no "not" of a tuple
        if others == 0 and not (len(terms.query_moves) > 0 and terms.by_layer):
            return terms
        numbers = self.numbers_of_layer[index] if self.kind_of_layer else None
        bound: dict[str, Any] = {}
        for name in ("query_moves", "key_moves", "content", "inputs", "sinks"):
            group = "moves" if name.endswith("moves") else name
            of_layer: list[Any] = []
            for column, term in enumerate(getattr(terms, name)):
                number = index if numbers is None else getattr(numbers, group)[column]
                of_layer.append(None if term is None else term.layer(number))
            bound[name] = tuple(of_layer)
        return replace(terms, **bound)

    def without_sinks(self) -> "LayerTerms":
        """Return the terms without sinks, for attention that is merged with one that has them."""
        return replace(self, kinds=tuple(replace(terms, sinks=()) for terms in self.kinds))

    def right_only(self) -> "LayerTerms":
        """Return the terms with every key treated as one to the right, for LaMemo's full, unmasked look-ahead."""
        kinds = (replace(terms, content=tuple(term.right_only() for term in terms.content)) for terms in self.kinds)
        return replace(self, kinds=tuple(kinds))


def combine_terms(
    scale: float,
    terms: Iterable[Term],
    *,
    window: int | None = None,
    positions: tuple[Positions, Positions] | None = None,
    two_sided: bool = False,
    head_dim: int | None = None,
) -> Terms:
    """Combine the terms of encodings that act together: moves are applied in turn, all other terms are added.

    Raises:
        BadInput: an encoding has returned something else.
    """
    moves: list[tuple[Move | None, Move | None]] = []
    content: list[ContentTerm] = []
    inputs: list[InputTerm] = []
    sinks: list[SinkTerm] = []
    bias: Bias | None = None
    for term in terms:
        if isinstance(term, Bias):
            bias = term if bias is None else bias + term
        elif isinstance(term, ContentTerm):
            content.append(term)
        elif isinstance(term, InputTerm):
            inputs.append(term)
        elif isinstance(term, SinkTerm):
            sinks.append(term)
        elif isinstance(term, tuple) and len(term) == 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            moves.append(term)
        else:
            raise BadInput(
                "an encoding's forward must return a Bias (DenseBias, ToeplitzBias, LowRankBias), a ContentTerm, an"
                f" InputTerm, a SinkTerm, or two Moves (or None) of queries and of keys, got {type(term).__name__}"
            )
    queries, keys = zip(*moves, strict=True) if moves else ((), ())
    return Terms(
        scale, bias, queries, keys, tuple(content), tuple(inputs), tuple(sinks), window, positions, two_sided, head_dim
    )
