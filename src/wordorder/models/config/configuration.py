"""The base of the Hugging Face configurations, with transformers' names of fields and errors for unknown ones."""

import dataclasses
import inspect
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import GenerationConfig, PreTrainedConfig

from wordorder.encodings import CATALOG, Composition, Use, build_encoding, names_of, registered_encodings, split_options
from wordorder.errors import BadInput
from wordorder.hints import option_faults
from wordorder.limits import one_line
from wordorder.memory import LookAheadMemory, Memory, SegmentRecurrence
from wordorder.models.config.encoding_defaults import complete_options
from wordorder.models.config.faults import (
    MOST_LETTERS,
    backend_faults,
    class_faults,
    complex_option_faults,
    for_a_memory,
    layer_faults,
    missing_encodings,
    not_tied,
    own_sources,
    size_faults,
    unknown_field,
    warn_of_changes,
)
from wordorder.networks.complex_valued.options import complex_encoding_options

# Keywords that transformers itself passes to a configuration beside its fields (its __post_init__ reads or sets these).
_FROM_TRANSFORMERS = {
    "torch_dtype", "num_labels", "output_attentions", "attn_implementation", "experts_implementation", "name_or_path",
    "_name_or_path", "_commit_hash", "model_type", "transformers_version", "tie_last_hidden_states", "per_layer_config",
}  # fmt: skip

MEMORIES: dict[str, type[Memory]] = {kind.name: kind for kind in (SegmentRecurrence, LookAheadMemory)}
"""The classes of ``memory``, by name."""


