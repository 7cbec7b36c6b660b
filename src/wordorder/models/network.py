"""From a configuration to the networks in plain torch."""

from typing import Any

from wordorder.models.configuration import WordOrderConfig
from wordorder.networks import Decoder, Encoder
from wordorder.networks.complex_valued import ComplexDecoder, ComplexEncoder


def build_encoder(config: WordOrderConfig) -> Encoder:
    """The encoder that a configuration describes, with real or complex layers."""
    kind = ComplexEncoder if config.complex_valued else Encoder
    return kind(config.vocab_size, layers=config.num_hidden_layers, **_sizes_and_style(config))


def build_decoder(config: WordOrderConfig, *, layers: int, cross_attention: bool = False) -> Decoder:
    """The decoder that a configuration describes, with real or complex layers.

    Args:
        config: sizes, block style and encoding.
        layers: number of layers.
        cross_attention: let every layer also attend to the states of an encoder.
    """
    kind = ComplexDecoder if config.complex_valued else Decoder
    return kind(config.vocab_size, layers=layers, cross_attention=cross_attention, **_sizes_and_style(config))


def _sizes_and_style(config: WordOrderConfig) -> dict[str, Any]:
    return {
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "key_value_heads": config.num_key_value_heads,
        "feedforward": config.intermediate_size,
        "max_positions": config.max_position_embeddings,
        "encoding": config.encoding,
        "encoding_options": config.encoding_options,
        "norm": config.norm,
        "norm_placement": config.norm_placement,
        "norm_eps": config.layer_norm_eps,
        "embedding_norm": config.embedding_norm,
        "activation": config.hidden_act,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
        "padding_idx": config.pad_token_id,
        **(config.complex_options or {}),
    }
