"""The encoder as Hugging Face models: without a head, for documents longer than one segment, and with its heads."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterable
from typing import Any, Literal, Unpack, cast

import torch
from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from wordorder.memory import MemoryState
from wordorder.models.configuration import WordOrderConfig, WordOrderEncoderConfig
from wordorder.models.layout import PackedInputs, Texts, check_beside, check_packing, check_token_types, layout_of
from wordorder.models.pretrained import (
    ExtraInputs,
    LabelledHead,
    WordOrderMaskedLMOutput,
    WordOrderModelOutput,
    WordOrderPreTrainedModel,
    WordOrderQuestionAnsweringOutput,
    WordOrderSequenceClassifierOutput,
    WordOrderTokenClassifierOutput,
    body_outputs,
    classifier_dropout,
    forward_options,
    network_outputs,
    with_memory_loss,
)
from wordorder.models.reading import encode_batch, read_whole_segment, refuse_memory
from wordorder.networks import Encoder
from wordorder.networks.complex_valued import ComplexEncoder
from wordorder.networks.options import ACTIVATIONS, norm_layer
from wordorder.networks.stack import one_input
from wordorder.ops.pooling import first_token, pool_tokens, zero_if_empty

Pooling = Literal["mean", "first", "max"]


def build_encoder(config: WordOrderConfig) -> Encoder:
    """Build the encoder that a configuration describes, with real or complex layers."""
    kind: Any = ComplexEncoder if config.complex_valued else Encoder
    return kind(config.vocab_size, config.network_options("encoder"))


class WordOrderEncoderPreTrainedModel(WordOrderPreTrainedModel):
    """The base of the encoder and its heads."""

    config: WordOrderEncoderConfig
    config_class = WordOrderEncoderConfig
    _no_split_modules = ["EncoderLayer"]  # noqa: RUF012  transformers declares these as plain class attributes


class WordOrderEncoderModel(WordOrderEncoderPreTrainedModel):
    """The encoder without a head."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.encoder = build_encoder(config)
        self.post_init()

    def token_reader(self) -> Encoder:
        return self.encoder

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory: MemoryState | None = None,
        sequence_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        token_type_ids: Tensor | None = None,
        **packing: Unpack[PackedInputs],
    ) -> WordOrderModelOutput:
        """Encode a batch, with a memory as one segment; see `WordOrderPreTrainedModel` for the arguments."""
        check_token_types(token_type_ids, input_ids, inputs_embeds)
        check_packing(packing, position_ids)
        options = forward_options(self.config, output_attentions, output_hidden_states)
        texts = Texts(input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids)
        if self.config.memory == "none":
            refuse_memory(memory)
            read = encode_batch(self.encoder, texts, **options)
        else:
            read = read_whole_segment(self.encoder, memory, texts, **options)
        return WordOrderModelOutput(**network_outputs(read))


def read_document(
    model: WordOrderEncoderModel,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    **inputs: Unpack[ExtraInputs],
) -> WordOrderModelOutput:
    """Read texts of any length with an encoder, and return the states of all tokens and the last segment's memory.

    A model with a memory reads ``segment_length`` tokens at a time, counted from the first token of each row wherever
    its padding lies, and hands the memory on, through which no gradient passes. A row that has ended changes no more:
    texts of unequal lengths give in one batch what each gives alone. Activations of all segments are held for the
    gradient: they grow with T, not with its square. Everything returned is in the caller's columns.

    Raises:
        ValueError: as in `WordOrderEncoderModel.forward`; or attention weights are asked for over several segments.
    """
    tokens, length = one_input(input_ids, inputs_embeds), model.config.segment_length
    if model.config.memory == "none" or length is None or tokens.dim() < 2 or tokens.shape[1] <= length:
        return model(input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids=sequence_ids, **inputs)
    if forward_options(model.config, inputs.get("output_attentions"), None)["return_attentions"]:
        raise ValueError(
            f"output_attentions: {tokens.shape[1]} tokens are read in segments of segment_length = {length}, and each"
            " attends to slots of its own; pass the segments to .model one by one, with memory=, to see their weights"
        )
    check_token_types(inputs.pop("token_type_ids", None), input_ids, inputs_embeds)  # once, of all segments
    check_beside(tokens.device, attention_mask=attention_mask)
    layout = layout_of((tokens.shape[0], tokens.shape[1]), attention_mask, None)
    ids, vectors = (None if tensor is None else layout.turn(tensor) for tensor in (input_ids, inputs_embeds))
    outputs: list[WordOrderModelOutput] = []
    for start in range(0, tokens.shape[1], length):
        cut = slice(start, start + length)
        segment, mask, embedded = (None if x is None else x[:, cut] for x in (ids, layout.valid_BT, vectors))
        outputs.append(model(segment, mask, position_ids, embedded, sequence_ids=sequence_ids, **inputs))
        inputs["memory"] = outputs[-1].memory

    def join(pieces: Iterable[Any]) -> Any:
        return layout.turn_back(torch.cat(tuple(pieces), dim=1))

    layers = [output.hidden_states for output in outputs if output.hidden_states is not None]
    all_hidden = tuple(map(join, zip(*layers, strict=True))) if layers else None
    hidden = join(output.last_hidden_state for output in outputs)
    losses = [output.memory_loss for output in outputs if output.memory_loss is not None]
    loss = torch.stack(losses).mean() if losses else None
    memory = outputs[-1].memory
    return WordOrderModelOutput(last_hidden_state=hidden, hidden_states=all_hidden, memory=memory, memory_loss=loss)


