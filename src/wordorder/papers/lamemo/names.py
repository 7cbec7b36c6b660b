"""Names of the parameters of Transformer-XL's and LaMemo's code and of this package, side by side.

The codes are github.com/kimiyoung/transformer-xl (pytorch/mem_transformer.py) and, made from it,
github.com/thu-coai/LaMemo. Letters give the shapes: V words, C model channels, F inner channels, H heads, D channels of
a head, Q = 3 C, W = 2 C. Where two of their names make one of ours, it has the rows of the first, then of the second.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

IGNORED = re.compile(r"pos_emb\.inv_freq|layers\.\d+\.dec_attn\.(train|eval)_logits_constant")
"""Buffers: the sines' frequencies, which the encoding computes, and zeros that LaMemo's code never reads."""

TABLE, OUTPUT = "word_emb.emb_layers.0.weight", "crit.out_layers.0.weight"
"""The embeddings, and the output layer, which a file may leave out where it is the same."""

_XL = "model.decoder.encoding.parts.transformer_xl."
_MODEL = (
    (TABLE, "model.decoder.embedding.weight", "VC"),
    (OUTPUT, "lm_head.weight", "VC"),
    ("crit.out_layers.0.bias", "lm_head.bias", "V"),
    ("r_w_bias", f"{_XL}content_bias", "HD"),
    ("r_r_bias", f"{_XL}position_bias", "HD"),
)
_RIGHT_POSITION = ("r_r_bias_future", f"{_XL}position_bias_right", "HD")
_RIGHT_CONTENT = ("r_w_bias_future", f"{_XL}content_bias_right", "HD")
_QKV = ("dec_attn.qkv_net.weight", "attention.qkv.weight", "QC")
_Q_KV = ("dec_attn.q_net.weight dec_attn.kv_net.weight", "attention.qkv.weight", "CC WC")
_LAYER = (
    ("dec_attn.o_net.weight", "attention.out.weight", "CC"),
    ("dec_attn.layer_norm.weight", "attention_norm.weight", "C"),
    ("dec_attn.layer_norm.bias", "attention_norm.bias", "C"),
    ("pos_ff.CoreNet.0.weight", "feedforward.up.weight", "FC"),
    ("pos_ff.CoreNet.0.bias", "feedforward.up.bias", "F"),
    ("pos_ff.CoreNet.3.weight", "feedforward.down.weight", "CF"),
    ("pos_ff.CoreNet.3.bias", "feedforward.down.bias", "C"),
    ("pos_ff.layer_norm.weight", "feedforward_norm.weight", "C"),
    ("pos_ff.layer_norm.bias", "feedforward_norm.bias", "C"),
)

Names = dict[str, dict[str, str]]
"""Our name -> their names with the letters of their shapes: {"lm_head.bias": {"crit.out_layers.0.bias": "V"}}."""


def names_of(kind: int, layers: int) -> Names:
    """Return the names of a model with this ``attn_type`` and number of layers."""
    rows = [*_MODEL]
    if kind in (3, 32, 33):
        rows.append(_RIGHT_POSITION)
    if kind == 32:
        rows.append(_RIGHT_CONTENT)
    for layer in range(layers):
        theirs, ours = f"layers.{layer}.", f"model.decoder.layers.{layer}."
        for their_ends, our_end, letters in ((_QKV if kind == 0 else _Q_KV), *_LAYER):
            rows.append((" ".join(theirs + end for end in their_ends.split()), ours + our_end, letters))
        rows.append((f"{theirs}dec_attn.r_net.weight", f"{_XL}projections.{layer}.weight", "CC"))
    return {ours: dict(zip(theirs.split(), letters.split(), strict=True)) for theirs, ours, letters in rows}


def sizes_of(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the letters' values, and the number of layers "L", as far as the weights show them."""
    sizes = {"L": len({match[1] for name in weights if (match := re.match(r"layers\.(\d{1,4})\.", name))})}
    for name, letters in (
        (TABLE, "VE"),  # E is C where the embeddings are not projected
        ("layers.0.dec_attn.o_net.weight", "C "),
        ("layers.0.pos_ff.CoreNet.0.weight", "F "),
        ("r_w_bias", "HD"),
    ):
        if name in weights and weights[name].dim() == 2:
            sizes |= dict(zip(letters, weights[name].shape, strict=True))
    return sizes


def shapes_of(names: Names, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each of their weights."""
    numbers = {**sizes, "Q": 3 * sizes["C"], "W": 2 * sizes["C"]}
    return {
        theirs: tuple(numbers[letter] for letter in letters)
        for parts in names.values()
        for theirs, letters in parts.items()
    }


def to_ours(weights: Mapping[str, Tensor], names: Names, channels: int) -> dict[str, Tensor]:
    """Return our names with their tensors; the biases of projections, which their code does not have, are 0."""
    ours = {
        name: torch.cat([weights[part] for part in parts]) for name, parts in names.items() if {*parts} <= {*weights}
    }
    for name in [name for name in ours if name.endswith(("attention.qkv.weight", "attention.out.weight"))]:
        rows = 3 * channels if "qkv" in name else channels
        ours[name.replace("weight", "bias")] = torch.zeros(rows, dtype=ours[name].dtype)
    return ours
