"""The Hugging Face configuration of the decoder."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict

from wordorder.encodings import CATALOG, ReplacesEmbedding, Use
from wordorder.models.config.configuration import WordOrderConfig
from wordorder.networks.adaptive import AdaptiveClusters


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
        adaptive_cutoffs: the first id of each cluster of rarer tokens, for vocabularies sorted by falling frequency:
            embeddings become an `AdaptiveEmbedding`, the output layer an `AdaptiveSoftmax`; None = no clusters.
        adaptive_divisor: how much narrower a cluster's vectors are than those of the one before.
        adaptive_width: channels of the first cluster's vectors; None = hidden_size.
        adaptive_tied_projections: the output layer shares the embeddings' projections too: all of them, none, or those
            of the clusters that are true.

    Raises:
        BadInput: one line per fault.
    """

    model_type = "wordorder-decoder"
    uses: ClassVar[tuple[Use, ...]] = ("decoder",)
    can_remember: ClassVar[bool] = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "memory"]

    label_smoothing: float | int = 0.0
    embedding_scale: float | int | None = None
    final_norm: bool | None = None
    output_dropout: float | int = 0.0
    head_bias: bool = False
    adaptive_cutoffs: list[int] | None = None
    adaptive_divisor: int = 1
    adaptive_width: int | None = None
    adaptive_tied_projections: bool | list[bool] = False

    def faults(self) -> list[str]:
        """Return the faults of all networks and of input and output, one line each."""
        found = super().faults() + self.rate_faults("label_smoothing", "output_dropout")
        if self.embedding_scale is not None and self.embedding_scale <= 0:
            found.append(f"embedding_scale must be positive, got {self.embedding_scale}")
        return found + self._adaptive_faults()

    def _adaptive_faults(self) -> list[str]:
        if self.adaptive_cutoffs is None:
            beside = {"adaptive_divisor": 1, "adaptive_width": None, "adaptive_tied_projections": False}
            return [
                f"{name} says how clusters are made; set adaptive_cutoffs, or leave it out"
                for name, unused in beside.items()
                if getattr(self, name) != unused
            ]
        try:
            clusters = AdaptiveClusters(
                vocabulary=self.vocab_size,
                channels=self.hidden_size,
                cutoffs=tuple(self.adaptive_cutoffs),
                divisor=self.adaptive_divisor,
                width=self.adaptive_width,
            )
        except ValueError as error:
            return [f"adaptive_cutoffs={self.adaptive_cutoffs}: {error}"]
        found: list[str] = []
        tied = self.adaptive_tied_projections
        if isinstance(tied, list) and len(tied) != clusters.count:
            found.append(
                f"adaptive_tied_projections must be one choice for each of {clusters.count} clusters, got {tied}"
            )
        if tied is True or (isinstance(tied, list) and any(tied)):
            if not clusters.projected:
                found.append(
                    "adaptive_tied_projections: nothing is projected where all clusters have hidden_size channels"
                )
            if not self.tie_word_embeddings:
                found.append("adaptive_tied_projections needs tie_word_embeddings = true")
        if self.label_smoothing > 0:
            found.append("label_smoothing needs every token's probability, which adaptive_cutoffs do without; use one")
        replaces = [name for name in self.known_names() if issubclass(CATALOG[name], ReplacesEmbedding)]
        if replaces:
            found.append(f"adaptive_cutoffs: encoding {replaces[0]!r} has embeddings of its own; use one of them")
        return found
