"""One segment of a longer text, read by a model with a memory, everything in the caller's columns."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from wordorder.memory import MemoryState
from wordorder.models.layout import Layout, all_back, layout_of, one_input
from wordorder.networks import Decoder, DecoderOutput, Encoder


def refuse(given: Mapping[str, object]) -> None:
    """Refuse what makes no sense beside a memory.

    Args:
        given: by name; None = it was not.

    Raises:
        ValueError: something was.
    """
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} cannot be given to a model with a memory, which knows where its slots stand")


def read_segment(
    network: Encoder | Decoder,
    memory: Any,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    inputs_embeds: Tensor | None,
    refused: dict[str, Any],
    *,
    backend: str | None = None,
    output_attentions: bool = False,
    output_hidden_states: bool = False,
) -> DecoderOutput:
    """Return a network's output for one segment, and the memory for the next one.

    Args:
        network: has a memory.
        memory: what the segment before left; None = the beginning of a text.
        input_ids: long (B, T).
        attention_mask: (B, T), 1 = token of this segment, 0 = padding, on either side.
        inputs_embeds: instead of input_ids, (B, T, C).
        refused: what else was given that makes no sense beside a memory, by name.
        backend: of attention; None chooses.
        output_attentions: also give attention weights, (B, H, T, M + T), slots first.
        output_hidden_states: also give every layer's output.

    Raises:
        ValueError: something that is refused was given, or the memory does not fit.
    """
    refuse(refused)
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
        backend=backend,
        return_all_hidden=output_hidden_states,
        return_attentions=output_attentions,
    )
    return DecoderOutput(
        layout.turn_back(read.hidden),
        all_back(read.all_hidden or None, layout, (1,)),
        tuple(_turned_weights(weights, layout) for weights in read.attentions) or None,
        memory=read.segment.close(),
    )


def _turned_weights(weights_BHTS: Tensor, layout: Layout) -> Tensor:
    """Weights on slots and tokens with the tokens, as queries and as keys, in the caller's columns."""
    tokens = weights_BHTS.shape[2]
    on_slots, on_tokens = weights_BHTS[..., :-tokens], weights_BHTS[..., -tokens:]
    return torch.cat((layout.turn_back(on_slots, axes=(2,)), layout.turn_back(on_tokens, axes=(2, 3))), dim=-1)
