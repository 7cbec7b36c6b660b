"""One layer's attention: the step that it reads beside its input, the record that it leaves beside its output."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from wordorder.attention.attend import attention_weights
from wordorder.attention.plan import Plan
from wordorder.encodings import TokenFeatures
from wordorder.ops import Mask

_NO_FEATURES: dict[str, Tensor] = {}


class Keys(NamedTuple):
    """The keys and values of attention, before any move, and their features."""

    k: Tensor
    """(B, G, S, D)."""
    v: Tensor
    """(B, G, S, D)."""
    features: dict[str, Tensor] = _NO_FEATURES
    """By name, (B, H, S, F): `TokenFeatures.of_keys`."""

    def then(self, later: "Keys") -> "Keys":
        """Return these keys and later ones behind them."""
        features = self.features
        if features:
            features = {name: torch.cat((each, later.features[name]), dim=2) for name, each in features.items()}
        return Keys(torch.cat((self.k, later.k), dim=2), torch.cat((self.v, later.v), dim=2), features)

    def columns(self, window: slice) -> "Keys":
        """Return the keys of these columns."""
        features = self.features and {name: each[:, :, window] for name, each in self.features.items()}
        return Keys(self.k[:, :, window], self.v[:, :, window], features)

    def last(self, count: int) -> "Keys":
        """Return the last keys, as many as a plan has; all where there are no more."""
        return self if self.k.shape[2] <= count else self.columns(slice(self.k.shape[2] - count, None))

    def rows(self, index: Tensor) -> "Keys":
        """Return the keys of these rows of the batch, long (B,)."""
        features = {name: each.index_select(0, index) for name, each in self.features.items()}
        return Keys(self.k.index_select(0, index), self.v.index_select(0, index), features)


Extend = Callable[[Keys], Keys]
"""A cache as a function: from the keys of this step, before any move, to all of them so far."""

ExtendInput = Callable[[Tensor, int], Tensor]
"""A cache of a layer's input: from the rows of this step to the same behind the last so many of earlier steps."""


class Record(NamedTuple):
    """The record of a layer beside its output; None or empty where nobody asked."""

    keys: Keys | None
    """Those of all tokens so far."""
    left: dict[str, Tensor]
    """Tensors of a memory's own step (`LayerStep.attend`)."""
    weights: Tensor | None
    """Attention weights, (B, H, T, S), without dropout."""
    source_weights: Tensor | None = None
    """Those on the source, of cross-attention."""
    input_rows: Tensor | None = None
    """The last rows of the layer's input, (B, K, C), which those of the next step read."""
    loss: Tensor | None = None
    """A scalar that the weights of a memory learn from."""


class Source(NamedTuple):
    """The other text of cross-attention: its states, None where a cache holds their keys, and the plan to attend."""

    states_BSC: Tensor | None
    plan: Plan
    extend: Extend | None = None
    """Given the source's keys (none of them, S = 0, without states), gives those to use."""


def last_rows(rows_BNC: Tensor, count: int) -> Tensor:
    """Return the last rows, at most ``count``; not a view, which would hold on to all."""
    rows = rows_BNC.shape[1]
    return rows_BNC if rows <= count else rows_BNC[:, rows - count :].clone()


class LayerStep:
    """The second argument of every layer, ``layer(x_BSC, step) -> (x_BTC, Record)``: the same with cache and memory.

    A plain class: FSDP casts the tensors in a dataclass.

    Args:
        plan: bias, mask and backend, of the last rows' queries over all keys.
        extend: gives all keys so far, where earlier steps left some.
        extend_input: gives rows of the layer's input behind those of earlier steps.
        source: another text, for cross-attention.
        queries: how many of the last rows have queries, and come out of the layer; None = all.
        keep: return the keys.
        weights: return attention weights, for inspection.
    """

    learns: ClassVar[bool] = False
    """Whether the record has a loss, which the layer asks for by `loss`."""

    def __init__(
        self,
        plan: Plan,
        *,
        extend: Extend | None = None,
        extend_input: ExtendInput | None = None,
        source: Source | None = None,
        queries: int | None = None,
        keep: bool = False,
        weights: bool = False,
    ) -> None:
        self.plan, self.source = plan, source
        self.extend, self.extend_input = extend, extend_input
        self.queries, self.keep, self.weights = queries, keep, weights

    def change_input(self, x_BSC: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the input of attention with what encodings add to it, and what the record is to hold of it."""
        terms, mask, rows_BNC = self.plan.terms, self.plan.mask, x_BSC
        if isinstance(mask, Mask) and mask.tokens_BS is not None:
            rows_BNC = x_BSC.masked_fill(~mask.tokens_BS[:, -x_BSC.shape[1] :, None], 0)
        count = terms.rows_before
        if self.extend_input is not None:
            rows_BNC = self.extend_input(rows_BNC, count)
        return terms.change_input(x_BSC, rows_BNC), last_rows(rows_BNC, count) if self.keep else None

    def attend(
        self, attention: Any, q: Tensor, keys: Keys, features: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the heads' output (B, H, queries, D), and what a memory wants to know of it.

        Args:
            attention: the layer's self-attention, whose ``attend(q, keys, plan, features)`` knows its dropout.
            q: queries (B, H, queries, D).
            keys: all keys.
            features: of the queries, by name, (B, H, queries, F).
        """
        return attention.attend(q, keys, self.plan, features)[0], {}

    def loss(self, keys_of: Callable[[Tensor], Keys], left: dict[str, Tensor]) -> Tensor:
        """Return what the weights of a memory learn from.

        Args:
            keys_of: gives keys and values that the layer has for other rows, (B, N, C), as if its weights were fixed.
            left: what `attend` returned of the heads' output.
        """
        raise NotImplementedError

    def weigh(self, q: Tensor, keys: Keys, features: dict[str, Tensor]) -> Tensor | None:
        """Return the weights of the plan's queries, which are the last ones; None where nobody asked."""
        if not self.weights:
            return None
        queries = self.plan.call.queries
        of_queries = {name: feature[:, :, -queries:] for name, feature in features.items()}
        return attention_weights(q[:, :, -queries:], keys.k, self.plan, TokenFeatures(of_queries, keys.features))
