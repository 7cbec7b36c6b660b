"""Names of the parameters of Transformer-XL's and LaMemo's code and of this package, side by side.

The codes are github.com/kimiyoung/transformer-xl (pytorch/mem_transformer.py) and, made from it,
github.com/thu-coai/LaMemo; transformers' former TransfoXL has the same names behind "transformer." but for "crit.".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from wordorder.conversion.reference_names import listed
from wordorder.conversion.transformer_xl_settings import XLSettings

if TYPE_CHECKING:
    from torch import Tensor

_IGNORED = re.compile(r"pos_emb\.inv_freq|layers\.\d+\.dec_attn\.(train|eval)_logits_constant")
"""Buffers: the sines' frequencies, which the encoding computes, and zeros that LaMemo's code never reads."""
_SHARED = re.compile(r"layers\.\d+\.dec_attn\.r_[rw]_bias")
"""Names of each layer's u and v, which transformers' layers have also where u and v are of all layers."""

_XL = "model.decoder.encoding.parts.transformer_xl."
_EMBEDDING = "model.decoder.embedding."


@dataclass(frozen=True)
class Parameter:
    """One of our parameters, and what it is made of.

    Args:
        ours: its name.
        theirs: names in the checkpoint, in this order.
        shape: of each of them.
        join: makes one tensor of theirs.
        shares: their name of the tensor that this one may be, and then may be missing.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[tuple[int, ...], ...]
    join: "Callable[[Sequence[Tensor]], Tensor]"
    shares: str | None = None


def parameters_of(settings: XLSettings, *, backwards: bool) -> list[Parameter]:
    """Return all parameters that a checkpoint of these settings holds.

    Args:
        backwards: rows of ``cluster_weight`` stand from the last cluster to the first, as the PyTorch codes read them
            (``head_logprob[:, -i]``); transformers' and the TensorFlow code read them forwards.
    """
    return [*_embeddings(settings, backwards), *_vectors(settings), *_layers(settings)]


def _same(parts: "Sequence[Tensor]") -> "Tensor":
    return parts[0]


def _rows(parts: "Sequence[Tensor]") -> "Tensor":
    import torch

    return torch.cat(tuple(parts))


def _stack(parts: "Sequence[Tensor]") -> "Tensor":
    import torch

    return torch.stack(tuple(parts))


def _backwards(parts: "Sequence[Tensor]") -> "Tensor":
    return parts[0].flip(0)


