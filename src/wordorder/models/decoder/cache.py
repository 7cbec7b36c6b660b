"""Adapt Hugging Face's caches to the networks in plain torch."""

# transformers' caches are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any, cast

from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache

from wordorder.networks import Extend


class BoundCache:
    """A Hugging Face cache with the methods of `wordorder.networks.Cache`.

    It holds keys as they were projected, before any rotation, so what a cache holds of one encoding is of no use to
    transformers' own models.

    Args:
        cache: for a decoder alone; an `EncoderDecoderCache` for one with cross-attention.

    Raises:
        ValueError: the cache is of a fixed size, or has no room for the source.
    """

    def __init__(self, cache: Cache, *, source: bool = False) -> None:
        if cache.is_compileable:  # its empty slots would be keys without a position
            raise ValueError(
                "caches of a fixed size are not supported; take a DynamicCache (cache_implementation=None)"
            )
        if source and not isinstance(cache, EncoderDecoderCache):
            raise ValueError(
                "past_key_values must be an EncoderDecoderCache where there is a source, got"
                f" {type(cache).__name__}; pass EncoderDecoderCache(DynamicCache(), DynamicCache()), or use_cache=True"
            )
        self.cache = cache
        self._own: Cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache

    @property
    def length(self) -> int:
        """Return the number of tokens of which self-attention holds keys."""
        return int(self._own.get_seq_length())

    @property
    def source_length(self) -> int:
        """Return the number of tokens of the source of which cross-attention holds keys."""
        if not isinstance(self.cache, EncoderDecoderCache):
            return 0
        return int(self.cache.cross_attention_cache.get_seq_length())

    def own(self, layer: int) -> Extend:
        """Return a function that takes a layer's keys and values of this step and returns all so far."""

        def extend(k_BGTD: Tensor, v_BGTD: Tensor) -> tuple[Tensor, Tensor]:
            return self._own.update(k_BGTD, v_BGTD, layer)

        return extend

    def source(self, layer: int) -> Extend:
        """Return a function that takes a layer's keys and values of the source and returns those of the first step."""

        def extend(k_BGSD: Tensor, v_BGSD: Tensor) -> tuple[Tensor, Tensor]:
            cache = cast(EncoderDecoderCache, self.cache)
            if cache.is_updated.get(layer):  # an update with nothing would copy all of it at every step
                held: Any = cache.cross_attention_cache.layers[layer]
                return held.keys, held.values
            cache.is_updated[layer] = True
            return cache.cross_attention_cache.update(k_BGSD, v_BGSD, layer)

        return extend


def new_cache(*, source: bool = False) -> Cache:
    """Return an empty cache."""
    return EncoderDecoderCache(DynamicCache(), DynamicCache()) if source else DynamicCache()
