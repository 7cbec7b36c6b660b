"""Read texts with a network in plain torch, everything in and out in the caller's columns."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor
from transformers import Cache

from wordorder.errors import BadInput
from wordorder.memory import MemoryState
from wordorder.models.caches import BoundCache, SegmentCache
from wordorder.models.layout import Layout, Texts, cached_layout, cached_mask, padding_within, tokens_of
from wordorder.models.pretrained import ForwardOptions
from wordorder.networks import Decoder, DecoderOutput, Encoder, EncoderOutput
from wordorder.networks.stack import one_input
from wordorder.ops import Positions
from wordorder.ops.execution import has_values


def encode_batch(encoder: Encoder, texts: Texts, **options: Unpack[ForwardOptions]) -> EncoderOutput:
    """Read whole texts, or packed ones, with an encoder that has no memory."""
    layout = texts.layout()
    return layout.output_back(encoder(**layout.inputs(texts.input_ids, texts.inputs_embeds), **options))


def decode_batch(
    decoder: Decoder,
    texts: Texts,
    cache: Cache | None,
    *,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    source_positions: Positions | None = None,
    **options: Unpack[ForwardOptions],
) -> DecoderOutput:
    """Read whole texts, or packed ones, or the next tokens with a cache, with a decoder that has no memory."""
    if cache is None:
        bound, layout = None, texts.layout()
    else:
        shape = texts.shape
        if texts.sequence_ids is not None:
            raise ValueError("sequence_ids say that sequences are packed, which a cache cannot hold; pass one of them")
        layers, features = len(decoder.layers), decoder.encoding.features_of_keys
        bound = BoundCache(cache, layers=layers, features=features, source=decoder.cross_attention)
        layout = cached_layout(shape, bound.length, texts.attention_mask, texts.position_ids)
    output = decoder(
        **layout.inputs(texts.input_ids, texts.inputs_embeds),
        key_positions=layout.key_positions,
        source=source,
        source_positions=source_positions,
        source_padding_mask=None if source_mask is None else ~tokens_of(source_mask),
        cache=bound,
        **options,
    )
    return replace(layout.output_back(output), cross_attentions=layout.all_back(output.cross_attentions, (2,)))


def refuse_memory(memory: object) -> None:
    """Refuse a memory that is given to a model without one."""
    if memory is not None:
        raise ValueError("memory was given, but this model has memory='none'")


def refuse_positions(texts: Texts) -> None:
    """Refuse positions and packed sequences, which a model with a memory counts itself."""
    for name in ("position_ids", "sequence_ids"):
        if getattr(texts, name) is not None:
            raise ValueError(f"{name} cannot be given to a model with a memory, which knows where its slots stand")


def read_whole_segment(
    network: Encoder | Decoder, memory: object, texts: Texts, **options: Unpack[ForwardOptions]
) -> DecoderOutput:
    """Read one segment of each text, all of it at once, and return the output with the memory for the next segment.

    Attention weights are (B, H, T, M + T), slots first.
    """
    if getattr(network, "_is_replica", False):
        raise BadInput(
            "nn.DataParallel cannot gather the memories of its replicas: start one process per GPU, as with torchrun"
            " (DistributedDataParallel), or build the model without memory"
        )
    refuse_positions(texts)
    layout = texts.layout()
    if memory is not None and not isinstance(memory, MemoryState):
        raise ValueError(f"memory must be what an earlier call returned as .memory, got {type(memory).__name__}")
    inputs = layout.inputs(texts.input_ids, texts.inputs_embeds)
    ids, vectors, padding = inputs["input_ids"], inputs["inputs_embeds"], inputs["key_padding_mask"]
    hidden, all_hidden, attentions, left, loss = network.read_whole(
        ids, vectors, memory, {}, key_padding_mask=padding, **options
    )
    weights = None if attentions is None else tuple(_turned_weights(each, layout) for each in attentions)
    hidden = layout.turn_back(hidden)
    return DecoderOutput(hidden, layout.all_back(all_hidden), weights, memory=left, memory_loss=loss)


def _turned_weights(weights_BHTS: Tensor, layout: Layout) -> Tensor:
    """Return the weights on slots and tokens with the tokens, as queries and as keys, in the caller's columns."""
    tokens = weights_BHTS.shape[2]
    on_slots, on_tokens = weights_BHTS[..., :-tokens], weights_BHTS[..., -tokens:]
    return torch.cat((layout.turn_back(on_slots, axes=(2,)), layout.turn_back(on_tokens, axes=(2, 3))), dim=-1)


