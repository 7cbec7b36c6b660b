"""Read a document of any length with an encoder that has a memory, and the base of the heads that do so."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Iterable
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from wordorder.models.config.encoder import WordOrderEncoderConfig
from wordorder.models.encoder.model import WordOrderEncoderModel, WordOrderEncoderPreTrainedModel
from wordorder.models.head import LabelledHead
from wordorder.models.layout import check_token_types, layout_of
from wordorder.models.outputs import WordOrderModelOutput
from wordorder.models.pretrained import MemoryInputs, forward_options, refuse_mems

Pooling = Literal["mean", "first", "max"]


def read_document(
    model: WordOrderEncoderModel,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    **inputs: Unpack[MemoryInputs],
) -> WordOrderModelOutput:
    """Read texts of any length with an encoder, and return the states of all tokens, (B, T, C).

    A model with a memory reads ``segment_length`` tokens at a time, counted from the first token of each row wherever
    its padding lies, and hands the memory on; a text that is no longer than that, and a model without a memory, are
    read at once. Gradients reach every segment's own computation; what it knows of the segments before comes through
    the memory, which stops them. A row that has ended changes no more, so that texts of unequal lengths give in one
    batch what each gives alone. The activations of all segments are held while a gradient is wanted: they grow with T,
    not with its square.

    Args:
        position_ids: long (B or 1, T), as `layout_of` understands them; for a model without a memory.
        **inputs: the other arguments of `WordOrderEncoderModel.forward`; memory is that before the first token.

    Returns:
        ``last_hidden_state``, ``hidden_states`` if asked for, and ``memory`` after the last segment; everything in the
        caller's columns.

    Raises:
        ValueError: as in `WordOrderEncoderModel.forward`; or attention weights are asked for over several segments.
    """
    refuse_mems(inputs)
    given, length = input_ids if input_ids is not None else inputs_embeds, model.config.segment_length
    one_of_them = (input_ids is None) != (inputs_embeds is None)
    in_parts = model.config.memory != "none" and one_of_them and given is not None and given.dim() > 1
    if not in_parts or length is None or given is None or given.shape[1] <= length:
        return model(input_ids, attention_mask, position_ids, inputs_embeds, **inputs)
    if forward_options(model.config, inputs.get("output_attentions"), None)["return_attentions"]:
        raise ValueError(
            f"output_attentions: {given.shape[1]} tokens are read in segments of segment_length = {length}, and each"
            " attends to slots of its own; pass the segments to .model one by one, with memory=, to see their weights"
        )
    check_token_types(inputs.pop("token_type_ids", None), input_ids, inputs_embeds)  # once, of all segments
    layout = layout_of((given.shape[0], given.shape[1]), attention_mask, None)
    ids, vectors = (None if tensor is None else layout.turn(tensor) for tensor in (input_ids, inputs_embeds))
    outputs: list[WordOrderModelOutput] = []
    for start in range(0, given.shape[1], length):
        cut = slice(start, start + length)
        segment, mask, embedded = (None if x is None else x[:, cut] for x in (ids, layout.valid_BT, vectors))
        outputs.append(model(segment, mask, position_ids, embedded, **inputs))
        inputs["memory"] = outputs[-1].memory

    def join(pieces: Iterable[Any]) -> Any:
        return layout.turn_back(torch.cat(tuple(pieces), dim=1))

    layers = [output.hidden_states for output in outputs if output.hidden_states is not None]
    return WordOrderModelOutput(
        last_hidden_state=join(output.last_hidden_state for output in outputs),
        hidden_states=tuple(map(join, zip(*layers, strict=True))) if layers else None,
        memory=outputs[-1].memory,
    )


def pool_document(hidden_BTC: Tensor, attention_mask: Tensor | None, pooling: Pooling) -> Tensor:
    """Return one vector for each text, (B, C), of all its tokens.

    Args:
        pooling: "mean" over all tokens (of at least float32 numbers), "max" of each channel over all tokens, or the
            "first" token, which is [CLS] where a tokeniser puts one. A row without tokens gives 0 for mean and max.
    """
    if attention_mask is None:
        return _WITHOUT_MASK[pooling](hidden_BTC)
    valid_BT1 = attention_mask.bool()[..., None]
    if pooling == "first":
        first_B = valid_BT1[..., 0].int().argmax(1)
        return hidden_BTC[torch.arange(hidden_BTC.shape[0], device=hidden_BTC.device), first_B]
    if pooling == "max":
        highest_BC = hidden_BTC.masked_fill(~valid_BT1, -torch.inf).amax(1)
        return highest_BC.masked_fill(~valid_BT1.any(1), 0.0)
    wide = torch.promote_types(hidden_BTC.dtype, torch.float32)
    total_BC = hidden_BTC.masked_fill(~valid_BT1, 0.0).sum(1, dtype=wide)
    return (total_BC / valid_BT1.sum(1).clamp(min=1)).to(hidden_BTC.dtype)


_WITHOUT_MASK: dict[Pooling, Callable[[Tensor], Tensor]] = {
    "mean": lambda hidden: hidden.mean(1, dtype=torch.promote_types(hidden.dtype, torch.float32)).to(hidden.dtype),
    "max": lambda hidden: hidden.amax(1),
    "first": lambda hidden: hidden[:, 0],
}


class EncoderHead(WordOrderEncoderPreTrainedModel, LabelledHead):
    """A head on the encoder that learns from ``labels``, for texts of any length where the model has a memory."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderEncoderModel(config)

    def read(self, *texts: Tensor | None, **inputs: Any) -> WordOrderModelOutput:
        """Return the encoder's output, of several segments where the texts are longer than one; see `read_document`."""
        return read_document(self.model, *texts, **inputs)
