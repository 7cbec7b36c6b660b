"""The Hugging Face configuration of the encoder."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.config.faults import for_a_memory


@strict
class WordOrderEncoderConfig(WordOrderConfig):
    """Configuration of a Transformer encoder with any encoding of the catalogue.

    The other fields are those of `WordOrderConfig`.

    Args:
        classifier_dropout: before the output of classification heads; None = hidden_dropout_prob.
        classifier_dense: the text classification head has a layer with tanh before its output (BERT's pooler); without
            it the output layer reads the first token as it is (an early version of TUPE's code).
        head_act: activation in the masked language modelling head, "gelu" (exact), "relu" or "silu".
        document_pooling: with a memory, what the text classification head reads of a document: "mean" over all
            tokens of all segments, "max" of each channel over them, or the "first" token, [CLS]. None = "mean": the
            first token stands in the first segment and knows nothing of later ones (look-ahead refreshes its slot in
            memory, not its own state). Without a memory the head always reads the first token.
        sparse_prediction: with labels, compute logits only where a label is (masked LM): the same loss, and about 1/7
            of the output layer's work. The logits are then (labelled tokens, vocab_size).

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-encoder"
    can_remember: ClassVar[bool] = True
    reads_documents: ClassVar[bool] = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "memory"]

    classifier_dropout: float | int | None = None
    classifier_dense: bool = True
    head_act: Literal["gelu", "relu", "silu"] = "gelu"
    document_pooling: Literal["mean", "first", "max"] | None = None
    sparse_prediction: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        """Set the pooling that the head uses, then check as all configurations do."""
        if self.memory != "none" and self.document_pooling is None:
            self.document_pooling = "mean"
        super().__post_init__(**kwargs)

    def faults(self) -> list[str]:
        """Return the faults of all networks and of the heads, one line each."""
        found = super().faults() + self.rate_faults("classifier_dropout")
        if self.memory == "none" and self.document_pooling is not None:
            found.append(for_a_memory("document_pooling", self.document_pooling))
        if (self.memory_options or {}).get("same_length") is True:
            found.append("memory_options.same_length is for decoders; leave it out")
        return found
