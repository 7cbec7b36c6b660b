"""Build the networks in plain torch that a configuration describes."""

from dataclasses import replace
from typing import Any

from torch import nn

from wordorder.models.config.configuration import WordOrderConfig, WordOrderDecoderConfig
from wordorder.networks import AdaptiveEmbedding, AdaptiveSoftmax, Decoder, Encoder
from wordorder.networks.complex_valued import ComplexDecoder, ComplexEncoder, ComplexOptions


def build_encoder(config: WordOrderConfig) -> Encoder:
    """Build the encoder that a configuration describes, with real or complex layers."""
    options = replace(config.network_options("encoder"), **(config.complex_options or {}))
    if isinstance(options, ComplexOptions):
        return ComplexEncoder(config.vocab_size, options)
    return Encoder(config.vocab_size, options)


def build_decoder(config: WordOrderConfig, *, cross_attention: bool = False) -> Decoder:
    """Build the decoder that a configuration describes, with real or complex layers."""
    options = replace(config.network_options("decoder"), **(config.complex_options or {}))
    parts: dict[str, Any] = {"cross_attention": cross_attention}
    if isinstance(config, WordOrderDecoderConfig):
        options = replace(options, embedding_scale=config.embedding_scale, final_norm=config.final_norm)
        if config.adaptive_cutoffs is not None:
            parts["embedding"] = AdaptiveEmbedding(
                config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id, **_clusters(config)
            )
    if isinstance(options, ComplexOptions):
        return ComplexDecoder(config.vocab_size, options, **parts)
    return Decoder(config.vocab_size, options, **parts)


def build_head(config: WordOrderDecoderConfig) -> nn.Linear | AdaptiveSoftmax:
    """Build the output layer of a language model."""
    if config.adaptive_cutoffs is None:
        return nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
    return AdaptiveSoftmax(config.hidden_size, config.vocab_size, bias=config.head_bias, **_clusters(config))


def _clusters(config: WordOrderDecoderConfig) -> dict[str, Any]:
    return {"cutoffs": config.adaptive_cutoffs, "divisor": config.adaptive_divisor, "width": config.adaptive_width}
