"""Names of the parameters of TUPE's reference code and of this package, side by side; nothing else names them.

The reference is github.com/guolinke/TUPE, a copy of fairseq. Letters give the shapes: V tokens of the vocabulary, C
model channels, P rows of the position table (row 0 and 1 make theta1 and theta2, token i reads row i + 1), F inner
channels, R rows of the relative table (32 buckets and one more, for "others to [CLS]"), H heads, K classes, Q = 3 C,
W = 2 C.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

BUCKETS_OF_DISTANCE = "sentence_encoder.rp_bucket"
IGNORED = frozenset({"version", "sentence_encoder.version", BUCKETS_OF_DISTANCE})
"""Names that may be there and hold nothing to convert: fairseq's format numbers, and the buckets of all distances,
which a later version of the code registers as a parameter."""

OPTIONAL = "lm_head.weight"
"""A copy of the token embeddings; files that store no tensor twice leave it out."""

Rows = tuple[tuple[str, str, str], ...]


def _pairs(*modules: tuple[str, str, str]) -> Rows:
    """Return the rows of weight and bias of modules with their name, ours, and the letters of the weight.

    Several of our names stand apart by a space. A bias has the first letter of its weight.
    """
    return tuple(
        (
            f"{theirs}{end}",
            " ".join(f"{name}{end}" for name in ours.split()),
            letters if end == "weight" else letters[0],
        )
        for theirs, ours, letters in modules
        for end in ("weight", "bias")
    )


_POSITIONS = "encoding.parts.tupe."
_QUERIES, _KEYS = f"{_POSITIONS}query_projection.", f"{_POSITIONS}key_projection."
_ENCODER = (
    ("embed_tokens.weight", "embedding.weight", "VC"),
    ("pos.weight", f"{_POSITIONS}table.weight", "PC"),
    *_pairs(("pos_ln.", f"{_POSITIONS}norm.", "C")),
)
_PROJECTIONS = _pairs(("pos_q_linear.", _QUERIES, "CC"), ("pos_k_linear.", _KEYS, "CC"))
_FUSED_PROJECTIONS = _pairs(("pos_proj.", f"{_QUERIES} {_KEYS}", "WC"))
_RELATIVE = (("relative_attention_bias.weight", f"{_POSITIONS}relative.table.weight {_POSITIONS}others_to_cls", "RH"),)
_EMBEDDING_NORM = _pairs(("emb_layer_norm.", "embedding_norm.", "C"))
_FINAL_NORM = _pairs(("emb_out_layer_norm.", "final_norm.", "C"))
_LAYER = _pairs(
    ("self_attn.in_proj_", "attention.qkv.", "QC"),
    ("self_attn.out_proj.", "attention.out.", "CC"),
    ("self_attn_layer_norm.", "attention_norm.", "C"),
    ("fc1.", "feedforward.up.", "FC"),
    ("fc2.", "feedforward.down.", "CF"),
    ("final_layer_norm.", "feedforward_norm.", "C"),
)
_LM_HEAD = _pairs(("dense.", "dense.", "CC"), ("layer_norm.", "norm.", "C"), ("", "decoder.", "VC"))
_CLASSIFIER_DENSE = _pairs(("dense.", "dense.", "CC"))
_CLASSIFIER_OUT = _pairs(("out_proj.", "classifier.", "KC"))


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
        encoder = (
            *_ENCODER,
            *(_FUSED_PROJECTIONS if self.fused_projections else _PROJECTIONS),
            *(_RELATIVE if self.relative else ()),
            *(_EMBEDDING_NORM if self.embedding_norm else ()),
            *(_FINAL_NORM if self.final_norm else ()),
        )
        parts: list[tuple[str, str, Rows]] = [("sentence_encoder.", "model.encoder.", encoder)]
        for layer in range(self.layers):
            parts.append((f"sentence_encoder.layers.{layer}.", f"model.encoder.layers.{layer}.", _LAYER))
        if self.lm_head:
            parts.append(("lm_head.", "head.", _LM_HEAD))
        if self.head is not None:
            dense = _CLASSIFIER_DENSE if self.head_dense else ()
            parts.append((f"classification_heads.{self.head}.", "", (*dense, *_CLASSIFIER_OUT)))
        return {
            theirs + their_end: (tuple(ours + end for end in our_ends.split()), letters)
            for theirs, ours, rows in parts
            for their_end, our_ends, letters in rows
        }


def heads_of(names: Mapping[str, object]) -> tuple[str, ...]:
    """Return the classification heads that a state dict has, in its order."""
    split = (name.split(".") for name in names if name.startswith("classification_heads."))
    return tuple(dict.fromkeys(parts[1] for parts in split))


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


def to_ours(weights: Mapping[str, Tensor], form: Form) -> dict[str, Tensor]:
    """Return our names with the tensors that belong there, views of the given ones; only `OPTIONAL` may be missing."""
    renamed: dict[str, Tensor] = {}
    for theirs, (ours, _) in form.names().items():
        if theirs not in weights:
            continue
        weight = weights[theirs]
        # both stacked kinds have a first part whose rows are fixed: all rows but the last, or the upper half
        first = len(weight) - 1 if "relative" in theirs else len(weight) // 2
        parts = [weight] if len(ours) == 1 else [weight[:first], weight[first:]]
        renamed.update(zip(ours, parts, strict=True))
    return renamed


def to_theirs(weights: Mapping[str, Tensor], form: Form) -> dict[str, Tensor]:
    """Return the reference's names with their tensors, the inverse of `to_ours`."""
    renamed: dict[str, Tensor] = {}
    for theirs, (ours, _) in form.names().items():
        parts = [weights[name] for name in ours]
        renamed[theirs] = parts[0] if len(parts) == 1 else torch.cat(parts)
    return renamed
