"""The Hugging Face configuration of the text classifiers, and the text network that it describes."""

from typing import Any, Literal, get_type_hints

import torch
from huggingface_hub.dataclasses import strict

from wordorder.errors import BadInput
from wordorder.files import one_line
from wordorder.hints import option_faults
from wordorder.models.configuration import WordOrderConfig
from wordorder.models.encoder import build_encoder
from wordorder.networks.complex_valued import COMPLEX_OPTIONS, ComplexKeywords
from wordorder.papers.complex_order.convolution import TextConvolution
from wordorder.papers.complex_order.network import BagOfWords, TextBody, TextEmbedding, TextNetwork, TextTransformer
from wordorder.papers.complex_order.published_code import (
    ReferenceOrderEmbedding,
    ReferenceTextNetwork,
    ReferenceTransformer,
    ReferenceVanillaEmbedding,
    ReferenceWords,
    UnitaryTextRecurrent,
)
from wordorder.papers.complex_order.recurrent import TextRecurrent


@strict
class WordOrderClassifierConfig(WordOrderConfig):
    """Configuration of a text classifier: bag of words, convolution, recurrent network or Transformer.

    The other fields are those of `WordOrderConfig`. Fields of one architecture are of no effect in the others, so that
    the arms of a comparison can share them.

    Args:
        architecture: "bag-of-words" (mean of the embeddings), "convolution" (filters over the text, largest response
            of each), "recurrent" (LSTM, last state) or "transformer" (encoder).
        hidden_size: channels of the embeddings, and of the Transformer.
        hidden_act: of the Transformer, "relu" (the paper's), "gelu", "silu" or "swiglu"; the others have relu alone.
        num_hidden_layers: of the Transformer; 1, as in the paper. The recurrent network has one.
        encoding: a name of the catalogue, or several joined by "+". Those that act on queries, keys or scores need the
            Transformer; "complex-order", the default, goes with every architecture, real or complex.
        filters: of the convolution, for each of its sizes of 3, 4 and 5 tokens.
        recurrent_size: channels of the recurrent state; None = hidden_size.
        recurrent_cell: "lstm", or "unitary" (the cell of the paper's code; complex networks only).
        complex_options: of the Transformer those of `ComplexEncoder`; of the convolution bias ("complex" or "shared")
            and read_out ("modulus" or "none"), see `TextConvolution`. The others have none.
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
    """

    model_type = "wordorder-classifier"

    architecture: Literal["bag-of-words", "convolution", "recurrent", "transformer"] = "transformer"
    num_hidden_layers: int = 1
    hidden_act: Literal["gelu", "relu", "silu", "swiglu"] | None = "relu"
    encoding: str = "complex-order"
    filters: int = 128
    recurrent_size: int | None = None
    recurrent_cell: Literal["lstm", "unitary"] = "lstm"
    variant: Literal["paper", "reference-code"] = "paper"
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    word_vectors: str | None = None
    classifier_dropout: float | int | None = None

    def head_faults(self) -> list[str]:
        """Return the faults of the numbers of heads, which matter to the Transformer only."""
        return super().head_faults() if self.architecture == "transformer" else []

    def _encoding_faults(self) -> list[str]:
        """Return what the network refuses when it is built without memory for its weights."""
        try:
            with torch.device("meta"):
                build_text_network(self)
        except BadInput as error:
            return list(error.faults)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # sizes whose product no index reaches
            return [f"architecture {self.architecture!r}, encoding {self.encoding!r}: {one_line(error)}"]
        return []


Network = TextNetwork | TextTransformer | ReferenceTextNetwork


def build_text_network(config: WordOrderClassifierConfig) -> Network:
    """Build the network that a configuration describes, with torch's initial weights."""
    options = complex_options(config)
    if config.variant == "reference-code":
        return _reference(config)
    if config.architecture == "transformer":
        width = 2 * config.hidden_size if options.get("read_out") == "none" else config.hidden_size
        return TextTransformer(build_encoder(config), width)
    words = TextEmbedding(
        config.vocab_size,
        width=config.hidden_size,
        complex_valued=config.complex_valued,
        encoding=config.encoding,
        encoding_options=config.options_for("encoder"),
        max_positions=config.max_position_embeddings,
        dropout=config.hidden_dropout_prob,
        padding_idx=config.pad_token_id,
    )
    if config.hidden_act != "relu":
        raise BadInput(f"hidden_act must be relu for architecture {config.architecture!r}, got {config.hidden_act!r}")
    if config.architecture == "recurrent" and config.num_hidden_layers != 1:
        raise BadInput(f"num_hidden_layers must be 1 for architecture 'recurrent', got {config.num_hidden_layers}")
    return TextNetwork(words, _body(config, options))


def _body(config: WordOrderClassifierConfig, options: dict[str, Any]) -> TextBody:
    width, complex_valued = config.hidden_size, config.complex_valued
    if config.architecture == "bag-of-words":
        return BagOfWords(width, complex_valued=complex_valued)
    if config.architecture == "convolution":
        return TextConvolution(width, filters=config.filters, complex_valued=complex_valued, **options)
    hidden = width if config.recurrent_size is None else config.recurrent_size
    if config.recurrent_cell == "lstm":
        return TextRecurrent(width, hidden=hidden, complex_valued=complex_valued)
    if not complex_valued:
        raise BadInput("recurrent_cell 'unitary' needs complex_valued = true")
    return UnitaryTextRecurrent(width, hidden=hidden)


WAVES = {"complex-order": ReferenceOrderEmbedding, "complex-vanilla": ReferenceVanillaEmbedding}
"""The embeddings of the published code, by the names that configurations use."""


def _reference(config: WordOrderClassifierConfig) -> ReferenceTextNetwork:
    """Build the published code's classifier; its recipe has hidden_size 256, 8 heads and intermediate_size 512."""
    if config.architecture != "transformer" or not config.complex_valued:
        raise BadInput(
            "variant 'reference-code' is that of the published complex Transformer classifier: set "
            f"architecture = 'transformer' and complex_valued = true, got {config.architecture!r} and "
            f"{str(config.complex_valued).lower()}"
        )
    if config.encoding not in WAVES or config.encoding_options:
        raise BadInput(
            f"variant 'reference-code' takes encoding {' or '.join(map(repr, WAVES))} as it is, got "
            f"{config.encoding!r} with encoding_options {config.encoding_options or {}}"
        )
    waves = WAVES[config.encoding](config.vocab_size, config.hidden_size)
    words = ReferenceWords(waves, dropout=config.hidden_dropout_prob)
    body = ReferenceTransformer(
        config.hidden_size,
        heads=config.num_attention_heads,
        feedforward=config.intermediate_size or 4 * config.hidden_size,
        dropout=config.hidden_dropout_prob,
    )
    return ReferenceTextNetwork(
        words, body, length=config.max_position_embeddings, padding_idx=config.pad_token_id or 0
    )


def complex_options(config: WordOrderClassifierConfig) -> dict[str, Any]:
    """Return the options of complex layers that the configuration names; none for real ones."""
    options, hints = config.complex_options or {}, dict[str, Any]()
    if options and not config.complex_valued:
        raise BadInput("complex_options are for complex layers; set complex_valued = true")
    if config.architecture == "convolution":
        hints = get_type_hints(TextConvolution.__init__)
    elif config.architecture == "transformer" and config.variant == "paper":
        hints = get_type_hints(ComplexKeywords)
    known = {name: hints[name] for name in COMPLEX_OPTIONS if name in hints}
    faults = option_faults("complex_options", f"architecture {config.architecture!r}", options, known)
    if faults:
        raise BadInput(faults)
    return dict(options)