def _embeddings(settings: XLSettings, backwards: bool) -> Iterator[Parameter]:
    """Yield the parameters of the input and output layer."""
    vocabulary, channels = settings.vocabulary, settings.channels
    ends = (0, *settings.cutoffs, vocabulary)
    widths = [settings.width // settings.divisor**index for index in range(len(ends) - 1)]
    rows = [end - start for start, end in pairwise(ends)]
    tables = list(zip(rows, widths, strict=True)) if settings.divisor > 1 else [(vocabulary, settings.width)]
    for index, (count, width) in enumerate(tables):
        table, output = f"word_emb.emb_layers.{index}.weight", f"crit.out_layers.{index}"
        ours = f"tables.{index}." if settings.cutoffs else ""
        yield Parameter(f"{_EMBEDDING}{ours}weight", (table,), ((count, width),), _same)
        yield Parameter(f"lm_head.{ours}weight", (f"{output}.weight",), ((count, width),), _same, shares=table)
        yield Parameter(f"lm_head.{ours}bias", (f"{output}.bias",), ((count,),), _same)
        if settings.projected:
            yield Parameter(
                f"{_EMBEDDING}projections.{index}.weight", (f"word_emb.emb_projs.{index}",), ((channels, width),), _same
            )
    if not settings.cutoffs:
        return
    for index, width in enumerate(widths if settings.projected else ()):
        yield Parameter(
            f"lm_head.projections.{index}.weight",
            (f"crit.out_projs.{index}",),
            ((channels, width),),
            _same,
            shares=f"word_emb.emb_projs.{index if len(tables) > 1 else 0}",
        )
    join, count = _backwards if backwards else _same, len(settings.cutoffs)
    yield Parameter("lm_head.clusters.weight", ("crit.cluster_weight",), ((count, settings.width),), join)
    yield Parameter("lm_head.clusters.bias", ("crit.cluster_bias",), ((count,),), join)


def _vectors(settings: XLSettings) -> Iterator[Parameter]:
    """Yield the parameters u and v."""
    shape = settings.heads, settings.channels // settings.heads
    names = {"content_bias": "r_w_bias", "position_bias": "r_r_bias"}
    if settings.kind in (3, 32, 33):
        names["position_bias_right"] = "r_r_bias_future"
    if settings.kind == 32:
        names["content_bias_right"] = "r_w_bias_future"
    for ours, theirs in names.items():
        if settings.own_vectors:
            each = tuple(f"layers.{layer}.dec_attn.{theirs}" for layer in range(settings.layers))
            yield Parameter(f"{_XL}{ours}", each, (shape,) * settings.layers, _stack)
        else:
            yield Parameter(f"{_XL}{ours}", (theirs,), (shape,), _same)


def _layers(settings: XLSettings) -> Iterator[Parameter]:
    C, F = settings.channels, settings.inner
    for index in range(settings.layers):
        theirs, ours = f"layers.{index}.", f"model.decoder.layers.{index}."
        queries = (f"{theirs}dec_attn.q_net.weight", f"{theirs}dec_attn.kv_net.weight")
        if settings.looks_ahead:
            yield Parameter(f"{ours}attention.qkv.weight", queries, ((C, C), (2 * C, C)), _rows)
        else:
            yield Parameter(f"{ours}attention.qkv.weight", (f"{theirs}dec_attn.qkv_net.weight",), ((3 * C, C),), _same)
        for our_end, their_end, shape in (
            ("attention.out.weight", "dec_attn.o_net.weight", (C, C)),
            ("attention_norm.weight", "dec_attn.layer_norm.weight", (C,)),
            ("attention_norm.bias", "dec_attn.layer_norm.bias", (C,)),
            ("feedforward.up.weight", "pos_ff.CoreNet.0.weight", (F, C)),
            ("feedforward.up.bias", "pos_ff.CoreNet.0.bias", (F,)),
            ("feedforward.down.weight", "pos_ff.CoreNet.3.weight", (C, F)),
            ("feedforward.down.bias", "pos_ff.CoreNet.3.bias", (C,)),
            ("feedforward_norm.weight", "pos_ff.layer_norm.weight", (C,)),
            ("feedforward_norm.bias", "pos_ff.layer_norm.bias", (C,)),
        ):
            yield Parameter(f"{ours}{our_end}", (f"{theirs}{their_end}",), (shape,), _same)
        yield Parameter(f"{_XL}projections.{index}.weight", (f"{theirs}dec_attn.r_net.weight",), ((C, C),), _same)


def biases_of(settings: XLSettings) -> dict[str, int]:
    """Return the biases of ours that the reference does not have, and their sizes: they are 0."""
    sizes = {"attention.qkv.bias": 3 * settings.channels, "attention.out.bias": settings.channels}
    return {f"model.decoder.layers.{i}.{name}": size for i in range(settings.layers) for name, size in sizes.items()}


def ignored_names(shapes: Mapping[str, object], settings: XLSettings) -> tuple[str, ...]:
    """Return the names in a checkpoint that hold nothing to convert."""
    shared = not settings.own_vectors
    return tuple(name for name in shapes if _IGNORED.fullmatch(name) or (shared and _SHARED.fullmatch(name)))


def differences(
    shapes: Mapping[str, tuple[int, ...]], parameters: Sequence[Parameter], settings: XLSettings, *, tied: bool
) -> list[str]:
    """List what a state dict lacks, has too much, or has in another shape, one line each.

    Args:
        shapes: by the reference's name.
        tied: the output layer may share the embeddings.
    """
    wanted = {name: shape for p in parameters for name, shape in zip(p.theirs, p.shape, strict=True)}
    optional = {name for p in parameters if p.shares is not None and tied for name in p.theirs}
    ignored = {*ignored_names(shapes, settings)}
    missing = [name for name in wanted if name not in shapes and name not in optional]
    extra = [name for name in shapes if name not in wanted and name not in ignored]
    faults: list[str] = []
    if missing:
        faults.append(f"weights are missing: {listed(missing)}")
    if extra:
        faults.append(f"there are weights that the reference code does not have with these settings: {listed(extra)}")
    for name, shape in wanted.items():
        if name in shapes and shapes[name] != shape:
            faults.append(f"{name} has shape {shapes[name]} instead of {shape}")
    return faults
