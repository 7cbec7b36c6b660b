"""Convert TUPE's reference checkpoints to Hugging Face folders.

The reference is github.com/guolinke/TUPE, a copy of fairseq. Rows 0 and 1 of its position table make theta1 and theta2,
token i reads row i + 1. Its relative table has 32 buckets and one row more, for "others to [CLS]".
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from wordorder.errors import BadInput
from wordorder.ops import t5_bucket
from wordorder.papers.folder import ConversionReport, Model, Names, open_checkpoint, weights_and_biases, write_folder
from wordorder.papers.vocabulary import make_tokenizer, read_dictionary
from wordorder.papers.weights import Checkpoint, Code, Settings, listed

POSITIONS, RELATIVE = "sentence_encoder.pos.weight", "sentence_encoder.relative_attention_bias.weight"
LAYERS = "sentence_encoder.layers."
EMBEDDING_NORM, FINAL_NORM = "sentence_encoder.emb_layer_norm.", "sentence_encoder.emb_out_layer_norm."

FAIRSEQ = Code(
    name="TUPE's reference code",
    state="model",
    args="args",
    prefix="decoder.",  # fairseq wraps an encoder in what it calls a decoder
    table="sentence_encoder.embed_tokens.weight",
    output="lm_head.weight",
    example='{"encoder_attention_heads": 12}',
)


_TUPE = "model.encoder.encoding.parts.tupe."
_QUERIES, _KEYS = f"{_TUPE}query_projection.", f"{_TUPE}key_projection."
_ENCODER = [
    (FAIRSEQ.table, "model.encoder.embedding.weight"),
    (POSITIONS, f"{_TUPE}table.weight"),
    *weights_and_biases(("sentence_encoder.pos_ln.", f"{_TUPE}norm.")),
]
_PROJECTIONS = weights_and_biases(
    ("sentence_encoder.pos_q_linear.", _QUERIES), ("sentence_encoder.pos_k_linear.", _KEYS)
)
_FUSED_PROJECTIONS = weights_and_biases(("sentence_encoder.pos_proj.", f"{_QUERIES} {_KEYS}"))
"""Both position projections in one matrix, as a later version of the code has them."""
_RELATIVE = [(RELATIVE, f"{_TUPE}relative.table.weight {_TUPE}others_to_cls")]
_LAYER = (
    ("self_attn.in_proj_", "attention.qkv."),
    ("self_attn.out_proj.", "attention.out."),
    ("self_attn_layer_norm.", "attention_norm."),
    ("fc1.", "feedforward.up."),
    ("fc2.", "feedforward.down."),
    ("final_layer_norm.", "feedforward_norm."),
)
_LM_HEAD = weights_and_biases(
    ("lm_head.dense.", "head.dense."), ("lm_head.layer_norm.", "head.norm."), ("lm_head.", "head.decoder.")
)


def convert_tupe(
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    dictionary: str | Path | None = None,
    head: str | None = None,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a checkpoint of TUPE's reference code to a folder for transformers' Auto classes.

    The folder computes what the reference code computes: the [CLS] reset is ``reference-code``, theta1 and theta2 come
    from the rows 0 and 1 of the position table. Sizes are read from the weights, dropouts and activations from the
    arguments of the training run. Nothing in the file is imported or called; see `wordorder.papers.weights`.

    Args:
        checkpoint: a torch file {"args": ..., "model": ...} of any version of torch since 0.4, or a state dict as
            a torch file or .safetensors.
        out_dir: folder to make; it appears whole or not at all.
        config: the arguments, or a JSON file of them, in place of those in the file. A state dict has none, and the
            weights of TUPE-A do not show the number of heads.
        dictionary: fairseq's dict.txt; with it a tokeniser for text in pieces is written (`make_tokenizer`).
        head: the classification head to take, where there are several.
        overwrite: replace an earlier conversion.

    Returns:
        What was mapped, ignored and left alone; also written to conversion.json.

    Raises:
        BadInput: one line per fault of the checkpoint, the arguments, the dictionary or the folder.
        RunFailed: the folder could not be written in full; nothing is left of it.
    """
    file, args = open_checkpoint(checkpoint, out_dir, FAIRSEQ, config, overwrite=overwrite)
    head = _head(file, head)
    fields = _fields(file, args, head)
    ids = None if dictionary is None else read_dictionary(Path(dictionary).expanduser(), fields["vocab_size"])
    architectures = ("WordOrderEncoderForSequenceClassification",) if head is not None else ()  # it was trained last
    if head is None or file.begin("lm_head."):
        architectures = (*architectures, "WordOrderEncoderForMaskedLM")
    model = Model(
        architectures=architectures,
        config_class="WordOrderEncoderConfig",
        fields={**fields, "mask_token_id": fields["vocab_size"] - 1 if ids is None else ids["<mask>"]},
        names=_names(file, head),
        ignored=_ignored(head),
        tokenizer=None if ids is None else make_tokenizer(ids, fields["max_position_embeddings"]),
        notes=tuple(_notes(args)),
    )
    return write_folder(file, FAIRSEQ, model, out_dir)


def _ignored(head: str | None) -> re.Pattern[str]:
    """Return what may be there and holds nothing to convert: format numbers, buckets of distances, other heads."""
    others = rf"classification_heads\.(?!{re.escape(head)}\.).*" if head is not None else "(?!)"
    return re.compile(rf"(sentence_encoder\.)?version|sentence_encoder\.rp_bucket|{others}", re.DOTALL)


