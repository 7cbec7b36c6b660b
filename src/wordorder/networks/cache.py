"""Keys and values of earlier steps, for networks that read a text token by token."""

from typing import Protocol

from torch import Tensor

from wordorder.attention import Keys


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

    def extend(self, layer: int, keys: Keys) -> Keys:
        """Take this step's keys of layer ``layer`` (from 0), and return all so far."""
        ...

    def source(self, layer: int, keys: Keys) -> Keys:
        """Take the source's keys (or none), and return those of the first step."""
        ...


class KeyValueCache(Cache):
    """A cache in plain torch, which a decoder or `Positional` fills: one for each batch of texts, empty to begin with.

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
        self._source: dict[int, Keys] = {}

    @property
    def length(self) -> int:
        return next(iter(self._keys.values())).k.shape[2] if self._keys else 0

    @property
    def source_length(self) -> int:
        return next(iter(self._source.values())).k.shape[2] if self._source else 0

    @property
    def batch(self) -> int | None:
        """Number of rows; None before the first step."""
        return next(iter(self._keys.values())).k.shape[0] if self._keys else None

    def tokens(self, layer: int) -> int:
        """Return the number of tokens of which layer ``layer`` has keys here."""
        return self._keys[layer].k.shape[2] if layer in self._keys else 0

    def extend(self, layer: int, keys: Keys) -> Keys:
        self._keys[layer] = self._keys[layer].then(keys) if layer in self._keys else keys
        return self._keys[layer]

    def source(self, layer: int, keys: Keys) -> Keys:
        return self._source.setdefault(layer, keys)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the rows in place: row b continues from row ``rows[b]``, long (B,), as in beam search."""
        for held in (self._keys, self._source):
            for layer, keys in held.items():
                held[layer] = keys.rows(rows)