def read_next_tokens(network: Decoder, cache: Cache, texts: Texts, **options: Unpack[ForwardOptions]) -> DecoderOutput:
    """Read the next tokens of each text, any number of them; the cache takes them, and ends segments that are full.

    Padding is on the left. Attention weights are (B, H, T, slots + tokens so far), of one segment.
    """
    refuse_positions(texts)
    tokens = one_input(texts.input_ids, texts.inputs_embeds)
    cache = _checked(network, cache, tokens)
    held = cache.get_seq_length()
    mask = cached_mask(texts.shape, held, texts.attention_mask)
    gap = None if mask is None or not has_values(mask) else padding_within(mask)
    if gap is not None:
        raise BadInput(
            f"attention_mask has padding between tokens (row {gap[0]}, column {gap[1]}), at which the segments of a"
            " memory cannot be cut; pad each row on the left alone, or, where peft puts a learned prompt before the"
            " padding, give texts of one length"
        )
    valid_BT = None if mask is None or bool(mask[:, held:].all()) else mask[:, held:]
    if mask is not None and valid_BT is not None:
        if held == 0 and cache.memory is not None:
            raise BadInput(
                "attention_mask has padding, and the rows go on from a memory, which a row's next token must follow"
                " at once; give prompts of one length, or write each row by itself, with memory.reorder(rows)"
            )
        if bool((mask[:, :-1] & ~mask[:, 1:]).any()):
            raise ValueError("attention_mask must be padded on the left alone where a model with a memory has a cache")
    if options["return_attentions"] and tokens.shape[1] > cache.room:
        raise ValueError(
            f"attention weights are given for one segment at a time: the open one takes {cache.room} tokens, got"
            f" {tokens.shape[1]}; pass so many at once, or output_attentions=False"
        )
    hidden: list[Tensor] = []
    all_hidden: list[tuple[Tensor, ...]] = []
    attentions: tuple[Tensor, ...] = ()
    start = 0
    while start < tokens.shape[1]:
        columns = slice(start, min(start + cache.room, tokens.shape[1]))
        ids, vectors, valid = (
            None if x is None else x[:, columns] for x in (texts.input_ids, texts.inputs_embeds, valid_BT)
        )
        padding = None if valid is None else ~valid
        read = network.read_segment(cache.segment, ids, vectors, key_padding_mask=padding, **options)
        hidden.append(read.hidden)
        all_hidden.append(read.all_hidden)
        attentions = read.attentions
        cache.advance(read.segment)
        start = columns.stop
    layers = tuple(torch.cat(pieces, dim=1) for pieces in zip(*all_hidden, strict=True))
    return DecoderOutput(torch.cat(hidden, dim=1), layers or None, attentions or None, memory=cache.memory)


def _checked(network: Decoder, cache: Cache, tokens: Tensor) -> SegmentCache:
    """Return the cache, and refuse one that does not fit the network or the new tokens."""
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
    if network.checkpointed:
        raise ValueError("gradient checkpointing runs layers twice and would fill the cache twice; pass no cache")
    if tokens.dim() < 2 or not tokens.shape[1]:
        held = cache.get_seq_length()
        whole = f"; generate takes the whole text, with the {held} tokens that the cache has read" if held else ""
        raise ValueError(f"new tokens must be (batch, tokens), one token at least, got {tuple(tokens.shape)}{whole}")
    if cache.batch_size not in (-1, tokens.shape[0]):
        raise ValueError(
            f"the cache holds {cache.batch_size} rows and the batch {tokens.shape[0]}; reorder_cache or"
            " batch_repeat_interleave give it as many"
        )
    return cache
