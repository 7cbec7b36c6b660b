"""Keys and values of earlier steps, for networks that read a text token by token."""

from typing import Protocol

import torch
from torch import Tensor

from wordorder.attention import Keys
from wordorder.attention.step import last_rows
from wordorder.errors import BadInput


class Cache(Protocol):
    """The cache that a decoder needs: a `KeyValueCache`, or one of Hugging Face (`wordorder.models.caches.BoundCache`).

    Keys are held as the projection gave them, before any rotation or shift: `attention` moves all of them by the
    plan's positions at every step, so that every encoding gives what it gives without a cache.
    """

    @property
    def length(self) -> int:
        """Number of tokens of which self-attention holds keys."""
        ...

    @property
    def source_length(self) -> int:
        """Number of tokens of the source of which cross-attention holds keys; 0 before the first step."""
        ...

    def extend(self, layer: int, keys: Keys, window: int | None = None) -> Keys:
        """Take this step's keys of layer ``layer`` (from 0), and return all so far.

        Of a layer with a window older keys may be dropped, which no later token sees: those before the last
        ``window - 1``. None = all are seen.
        """
        ...

    def extend_input(self, layer: int, x_BTC: Tensor, count: int) -> Tensor:
        """Take the input of a layer's attention, and return it behind the last ``count`` rows of earlier steps."""
        ...

    def source(self, layer: int, keys: Keys) -> Keys:
        """Take the source's keys (or none), and return those of the first step."""
        ...


class KeyValueCache(Cache):
    """A cache in plain torch, which a decoder or `Positional` fills: one for each batch of texts, empty to begin with.

    A layer with a window of w tokens ("rope@512") keeps the keys of the last w - 1.

    >>> import torch, wordorder
    >>> from wordorder.networks import KeyValueCache
    >>> decoder, ids = wordorder.Decoder(100, width=16, layers=2, heads=2).eval(), torch.randint(100, (1, 5))
    >>> cache = KeyValueCache()
    >>> steps = [decoder(ids[:, t : t + 1], cache=cache).hidden for t in range(5)]
    >>> torch.allclose(torch.cat(steps, 1), decoder(ids).hidden, atol=1e-6)
    True
    """

    def __init__(self) -> None:
        self._keys: dict[int, Keys] = {}
        self._tokens: dict[int, int] = {}
        self._input: dict[int, Tensor] = {}
        self._source: dict[int, Keys] = {}

    @property
    def length(self) -> int:
        return next(iter(self._tokens.values()), 0)

    @property
    def source_length(self) -> int:
        return next(iter(self._source.values())).k.shape[2] if self._source else 0

    @property
    def batch(self) -> int | None:
        """Number of rows; None before the first step."""
        return next(iter(self._keys.values())).k.shape[0] if self._keys else None

    def check_rows(self, batch: int | None) -> None:
        """Raise BadInput where the cache holds another number of rows than a step has; None is none yet."""
        if None not in (batch, self.batch) and batch != self.batch:
            raise BadInput(f"cache holds {self.batch} rows, got {batch}; cache.reorder(rows) gives it as many")

    def tokens(self, layer: int) -> int:
        """Return the number of tokens that layer ``layer`` has read, those without keys here included."""
        return self._tokens.get(layer, 0)

    def key_count(self, layer: int) -> int:
        """Return the number of tokens of which layer ``layer`` holds keys: at most w - 1 with a window of w tokens."""
        return self._keys[layer].k.shape[2] if layer in self._keys else 0

    def extend(self, layer: int, keys: Keys, window: int | None = None) -> Keys:
        tokens = self.tokens(layer) + keys.k.shape[2]
        if layer in self._keys:
            earlier = self._keys[layer]
            self.check_rows(keys.k.shape[0])
            if window is None and earlier.k.shape[2] < self.tokens(layer):
                raise BadInput(
                    f"the cache has dropped keys of layer {layer}, which had a window: begin with an empty one where"
                    " key_positions are given"
                )
            keys = earlier.then(keys)
        self._tokens[layer] = tokens
        self._keys[layer] = keys if window is None else keys.last(window - 1)
        return keys

    def extend_input(self, layer: int, x_BTC: Tensor, count: int) -> Tensor:
        if layer in self._input:
            self.check_rows(x_BTC.shape[0])
            x_BTC = torch.cat((self._input[layer], x_BTC), dim=1)
        self._input[layer] = last_rows(x_BTC, count)
        return x_BTC

    def source(self, layer: int, keys: Keys) -> Keys:
        return self._source.setdefault(layer, keys)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the rows in place: row b continues from row ``rows[b]``, long (B,), as in beam search."""
        for held in (self._keys, self._source):
            for layer, keys in held.items():
                held[layer] = keys.rows(rows)
        for layer, x_BTC in self._input.items():
            self._input[layer] = x_BTC.index_select(0, rows)
