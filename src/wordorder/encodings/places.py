"""The places where an encoding can act, one class per place.

A network walks through them in this order: embeddings, queries and keys, scores. What an encoding computes from
positions alone is computed once per forward (`Order`) and shared by all layers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from wordorder.errors import BadInput
from wordorder.ops import (
    Bias,
    DenseBias,
    Positions,
    ToeplitzBias,
    Visibility,
    as_positions,
    diagonal_distances,
    shift_between,
)
from wordorder.ops.positions import distances_BTS


class Encoding(nn.Module):
    """What every encoding says about itself, for the catalogue and for error messages."""

    place: ClassVar[str] = "nowhere"
    """Where it acts, in words."""
    paper: ClassVar[str] = ""
    """Citation and address."""
    refused_in: ClassVar[Mapping[str, str]] = {}
    """Uses (encoder, decoder, cross-attention) and memories (segment-recurrence, look-ahead) in which it is not
    defined, each with the reason."""
    bounded: ClassVar[bool] = False
    """Whether a learned table limits the length to ``max_positions``."""
    position_dependent: ClassVar[bool] = False
    """Whether a term of the scores depends on where tokens stand and not on distances alone, without a table."""

    def content_scale(self, head_dim: int) -> float | None:
        """What q.k is multiplied by, where the encoding decides it; None leaves 1/sqrt(head_dim)."""
        del head_dim
        return None

    def cost_parts(self) -> dict[str, int]:
        """Number of parameters by the name that the paper gives to the part."""
        count = sum(parameter.numel() for parameter in self.parameters())
        return {"table": count} if count else {}


class OnEmbeddings(Encoding, ABC):
    """Acts on token embeddings, before the first layer."""

    place = "embeddings"

    @abstractmethod
    def forward(self, x_BTC: Tensor, positions: Positions | Tensor) -> Tensor:
        """Embeddings (B, T, C) with word order in them."""


class ReplacesEmbedding(Encoding, ABC):
    """Takes the place of the table of token embeddings: ids and positions become vectors at once."""

    place = "embeddings, replacing the table"

    @property
    @abstractmethod
    def weight(self) -> nn.Parameter:
        """The words' own table, which an output layer may share where it is (V, C)."""

    @property
    @abstractmethod
    def num_embeddings(self) -> int:
        """Number of token ids, V."""

    @property
    @abstractmethod
    def embedding_dim(self) -> int:
        """Model channels, C."""

    @abstractmethod
    def forward(self, token_ids_BT: Tensor, positions: Positions | Tensor | None = None) -> Tensor:
        """Vectors (B, T, C) of tokens (B, T) with word order in them.

        Args:
            token_ids_BT: integers.
            positions: where the tokens stand; None = 0 .. T - 1, for callers that take it for a table of embeddings.
        """

    @abstractmethod
    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        """Give every table that has a row per word another number of rows.

        Args:
            vocabulary: the new number of token ids.
            std: of what is drawn for new words; None = that of the present ones.
        """


class Move(ABC):
    """What positions do to queries or to keys before they meet, worked out once per forward for all layers."""

    @abstractmethod
    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Queries or keys where their positions put them, in the dtype of x."""


@dataclass(frozen=True)
class Rotation(Move):
    """Cosines and sines of the angles by which pairs of channels are turned, (B or 1, 1, T, K), at least float32."""

    cos_B1TK: Tensor
    sin_B1TK: Tensor

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Turn the pairs (x[k], x[k + D/2]); computed in the angles' precision, returned in that of x."""
        a, b = x_BHTD.to(self.cos_B1TK.dtype).chunk(2, dim=-1)
        turned = torch.cat((a * self.cos_B1TK - b * self.sin_B1TK, b * self.cos_B1TK + a * self.sin_B1TK), dim=-1)
        return turned.type_as(x_BHTD)


