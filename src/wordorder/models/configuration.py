"""The Hugging Face configurations of encoder, decoder and both together, with transformers' names of fields."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_type_hints

import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from wordorder.encodings import CATALOG, Composition, Use, canonical_name, names_of, options_of, split_options
from wordorder.errors import BadInput
from wordorder.files import one_line
from wordorder.hints import fits, option_faults
from wordorder.memory import MEMORIES, Memory
from wordorder.models.faults import (
    head_faults,
    missing_classes,
    not_tied,
    range_faults,
    stranger_faults,
    unknown_fields,
    unknown_memory,
    warn_of_changes,
)
from wordorder.networks.complex_valued import COMPLEX_OPTIONS, ComplexOptions
from wordorder.networks.options import BLOCKS, TransformerOptions
from wordorder.own_classes import REGISTRIES, own_classes
from wordorder.registry import without_label

FOLLOWING_SIZES = {"intermediate_size": ("hidden_size", 4), "num_key_value_heads": ("num_attention_heads", 1)}
"""Sizes that follow another one where nothing is said: its name, and the factor."""

PARTS_OF_BLOCK = {"norm": "norm", "hidden_act": "activation", "qk_norm": "qk_norm", "use_bias": "use_bias"}
"""Fields that follow the block where nothing is said, and their names in `BLOCKS`."""


@strict
class WordOrderConfig(PreTrainedConfig):
    """The base of the configurations of all networks: sizes, block style, encoding, special tokens.

    Field names are the ecosystem's. A network's configuration adds its own fields.

    Args:
        vocab_size: number of token ids.
        hidden_size: model channels; a multiple of num_attention_heads.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads (grouped queries); None = num_attention_heads.
        intermediate_size: inner channels of the feed-forward networks; None = 4 * hidden_size.
        max_position_embeddings: longest text in tokens; a limit for encodings with a learned table only.
        hidden_act: "gelu" (exact), "relu", "silu" or "swiglu".
        hidden_dropout_prob: on embeddings and each sublayer's output.
        attention_probs_dropout_prob: on attention weights.
        layer_norm_eps: added to the variance in every norm.
        initializer_range: standard deviation of initial weights.
        tie_word_embeddings: the output layer shares the token embeddings.
        pad_token_id: its embedding starts at 0; None where the tokeniser has no padding.
        bos_token_id: kept for the tokeniser's sake, as are eos, sep and mask ids.
        cls_token_id: that of [CLS] where texts begin with it, None where they do not. TUPE in an encoder then unties
            [CLS] (``cls="position-0"``) unless encoding_options say otherwise.
        encoding: a name of the catalogue in any letter case, several joined by "+", or a pattern over the layers: such
            names separated by "," ("rope,rope,rope,none", or "rope*3,none"; with windows "rope@512*5,none"; with labels
            "rope:near,rope:far"), repeated over the layers of each half of the network.
        encoding_options: options of the encoding; nested by name for several.
        block: "classic" or "modern"; see `wordorder.TransformerOptions`. Four fields go before it, None = as it has it:
            norm ("layer", "rms"), hidden_act, qk_norm (of each head: "rms", "layer", "none") and use_bias.
        norm_placement: "pre" or "post".
        embedding_norm: normalise the embeddings; None = with post-norm only.
        complex_valued: complex layers after complex embeddings, of hidden_size complex channels; the encoding must then
            hold "complex-order" or "complex-vanilla", which otherwise become real vectors at once (their ``as_real``).
        complex_options: of complex layers: shared_weights, scores, bias, shared_norms, nonlinearity, read_out; see
            `wordorder.ComplexEncoder`.
        memory: of earlier segments of a text: "none", or a name of `wordorder.memory.MEMORIES`, such as
            "segment-recurrence" (Transformer-XL) or "look-ahead" (LaMemo); for encoders and decoders.
        memory_length: most tokens that memory holds; None = half of max_position_embeddings.
        segment_length: tokens of a segment where a text is cut for the network (data, generation, evaluation); a
            network by itself reads what it is given as one segment. None = half of max_position_embeddings.
        memory_options: of the memory, such as same_length of `wordorder.SegmentRecurrence`.
        wordorder_version: version that wrote the configuration.

    Raises:
        BadInput: one line per fault.
    """

    uses: ClassVar[tuple[Use, ...]] = ("encoder",)
    """The uses of the encoding in the network, each of which it may refuse."""
    can_remember: ClassVar[bool] = False
    """True if the network can have a memory."""
    reads_documents: ClassVar[bool] = False
    """True if its heads, with a memory, read texts of any length in segments of segment_length."""

    vocab_size: int = 32768
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    intermediate_size: int | None = None
    max_position_embeddings: int = 512
    hidden_act: Literal["gelu", "relu", "silu", "swiglu"] | None = None
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    layer_norm_eps: float | int = 1e-5
    initializer_range: float | int = 0.02
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None
    encoding: str = "tupe-r"
    encoding_options: dict[str, Any] | None = None
    block: Literal["classic", "modern"] = "classic"
    norm: Literal["layer", "rms"] | None = None
    qk_norm: Literal["none", "layer", "rms"] | None = None
    use_bias: bool | None = None
    norm_placement: Literal["pre", "post"] = "pre"
    embedding_norm: bool | None = None
    complex_valued: bool = False
    complex_options: dict[str, Any] | None = None
    memory: str = "none"
    memory_length: int | None = None
    segment_length: int | None = None
    memory_options: dict[str, Any] | None = None
    wordorder_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check what is given, then let transformers set the rest."""
        # a saved model's entries on classes outside of the package; set again from what is registered here
        trained_with: dict[str, dict[str, dict[str, str]]] = {key: kwargs.pop(key, None) or {} for key in REGISTRIES}
        for key, classes in trained_with.items():
            if not fits(dict[str, Any], classes) or not all(fits(dict[str, str], s) for s in classes.values()):
                raise BadInput(f"{key} must be a table of tables, got {str(classes)[:80]!r}")
        if missing := missing_classes(trained_with):
            raise BadInput(missing)
        for field, name in PARTS_OF_BLOCK.items():
            if getattr(self, field) is None:  # another name of a block is refused for its type
                setattr(self, field, BLOCKS.get(self.block, BLOCKS["classic"])[name])
        if isinstance(self.encoding, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.encoding = canonical_name(self.encoding)
        fields = {f.name for f in dataclasses.fields(self)}
        faults = unknown_fields(kwargs, fields, from_file=self.transformers_version is not None)
        if self.memory != "none":
            half = max(self.max_position_embeddings // 2, 1)
            self.memory_length = half if self.memory_length is None else self.memory_length
            self.segment_length = half if self.segment_length is None else self.segment_length
        faults += self.faults() + stranger_faults(kwargs, self.id2label)
        if faults:
            raise BadInput(faults)
        # transformers' tools read both (PEFT's prefix tuning the heads of a cache)
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        self.intermediate_size = self.intermediate_size or 4 * self.hidden_size
        registered = own_classes(self.known_names(), (self.memory,))
        for key, classes in registered.items():
            setattr(self, key, classes)
        warn_of_changes(trained_with, registered)
        if self.wordorder_version is None:
            from wordorder import __version__

            self.wordorder_version = __version__
        super().__post_init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]

    def __setattr__(self, key: str, value: Any) -> None:
        """Set a field, and with it the sizes that follow it."""
        for name, (followed, factor) in FOLLOWING_SIZES.items():
            if key == followed and vars(self).get(name, 0) == factor * vars(self).get(key, -1):
                super().__setattr__(name, factor * value)  # pyright: ignore[reportUnknownMemberType]
        super().__setattr__(key, value)  # pyright: ignore[reportUnknownMemberType]

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a configuration from the fields of a file and those that a call changes, checked together.

        transformers would set the changed ones afterwards, unchecked. What belongs to a memory goes with it.
        """
        own = {f.name for f in dataclasses.fields(cls)} - {f.name for f in dataclasses.fields(PreTrainedConfig)}
        changed = {name: kwargs.pop(name) for name in own & kwargs.keys()}
        fields = {**config_dict, **changed}
        for name, (followed, factor) in FOLLOWING_SIZES.items():
            follows = fields.get(name) == factor * config_dict.get(followed, 0)
            if follows and followed in changed and name not in changed:
                fields[name] = None  # it goes on following
        if fields.get("block", "classic") != config_dict.get("block", "classic"):
            fields |= {name: None for name in PARTS_OF_BLOCK if name not in changed}
        if fields.get("memory") != config_dict.get("memory"):
            lengths = ("memory_length", "segment_length", "document_pooling") if fields["memory"] == "none" else ()
            fields |= {
                name: None for name in ("memory_options", *lengths) if name in config_dict and name not in changed
            }
        return super().from_dict(fields, **kwargs)  # pyright: ignore[reportUnknownMemberType]

    def faults(self) -> list[str]:
        """Return everything that is wrong with the sizes and the encoding, one line each."""
        lines = range_faults(vars(self)) + self.head_faults() + self._memory_faults()
        if not lines:
            return self._encoding_faults()
        try:
            split_options(self.encoding, self.encoding_options)
        except BadInput as error:
            lines += error.faults
        return lines

    def head_faults(self) -> list[str]:
        """Return what is wrong with the numbers of heads, one line each."""
        return head_faults(vars(self))

    def _memory_faults(self) -> list[str]:
        if self.memory == "none":
            beside = ("memory_length", "segment_length", "memory_options", "document_pooling")
            values = {name: value for name in beside if (value := getattr(self, name, None)) is not None}
            return [f"{n} is for a memory; set memory, or leave it out; got {v!r}" for n, v in values.items()]
        if not self.can_remember:
            return [f"memory={self.memory!r}: {self.model_type} has no memory; encoders and decoders can have one"]
        if self.memory not in MEMORIES:
            return [unknown_memory(self.memory)]
        kind, options = MEMORIES[self.memory], self.memory_options or {}
        annotations = get_type_hints(kind.__init__)
        hints = {name: annotations.get(name, Any) for name in inspect.signature(kind).parameters if name != "length"}
        lines = option_faults("memory_options", self.memory, options, hints)
        if lines:
            return lines
        assert self.memory_length is not None
        assert self.segment_length is not None
        try:
            kind(max(self.memory_length, 1), **options)
        except ValueError as error:
            lines.append(f"memory_options: {error}")
        if options.get("same_length") is True and "decoder" not in self.uses:
            lines.append("memory_options.same_length is for decoders; leave it out")
        together, limit = self.memory_length + self.segment_length, self.max_position_embeddings
        bounded = [name for name in self.known_names() if CATALOG[name].bounded]
        if bounded and together > limit:
            lines.append(
                f"memory_length + segment_length = {together} is longer than the position table of encoding"
                f" {'+'.join(bounded)!r}: max_position_embeddings={limit}; raise it, or shorten one of them"
            )
        return lines

    def _encoding_faults(self) -> list[str]:
        """Return what the encoding and complex layers refuse when they are built without memory for their weights."""
        options, lines = self.complex_options or {}, list[str]()
        if self.complex_valued:
            hints = get_type_hints(ComplexOptions)
            known = {name: hints[name] for name in COMPLEX_OPTIONS}
            lines += option_faults("complex_options", "a complex network", options, known)
            if options.get("read_out") == "none":
                lines.append("complex_options.read_out must not be 'none': heads read real numbers")
        elif options:
            lines.append("complex_options are for complex layers; set complex_valued = true")
        if lines:
            return lines
        try:
            for use in self.uses:
                self._try_encoding(use)
        except BadInput as error:
            return list(error.faults)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # sizes whose product no index reaches
            return [f"encoding {self.encoding!r}: {one_line(error)}"]
        return []

    def tying_faults(self) -> list[str]:
        """Return in one line why an output layer cannot share the table of token embeddings; heads without one may.

        For a configuration without other faults.
        """
        replacement = self._try_encoding(self.uses[0]).replacement if self.tie_word_embeddings else None
        if replacement is None:
            return []
        output, table = (self.vocab_size, self.hidden_size), tuple(replacement.weight.shape)
        return [] if output == table else [not_tied(output, table, self.encoding)]

    def known_names(self) -> tuple[str, ...]:
        """Return the catalogue names in ``encoding``, each once; none if it is faulty, which `faults` says."""
        try:
            return tuple(dict.fromkeys(map(without_label, names_of(self.encoding))))
        except BadInput:
            return ()

    def options_for(self, use: Use) -> dict[str, dict[str, Any]]:
        """Return the options of each part of the encoding, in an encoder or in a decoder; see `complete_options`."""
        has_cls, with_memory = self.cls_token_id is not None, self.memory != "none"
        return complete_options(self.encoding, self.encoding_options, has_cls=has_cls, use=use, with_memory=with_memory)

    def network_options(self, use: Use) -> TransformerOptions:
        """Return sizes and style of the encoder or of the decoder, as networks in plain torch take them."""
        kind: Any = ComplexOptions if self.complex_valued else TransformerOptions
        layers_of_decoder: int | None = getattr(self, "decoder_layers", None) if use == "decoder" else None
        return kind(
            width=self.hidden_size,
            layers=layers_of_decoder or self.num_hidden_layers,
            heads=self.num_attention_heads,
            key_value_heads=self.num_key_value_heads,
            feedforward=self.intermediate_size,
            max_positions=self.max_position_embeddings,
            block=self.block,
            qk_norm=self.qk_norm,
            use_bias=self.use_bias,
            encoding=self.encoding,
            encoding_options=self.options_for(use),
            norm=self.norm,
            norm_placement=self.norm_placement,
            norm_eps=self.layer_norm_eps,
            embedding_norm=self.embedding_norm,
            activation=self.hidden_act,
            dropout=self.hidden_dropout_prob,
            attention_dropout=self.attention_probs_dropout_prob,
            padding_idx=self.pad_token_id,
            memory=self.memory_kept(),
            **(self.complex_options or {}),
        )

    def memory_kept(self) -> Memory | None:
        """Return the memory of the network; None = none."""
        if self.memory == "none":
            return None
        assert self.memory_length is not None
        return MEMORIES[self.memory](self.memory_length, **(self.memory_options or {}))

    def _try_encoding(self, use: Use) -> Composition:
        with torch.device("meta"):
            return self.network_options(use).composition(self.vocab_size, use)


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
    """

    model_type = "wordorder-encoder"
    can_remember: ClassVar[bool] = True
    reads_documents: ClassVar[bool] = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache", "memory", "memory_loss"]

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


@strict
class WordOrderDecoderConfig(WordOrderConfig):
    """Configuration of a causal Transformer with any encoding of the catalogue: a language model.

    The other fields are those of `WordOrderConfig`.

    Args:
        label_smoothing: share of each label that is spread evenly over all tokens while training; 0 = none. The loss
            of a model in evaluation mode is never smoothed, so that perplexities can be compared.
        embedding_scale: embeddings are multiplied by it (the output layer's, where tied, are not); None = 1.
            Transformer-XL and LaMemo: the square root of hidden_size.
        final_norm: normalise the last layer's output; None = with pre-norm only.
        output_dropout: on the last hidden states, before the output layer.
        head_bias: the output layer has a bias for each token.
    """

    model_type = "wordorder-decoder"
    uses: ClassVar[tuple[Use, ...]] = ("decoder",)
    can_remember: ClassVar[bool] = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache", "memory", "memory_loss"]

    label_smoothing: float | int = 0.0
    embedding_scale: float | int | None = None
    final_norm: bool | None = None
    output_dropout: float | int = 0.0
    head_bias: bool = False

    def network_options(self, use: Use) -> TransformerOptions:
        options = super().network_options(use)
        return dataclasses.replace(options, embedding_scale=self.embedding_scale, final_norm=self.final_norm)


@strict
class WordOrderSeq2SeqConfig(WordOrderConfig):
    """Configuration of an encoder and a decoder with any encoding of the catalogue: a translator.

    Sizes, style and encoding are those of both halves, ``num_hidden_layers`` those of the encoder. The other fields
    are those of `WordOrderConfig`. Source and target have one vocabulary.

    Args:
        decoder_layers: layers of the decoder; None = num_hidden_layers.
        share_embeddings: source and target read the same token embeddings. With ``tie_word_embeddings`` all three
            tables are one; without sharing, the output layer is tied to the target's.
        decoder_start_token_id: the token that every target begins with; None = bos_token_id, or else
            cls_token_id, or else pad_token_id.
        label_smoothing: as in `WordOrderDecoderConfig`.
    """

    model_type = "wordorder-seq2seq"
    uses: ClassVar[tuple[Use, ...]] = ("encoder", "decoder")
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "cache"]

    is_encoder_decoder: bool = True
    decoder_layers: int | None = None
    share_embeddings: bool = True
    decoder_start_token_id: int | None = None
    label_smoothing: float | int = 0.0

    def __post_init__(self, **kwargs: Any) -> None:
        """Set the fields that follow from others, then check as all configurations do."""
        # transformers reads these two off the configuration, so None would not do
        if self.decoder_layers is None:
            self.decoder_layers = self.num_hidden_layers
        if self.decoder_start_token_id is None:
            candidates = self.bos_token_id, self.cls_token_id, self.pad_token_id
            self.decoder_start_token_id = next((token for token in candidates if token is not None), None)
        super().__post_init__(**kwargs)


def complete_options(
    encoding: str,
    options: Mapping[str, object] | None,
    *,
    has_cls: bool,
    use: Use = "encoder",
    with_memory: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the options of each part of an encoding that are not its defaults: flat ones, or ``{"name": {...}}``.

    ``cls`` becomes "position-0" in encoders whose texts begin with [CLS]; with a memory position 0 is its oldest slot.

    Raises:
        BadInput: an option is unknown, or has a value of another type.
    """
    untie = use == "encoder" and has_cls and not with_memory
    return {
        part: {**({"cls": "position-0"} if untie and "cls" in options_of(CATALOG[part]) else {}), **options_of_part}
        for part, options_of_part in split_options(encoding, options).items()
    }
