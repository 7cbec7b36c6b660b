"""Caches of Hugging Face: theirs, adapted to the networks in plain torch, and one for models with a memory."""

# transformers' caches are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace
from typing import Any, NoReturn, Self, cast

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache

from wordorder.attention import Keys
from wordorder.errors import BadInput
from wordorder.memory import MemoryState, Segment
from wordorder.models.cached_features import extend_features, extend_input, layer_with_window, make_room
from wordorder.models.configuration import WordOrderConfig


class BoundCache:
    """A Hugging Face cache with the methods of `wordorder.networks.Cache`.

    It lives for one call, and holds nothing of its own. Keys are held as they were projected, before any rotation: of
    no use to transformers' own models. Features of keys and rows of the layers' input are in further layers, after
    those of the network. Of a layer with a window the keys of the window are kept.
    """

    def __init__(self, cache: Cache, *, layers: int, features: bool = False, source: bool = False) -> None:
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
        self._layers = layers
        own_layers: list[Any] = self._own.layers[:layers]
        if len({layer.get_seq_length() for layer in own_layers if layer.is_initialized}) > 1:
            raise BadInput(
                "layers of the cache hold different numbers of tokens: a step or crop broke off; take an empty one"
            )
        if features:
            make_room(self._own, layers)

    @property
    def length(self) -> int:
        return int(self._own.get_seq_length())

    @property
    def source_length(self) -> int:
        if not isinstance(self.cache, EncoderDecoderCache):
            return 0
        return int(self.cache.cross_attention_cache.get_seq_length())

    def extend(self, layer: int, keys: Keys, window: int | None = None) -> Keys:
        layer_with_window(self._own, layer, None if window is None else window - 1)
        k, v = self._own.update(keys.k, keys.v, layer)
        return Keys(k, v, extend_features(self._own, layer, self._layers, keys.features, window))

    def extend_input(self, layer: int, x_BTC: Tensor, count: int) -> Tensor:
        return extend_input(self._own, layer, self._layers, x_BTC, count)

    def source(self, layer: int, keys: Keys) -> Keys:
        cache = cast(EncoderDecoderCache, self.cache)
        if cache.is_updated.get(layer):  # an update with nothing would copy all of it at every step
            held: Any = cache.cross_attention_cache.layers[layer]
            return Keys(held.keys, held.values)
        cache.is_updated[layer] = True
        return Keys(*cache.cross_attention_cache.update(keys.k, keys.v, layer))


def new_cache(*, source: bool = False) -> Cache:
    """Return an empty cache."""
    return EncoderDecoderCache(DynamicCache(), DynamicCache()) if source else DynamicCache()


