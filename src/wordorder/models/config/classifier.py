"""The Hugging Face configuration of the text classifiers."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from wordorder.errors import BadInput
from wordorder.limits import one_line
from wordorder.models.config.configuration import WordOrderConfig

KERNEL_SIZES = (3, 4, 5)
"""Kim's filters (2014), and the paper's."""


@strict
class WordOrderClassifierConfig(WordOrderConfig):
    """Configuration of a text classifier: bag of words, convolution, recurrent network or Transformer.

    The other fields are those of `WordOrderConfig`. Fields of one architecture are of no effect in the others, so that
    the arms of a comparison can share them.

    Args:
        architecture: "bag-of-words" (mean of the embeddings), "convolution" (filters over the text, largest response
            of each), "recurrent" (LSTM, last state) or "transformer" (encoder).
        hidden_size: channels of the embeddings, and of the Transformer.
        hidden_act: "relu" (the papers'), "gelu", "silu"; in the Transformer also "swiglu".
        num_hidden_layers: of the recurrent network and of the Transformer; 1, as in the papers.
        encoding: a name of the catalogue, or several joined by "+". Those that act on queries, keys or scores need the
            Transformer; "complex-order", the default, goes with every architecture, real or complex.
        pooling: what of the last layer stands for the text: "mean", "first" or "last" token; None = "mean" for the
            Transformer, "last" for the recurrent network, which has these two.
        kernel_sizes: tokens that a filter of the convolution sees; None = [3, 4, 5].
        filters: of each size.
        recurrent_size: channels of the recurrent state, of one direction; None = hidden_size.
        bidirectional: a second recurrent network reads the text from its end.
        recurrent_cell: "lstm", or "unitary" (the cell of the paper's code; complex networks only).
        complex_options: of the complex layers: shared_weights, bias, read_out, and in the Transformer also scores,
            shared_norms, nonlinearity; see `ComplexEncoder`. read_out is "linear" in the Transformer if not given, and
            the paper's "modulus" elsewhere.
        variant: "paper", or "reference-code": the complex Transformer of the published text classification code,
            defects included; see `ReferenceTextNetwork`. It pads texts to max_position_embeddings (the code: 53) with
            pad_token_id (0 where there is none). Of the Transformer's fields it reads hidden_size, intermediate_size,
            num_attention_heads and hidden_dropout_prob; its layers are two, whatever num_hidden_layers says.
        loss: of classes: "cross-entropy", or "double-softmax": the cross-entropy of probabilities taken for logits, as
            the published Transformer code trains. Regression and several labels per text keep their losses either way.
        word_vectors: file of pre-trained vectors (`load_word_vectors`) from which training starts the embeddings, or
            the amplitudes in their place; relative to the working directory or to the folder that WORDORDER_DATA
            names. A saved model does not read it.
        classifier_dropout: before the output layer; None = hidden_dropout_prob.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-classifier"

    architecture: Literal["bag-of-words", "convolution", "recurrent", "transformer"] = "transformer"
    num_hidden_layers: int = 1
    hidden_act: Literal["gelu", "relu", "silu", "swiglu"] = "relu"
    encoding: str = "complex-order"
    pooling: Literal["mean", "first", "last"] | None = None
    kernel_sizes: list[int] | None = None
    filters: int = 128
    recurrent_size: int | None = None
    bidirectional: bool = False
    recurrent_cell: Literal["lstm", "unitary"] = "lstm"
    variant: Literal["paper", "reference-code"] = "paper"
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    word_vectors: str | None = None
    classifier_dropout: float | int | None = None

    def faults(self) -> list[str]:
        """Those that all networks can have, and the dropout before the output layer."""
        return super().faults() + self.rate_faults("classifier_dropout")

    def head_faults(self) -> list[str]:
        """Heads matter to the Transformer alone."""
        return super().head_faults() if self.architecture == "transformer" else []

    def _encoding_faults(self) -> list[str]:
        """Build the network without memory for its weights: it knows best what its sizes and its encoding may be."""
        import torch

        from wordorder.models.classifier.network import build_text_network

        try:
            with torch.device("meta"):
                build_text_network(self)
        except BadInput as error:
            return list(error.faults)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # sizes whose product no index reaches
            return [f"architecture {self.architecture!r}, encoding {self.encoding!r}: {one_line(error)}"]
        return []
