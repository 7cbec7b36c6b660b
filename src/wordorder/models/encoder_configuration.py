"""The Hugging Face configuration of the encoder."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from wordorder.models.configuration import WordOrderConfig


@strict
class WordOrderEncoderConfig(WordOrderConfig):
    """Configuration of a Transformer encoder with any encoding of the catalogue.

    The other fields are those of `WordOrderConfig`.

    Args:
        classifier_dropout: before the output of classification heads; None = hidden_dropout_prob.
        classifier_dense: the text classification head has a layer with tanh before its output (BERT's pooler); without
            it the output layer reads the first token as it is (an early version of TUPE's code).
        head_act: activation in the masked language modelling head, "gelu" (exact), "relu" or "silu".
        sparse_prediction: with labels, compute logits only where a label is (masked LM): the same loss, and about 1/7
            of the output layer's work. The logits are then (labelled tokens, vocab_size).

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-encoder"

    classifier_dropout: float | int | None = None
    classifier_dense: bool = True
    head_act: Literal["gelu", "relu", "silu"] = "gelu"
    sparse_prediction: bool = False

    def faults(self) -> list[str]:
        """Those that all networks can have, and the dropout of the heads."""
        return super().faults() + self.rate_faults("classifier_dropout")