@dataclass(frozen=True)
class Shift(Move):
    """Position queries, or position keys, that are added to those of the tokens, (B or 1, H, T, D)."""

    vector_BHTD: Tensor

    def apply(self, x_BHTD: Tensor) -> Tensor:
        """Add them; computed in the wider of both precisions, returned in that of x.

        Raises:
            ValueError: x has another number of heads; one vector for several heads would not be what was learned.
        """
        if x_BHTD.shape[1] != self.vector_BHTD.shape[1]:
            heads = self.vector_BHTD.shape[1]
            raise ValueError(f"positions were projected for {heads} heads, got {x_BHTD.shape[1]}")
        return (x_BHTD + self.vector_BHTD).type_as(x_BHTD)


class OnQueriesAndKeys(Encoding, ABC):
    """Moves queries and keys before they meet: turns them, or adds to them."""

    place = "queries and keys"

    @abstractmethod
    def prepare(
        self, query_positions: Positions, key_positions: Positions, *, dtype: torch.dtype, device: torch.device
    ) -> tuple[Move, Move]:
        """The moves of queries and of keys, once per forward; they need not be alike (xPos)."""


class OnScores(Encoding, ABC):
    """Adds to the scores a term that no token has a say in; shared by all layers."""

    place = "scores"

    def zero_init_parameters(self) -> tuple[Tensor, ...]:
        """What makes the term 0 for every pair when it is 0, in such a way that the term can be learned from there.

        A trained network can be given the term with these at 0 and everything else as drawn; empty = no weights do it.
        """
        return ()

    @abstractmethod
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Bias:
        """The term for these queries and keys.

        Args:
            query_positions: of the queries.
            key_positions: of the keys.
            device: of the result; default: where the parameters are, else the CPU.
            dtype: of the result where there are no parameters to say it.
        """


class OnDistance(OnScores):
    """A term that depends on signed distance alone: a Toeplitz matrix where positions are contiguous."""

    @abstractmethod
    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Values for integer distances ``key - query`` of any shape: (H, *shape of distance)."""

    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Bias:
        """One number per distance as `ToeplitzBias` where positions are contiguous, else `DenseBias`."""
        query, key = as_positions(query_positions), as_positions(key_positions)
        device = device or next((parameter.device for parameter in self.parameters()), None)
        shift = shift_between(query, key)
        if shift is not None:
            distance_W = diagonal_distances(query.length, key.length, shift, device)
            return ToeplitzBias(self.at_distance(distance_W, dtype), query.length, may_hide=False)
        return DenseBias(self.at_distance(distances_BTS(query, key, device), dtype).movedim(0, 1), may_hide=False)


class ContentScores(ABC):
    """A term of the scores that depends on queries or keys, bound to this forward's positions and to one layer."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse methods under their former names, which would be ignored without a word.

        Raises:
            BadInput: names the former and the present name.
        """
        super().__init_subclass__(**keywords)
        for former, present in (("meet", "as_bias"), ("ahead", "all_keys_to_the_right")):
            if former in vars(cls):
                raise BadInput(f"{cls.__name__} defines {former}, which is now called {present}; rename it")

    @abstractmethod
    def layer(self, index: int) -> "ContentScores":
        """The term as layer ``index`` (from 0) sees it."""

    @abstractmethod
    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None) -> Tensor:
        """What is added to the scores, already scaled: (B, H, T, S)."""

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """The term as a backend wants it: a vector added to every query, and a bias that describes itself.

        Args:
            q_BHTD: queries, before any rotation.
            k_BHSD: keys, before any rotation, one head for each of the queries'.
            scale: the content scale.
            visible: who sees whom.
            rotated: whether queries and keys are rotated or shifted before they meet; what this term wants to meet the
                keys themselves must then be in the bias.

        Returns:
            What is added to the queries that meet the keys, (H, 1, D) or None, and the rest of the term.
        """
        del rotated
        return None, DenseBias(self.scores(q_BHTD, k_BHSD, scale, visible))

    def all_keys_to_the_right(self) -> "ContentScores":
        """The term where every key counts as one to the right, for terms that treat the two sides differently."""
        return self


class OnScoresByContent(Encoding, ABC):
    """Adds to the scores a term that depends on queries, keys or both."""

    place = "scores, by content"

    @abstractmethod
    def prepare(self, query_positions: Positions, key_positions: Positions, *, device: torch.device) -> ContentScores:
        """What depends on positions alone, once per forward."""
