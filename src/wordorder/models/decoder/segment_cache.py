"""The Hugging Face cache of a language model with a memory: the memory so far, and the keys of the open segment."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace
from typing import Any, NoReturn, Self, Unpack

import torch
from torch import Tensor
from transformers import Cache

from wordorder.memory import MemoryState, OpenSegment
from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.layout import one_input, tokens_of
from wordorder.models.network import memory_of
from wordorder.models.pretrained import ForwardOptions
from wordorder.networks import Decoder
from wordorder.networks.decoder import DecoderOutput


class SegmentCache(Cache):
    """The memory of a text, and the keys of the segment that is being read.

    Within a segment new tokens are ordinary cached keys. After every ``config.segment_length`` tokens, counted from
    where the cache began, the segment is folded into memory, as it is between two segments in training: so reading a
    text token by token, or in pieces of any lengths, gives what reading it segment by segment gives. What is held is
    bounded: the memory's slots, and one segment.

    Rows of unequal lengths are padded on the left. Segments are cut at the columns of the batch, so a row with padding
    before it may be cut elsewhere than it would be alone; where its padding is a multiple of the segment's length, it
    is cut at the same places. Slots without a token hold their place in the window: an encoding with a table of
    positions in the scores (TUPE) therefore counts from another origin in such rows than it would alone. All others,
    relative ones and those on embeddings, see no difference.

    Args:
        memory: what an earlier text left, of as many rows as the batches that will be read; None = nothing.

    Raises:
        ValueError: the model has no memory, or the state does not fit it.
    """

    def __init__(self, config: WordOrderConfig, *, memory: MemoryState | None = None) -> None:
        kind = memory_of(config)
        if kind is None:
            raise ValueError("a SegmentCache is for models with a memory; with memory='none' take a DynamicCache")
        super().__init__(layers=[])
        assert config.segment_length is not None
        self.segment_length = config.segment_length
        self.kind, self._layers = kind, config.num_hidden_layers
        self._begin(memory)

    @classmethod
    def from_memory(cls, memory: MemoryState, config: WordOrderConfig) -> Self:
        """Return a cache that goes on, with a new segment, from what ``model(...).memory`` or `fold` returned."""
        return cls(config, memory=memory)

    def _begin(self, memory: MemoryState | None) -> None:
        self._length = 0
        self.segment = OpenSegment.after(self.kind, memory, layers=self._layers, keep=True)

    @property
    def memory(self) -> MemoryState | None:
        """Return the memory of the segments that have ended; None = none has."""
        return self.segment.state

    @property
    def room(self) -> int:
        """Return how many tokens the open segment still takes."""
        return self.segment_length - self.segment.tokens

    def fold(self) -> MemoryState | None:
        """End the open segment here, and return the memory of everything that was read.

        For keeping a text's memory, or where a text ends: later tokens begin a new segment. Elsewhere leave it to the
        cache, which folds where training did.
        """
        if self.segment.tokens:
            memory = _settled(self.segment.close())
            self.segment = OpenSegment.after(self.kind, memory, layers=self._layers, keep=True)
        return self.memory

    def advance(self, segment: OpenSegment) -> None:
        """Count tokens that were read, and fold the segment into memory if it is full.

        Args:
            segment: the open one after them, of at most as many tokens as there was room for.
        """
        self._length += segment.tokens - self.segment.tokens
        self.segment = segment
        if not self.room:
            self.fold()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens were read through this cache, padding included, without those of a given memory."""
        del layer_idx
        return self._length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return -1: any number of tokens can be read."""
        del layer_idx
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return how many keys the next tokens attend to, their own included, and the offset 0."""
        del layer_idx
        return self.segment.slots + self.segment.tokens + query_length, 0

    @property
    def batch_size(self) -> int:
        """Return the number of rows; -1 where nothing is read yet."""
        if self.segment.state is not None:
            return self.segment.state.batch
        return next((k.shape[0] for k, _ in self.segment.key_values), -1)

    @property
    def is_compileable(self) -> bool:
        """Return False: the cache grows and folds."""
        return False

    @property
    def is_initialized(self) -> bool:
        """Tell whether anything was read or given."""
        return self.batch_size > 0

    @property
    def is_croppable(self) -> bool:
        """Return False: folded tokens cannot be taken out of a memory."""
        return False

    def __len__(self) -> int:
        """Return the number of layers of the network."""
        return self._layers

    def __repr__(self) -> str:
        slots, open_tokens = self.segment.slots, self.segment.tokens
        return f"SegmentCache({self._length} tokens read: {slots} slots of memory, {open_tokens} in the open segment)"

    def reset(self) -> None:
        """Forget everything, a given memory too."""
        self._begin(None)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows: row b continues from row ``beam_idx[b]``, in memory, open segment and masks."""
        if self.batch_size > 0:
            self.segment = self.segment.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row, with its copies right after it."""
        if self.batch_size > 0:
            self.reorder_cache(torch.arange(self.batch_size).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to take tokens back: folded tokens cannot be taken out of a memory.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"{tokens_to_remove} tokens cannot be taken back from a SegmentCache: older tokens are folded into a memory"
            " that does not hold them one by one; begin again, or go on from a memory that was kept (from_memory)"
        )

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse keys from outside: the model fills the cache itself.

        Raises:
            ValueError: always.
        """
        raise ValueError("a SegmentCache is filled by a wordorder model with a memory, and by no other")


def _settled(memory: MemoryState) -> MemoryState:
    """Return the same memory without masks that hide nothing, which cost time: padding leaves it after a while."""
    if memory.valid_BM is not None and bool(memory.valid_BM.all()):
        memory = replace(memory, valid_BM=None)
    if memory.entered_B is not None and bool((memory.entered_B == memory.entered).all()):
        memory = replace(memory, entered_B=None)
    return memory


def segment_cache(config: WordOrderConfig, cache: Cache | None, memory: MemoryState | None) -> Cache:
    """Return the cache that was given, or a new one that begins with the memory that was given.

    Raises:
        ValueError: both were given, or the memory does not fit the model.
    """
    if cache is not None and memory is not None:
        raise ValueError("pass memory or past_key_values, not both: a SegmentCache holds its own memory")
    return SegmentCache(config, memory=memory) if cache is None else cache


def read_next_tokens(
    network: Decoder,
    cache: Cache,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    inputs_embeds: Tensor | None,
    **options: Unpack[ForwardOptions],
) -> DecoderOutput:
    """Read the next tokens of each text, any number of them; the cache takes them, and ends segments that are full.

    Args:
        attention_mask: (B, all tokens so far), 1 = token, 0 = padding, on the left.
        **options: backend and extra outputs; attention weights are (B, H, T, slots + tokens so far), of one segment.

    Raises:
        ValueError: a tensor or the cache does not fit, or weights of several segments are asked for.
    """
    given = one_input(input_ids, inputs_embeds)
    cache = _checked(network, cache, given)
    valid_BT = _new_columns(attention_mask, cache.get_seq_length(), given.shape[0], given.shape[1])
    if options["return_attentions"] and given.shape[1] > cache.room:
        raise ValueError(
            f"attention weights are given for one segment at a time: the open one takes {cache.room} tokens, got"
            f" {given.shape[1]}; pass so many at once, or output_attentions=False"
        )
    hidden: list[Tensor] = []
    all_hidden: list[tuple[Tensor, ...]] = []
    attentions: tuple[Tensor, ...] = ()
    start = 0
    while start < given.shape[1]:
        columns = slice(start, start + min(cache.room, given.shape[1] - start))
        read = network.read_segment(
            cache.segment,
            None if input_ids is None else input_ids[:, columns],
            None if inputs_embeds is None else inputs_embeds[:, columns],
            key_padding_mask=None if valid_BT is None else ~valid_BT[:, columns],
            **options,
        )
        hidden.append(read.hidden)
        all_hidden.append(read.all_hidden)
        attentions = read.attentions
        cache.advance(read.segment)
        start = columns.stop
    return DecoderOutput(
        torch.cat(hidden, dim=1),
        tuple(torch.cat(pieces, dim=1) for pieces in zip(*all_hidden, strict=True)) or None,
        attentions or None,
        memory=cache.memory,
    )


def _checked(network: Decoder, cache: Cache, given: Tensor) -> SegmentCache:
    """Return the cache if these tokens can be read through it; refuse it otherwise."""
    if not isinstance(cache, SegmentCache):
        raise ValueError(
            f"past_key_values must be a SegmentCache for a model with a memory, got {type(cache).__name__}; pass"
            " SegmentCache(model.config), or use_cache=True"
        )
    if cache.kind != network.memory or len(cache) != len(network.layers):
        raise ValueError(
            f"past_key_values is a cache for {cache.kind} in {len(cache)} layers, and this model has {network.memory}"
            f" in {len(network.layers)}; pass SegmentCache(model.config)"
        )
    if network.gradient_checkpointing and network.training:
        raise ValueError("gradient checkpointing runs layers twice and would fill the cache twice; pass no cache")
    if given.dim() < 2 or not given.shape[1]:
        held = cache.get_seq_length()
        whole = f"; generate takes the whole text, with the {held} tokens that the cache has read" if held else ""
        raise ValueError(f"new tokens must be (batch, tokens), one token at least, got {tuple(given.shape)}{whole}")
    if cache.batch_size not in (-1, given.shape[0]):
        raise ValueError(
            f"the cache holds {cache.batch_size} rows and the batch {given.shape[0]}; reorder_cache or"
            " batch_repeat_interleave give it as many"
        )
    return cache


def _new_columns(attention_mask: Tensor | None, held: int, batch: int, tokens: int) -> Tensor | None:
    """Return the padding mask of the new tokens, bool (B, T), False = padding; None = no padding."""
    if attention_mask is None:
        return None
    if attention_mask.shape != (batch, held + tokens):
        raise ValueError(
            f"attention_mask must be (batch, tokens) = {(batch, held + tokens)}, the {held} tokens of the cache"
            f" included, got {tuple(attention_mask.shape)}"
        )
    mask = tokens_of(attention_mask)
    valid_BT = mask[:, held:]
    if bool(valid_BT.all()):
        return None
    if bool((mask[:, :-1] & ~mask[:, 1:]).any()):
        raise ValueError("attention_mask must be padded on the left alone where a model with a memory has a cache")
    return valid_BT
