"""Encodings of one network, acting together ("learned+t5") or taking turns over the layers ("rope*3,none")."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import chain

import torch
from torch import Tensor, nn

from wordorder.encodings.pattern import LayerKind
from wordorder.encodings.places import (
    PLACES,
    Encoding,
    InAttention,
    OnDenominator,
    OnEmbeddings,
    OnLayerInput,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    OnScoresByInput,
    ReplacesEmbedding,
)
from wordorder.encodings.terms import LayerNumbers, LayerTerms, Term, Terms, combine_terms
from wordorder.errors import BadInput
from wordorder.ops import Contiguous, Packed, Positions, PositionsLike, as_positions, check_positions_fit
from wordorder.ops.execution import no_autocast
from wordorder.ops.positions import check_rows_agree, last_positions


class Composition(nn.Module):
    """The encodings of one network, each acting at its own place; their terms of the scores are added.

    Layers with the same parts and the same window are of one kind, which has its own terms and content scale (a layer
    with TUPE scales by 1/sqrt(2 D), one without by 1/sqrt(D)). A part is one module for all layers that name it: what
    depends on positions alone is still computed once per forward. Encodings with parameters per layer hold them for
    the layers that name them, in the order of the layers.

    Yang et al. 2025, "RoPE to NoPE and back again", https://arxiv.org/abs/2501.18795, for "rope*3,none"; Kazemnejad et
    al. 2023, https://arxiv.org/abs/2305.19466, for why a causal layer can do without an encoding; Beltagy et al. 2020,
    https://arxiv.org/abs/2004.05150, for windows in some layers.

    Args:
        parts: encodings by name, in the order in which layers name them; the name is part of the parameters' names.
            One that replaces the token embeddings is not registered here, but where the network puts it
            (`replacement`).
        by_layer: the parts of each layer, by name, and its window; empty = all parts in every layer. Parts that act
            before the first layer, on embeddings or in their place, must be in every layer.
        head_dim: channels per head, D; sets the content scale where no part does.

    Raises:
        ValueError: two parts of a layer need different content scales, or both replace the token embeddings.
    """

    def __init__(self, parts: Mapping[str, Encoding], by_layer: Sequence[LayerKind] = (), *, head_dim: int) -> None:
        super().__init__()
        replacing = {name: part for name, part in parts.items() if isinstance(part, ReplacesEmbedding)}
        if len(replacing) > 1:
            raise ValueError(f"only one encoding can replace the token embeddings, got {', '.join(replacing)}")
        self.parts = nn.ModuleDict({name: part for name, part in parts.items() if name not in replacing})
        self._replacing = replacing  # a plain dict, in which torch registers nothing
        self._note(parts)
        for part in parts.values():
            _keep_start_values(part)
        self.head_dim = head_dim
        # names in one order, so that "rope+t5" and "t5+rope" are one kind
        layers = [LayerKind(tuple(n for n in parts if n in layer.names), layer.window) for layer in by_layer]
        self.kinds: tuple[LayerKind, ...] = tuple(dict.fromkeys(layers)) or (LayerKind(tuple(parts)),)
        """The names of the parts, and the window, of each kind of layer."""
        several = len(self.kinds) > 1
        self.kind_of_layer: tuple[int, ...] = tuple(map(self.kinds.index, layers)) if several else ()
        """For each layer the index of its kind; empty where all layers are of one kind."""
        self.scales: tuple[float, ...] = tuple(
            _content_scale({name: parts[name] for name in kind.names}, head_dim) for kind in self.kinds
        )
        """The factor on q.k in each kind of layer."""
        self._numbers_of_layer = tuple(
            self._numbers(layer, layers[:index]) for index, layer in enumerate(layers if several else ())
        )

    def _numbers(self, layer: LayerKind, earlier: Sequence[LayerKind]) -> LayerNumbers:
        """Return the number of earlier layers that have each term of a layer that differs by layer."""

        def of_places(*places: type[Encoding]) -> tuple[int, ...]:
            names = [name for name in layer.names if self.place_of[name] in places]
            return tuple(sum(name in before.names for before in earlier) for name in names)

        return LayerNumbers(
            of_places(OnQueriesAndKeys),
            of_places(OnScoresByContent, OnScoresByInput),
            of_places(OnLayerInput),
            of_places(OnDenominator),
        )

    def _note(self, parts: Mapping[str, Encoding]) -> None:
        """Keep what the classes of the parts decide: tools put wrappers in their place, which no longer show it."""
        self.place_of: dict[str, type[Encoding]] = {
            name: next((place for place in PLACES if isinstance(part, place)), Encoding) for name, part in parts.items()
        }
        """The base class of each part, which says where it acts."""
        self.bounded = tuple(name for name, part in parts.items() if part.bounded)
        """Names of the parts with a learned table of positions."""
        self.position_dependent = any(
            part.bounded or part.position_dependent for name, part in parts.items() if name not in self._replacing
        )
        """Whether attention depends on the positions themselves, not on distances alone."""
        self.counts_positions = self.position_dependent or any(
            place is OnEmbeddings or parts[name].position_dependent for name, place in self.place_of.items()
        )
        """Whether anything does, the embeddings included: padding on the left must then not count."""
        self.reads_layer_input = OnScoresByInput in self.place_of.values()
        """Whether a part reads the input of layers."""
        self.changes_layer_input = OnLayerInput in self.place_of.values()
        """Whether a part adds to the input of layers."""
        self.features_of_keys = any(getattr(part, "features_of_keys", False) for part in parts.values())
        """Whether caches hold features beside keys."""
        self.two_sided = any(
            getattr(module, "bidirectional", False)
            for name, part in parts.items()
            if name not in self._replacing
            for module in part.modules()
        )
        """Whether a part has separate weights for keys on the right."""

    @property
    def trusted(self) -> bool:
        """Whether all parts are of this package: the sizes of what they return need no check."""
        for part in self.parts.values():
            if not _is_ours(type(part)):
                return False
        return True

    @property
    def replacement(self) -> ReplacesEmbedding | None:
        """The part that replaces the network's token embeddings, which registers it as its own ``embedding``."""
        return next(iter(self._replacing.values()), None)

    def drop_replacement(self) -> None:
        """Remove `replacement`, for a network that reads the token embeddings of another."""
        self._replacing = {}

    def embed(self, x_BTC: Tensor, positions: PositionsLike, window: Positions | None = None) -> Tensor:
        """Apply the parts that act on embeddings (B, T, C), in the order of the name.

        ``window`` holds the positions in the window that attention sees, with the oldest slot of a memory at 0; learned
        tables, which are shorter than the text, are read at these. None = the window is the text.

        Raises:
            BadInput: positions are not integers, or not one for each token.
        """
        positions = as_positions(positions)
        check_positions_fit("positions", positions, x_BTC.shape[0], x_BTC.shape[-2])
        for name, part in self.parts.items():
            if self.place_of[name] is OnEmbeddings:
                x_BTC = part(x_BTC, window if name in self.bounded and window is not None else positions)
        return x_BTC

    def prepare(
        self,
        positions: PositionsLike | int,
        key_positions: PositionsLike | int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> LayerTerms:
        """Compute what depends on positions alone, once per forward, for all layers.

        Args:
            positions: positions of the queries; a number of tokens T means 0 .. T - 1.
            key_positions: positions of the keys; the queries' where not given (self-attention).
            dtype: dtype of the activations; angles are in at least float32.
            device: device of the activations, such as q.device; default: that of the positions where they are tensors,
                else that of the encodings' parameters, else the CPU.

        Raises:
            BadInput: positions are not integers, have neither one nor two axes, or no token; those of queries and keys
                are of different numbers of rows, neither of which is 1.
        """
        query = as_positions(positions)
        key = query if key_positions is None else as_positions(key_positions)
        check_rows_agree("positions", query, "key_positions", key)
        if device is None:
            numbers = (p.offset if isinstance(p, Contiguous) else p.position_BT for p in (query, key))
            tensors = (number for number in chain(numbers, self.parameters()) if isinstance(number, Tensor))
            device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        return self.terms(query, key, dtype=dtype, device=device)

    def terms(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype,
        device: torch.device,
        within_windows: bool = False,
        neighbours: bool = False,
    ) -> LayerTerms:
        """Call each part at positions that were checked, and return the terms of all layers (see `prepare`).

        Each part is called once; ``within_windows``, for queries at the end of a text without gaps, once per window, on
        the last keys alone, those that a query sees. ``neighbours``: rows side by side are known to be neighbours.
        """
        if self.changes_layer_input and not neighbours:
            _check_neighbours(query, key)
        terms: dict[tuple[str, int | None], Term] = {}
        kinds: tuple[Terms, ...] = ()
        for scale, kind in zip(self.scales, self.kinds, strict=True):
            cut, key_of_kind = None, key
            if within_windows and kind.window is not None and query.length + kind.window - 1 < key.length:
                cut, key_of_kind = kind.window, last_positions(key, query.length + kind.window - 1)
            of_parts: list[Term] = []
            for name in kind.names:
                if name not in self.parts or not issubclass(place := self.place_of[name], InAttention):
                    continue
                if (name, cut) not in terms:
                    # of a bias a few rows of a table: 16 bits would cost exactness and save nothing
                    with no_autocast(device) if place is OnScores else nullcontext():
                        terms[name, cut] = self.parts[name](query, key_of_kind, dtype=dtype, device=device)
                of_parts.append(terms[name, cut])
            of_kind = combine_terms(
                scale,
                of_parts,
                window=kind.window,
                positions=(query, key_of_kind),
                two_sided=self.two_sided,
                head_dim=self.head_dim,
            )
            kinds = (*kinds, of_kind)
        return LayerTerms(kinds, self.kind_of_layer, self._numbers_of_layer)

    def kind_of(self, layer: int) -> LayerKind:
        """Return the kind of layer ``layer`` (from 0)."""
        return self.kinds[self.kind_of_layer[layer] if self.kind_of_layer else 0]

    def parts_of(self, layer: int) -> tuple[nn.Module, ...]:
        """Return the parts that act in layer ``layer`` (from 0) or before the first layer."""
        return tuple(self.parts[name] for name in self.kind_of(layer).names if name in self.parts)

    def all_parts(self) -> dict[str, nn.Module]:
        """Return the encodings by name, with `replacement`."""
        return {**dict(self.parts.items()), **self._replacing}

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters by part of each encoding, without the table of token embeddings itself."""
        return {
            f"{name} {part}": count
            for name, encoding in self.all_parts().items()
            if isinstance(encoding, Encoding)
            for part, count in encoding.cost_parts().items()
        }


def _check_neighbours(query: Positions, key: Positions) -> None:
    """Refuse positions by which rows that stand side by side need not be neighbours in their text."""
    packed = isinstance(query, Packed) and query.length == key.length
    if not packed and not (isinstance(query, Contiguous) and isinstance(key, Contiguous)):
        raise BadInput(
            "this encoding reads neighbouring rows, and positions of single tokens may leave gaps: pass Contiguous(T,"
            " offset), or Packed without a cache; a text in a cache has no padding between its tokens"
        )


def encoding_parameters(network: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of the encodings of a network by name; a learning rate of their own acts on these.

    Of an encoding that replaces the token table these are all but the words' own vectors, its `weight`: the frequencies
    of complex-order, not its amplitudes; the phases of complex-vanilla; and in real networks the projection of either
    to real channels, which all of a word's vector goes through.
    """
    parameters: set[nn.Parameter] = set()
    for module in network.modules():
        if isinstance(module, Composition):
            parameters |= set(module.parameters())
        elif isinstance(module, ReplacesEmbedding):
            parameters |= set(module.parameters()) - {module.weight}
    return {name: parameter for name, parameter in network.named_parameters() if parameter in parameters}


def _keep_start_values(part: Encoding) -> None:
    """Mark the modules of a class from outside of this package: what its constructor has set is not drawn again.

    Not where it draws its parameters itself or derives from an encoding of this package, which is drawn like that one;
    nor where they were lost, on torch's meta device.
    """
    if hasattr(part, "draw_parameters"):
        return
    if message := drawn_by_base(part):
        warnings.warn(message, stacklevel=2)
    if drawn_like(part) is not None:
        return
    lost = any(parameter.is_meta for parameter in part.parameters())
    waiting: list[nn.Module] = [part]
    while waiting:
        module = waiting.pop()
        vars(module)["lost_start_values" if lost else "keeps_start_values"] = type(part).__name__
        waiting += [child for child in module.children() if not _is_ours(type(child))]


def drawn_like(part: Encoding) -> type | None:
    """Return the encoding of this package from which a class derives, and whose start values it has; None if none."""
    base = next(kind for kind in type(part).__mro__ if _is_ours(kind))
    return None if inspect.isabstract(base) or base is Encoding else base


def drawn_by_base(part: Encoding) -> str | None:
    """Return a sentence where the constructor of a derived class may set what is drawn anew; None elsewhere."""
    base, kind = drawn_like(part), type(part)
    if base in (None, kind) or "__init__" not in vars(kind) or hasattr(part, "draw_parameters"):
        return None
    return (
        f"{kind.__name__} derives from {base.__name__}, so training starts with what {base.__name__} draws, not with"
        " what the constructor sets: draw_parameters(std, generator_for) would set it"
    )


def keeps_start_values(module: nn.Module) -> bool:
    """Tell whether a module starts with what its constructor set, as encodings from outside of this package do."""
    return "keeps_start_values" in vars(module)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def _content_scale(parts: Mapping[str, Encoding], head_dim: int) -> float:
    """Return the factor on q.k where these encodings act together: 1/sqrt(head_dim) unless one of them sets another."""
    scales = {name: part.content_scale(head_dim) for name, part in parts.items()}
    distinct = {scale for scale in scales.values() if scale is not None}
    if len(distinct) > 1:
        raise ValueError(f"these encodings need different content scales and cannot act together: {scales}")
    return distinct.pop() if distinct else head_dim**-0.5