@strict
class WordOrderConfig(PreTrainedConfig):
    """The base of the configurations of all networks: sizes, block style, encoding, special tokens.

    Field names are the ecosystem's. Unknown fields and unknown options of the encoding raise, with the known ones;
    all faults are reported at once.

    A network's configuration adds its own fields, and says in ``uses`` where its encoding stands and in ``faults``
    what else may be wrong.

    Args:
        vocab_size: number of token ids.
        hidden_size: model channels; a multiple of num_attention_heads.
        num_hidden_layers: layers.
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
        encoding: a name of the catalogue, several joined by "+", or a pattern over the layers: such names separated by
            "," ("rope,rope,rope,none", or "rope*3,none"), repeated over the layers of each half of the network.
        encoding_options: options of the encoding; nested by name for several.
        norm: "layer" or "rms".
        norm_placement: "pre" or "post".
        embedding_norm: normalise the embeddings; None = with post-norm only.
        complex_valued: complex layers after complex embeddings, of hidden_size complex channels; the encoding must then
            hold "complex-order" or "complex-vanilla", which otherwise become real vectors at once (their ``as_real``).
        complex_options: of complex layers: shared_weights, scores, bias, shared_norms, nonlinearity, read_out; see
            `wordorder.ComplexEncoder`.
        memory: of earlier segments of a text: "none", "segment-recurrence" (Transformer-XL) or "look-ahead" (LaMemo);
            for encoders and decoders.
        memory_length: most tokens that memory holds; None = half of max_position_embeddings.
        segment_length: tokens of a segment where a text is cut for the network (data, generation, evaluation); a
            network by itself reads what it is given as one segment. None = half of max_position_embeddings.
        memory_options: of `wordorder.SegmentRecurrence` (same_length) or `wordorder.LookAheadMemory` (full, epsilon).
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
    hidden_act: Literal["gelu", "relu", "silu", "swiglu"] = "gelu"
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
    norm: Literal["layer", "rms"] = "layer"
    norm_placement: Literal["pre", "post"] = "pre"
    embedding_norm: bool | None = None
    complex_valued: bool = False
    complex_options: dict[str, Any] | None = None
    memory: Literal["none", "segment-recurrence", "look-ahead"] = "none"
    memory_length: int | None = None
    segment_length: int | None = None
    memory_options: dict[str, Any] | None = None
    wordorder_version: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check what is given, then let transformers set the rest."""
        # a saved model's entries on encodings outside the catalogue; set again from what is registered here
        trained_with, source_faults = own_sources(kwargs.pop("own_encodings", None))
        known = {f.name for f in dataclasses.fields(self)}
        allowed = set(_FROM_TRANSFORMERS)
        if self.transformers_version is not None:  # read from a file, which may hold what older versions wrote there
            allowed |= set(GenerationConfig._get_default_generation_params())  # pyright: ignore[reportPrivateUsage]
        faults = source_faults + [unknown_field(key, known) for key in kwargs if key not in allowed]
        if self.memory != "none":
            half = max(self.max_position_embeddings // 2, 1)
            self.memory_length = half if self.memory_length is None else self.memory_length
            self.segment_length = half if self.segment_length is None else self.segment_length
        faults += self.faults() + class_faults(kwargs.get("num_labels"), self.id2label) + backend_faults(kwargs)
        if faults:
            raise BadInput(missing_encodings(trained_with) or faults)
        own = {name: source.as_dict() for name, source in registered_encodings().items() if name in self.known_names()}
        if own:
            self.own_encodings = own
        warn_of_changes(trained_with, own)
        if self.wordorder_version is None:
            from wordorder import __version__

            self.wordorder_version = __version__
        super().__post_init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]

    def faults(self) -> list[str]:
        """Return everything that is wrong with the sizes and the encoding, one line each."""
        sizes = (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "intermediate_size", "max_position_embeddings", "memory_length", "segment_length",
        )  # fmt: skip
        found = size_faults({name: getattr(self, name) for name in sizes})
        found += layer_faults({name: getattr(self, name, None) for name in ("num_hidden_layers", "decoder_layers")})
        found += layer_faults({"num_attention_heads": self.num_attention_heads})
        found += self.rate_faults("hidden_dropout_prob", "attention_probs_dropout_prob")
        for name in ("layer_norm_eps", "initializer_range"):
            if not 0 < getattr(self, name) < float("inf"):
                found.append(f"{name} must be positive, got {getattr(self, name)}")
        if len(self.encoding) > MOST_LETTERS:
            return [*found, f"encoding has {len(self.encoding):,} letters, more than the {MOST_LETTERS:,} of any name"]
        found += self.head_faults() + self._memory_faults()
        return found + (self._encoding_faults() if not found else self._name_faults())

    def head_faults(self) -> list[str]:
        """Return what is wrong with the numbers of heads, one line each."""
        found: list[str] = []
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        divides = heads > 0 and self.hidden_size % heads == 0
        if not divides and heads > 0:
            found.append(f"hidden_size must be a multiple of num_attention_heads, got {self.hidden_size} and {heads}")
        if groups is not None and groups > 0 and heads % groups:
            found.append(f"num_key_value_heads must divide num_attention_heads={heads}, got {groups}")
        return found

    def _memory_faults(self) -> list[str]:
        """Return what is wrong with the memory, one line each."""
        if self.memory == "none":
            beside = ("memory_length", "segment_length", "memory_options")
            given = {name: value for name in beside if (value := getattr(self, name)) is not None}
            return [for_a_memory(name, value) for name, value in given.items()]
        if not self.can_remember:
            return [f"memory={self.memory!r}: {self.model_type} has no memory; encoders and decoders can have one"]
        known = inspect.signature(MEMORIES[self.memory]).parameters
        hints = {name: parameter.annotation for name, parameter in known.items() if name != "length"}
        found = option_faults("memory_options", self.memory, self.memory_options or {}, hints)
        return found or self._memory_value_faults()

    def _memory_value_faults(self) -> list[str]:
        assert self.memory_length is not None
        assert self.segment_length is not None
        found: list[str] = []
        try:
            MEMORIES[self.memory](max(self.memory_length, 1), **(self.memory_options or {}))
        except ValueError as error:
            found.append(f"memory_options: {error}")
        together, limit = self.memory_length + self.segment_length, self.max_position_embeddings
        bounded = [name for name in self.known_names() if CATALOG[name].bounded]
        if bounded and together > limit:
            found.append(
                f"memory_length + segment_length = {together} is longer than the position table of encoding"
                f" {'+'.join(bounded)!r}: max_position_embeddings={limit}; raise it, or shorten one of them"
            )
        return found

    def rate_faults(self, *names: str) -> list[str]:
        """Return a line for each named field, a probability, that lies outside [0, 1); None is no fault."""
        values = {name: getattr(self, name) for name in names}
        return [f"{n} must lie in [0, 1), got {v}" for n, v in values.items() if v is not None and not 0 <= v < 1]

    def _name_faults(self) -> list[str]:
        try:
            split_options(self.encoding, self.encoding_options)
        except BadInput as error:
            return list(error.faults)
        return []

    def _encoding_faults(self) -> list[str]:
        """Return what the encoding refuses when it is built without memory for its weights."""
        found = complex_option_faults(self.complex_valued, self.complex_options)
        for use in self.uses:
            try:
                self._try_encoding(use)
            except BadInput as error:
                return [*found, *error.faults]
            except (
                ValueError,
                TypeError,
                RuntimeError,
                OverflowError,
            ) as error:  # sizes whose product no index reaches
                return [*found, f"encoding {self.encoding!r}: {one_line(error)}"]
        return found

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
            return names_of(self.encoding)
        except BadInput:
            return ()

    def layers_of(self, use: Use) -> int:
        """Return the number of layers of the encoder or of the decoder."""
        del use
        return self.num_hidden_layers

    def options_for(self, use: Use) -> dict[str, dict[str, Any]]:
        """Return the options of each part of the encoding that are not its defaults, in an encoder or in a decoder.

        Those of ``encoding_options``; "position-0" for ``cls`` in encoders whose texts begin with [CLS]; and what
        options were by default in the version that wrote the configuration.

        Args:
            use: where the network uses the encoding.

        Raises:
            BadInput: ``encoding_options`` has faults.
        """
        has_cls = self.cls_token_id is not None
        return complete_options(
            self.encoding, self.encoding_options, version=self.wordorder_version, has_cls=has_cls,
            use=use, with_memory=self.memory,
        )  # fmt: skip

    def _try_encoding(self, use: Use) -> Composition:
        import torch

        options, channels = self.options_for(use), self.hidden_size
        if self.complex_valued:
            options, channels = complex_encoding_options(self.encoding, options), 2 * channels
        with torch.device("meta"):
            return build_encoding(
                self.encoding,
                width=channels,
                heads=self.num_attention_heads,
                layers=self.layers_of(use),
                max_positions=self.max_position_embeddings,
                use=use,
                options=options,
                vocabulary=self.vocab_size,
                padding_idx=self.pad_token_id,
                complex_valued=self.complex_valued,
                with_memory=self.memory,
            )
