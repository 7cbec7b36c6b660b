"""The encoder and the decoder over complex blocks: complex inside, real where heads read."""

from collections.abc import Mapping
from typing import Any

from wordorder.encodings import names_of, split_options
from wordorder.errors import BadInput
from wordorder.memory import Memory
from wordorder.networks.blocks import Activation, Norm, NormPlacement
from wordorder.networks.complex_valued.attention import Scores
from wordorder.networks.complex_valued.blocks import ComplexBlocks, Nonlinearity, ReadOut
from wordorder.networks.complex_valued.linear import ComplexBias
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder

COMPLEX_EMBEDDINGS = ("complex-order", "complex-vanilla")
"""Names of the catalogue that give complex vectors."""

COMPLEX_OPTIONS = ("shared_weights", "scores", "bias", "shared_norms", "nonlinearity", "read_out")
"""What `ComplexEncoder` and `ComplexDecoder` take beyond their real counterparts."""


def complex_encoding_options(encoding: str, options: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Options by part, with the complex embedding told to give both parts.

    Raises:
        BadInput: unknown name or option, or no complex embedding among the parts, or another ``as_real``.
    """
    names, by_part = names_of(encoding), split_options(encoding, options)
    complex_part = next((name for name in names if name in COMPLEX_EMBEDDINGS), None)
    if complex_part is None:
        raise BadInput(
            f"a complex network needs complex embeddings, got encoding {encoding!r}; add one of "
            f"{', '.join(COMPLEX_EMBEDDINGS)}, such as 'complex-order+{names[-1]}'"
        )
    given = by_part[complex_part].get("as_real", "pair")
    if given != "pair":
        raise BadInput(f"encoding_options: as_real={given!r} is for real networks; leave it out in a complex one")
    return {**by_part, complex_part: {**by_part[complex_part], "as_real": "pair"}}


class ComplexEncoder(Encoder):
    """A bidirectional Transformer of complex numbers: complex-order embeddings, complex layers, real hidden states.

    Wang et al. 2020, "Encoding word order in complex embeddings", https://arxiv.org/abs/1912.12333.

    >>> import torch, wordorder
    >>> encoder = wordorder.ComplexEncoder(1000, width=64, layers=2, heads=4, encoding="complex-order+t5")
    >>> encoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    To an encoding, a complex network of C channels is a real one of 2C: tables, biases and rotations are sized so, and
    all backends of attention apply. Of ``all_hidden`` only the last is real; the others are stacked, (B, T, 2C).

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, C; a multiple of heads.
        layers: number of layers; positive.
        heads: attention heads, H, of C / H complex channels.
        key_value_heads: fewer key and value heads than query heads (grouped queries); default: heads.
        feedforward: complex inner channels of the feed-forward networks; default: 4 * width.
        max_positions: longest text in tokens, for encodings with a table.
        encoding: "complex-order" or "complex-vanilla", alone or joined to others by "+"; in a pattern over the
            layers (see `build_encoding`), in every part.
        encoding_options: options of the encoding; see `build_encoding`.
        norm: "layer" (of each stream) or "rms" (of both, phases kept).
        norm_placement: "post" or "pre".
        norm_eps: added to the variance; 1e-5.
        embedding_norm: normalise the embeddings; default: with post-norm only.
        activation: "gelu" (exact), "relu", "silu" or "swiglu", on each stream.
        dropout: of complex numbers, on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        padding_idx: token id whose embedding is 0 and stays 0.
        memory: of earlier segments, `SegmentRecurrence` or `LookAheadMemory`.
        shared_weights: one real matrix for both streams instead of A + iB.
        scores: "real-part" or "modulus" of ``q k*``.
        bias: "complex", "shared" or "none".
        shared_norms: both streams have the same norm weights.
        nonlinearity: "split" or "modrelu".
        read_out: "linear", "modulus", "real-part", or "none" (hidden states stay stacked); see `ComplexBlocks`.

    Raises:
        BadInput: unknown encoding or option, or no complex embedding.
        ValueError: a size is out of range, or an unknown style.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        key_value_heads: int | None = None,
        feedforward: int | None = None,
        max_positions: int = 512,
        encoding: str = "complex-order",
        encoding_options: Mapping[str, Any] | None = None,
        norm: Norm = "layer",
        norm_placement: NormPlacement = "pre",
        norm_eps: float = 1e-5,
        embedding_norm: bool | None = None,
        activation: Activation = "gelu",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        padding_idx: int | None = None,
        memory: Memory | None = None,
        shared_weights: bool = False,
        scores: Scores = "real-part",
        bias: ComplexBias = "complex",
        shared_norms: bool = True,
        nonlinearity: Nonlinearity = "split",
        read_out: ReadOut = "linear",
    ) -> None:
        blocks = ComplexBlocks(
            width=width,
            heads=heads,
            key_value_heads=key_value_heads,
            feedforward=feedforward,
            norm=norm,
            norm_placement=norm_placement,
            norm_eps=norm_eps,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            shared_weights=shared_weights,
            scores=scores,
            bias=bias,
            shared_norms=shared_norms,
            nonlinearity=nonlinearity,
            to_real=read_out,
        )
        self.assemble(
            vocabulary,
            blocks,
            layers=layers,
            max_positions=max_positions,
            encoding=encoding,
            encoding_options=complex_encoding_options(encoding, encoding_options),
            embedding_norm=embedding_norm,
            padding_idx=padding_idx,
            memory=memory,
        )


class ComplexDecoder(Decoder):
    """A causal Transformer of complex numbers; arguments as in `ComplexEncoder`, all others as in `Decoder`.

    >>> import torch, wordorder
    >>> decoder = wordorder.ComplexDecoder(1000, width=64, layers=2, heads=4)
    >>> decoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    The source that cross-attention asks is stacked, (B, S, 2C): that of a `ComplexEncoder` with ``read_out="none"``.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 256,
        layers: int = 4,
        heads: int = 4,
        key_value_heads: int | None = None,
        feedforward: int | None = None,
        max_positions: int = 512,
        encoding: str = "complex-order",
        encoding_options: Mapping[str, Any] | None = None,
        cross_attention: bool = False,
        norm: Norm = "layer",
        norm_placement: NormPlacement = "pre",
        norm_eps: float = 1e-5,
        embedding_norm: bool | None = None,
        activation: Activation = "gelu",
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        padding_idx: int | None = None,
        memory: Memory | None = None,
        embedding_scale: float | None = None,
        final_norm: bool | None = None,
        shared_weights: bool = False,
        scores: Scores = "real-part",
        bias: ComplexBias = "complex",
        shared_norms: bool = True,
        nonlinearity: Nonlinearity = "split",
        read_out: ReadOut = "linear",
    ) -> None:
        blocks = ComplexBlocks(
            width=width,
            heads=heads,
            key_value_heads=key_value_heads,
            feedforward=feedforward,
            norm=norm,
            norm_placement=norm_placement,
            norm_eps=norm_eps,
            activation=activation,
            dropout=dropout,
            attention_dropout=attention_dropout,
            shared_weights=shared_weights,
            scores=scores,
            bias=bias,
            shared_norms=shared_norms,
            nonlinearity=nonlinearity,
            to_real=read_out,
        )
        self.assemble(
            vocabulary,
            blocks,
            cross_attention=cross_attention,
            layers=layers,
            max_positions=max_positions,
            encoding=encoding,
            encoding_options=complex_encoding_options(encoding, encoding_options),
            embedding_norm=embedding_norm,
            padding_idx=padding_idx,
            memory=memory,
            embedding_scale=embedding_scale,
            final_norm=final_norm,
        )