def pool_document(hidden_BTC: Tensor, attention_mask: Tensor | None, pooling: Pooling) -> Tensor:
    """Return one vector for each text, (B, C): the mean or maximum of all tokens, 0 where there is none, or the first.

    The mean is over numbers of at least float32.
    """
    valid_BT = None if attention_mask is None else attention_mask.bool()
    if pooling == "mean":
        return pool_tokens("mean", hidden_BTC, valid_BT)
    if valid_BT is None:
        return hidden_BTC[:, 0] if pooling == "first" else hidden_BTC.amax(1)
    if pooling == "first":
        row_B = torch.arange(hidden_BTC.shape[0], device=hidden_BTC.device)
        return hidden_BTC[row_B, first_token(valid_BT)]
    highest_BC = hidden_BTC.masked_fill(~valid_BT[..., None], -torch.inf).amax(1)
    return zero_if_empty(highest_BC, valid_BT)


class EncoderHead(WordOrderEncoderPreTrainedModel, LabelledHead):
    """A head on the encoder that learns from ``labels``, for texts of any length where the model has a memory."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.model = WordOrderEncoderModel(config)

    def read(self, *texts: Tensor | None, **inputs: Any) -> WordOrderModelOutput:
        return read_document(self.model, *texts, **inputs)


class MaskedLMHead(nn.Module):
    """``norm(act(W x)) E^T + b``, E being the token embeddings where they are tied (BERT, TUPE: act is gelu)."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__()
        self.activation = config.head_act
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = norm_layer(config.norm or "layer", config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) of states (..., C)."""
        return self.decoder(self.norm(ACTIVATIONS[self.activation](self.dense(hidden))))


class WordOrderEncoderForMaskedLM(EncoderHead):
    """The encoder with a masked language modelling head.

    Labels are long (B, T), the token to predict, -100 where there is none; the loss is the mean of the negative
    log-likelihood (nats) over labelled tokens.
    """

    output_class = WordOrderMaskedLMOutput
    _tied_weights_keys = {"head.decoder.weight": "model.encoder.embedding.weight"}  # noqa: RUF012

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForMaskedLM"
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.head.decoder = cast("nn.Linear", new_embeddings)

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, T, V), or those of labelled tokens alone, and the loss where there are labels."""
        hidden = output.last_hidden_state
        if labels is not None and self.config.sparse_prediction:
            labelled = labels != -100
            hidden, labels = hidden[labelled], labels[labelled]
        logits = self.head(hidden)
        if labels is None:
            return logits, None
        sizes: Any = {"vocab_size": self.config.vocab_size, "num_items_in_batch": num_items_in_batch}
        return logits, self.loss_function(logits, labels, **sizes)


class WordOrderEncoderForSequenceClassification(EncoderHead):
    """The encoder with a text classification head: dense, tanh (see ``classifier_dense``), dropout, linear.

    It reads the first token, with a memory what ``document_pooling`` makes of all tokens of all segments. Labels are
    class numbers (B,), or numbers, for regression with one label.
    """

    output_class = WordOrderSequenceClassifierOutput

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"
        self.num_labels = config.num_labels
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if config.classifier_dense else None
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, classes), and the loss where there are labels."""
        text_BC = pool_document(output.last_hidden_state, attention_mask, self.config.document_pooling or "first")
        pooled_BC = text_BC if self.dense is None else torch.tanh(self.dense(text_BC))
        logits = self.classifier(self.dropout(pooled_BC))
        return logits, None if labels is None else self.loss_of_texts(logits, labels, num_items_in_batch)


class WordOrderEncoderForTokenClassification(EncoderHead):
    """The encoder with a classification head on every token.

    Labels are long (B, T), class numbers, -100 where there is none.
    """

    output_class = WordOrderTokenClassifierOutput

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForTokenClassification"
        self.num_labels = config.num_labels
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels or 1)
        self.post_init()

    def predict(
        self, output: Any, attention_mask: Tensor | None, labels: Tensor | None, num_items_in_batch: Tensor | int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the logits (B, T, classes), and the loss where there are labels."""
        logits = self.classifier(self.dropout(output.last_hidden_state))
        if labels is None:
            return logits, None
        return logits, self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)


class WordOrderEncoderForQuestionAnswering(WordOrderEncoderPreTrainedModel):
    """The encoder with a head that marks the first and last token of an answer."""

    def __init__(self, config: WordOrderEncoderConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForQuestionAnswering"
        self.model = WordOrderEncoderModel(config)
        self.span = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        sequence_ids: Tensor | None = None,
        **inputs: Unpack[ExtraInputs],
    ) -> WordOrderQuestionAnsweringOutput:
        """Find a span, in texts of any length where the model has a memory; see `LabelledHead.forward`.

        Args:
            start_positions: long (B,), column of the answer's first token; beyond the text = no answer here.
            end_positions: long (B,), column of its last token.
        """
        texts = input_ids, attention_mask, position_ids, inputs_embeds, sequence_ids
        output = read_document(self.model, *texts, **inputs)
        start_BT, end_BT = self.span(output.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            spans: Any = start_BT, end_BT, start_positions, end_positions
            loss = self.loss_function(*spans, num_items_in_batch=num_items_in_batch)
            loss = with_memory_loss(loss, output.memory_loss, start_positions, num_items_in_batch)
        logits: Any = {"start_logits": start_BT, "end_logits": end_BT}
        return WordOrderQuestionAnsweringOutput(loss=loss, **logits, **body_outputs(output))
