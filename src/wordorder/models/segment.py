"""Read one segment of a text with a memory: state in, state out.

The ways to read a text, by what a model has and how much it is given:

* `encoder.model.encode_batch`: whole texts, an encoder without a memory.
* `decoder.model.decode_batch`: whole texts, or the next tokens with a cache of keys, a decoder without a memory.
* `read_whole_segment`: one segment of each text, any network with a memory; the caller hands the memory on.
* `decoder.segment_cache.read_next_tokens`: the next tokens, any number of them, a decoder with a memory; a
  `SegmentCache` holds the memory and ends segments where they are full.
* `encoder.document.read_document`: texts of any length, an encoder; with a memory it cuts them into segments.
"""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Unpack

import torch
from torch import Tensor

from wordorder.memory import MemoryState
from wordorder.models.layout import Layout, layout_of, one_input
from wordorder.models.pretrained import ForwardOptions
from wordorder.networks import Decoder, DecoderOutput, Encoder


def refuse_memory(memory: object) -> None:
    """Refuse a memory that is given to a model without one.

    Raises:
        ValueError: it was given.
    """
    if memory is not None:
        raise ValueError("memory was given, but this model has memory='none'")


def refuse_positions(**given: Tensor | None) -> None:
    """Refuse positions and packed sequences, which a model with a memory counts itself.

    Raises:
        ValueError: one was given.
    """
    for name, ids in given.items():
        if ids is not None:
            raise ValueError(f"{name} cannot be given to a model with a memory, which knows where its slots stand")


def read_whole_segment(
    network: Encoder | Decoder,
    memory: object,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    inputs_embeds: Tensor | None,
    **options: Unpack[ForwardOptions],
) -> DecoderOutput:
    """Read one segment of each text, all of it at once, and return the output with the memory for the next segment.

    Args:
        attention_mask: (B, T), 1 = token of this segment, 0 = padding, on either side.
        **options: backend and extra outputs; attention weights are (B, H, T, M + T), slots first.

    Returns:
        everything in the caller's columns.

    Raises:
        ValueError: neither or both of input_ids and inputs_embeds, a wrong shape, or a memory that does not fit.
    """
    given = one_input(input_ids, inputs_embeds)
    if memory is not None and not isinstance(memory, MemoryState):
        raise ValueError(f"memory must be what an earlier call returned as .memory, got {type(memory).__name__}")
    layout = layout_of((given.shape[0], given.shape[1]), attention_mask, None)
    read = network.read_whole(
        None if input_ids is None else layout.turn(input_ids),
        None if inputs_embeds is None else layout.turn(inputs_embeds),
        memory,
        {},
        key_padding_mask=layout.key_padding_mask,
        **options,
    )
    return DecoderOutput(
        layout.turn_back(read.hidden),
        layout.all_back(read.all_hidden or None),
        tuple(_turned_weights(weights, layout) for weights in read.attentions) or None,
        memory=read.segment.close(),
    )


def _turned_weights(weights_BHTS: Tensor, layout: Layout) -> Tensor:
    """Return the weights on slots and tokens with the tokens, as queries and as keys, in the caller's columns."""
    tokens = weights_BHTS.shape[2]
    on_slots, on_tokens = weights_BHTS[..., :-tokens], weights_BHTS[..., -tokens:]
    return torch.cat((layout.turn_back(on_slots, axes=(2,)), layout.turn_back(on_tokens, axes=(2, 3))), dim=-1)
