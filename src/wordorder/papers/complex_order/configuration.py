"""The Hugging Face configuration of the text classifiers, and the text network that it describes."""

from collections.abc import Callable
from typing import Any, Literal, get_type_hints

import torch
from huggingface_hub.dataclasses import strict

from wordorder.errors import BadInput
from wordorder.hints import option_faults
from wordorder.limits import one_line
from wordorder.models.config.configuration import WordOrderConfig
from wordorder.models.network import build_encoder
from wordorder.networks.complex_valued import COMPLEX_OPTIONS, ComplexEncoder, ComplexKeywords
from wordorder.papers.complex_order.complex_networks import (
    ComplexBagOfWords,
    ComplexTextConvolution,
    ComplexTextEmbedding,
    ComplexTextRecurrent,
)
from wordorder.papers.complex_order.convolution import TextConvolution
from wordorder.papers.complex_order.network import (
    BagOfWords,
    TextBody,
    TextEmbedding,
    TextNetwork,
    TextTransformer,
)
from wordorder.papers.complex_order.recurrent import TextRecurrent
from wordorder.papers.complex_order.reference_code import (
    ReferenceTextNetwork,
    ReferenceTransformer,
    UnitaryTextRecurrent,
)
from wordorder.papers.complex_order.reference_waves import (
    ReferenceOrderEmbedding,
    ReferenceVanillaEmbedding,
    ReferenceWords,
)


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
        num_hidden_layers: of the recurrent network and of the Transformer; 1, as in the papers.
        encoding: a name of the catalogue, or several joined by "+". Those that act on queries, keys or scores need the
            Transformer; "complex-order", the default, goes with every architecture, real or complex.
        pooling: what of the Transformer's last layer stands for the text: "mean", "first" or "last" token; None =
            "mean".
        kernel_sizes: tokens that a filter of the convolution sees; None = [3, 4, 5].
        filters: of each size.
        recurrent_size: channels of the recurrent state; None = hidden_size.
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
    recurrent_cell: Literal["lstm", "unitary"] = "lstm"
    variant: Literal["paper", "reference-code"] = "paper"
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    word_vectors: str | None = None
    classifier_dropout: float | int | None = None

    def faults(self) -> list[str]:
        return super().faults() + self.rate_faults("classifier_dropout")

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
    if config.variant == "reference-code":
        return _reference(config)
    if config.architecture == "transformer":
        options = complex_options(config, ComplexEncoder)
        width = 2 * config.hidden_size if options.get("read_out") == "none" else config.hidden_size
        return TextTransformer(build_encoder(config), width, pooling=config.pooling or "mean")
    words = (ComplexTextEmbedding if config.complex_valued else TextEmbedding)(
        config.vocab_size,
        width=config.hidden_size,
        encoding=config.encoding,
        encoding_options=config.options_for("encoder"),
        max_positions=config.max_position_embeddings,
        dropout=config.hidden_dropout_prob,
        padding_idx=config.pad_token_id,
    )
    if config.pooling is not None:
        raise BadInput(f"pooling must be left out for architecture {config.architecture!r}, got {config.pooling!r}")
    if config.hidden_act != "relu":
        raise BadInput(f"hidden_act must be relu for architecture {config.architecture!r}, got {config.hidden_act!r}")
    return TextNetwork(words, BODIES[config.architecture](config))


def _bag(config: WordOrderClassifierConfig) -> TextBody:
    options = complex_options(config, ComplexBagOfWords)
    if not config.complex_valued:
        return BagOfWords(config.hidden_size)
    return ComplexBagOfWords(config.hidden_size, **options)


def _convolution(config: WordOrderClassifierConfig) -> TextBody:
    kind = ComplexTextConvolution if config.complex_valued else TextConvolution
    sizes = {} if config.kernel_sizes is None else {"kernel_sizes": config.kernel_sizes}
    options = complex_options(config, ComplexTextConvolution)
    return kind(config.hidden_size, filters=config.filters, **sizes, **options)


def _recurrent(config: WordOrderClassifierConfig) -> TextBody:
    hidden = config.hidden_size if config.recurrent_size is None else config.recurrent_size
    if hidden <= 0:
        raise BadInput(f"recurrent_size must be positive, got {hidden}")
    if config.recurrent_cell == "unitary":
        only = {"complex_valued": True, "num_hidden_layers": 1}
        faults = [
            f"recurrent_cell 'unitary' needs {name} = {value}, got {getattr(config, name)}"
            for name, value in only.items()
            if getattr(config, name) != value
        ]
        if faults:
            raise BadInput(faults)
        return UnitaryTextRecurrent(config.hidden_size, hidden=hidden, **complex_options(config, UnitaryTextRecurrent))
    kind = ComplexTextRecurrent if config.complex_valued else TextRecurrent
    return kind(
        config.hidden_size,
        hidden=hidden,
        layers=config.num_hidden_layers,
        dropout=config.hidden_dropout_prob,
        **complex_options(config, ComplexTextRecurrent),
    )


BODIES: dict[str, Callable[[WordOrderClassifierConfig], TextBody]] = {
    "bag-of-words": _bag,
    "convolution": _convolution,
    "recurrent": _recurrent,
}
"""The architectures without attention, by the names that configurations use."""


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
    if config.pooling is not None:
        raise BadInput(f"variant 'reference-code' has no pooling, it takes the last slot, got {config.pooling!r}")
    complex_options(config, ReferenceTextNetwork)
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


def complex_options(config: WordOrderClassifierConfig, network: Callable[..., object]) -> dict[str, Any]:
    """Return the options of the complex network that the configuration names; none for a real one."""
    if not config.complex_valued:
        if config.complex_options:
            raise BadInput("complex_options are for complex layers; set complex_valued = true")
        return {}
    hints = get_type_hints(ComplexKeywords if network is ComplexEncoder else network.__init__)
    known, given = {name: hints[name] for name in COMPLEX_OPTIONS if name in hints}, config.complex_options or {}
    faults = option_faults("complex_options", f"architecture {config.architecture!r}", given, known)
    if faults:
        raise BadInput(faults)
    return dict(given)
