"""Build the networks in plain torch that a configuration describes."""

from typing import Any

from torch import nn

from wordorder.encodings import Use
from wordorder.memory import Memory
from wordorder.models.config.configuration import MEMORIES, WordOrderConfig, WordOrderDecoderConfig
from wordorder.networks import AdaptiveEmbedding, AdaptiveSoftmax, Decoder, Encoder
from wordorder.networks.complex_valued import ComplexDecoder, ComplexEncoder


def build_encoder(config: WordOrderConfig) -> Encoder:
    """Build the encoder that a configuration describes, with real or complex layers."""
    kind = ComplexEncoder if config.complex_valued else Encoder
    return kind(config.vocab_size, layers=config.num_hidden_layers, **_sizes_and_style(config, "encoder"))


def build_decoder(config: WordOrderConfig, *, layers: int, **parts: Any) -> Decoder:
    """Build the decoder that a configuration describes, with real or complex layers and these parts of `Decoder`."""
    kind = ComplexDecoder if config.complex_valued else Decoder
    return kind(config.vocab_size, layers=layers, **_sizes_and_style(config, "decoder"), **parts)


def input_parts(config: WordOrderDecoderConfig) -> dict[str, Any]:
    """Return the arguments of a language model's decoder for its token embeddings and its final norm."""
    parts: dict[str, Any] = {"embedding_scale": config.embedding_scale, "final_norm": config.final_norm}
    if config.adaptive_cutoffs is not None:
        parts["embedding"] = AdaptiveEmbedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id, **_clusters(config)
        )
    return parts


def build_head(config: WordOrderDecoderConfig) -> nn.Linear | AdaptiveSoftmax:
    """Build the output layer of a language model."""
    if config.adaptive_cutoffs is None:
        return nn.Linear(config.hidden_size, config.vocab_size, bias=config.head_bias)
    return AdaptiveSoftmax(config.hidden_size, config.vocab_size, bias=config.head_bias, **_clusters(config))


def _clusters(config: WordOrderDecoderConfig) -> dict[str, Any]:
    return {"cutoffs": config.adaptive_cutoffs, "divisor": config.adaptive_divisor, "width": config.adaptive_width}


def memory_of(config: WordOrderConfig) -> Memory | None:
    """Return the memory that a configuration describes; None = none."""
    if config.memory == "none":
        return None
    assert config.memory_length is not None
    return MEMORIES[config.memory](config.memory_length, **(config.memory_options or {}))


def _sizes_and_style(config: WordOrderConfig, use: Use) -> dict[str, Any]:
    return {
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "key_value_heads": config.num_key_value_heads,
        "feedforward": config.intermediate_size,
        "max_positions": config.max_position_embeddings,
        "encoding": config.encoding,
        "encoding_options": config.options_for(use),
        "norm": config.norm,
        "norm_placement": config.norm_placement,
        "norm_eps": config.layer_norm_eps,
        "embedding_norm": config.embedding_norm,
        "activation": config.hidden_act,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
        "padding_idx": config.pad_token_id,
        "memory": memory_of(config),
        **(config.complex_options or {}),
    }
