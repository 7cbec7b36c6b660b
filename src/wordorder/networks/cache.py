"""Keys and values of earlier steps, for networks that read a text token by token."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from wordorder.memory import KeyValues
from wordorder.networks.multi_head import Extend


class Cache(Protocol):
    """The cache that a decoder needs; `wordorder.models` binds Hugging Face's caches to it.

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

    def own(self, layer: int) -> Extend:
        """Return a function that takes this step's keys and values of layer ``layer`` (from 0) and gives all so far."""
        ...

    def source(self, layer: int) -> Extend:
        """Return a function that takes the source's keys and values (or none) and gives those of the first step."""
        ...


class KeyValueCache(Cache):
    """A cache in plain torch, which a decoder fills: one for each text or batch of texts, empty to begin with.

    >>> import torch, wordorder
    >>> from wordorder.networks import KeyValueCache
    >>> decoder, ids = wordorder.Decoder(100, width=16, layers=2, heads=2).eval(), torch.randint(100, (1, 5))
    >>> cache = KeyValueCache()
    >>> steps = [decoder(ids[:, t : t + 1], cache=cache).hidden for t in range(5)]
    >>> torch.allclose(torch.cat(steps, 1), decoder(ids).hidden, atol=1e-6)
    True
    """

    def __init__(self) -> None:
        self._own: dict[int, KeyValues] = {}
        self._source: dict[int, KeyValues] = {}

    @property
    def length(self) -> int:
        return self._own[0][0].shape[2] if self._own else 0

    @property
    def source_length(self) -> int:
        return self._source[0][0].shape[2] if self._source else 0

    def own(self, layer: int) -> Extend:
        def extend(k_BGTD: Tensor, v_BGTD: Tensor) -> KeyValues:
            if layer in self._own:
                k, v = self._own[layer]
                k_BGTD, v_BGTD = torch.cat((k, k_BGTD), dim=2), torch.cat((v, v_BGTD), dim=2)
            self._own[layer] = k_BGTD, v_BGTD
            return k_BGTD, v_BGTD

        return extend

    def source(self, layer: int) -> Extend:
        return lambda k_BGSD, v_BGSD: self._source.setdefault(layer, (k_BGSD, v_BGSD))

    def reorder(self, rows: Tensor) -> None:
        """Reorder the rows in place: row b continues from row ``rows[b]``, long (B,), as in beam search."""
        for held in (self._own, self._source):
            for layer, (k, v) in held.items():
                held[layer] = k.index_select(0, rows), v.index_select(0, rows)


@dataclass(frozen=True)
class LayerCache:
    """The cache as the self-attention and the cross-attention of one layer see it; None where there is no cache."""

    own: Extend | None = None
    source: Extend | None = None


def layer_cache(cache: Cache | None, layer: int, *, once: bool = False) -> LayerCache:
    """Return the cache as a layer sees it; with ``once`` only the first of several calls in a step adds to it."""
    if cache is None:
        return LayerCache()
    wrap: Callable[[Extend], Extend] = _once if once else lambda extend: extend
    return LayerCache(wrap(cache.own(layer)), wrap(cache.source(layer)))


def _once(extend: Extend) -> Extend:
    held: list[KeyValues] = []

    def given(k: Tensor, v: Tensor) -> KeyValues:
        if not held:
            held.append(extend(k, v))
        return held[0]

    return given
