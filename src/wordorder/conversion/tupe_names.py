"""Names of the parameters of TUPE's reference code and of this package, side by side; nothing else names them.

The reference is github.com/guolinke/TUPE, a copy of fairseq. Letters give the shapes: V tokens of the vocabulary, C
model channels, P rows of the position table (row 0 and 1 make theta1 and theta2, token i reads row i + 1), F inner
channels, R rows of the relative table (32 buckets and one more, for "others to [CLS]"), H heads, K classes, Q = 3 C,
W = 2 C.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = frozenset({"version", "sentence_encoder.version", "sentence_encoder.rp_bucket"})
"""Names that may be there and hold nothing to convert: fairseq's format numbers, and the buckets of all distances,
which a later version of the code registers as a parameter."""

OPTIONAL = "lm_head.weight"
"""A copy of the token embeddings; files that store no tensor twice leave it out."""

_POSITIONS = "encoding.parts.tupe."
_ENCODER = (
    ("embed_tokens.weight", "embedding.weight", "VC"),
    ("pos.weight", f"{_POSITIONS}table.weight", "PC"),
    ("pos_ln.weight", f"{_POSITIONS}norm.weight", "C"),
    ("pos_ln.bias", f"{_POSITIONS}norm.bias", "C"),
)
_PROJECTIONS = (
    ("pos_q_linear.weight", f"{_POSITIONS}query_projection.weight", "CC"),
    ("pos_q_linear.bias", f"{_POSITIONS}query_projection.bias", "C"),
    ("pos_k_linear.weight", f"{_POSITIONS}key_projection.weight", "CC"),
    ("pos_k_linear.bias", f"{_POSITIONS}key_projection.bias", "C"),
)
_FUSED_PROJECTIONS = (
    ("pos_proj.weight", f"{_POSITIONS}query_projection.weight {_POSITIONS}key_projection.weight", "WC"),
    ("pos_proj.bias", f"{_POSITIONS}query_projection.bias {_POSITIONS}key_projection.bias", "W"),
)
_RELATIVE = (("relative_attention_bias.weight", f"{_POSITIONS}relative.table.weight {_POSITIONS}others_to_cls", "RH"),)
_EMBEDDING_NORM = (
    ("emb_layer_norm.weight", "embedding_norm.weight", "C"),
    ("emb_layer_norm.bias", "embedding_norm.bias", "C"),
)
_FINAL_NORM = (
    ("emb_out_layer_norm.weight", "final_norm.weight", "C"),
    ("emb_out_layer_norm.bias", "final_norm.bias", "C"),
)
_LAYER = (
    ("self_attn.in_proj_weight", "attention.qkv.weight", "QC"),
    ("self_attn.in_proj_bias", "attention.qkv.bias", "Q"),
    ("self_attn.out_proj.weight", "attention.out.weight", "CC"),
    ("self_attn.out_proj.bias", "attention.out.bias", "C"),
    ("self_attn_layer_norm.weight", "attention_norm.weight", "C"),
    ("self_attn_layer_norm.bias", "attention_norm.bias", "C"),
    ("fc1.weight", "feedforward.up.weight", "FC"),
    ("fc1.bias", "feedforward.up.bias", "F"),
    ("fc2.weight", "feedforward.down.weight", "CF"),
    ("fc2.bias", "feedforward.down.bias", "C"),
    ("final_layer_norm.weight", "feedforward_norm.weight", "C"),
    ("final_layer_norm.bias", "feedforward_norm.bias", "C"),
)
_LM_HEAD = (
    ("dense.weight", "dense.weight", "CC"),
    ("dense.bias", "dense.bias", "C"),
    ("layer_norm.weight", "norm.weight", "C"),
    ("layer_norm.bias", "norm.bias", "C"),
    ("weight", "decoder.weight", "VC"),
    ("bias", "decoder.bias", "V"),
)
_CLASSIFIER_DENSE = (("dense.weight", "dense.weight", "CC"), ("dense.bias", "dense.bias", "C"))
_CLASSIFIER_OUT = (("out_proj.weight", "classifier.weight", "KC"), ("out_proj.bias", "classifier.bias", "K"))


@dataclass(frozen=True, kw_only=True)
class Form:
    """Parts that a model of the reference code has."""

    layers: int
    relative: bool
    """TUPE-R, that is, the table of relative terms is there."""
    embedding_norm: bool
    final_norm: bool
    """Pre-norm, that is, the output is normalised."""
    fused_projections: bool = False
    """Both position projections are in one matrix, as a later version of the code has them."""
    lm_head: bool = True
    head: str | None = None
    """Name of the classification head, if one is there and wanted."""
    head_dense: bool = True
    """That head has a layer before its output."""

    def names(self) -> dict[str, tuple[tuple[str, ...], str]]:
        """Map each name of the reference to our names, which stand one after the other in its rows, and its letters."""
        return {theirs: (tuple(ours.split()), letters) for theirs, ours, letters in self._rows()}

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        encoder = (
            *_ENCODER,
            *(_FUSED_PROJECTIONS if self.fused_projections else _PROJECTIONS),
            *(_RELATIVE if self.relative else ()),
            *(_EMBEDDING_NORM if self.embedding_norm else ()),
            *(_FINAL_NORM if self.final_norm else ()),
        )
        yield from _under("sentence_encoder.", "model.encoder.", encoder)
        for layer in range(self.layers):
            yield from _under(f"sentence_encoder.layers.{layer}.", f"model.encoder.layers.{layer}.", _LAYER)
        if self.lm_head:
            yield from _under("lm_head.", "head.", _LM_HEAD)
        if self.head is not None:
            dense = _CLASSIFIER_DENSE if self.head_dense else ()
            yield from _under(f"classification_heads.{self.head}.", "", (*dense, *_CLASSIFIER_OUT))


def _under(theirs: str, ours: str, rows: tuple[tuple[str, str, str], ...]) -> Iterator[tuple[str, str, str]]:
    for their_end, our_ends, letters in rows:
        yield theirs + their_end, " ".join(ours + end for end in our_ends.split()), letters


def heads_of(names: Mapping[str, object]) -> tuple[str, ...]:
    """Return the classification heads that a state dict has, in its order."""
    found = (name.split(".") for name in names if name.startswith("classification_heads."))
    return tuple(dict.fromkeys(parts[1] for parts in found))


def form_of(names: Mapping[str, object], head: str | None) -> Form:
    """Return the parts that a state dict has, with this classification head; it may lack some weights of a part."""
    layers = {m[1] for name in names if (m := re.match(r"sentence_encoder\.layers\.(\d{1,4})\.", name))}

    def has(start: str) -> bool:
        return any(name.startswith(start) for name in names)

    return Form(
        layers=len(layers),
        relative=has("sentence_encoder.relative_attention_bias."),
        embedding_norm=has("sentence_encoder.emb_layer_norm."),
        final_norm=has("sentence_encoder.emb_out_layer_norm."),
        fused_projections=has("sentence_encoder.pos_proj."),
        lm_head=has("lm_head.") or head is None,
        head=head,
        head_dense=has(f"classification_heads.{head}.dense."),
    )


def sizes_of(shapes: Mapping[str, tuple[int, ...]], form: Form) -> dict[str, int]:
    """Return the letters' values, each read from the first tensor that has it."""
    sizes: dict[str, int] = {}
    for theirs, (_, letters) in form.names().items():
        shape = shapes.get(theirs, ())
        if len(shape) == len(letters):
            for letter, size in zip(letters, shape, strict=True):
                sizes.setdefault(letter, size)
    # two letters say how another is stacked
    if "C" in sizes:
        sizes |= {"Q": 3 * sizes["C"], "W": 2 * sizes["C"]}
    return sizes