class SegmentCache(Cache):
    """The memory of a text, and the keys of the segment that is being read.

    Within a segment new tokens are ordinary cached keys. After every ``config.segment_length`` tokens, counted from
    where the cache began, the segment is folded into memory, as between two segments in training: reading a text in
    pieces of any lengths gives what reading it segment by segment gives, and one segment at most is held beside the
    memory's slots.

    Rows of unequal lengths are padded on the left. Segments are cut at the columns of the batch: a row is cut where it
    would be alone if its padding is a multiple of the segment's length. Slots without a token hold their place in the
    window, so that an encoding with a table of positions in the scores (TUPE) counts from another origin in such rows
    than it would alone; no other encoding does.

    Args:
        memory: what an earlier text left, of as many rows as the batches that will be read; None = nothing.

    Raises:
        ValueError: the model has no memory, or the state does not fit it.
    """

    def __init__(self, config: WordOrderConfig, *, memory: MemoryState | None = None) -> None:
        kind, segment_length = config.memory_kept(), config.segment_length
        if kind is None or segment_length is None:
            raise ValueError("a SegmentCache is for models with a memory; with memory='none' take a DynamicCache")
        super().__init__(layers=[])
        self.kind, self.segment_length, self._layers = kind, segment_length, config.num_hidden_layers
        self._begin(memory)

    @classmethod
    def from_memory(cls, memory: MemoryState, config: WordOrderConfig) -> Self:
        """Return a cache that goes on, with a new segment, from what ``model(...).memory`` or `fold` returned."""
        return cls(config, memory=memory)

    def _begin(self, memory: MemoryState | None) -> None:
        self._length = 0
        self.segment = Segment.after(self.kind, memory, layers=self._layers, keep=True)

    @property
    def memory(self) -> MemoryState | None:
        """Return the memory of the segments that have ended; None = none has."""
        return self.segment.state

    @property
    def room(self) -> int:
        """Return the number of tokens that the open segment still takes."""
        return self.segment_length - self.segment.tokens

    def fold(self) -> MemoryState | None:
        """End the open segment here, and return the memory of everything that was read.

        For keeping a text's memory, or where a text ends: later tokens begin a new segment. Elsewhere leave it to the
        cache, which folds where training did.
        """
        if self.segment.tokens:
            memory = _settled(self.segment.close())
            self.segment = Segment.after(self.kind, memory, layers=self._layers, keep=True)
        return self.memory

    def advance(self, segment: Segment) -> None:
        """Go on from the open segment after tokens were read, and fold it into memory if it is full."""
        self._length += segment.tokens - self.segment.tokens
        self.segment = segment
        if not self.room:
            self.fold()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens were read through this cache, padding included, without those of a given memory."""
        return self._length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1  # any number of tokens can be read

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return how many keys the next tokens attend to, their own included, and the offset 0."""
        return self.segment.slot_count + self.segment.tokens + query_length, 0

    @property
    def batch_size(self) -> int:
        """Return the number of rows; -1 where nothing is read yet."""
        if self.segment.state is not None:
            return self.segment.state.batch
        return next((keys.k.shape[0] for keys in self.segment.keys), -1)

    @property
    def is_initialized(self) -> bool:
        return self.batch_size > 0

    @property
    def is_linear(self) -> list[bool]:
        return [False]  # as a layer with keys: `generate` leaves out the tokens that the cache has read

    @property
    def is_croppable(self) -> bool:
        return False  # folded tokens cannot be taken out of a memory

    def __len__(self) -> int:
        return self._layers

    def __repr__(self) -> str:
        slots, open_tokens = self.segment.slot_count, self.segment.tokens
        return f"SegmentCache({self._length} tokens read: {slots} slots of memory, {open_tokens} in the open segment)"

    def reset(self) -> None:
        self._begin(None)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows: row b continues from row ``beam_idx[b]``, in memory, open segment and masks."""
        if self.batch_size > 0:
            self.segment = self.segment.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row, with its copies right after it."""
        if self.batch_size > 0:
            self.reorder_cache(torch.arange(self.batch_size).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        raise ValueError(
            f"{tokens_to_remove} tokens cannot be taken back from a SegmentCache: older tokens are folded into a memory"
            " that does not hold them one by one; begin again, or go on from a memory that was kept (from_memory)"
        )

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("a SegmentCache is filled by a wordorder model with a memory, and by no other")


def _settled(memory: MemoryState) -> MemoryState:
    """Return the same memory without masks that hide nothing, which cost time: padding leaves it after a while."""
    if memory.valid_BM is not None and bool(memory.valid_BM.all()):
        memory = replace(memory, valid_BM=None)
    if memory.entered_B is not None and bool((memory.entered_B == memory.entered).all()):
        memory = replace(memory, entered_B=None)
    return memory


def segment_cache(config: WordOrderConfig, cache: Cache | None, memory: MemoryState | None) -> Cache:
    """Return the cache that was given, or a new one that begins with the memory that was given."""
    if cache is not None and memory is not None:
        raise ValueError("pass memory or past_key_values, not both: a SegmentCache holds its own memory")
    return SegmentCache(config, memory=memory) if cache is None else cache
