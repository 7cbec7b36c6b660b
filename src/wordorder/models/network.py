"""Build the networks in plain torch that a configuration describes."""

from dataclasses import replace

from wordorder.models.config.configuration import WordOrderConfig, WordOrderDecoderConfig
from wordorder.networks import Decoder, Encoder
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
    if isinstance(config, WordOrderDecoderConfig):
        options = replace(options, embedding_scale=config.embedding_scale, final_norm=config.final_norm)
    if isinstance(options, ComplexOptions):
        return ComplexDecoder(config.vocab_size, options, cross_attention=cross_attention)
    return Decoder(config.vocab_size, options, cross_attention=cross_attention)
