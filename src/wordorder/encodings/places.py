"""The places where an encoding can act, one class per place.

A network applies them in this order: embeddings, the input of layers, queries and keys, scores. Everything that depends
on positions alone is computed once per forward (`Terms`) and shared by all layers.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, get_args

import torch
from torch import Tensor, nn

from wordorder.ops import (
    Bias,
    DenseBias,
    Mask,
    Positions,
    PositionsLike,
    ToeplitzBias,
    diagonal_distances,
    shift_between,
)
from wordorder.ops.positions import distances_BTS

GIVEN_BY_NETWORK = ("width", "heads", "head_dim", "layers", "max_positions", "vocabulary", "padding_idx")
"""Arguments of an encoding's constructor that are sizes of the network: no recipe can set them."""

Generators = Callable[[str], torch.Generator | None]
"""The random generator of a parameter by its name; None = torch's global one."""


def check_positive(**values: float) -> None:
    """Raise ValueError, naming the argument, where a value is not positive and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive{' and finite' if value > 0 else ''}, got {value}")


def check_sines(base: float, name: str, channels: int) -> None:
    """Raise ValueError where channels cannot hold pairs of sine and cosine, or wavelengths do not grow."""
    if channels <= 0 or channels % 2:
        raise ValueError(f"{name} must be positive and even, got {channels}")
    check_base(base)


def check_base(base: float) -> None:
    """Raise ValueError where wavelengths do not grow from channel to channel."""
    if not 1 < base < math.inf:
        raise ValueError(f"base must be greater than 1{' and finite' if base > 1 else ''}, got {base}")


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise ValueError unless the value is one of a Literal's choices."""
    known = get_args(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


class Encoding(nn.Module):
    """The base of all encodings, with their description for the catalogue and for error messages.

    Arguments of the constructor named in `GIVEN_BY_NETWORK` are given by the network; every other one is an option,
    with a type and a default, which `encoding_options` sets. Of two the network decides the default: ``bidirectional``,
    whether queries see keys on both sides, and ``as_real``, whether channels are complex.

    What an encoding may define beyond its term, each with a default that suits most: `content_scale`, `cost_parts`,
    `zero_init_parameters`; where it acts on scores `OnScores.maps` and `OnScores.first_position_apart`; and a
    method ``draw_parameters(std, generator_for)``, which draws its parameters from the network's seed (see
    `wordorder.networks.initialise`). Without it a class of one's own starts with what its constructor sets; one that
    derives from an encoding of this package is drawn like that one.
    """

    place: ClassVar[str] = "nowhere"
    """The place where it acts, in words."""
    purpose: ClassVar[str] = "of your own"
    """Its purpose: the heading under which `wordorder list` has it."""
    paper: ClassVar[str] = ""
    """Citation and address."""
    refused_in: ClassVar[Mapping[str, str]] = {}
    """Reasons why it is not defined, by "encoder", "decoder", "cross-attention", "memory", "right" (a memory whose
    slots attend to keys to their right), and "moved" (layers in which another encoding moves queries and keys)."""
    bounded: ClassVar[bool] = False
    """True if a learned table limits the length to ``max_positions``."""
    position_dependent: ClassVar[bool] = False
    """True if the scores depend on the positions themselves, not on distances alone, and there is no learned table."""

    def content_scale(self, head_dim: int) -> float | None:
        """Return the factor on q.k that the encoding needs; None for 1/sqrt(head_dim)."""
        del head_dim
        return None

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """Return parameters that make the term 0 when they are 0, and that can be learned from there.

        A trained network can be given the encoding without a change of its output: with these at 0 and all others as
        drawn. Empty = there are none.
        """
        return ()

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters of each part, by the paper's name of the part."""
        count = sum(parameter.numel() for parameter in self.parameters())
        return {"table": count} if count else {}


class OnEmbeddings(Encoding, ABC):
    """An encoding that acts on token embeddings, before the first layer."""

    place = "embeddings"

    @abstractmethod
    def forward(self, x_BTC: Tensor, positions: PositionsLike) -> Tensor:
        """Return embeddings (B, T, C) that depend on their positions."""


class ReplacesEmbedding(Encoding, ABC):
    """An encoding that replaces the table of token embeddings: it maps ids and positions to vectors."""

    place = "embeddings, replacing the table"

    @property
    @abstractmethod
    def weight(self) -> nn.Parameter:
        """Return the table of the words, which an output layer may share if it is (V, C)."""

    @property
    @abstractmethod
    def num_embeddings(self) -> int:
        """Return the number of token ids, V."""

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """Return the number of model channels, C."""

    @abstractmethod
    def forward(self, token_ids_BT: Tensor, positions: PositionsLike | None = None) -> Tensor:
        """Return vectors (B, T, C) of tokens (B, T) at their positions; None = 0 .. T - 1, as for an `nn.Embedding`."""

    @abstractmethod
    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        """Give every table that has a row per word another number of rows.

        New words are drawn with standard deviation ``std``; None = that of the present ones.
        """


class Move(ABC):
    """A position-dependent map of queries or keys before their product, computed once per forward for all layers."""

    widening: ClassVar[int] = 1
    """Channels that come out for each channel of x: as many of queries as of keys."""

    @abstractmethod
    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Return the mapped queries or keys, (B, H, T, D * widening) in the dtype of x."""

    def layer(self, index: int) -> "Move":
        """Return the move of layer ``index`` (from 0); by default the same in all layers."""
        del index
        return self

    @property
    def by_layer(self) -> bool:
        """Tell whether the move differs by layer."""
        return type(self).layer is not Move.layer


@dataclass(frozen=True)
class Rotation(Move):
    """A rotation of query and key channel pairs: cosines and sines (B or 1, 1, T, K), at least float32.

    The first 2 K channels are rotated, and the others stay.
    """

    cos_B1TK: Tensor
    sin_B1TK: Tensor
    interleaved: bool = False
    """Pairs are (x[2 k], x[2 k + 1]), and not (x[k], x[k + K])."""

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Rotate the pairs; computed in the dtype of the angles, returned in that of x."""
        channels = 2 * self.cos_B1TK.shape[-1]
        wide_BHTD, rest_BHTD = x_BHTD.to(self.cos_B1TK.dtype), None
        if channels < x_BHTD.shape[-1]:
            wide_BHTD, rest_BHTD = wide_BHTD[..., :channels], x_BHTD[..., channels:]
        if self.interleaved:
            a, b = wide_BHTD[..., ::2], wide_BHTD[..., 1::2]
        else:
            a, b = wide_BHTD.chunk(2, dim=-1)
        pair = a * self.cos_B1TK - b * self.sin_B1TK, b * self.cos_B1TK + a * self.sin_B1TK
        turned_BHTD = torch.stack(pair, dim=-1).flatten(-2) if self.interleaved else torch.cat(pair, dim=-1)
        turned_BHTD = turned_BHTD.type_as(x_BHTD)
        return turned_BHTD if rest_BHTD is None else torch.cat((turned_BHTD, rest_BHTD), dim=-1)


@dataclass(frozen=True)
class Shift(Move):
    """An addition of position queries or position keys (B or 1, H, T, D) to those of the tokens."""

    vector_BHTD: Tensor

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Add the vectors to x; computed in the wider of both dtypes, returned in that of x."""
        if x_BHTD.shape[1] != self.vector_BHTD.shape[1]:
            heads = self.vector_BHTD.shape[1]
            raise ValueError(f"positions were projected for {heads} heads, got {x_BHTD.shape[1]}")
        return (x_BHTD + self.vector_BHTD).type_as(x_BHTD)


class InAttention(Encoding, ABC):
    """An encoding that acts within layers; it is called once per forward pass, for all of them."""

    @abstractmethod
    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> "tuple[Move | None, Move | None] | Bias | ContentTerm | InputTerm | SinkTerm":
        """Return what positions decide: moves of queries and of keys, a bias, a term by content or the input, a sink.

        Parameters of this module are read here and handed on in what is returned; its sub-modules may be called later.

        Args:
            query: positions of the queries.
            key: positions of the keys; the same object where both have the same.
            dtype: of the activations; counts where there are no parameters. Angles and biases are in at least float32.
            device: of the activations; None = that of the parameters, else the CPU.
        """


class InputTerm(ABC):
    """A change of the input of a layer's attention by neighbouring rows, bound to one forward and one layer."""

    rows_before: int = 0
    """The number of rows to the left that a row reads: those that caches keep."""

    @abstractmethod
    def layer(self, index: int) -> "InputTerm":
        """Return the term of layer ``index`` (from 0)."""

    @abstractmethod
    def added(self, x_BNC: Tensor) -> Tensor:
        """Return what is added to each row, (B, N, C), in the dtype of x.

        Args:
            x_BNC: rows in the order of the text, 0 where they are padding: those of earlier steps that these may read,
                or of a memory's slots, then one for each query. Texts are packed in a row only where the queries'
                positions are `Packed`, and then there is nothing before them.
        """


@dataclass(frozen=True)
class SinkTerm:
    """One more summand of the denominator of each softmax, ``exp(s_h)``, bound to one forward and one layer."""

    logit_LH: Tensor
    """s of each layer and head."""
    index: int = 0

    def layer(self, index: int) -> "SinkTerm":
        """Return the term of layer ``index`` (from 0)."""
        return replace(self, index=index)

    def apply(self, mixed_BHTE: Tensor, lse_BHT: Tensor) -> tuple[Tensor, Tensor]:
        """Return output and log-sum-exp with the sink in the denominator."""
        logit_H1 = self.logit_LH[self.index][:, None].to(lse_BHT.dtype)
        share_BHT1 = (lse_BHT - logit_H1).sigmoid()[..., None]  # of the denominator that is left to the keys
        return (mixed_BHTE * share_BHT1).type_as(mixed_BHTE), torch.logaddexp(lse_BHT, logit_H1)


class OnLayerInput(InAttention):
    """An encoding that adds to the input of each layer's attention what it makes of the rows around (convolutions).

    The input is what queries, keys and values are projected from: in a block with its norm first, what the norm gives.
    Several such encodings in a layer read the same rows, and their terms are added. Rows that stand side by side must
    be neighbours in their text: positions are `Contiguous` or `Packed`; slots of a memory count as neighbours.
    """

    place = "input of layers"


class OnQueriesAndKeys(InAttention):
    """An encoding that moves queries and keys before their product; the moves may differ (xPos), or one be None."""

    place = "queries and keys"


class OnScores(InAttention):
    """An encoding that adds a content-independent bias to the scores, shared by all layers."""

    place = "scores"

    @property
    def first_position_apart(self) -> bool:
        """True if row and column 0 of the bias are numbers of their own, decided by no position or distance ([CLS])."""
        return False

    def maps(self, positions: Positions) -> dict[str, Tensor]:
        """Return the matrices that `inspect` shows, (1 or B, H, N, N) each, by name; the whole term is the last."""
        return {"relative": self(positions, positions).dense()}


class OnDistance(OnScores):
    """An encoding whose bias depends on signed distance alone: a Toeplitz matrix where positions are contiguous."""

    constant_from: int | None = None
    """All distances from here on have one number on either side; None = they differ."""

    @abstractmethod
    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the values for integer distances ``key - query`` of any shape: (H, *shape of distance)."""

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Bias:
        """Return a `ToeplitzBias` with one number per distance where positions are contiguous, else a `DenseBias`."""
        device = device or next((parameter.device for parameter in self.parameters()), None)
        shift = shift_between(query, key)
        if shift is not None:
            distance_W = diagonal_distances(query.length, key.length, shift, device)
            zero, reach = query.length - 1 - shift, self.constant_from  # zero: the column of distance 0
            edges = None if reach is None else (zero - reach, zero + reach)
            return ToeplitzBias(self.at_distance(distance_W, dtype), query.length, may_hide=False, edges=edges)
        return DenseBias(self.at_distance(distances_BTS(query, key, device), dtype).movedim(0, 1), may_hide=False)


class OnDenominator(InAttention):
    """An encoding that adds to the denominator of the softmax (a sink), for each layer and head."""

    place = "denominator of the softmax"


class TokenFeatures(NamedTuple):
    """Numbers of each token, computed from a layer's input, by name: each (B, H, T, F)."""

    of_queries: dict[str, Tensor]
    of_keys: dict[str, Tensor]
    """These go with the keys, through caches and memories."""


NO_FEATURES = TokenFeatures({}, {})
"""The features that most terms have."""


class ContentTerm(ABC):
    """A term of the scores that depends on queries, keys or the layer's input, bound to one forward and one layer.

    A class defines `layer` and either `scores` or `as_bias`, each of which is made of the other where it is left out.
    """

    low_rank: ClassVar[int] = 0
    """Channels of the factors of its bias, where that is of low rank; 0 = it is not."""
    edges: tuple[int, int] | None = None
    """The distances beyond which its bias is constant for each query and key: see `RelativeBias.edges`."""

    @abstractmethod
    def layer(self, index: int) -> "ContentTerm":
        """Return the term of layer ``index`` (from 0)."""

    def features(self, x_BTC: Tensor) -> TokenFeatures:
        """Return what the term reads of the input of its layer's attention, (B, T, C); by default nothing."""
        del x_BTC
        return NO_FEATURES

    @property
    def reads_layer_input(self) -> bool:
        """Tell whether the term has features, so that a network must hand over the input of its layers."""
        return type(self).features is not ContentTerm.features

    def with_features(self, features: TokenFeatures, positions: tuple[Positions, Positions] | None) -> "ContentTerm":
        """Return the term bound to the features of the queries and of all keys, at their positions."""
        del features, positions
        return self

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None) -> Tensor:
        """Return what is added to the scores, already scaled: (B, H, T, S)."""
        if type(self).as_bias is ContentTerm.as_bias:
            raise TypeError(f"{type(self).__name__} must define scores or as_bias")
        return self.as_bias(q_BHTD, k_BHSD, scale, visible, rotated=True)[1].written_out(q_BHTD.dtype)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Mask | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return the term in the form that backends use: a vector added to every query, and a bias.

        The vector, (H, 1, D) or None, is added before the product with the keys; the bias holds the rest of the term.
        Queries and keys come before any rotation, keys with as many heads as the queries. With ``rotated`` they are
        rotated or shifted before their product: products with the unrotated keys must then be in the bias, and the
        vector be None.
        """
        del rotated
        return None, DenseBias(self.scores(q_BHTD, k_BHSD, scale, visible))

    def right_only(self) -> "ContentTerm":
        """Return the term with every key treated as one to the right; terms without sides return themselves."""
        return self


class OnScoresByContent(InAttention):
    """An encoding that adds to the scores a term that depends on queries, keys or both."""

    place = "scores, by content"


class OnScoresByInput(InAttention):
    """An encoding that adds to the scores a term that depends on features of the layer's input (gates)."""

    place = "scores, by the layer's input"
    features_of_keys: ClassVar[bool] = True
    """False if only queries have features, so that caches hold nothing more."""
    reads_queries_and_keys: ClassVar[bool] = True
    """False if the term is of the features alone: a swapped model may then rotate queries and keys before it."""


PLACES = (OnEmbeddings, OnLayerInput, OnQueriesAndKeys, OnScores, OnScoresByContent, OnScoresByInput, OnDenominator)
"""The base classes of what a network calls, in the order in which they act."""
