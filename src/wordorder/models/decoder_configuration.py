"""The Hugging Face configuration of the decoder."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict

from wordorder.encodings import Use
from wordorder.models.configuration import WordOrderConfig


@strict
class WordOrderDecoderConfig(WordOrderConfig):
    """Configuration of a causal Transformer with any encoding of the catalogue: a language model.

    The other fields are those of `WordOrderConfig`.

    Args:
        label_smoothing: share of each label that is spread evenly over all tokens while training; 0 = none. The loss
            of a model in evaluation mode is never smoothed, so that perplexities can be compared.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-decoder"
    uses: ClassVar[tuple[Use, ...]] = ("decoder",)
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    label_smoothing: float | int = 0.0

    def faults(self) -> list[str]:
        """Those that all networks can have, and the smoothing of labels."""
        return super().faults() + self.rate_faults("label_smoothing")