def shapes_of(form: Form, sizes: Mapping[str, int]) -> dict[str, tuple[int | None, ...]]:
    """Return the shape of each weight; a size is None where no tensor that shows it has the right number of axes."""
    return {name: tuple(sizes.get(letter) for letter in letters) for name, (_, letters) in form.names().items()}


def to_ours(weights: Mapping[str, "Tensor"], form: Form) -> "dict[str, Tensor]":
    """Return our names with the tensors that belong there, views of the given ones; only `OPTIONAL` may be missing."""
    found: dict[str, Tensor] = {}
    for theirs, (ours, _) in form.names().items():
        if theirs not in weights:
            continue
        weight = weights[theirs]
        # both stacked kinds have a first part of known rows: all rows but the last, or the upper half
        first = len(weight) - 1 if "relative" in theirs else len(weight) // 2
        parts = [weight] if len(ours) == 1 else [weight[:first], weight[first:]]
        found.update(zip(ours, parts, strict=True))
    return found


def to_theirs(weights: Mapping[str, "Tensor"], form: Form) -> "dict[str, Tensor]":
    """Return the reference's names with their tensors, the inverse of `to_ours`."""
    import torch

    found: dict[str, Tensor] = {}
    for theirs, (ours, _) in form.names().items():
        parts = [weights[name] for name in ours]
        found[theirs] = parts[0] if len(parts) == 1 else torch.cat(parts)
    return found
