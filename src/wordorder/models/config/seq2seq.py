"""The Hugging Face configuration of encoder and decoder together."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from wordorder.encodings import Use
from wordorder.models.config.configuration import WordOrderConfig


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
        label_smoothing: share of each label that is spread evenly over all tokens while training; 0 = none. The loss
            of a model in evaluation mode is never smoothed, so that losses can be compared.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-seq2seq"
    uses: ClassVar[tuple[Use, ...]] = ("encoder", "decoder")
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

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

    def layers_of(self, use: Use) -> int:
        """Return the number of layers of the encoder or of the decoder."""
        own = self.decoder_layers if use == "decoder" else None
        return own if own is not None and own > 0 else self.num_hidden_layers

    def faults(self) -> list[str]:
        """Return the faults of all networks and of the fields here, one line each."""
        found = super().faults() + self.rate_faults("label_smoothing")
        if self.decoder_layers is not None and self.decoder_layers <= 0:
            found.append(f"decoder_layers must be positive, got {self.decoder_layers}")
        start = self.decoder_start_token_id
        if start is not None and not 0 <= start < self.vocab_size:
            found.append(f"decoder_start_token_id must lie in 0 .. {self.vocab_size - 1}, got {start}")
        return found