def _names(file: Checkpoint, head: str | None) -> Names:
    rows = [*_ENCODER, *(_FUSED_PROJECTIONS if file.begin("sentence_encoder.pos_proj.") else _PROJECTIONS)]
    if file.begin("sentence_encoder.relative_attention_bias."):
        rows += _RELATIVE
    if file.begin(EMBEDDING_NORM):
        rows += weights_and_biases((EMBEDDING_NORM, "model.encoder.embedding_norm."))
    if file.begin(FINAL_NORM):
        rows += weights_and_biases((FINAL_NORM, "model.encoder.final_norm."))
    for layer in range(file.layers(LAYERS)):
        theirs, ours = f"{LAYERS}{layer}.", f"model.encoder.layers.{layer}."
        rows += weights_and_biases(*((theirs + their_end, ours + our_end) for their_end, our_end in _LAYER))
    if file.begin("lm_head.") or head is None:
        rows += _LM_HEAD
    if head is not None:
        theirs = f"classification_heads.{head}."
        if file.begin(f"{theirs}dense."):
            rows += weights_and_biases((f"{theirs}dense.", "dense."))
        rows += weights_and_biases((f"{theirs}out_proj.", "classifier."))
    return rows


def _head(file: Checkpoint, head: str | None) -> str | None:
    split = (name.split(".") for name in file.weights if name.startswith("classification_heads."))
    heads = tuple(dict.fromkeys(parts[1] for parts in split))
    if head is not None and head not in heads:
        raise BadInput(f"head {head!r} is not in the checkpoint; it has: {listed(heads)}")
    if head is None and len(heads) > 1:
        raise BadInput(
            f"checkpoint {file.path}: has {len(heads)} classification heads; choose with --head: {listed(heads)}"
        )
    return head or next(iter(heads), None)


def _fields(file: Checkpoint, args: Settings, head: str | None) -> dict[str, Any]:
    """Return the configuration, with everything written out that the reference code fixes: our defaults may change.

    The code's own defaults stand for arguments that are left out.
    """
    vocabulary, channels = file.size(FAIRSEQ.table)
    inner, positions = file.size("sentence_encoder.layers.0.fc1.weight")[0], file.size(POSITIONS)[0] - 1
    relative, embedding_norm, pre = file.begin(RELATIVE), file.begin(EMBEDDING_NORM), file.begin(FINAL_NORM)
    options: dict[str, Any] = {"cls": "position-0", "theta": "table-rows", "projection_bias": True}
    if relative:
        rows, heads = file.size(RELATIVE)
        options |= {"reset": "reference-code", "buckets": rows - 1, "max_distance": 128}
        if _has_other_buckets(file, positions, rows - 1):
            args.faults.append(f"rel_pos: its buckets of distance (rp_bucket) are not T5's {rows - 1} buckets")
    elif "encoder_attention_heads" in args.fields:
        heads = args.number("encoder_attention_heads", 1)
    else:
        heads = 1
        args.faults.append(
            "encoder_attention_heads is missing, and the weights of TUPE-A do not show the number of heads;"
            f" give it with --config, a JSON file such as {FAIRSEQ.example}"
        )
    activation = args.choice("activation_fn", "gelu", "relu")
    fields: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": channels,
        "num_hidden_layers": file.layers(LAYERS),
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "hidden_act": activation,
        "head_act": activation,
        "hidden_dropout_prob": args.rate("dropout", 0.1),
        "attention_probs_dropout_prob": args.rate("attention_dropout", 0.1),
        "classifier_dropout": args.rate("pooler_dropout", 0.1),
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "cls_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "encoding": "tupe-r" if relative else "tupe-a",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if pre else "post",
        "embedding_norm": embedding_norm,
    }
    if head is not None:
        dense = file.begin(f"classification_heads.{head}.dense.")
        if dense:
            args.choice("pooler_activation_fn", "tanh")
        labels = file.size(f"classification_heads.{head}.out_proj.weight")[0]
        fields |= {"num_labels": labels, "classifier_dense": dense}
    if args.faults:
        raise BadInput([f"checkpoint {file.path}: args.{fault}" for fault in args.faults])
    return fields


def _has_other_buckets(file: Checkpoint, positions: int, buckets: int) -> bool:
    """Return whether a file that lists the buckets of all distances, as later versions do, has others than we have."""
    listing = file.weights.get("sentence_encoder.rp_bucket")
    if listing is None or buckets % 2:
        return False
    index = torch.arange(positions)
    ours = t5_bucket(index[None, :] - index[:, None], buckets=buckets)
    ours[:, 0], ours[0, :] = buckets, buckets // 2  # to and from [CLS]
    return not torch.equal(listing.long(), ours)


def _notes(args: Settings) -> list[str]:
    notes: list[str] = []
    if not args.fields:
        notes.append(
            "the checkpoint has no args that can be read: dropouts and activation are the reference code's defaults"
        )
    if args.fields.get("activation_dropout"):
        notes.append(
            f"args.activation_dropout={args.fields['activation_dropout']} has no counterpart here: outputs are the"
            " same, but further training does not drop activations inside the feed-forward networks"
        )
    return notes
