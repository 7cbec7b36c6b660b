"""Convert TUPE's reference checkpoints to Hugging Face folders, and a model's weights back to its names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from wordorder.encodings import CATALOG, options_of
from wordorder.errors import BadInput
from wordorder.ops import t5_bucket
from wordorder.papers.folder import ConversionReport, check_target, write_folder
from wordorder.papers.tupe.names import (
    BUCKETS_OF_DISTANCE,
    IGNORED,
    OPTIONAL,
    Form,
    form_of,
    heads_of,
    shapes_of,
    sizes_of,
    to_ours,
    to_theirs,
)
from wordorder.papers.vocabulary import Dictionary, make_tokenizer, read_dictionary
from wordorder.papers.weights import Checkpoint, Settings, Wrapping, in_one_dtype, listed, read_checkpoint

FAIRSEQ = Wrapping(state="model", args="args", prefix="decoder.")
"""Fairseq wraps an encoder in what it calls a decoder."""

EXAMPLE = '{"encoder_attention_heads": 12}'
"""Example of what --config may hold, for messages."""


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
    from the rows 0 and 1 of the position table. Sizes are read from the weights and compared with the arguments of the
    training run. Nothing in the file is imported or called; see `wordorder.papers.weights`.

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
    source, target = Path(checkpoint).expanduser(), Path(out_dir).expanduser()
    check_target(target, overwrite=overwrite)
    file = read_checkpoint(source, FAIRSEQ)
    args = file.settings(config, EXAMPLE)
    form, sizes, fields = _understand(file, args, head)
    names = form.names()
    tensors = in_one_dtype(to_ours(file.weights, form))
    copy = file.weights.get(OPTIONAL)
    tied = copy is None or copy.equal(file.weights["sentence_encoder.embed_tokens.weight"])
    if tied:
        tensors.pop("head.decoder.weight", None)
    vocabulary = None if dictionary is None else read_dictionary(Path(dictionary).expanduser(), sizes["V"])
    fields["mask_token_id"] = sizes["V"] - 1 if vocabulary is None else vocabulary.ids["<mask>"]
    report = ConversionReport(
        checkpoint=source.name,
        architectures=tuple(  # the classifier first: it was trained last
            f"WordOrderEncoderFor{task}"
            for task, present in (("SequenceClassification", form.head is not None), ("MaskedLM", form.lm_head))
            if present
        ),
        config={**fields, "tie_word_embeddings": tied},
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
        mapped={theirs: ours for theirs, (ours, _) in names.items() if theirs in file.weights},
        ignored=tuple(name for name in file.weights if name not in names),
        tokenizer=vocabulary is not None,
        notes=tuple(_notes(file, form, args, vocabulary, tied=tied)),
    )
    tokenizer = None if vocabulary is None else make_tokenizer(vocabulary, sizes["P"] - 1)
    write_folder(target, report, tensors, tokenizer, config_class="WordOrderEncoderConfig")
    return report


def _understand(
    file: Checkpoint, args: Mapping[Any, Any], head: str | None
) -> tuple[Form, dict[str, int], dict[str, Any]]:
    """Return the parts and sizes of the model, and the fields of its configuration; all faults are one error."""
    heads = heads_of(file.weights)
    if "sentence_encoder.embed_tokens.weight" not in file.weights:
        raise BadInput(
            f"checkpoint {file.path}: holds no model of TUPE's reference code (no"
            f" sentence_encoder.embed_tokens.weight); its weights are {listed(file.weights, 5)}"
        )
    if head is not None and head not in heads:
        raise BadInput(f"head {head!r} is not in the checkpoint; it has: {listed(heads)}")
    if head is None and len(heads) > 1:
        raise BadInput(
            f"checkpoint {file.path}: has {len(heads)} classification heads; choose with --head: {listed(heads)}"
        )
    form = form_of(file.weights, head or next(iter(heads), None))
    other_heads = {
        name for name in file.weights if name.startswith("classification_heads.") and name.split(".")[1] != form.head
    }
    sizes = sizes_of({name: tuple(weight.shape) for name, weight in file.weights.items()}, form)
    faults = file.faults(shapes_of(form, sizes), optional={OPTIONAL}, ignored=IGNORED | other_heads)
    faults += _size_faults(file, form, sizes)
    # of several heads num_classes says nothing about the chosen one
    settings = Settings({k: v for k, v in args.items() if len(heads) < 2 or k != "num_classes"}, prefix="args.")
    fields = _fields(settings, form, sizes)
    if faults or settings.faults:
        raise BadInput([f"checkpoint {file.path}: {fault}" for fault in (*faults, *settings.faults)])
    return form, sizes, fields


def _size_faults(file: Checkpoint, form: Form, sizes: Mapping[str, int]) -> list[str]:
    faults: list[str] = []
    if form.layers == 0:
        faults.append("there are no layers (sentence_encoder.layers.0.*)")
    if sizes.get("V", 5) < 5:
        faults.append(f"the vocabulary has {sizes['V']} tokens; <s> <pad> </s> <unk> <mask> alone are 5")
    if sizes.get("P", 3) < 2:
        faults.append(f"the position table has {sizes['P']} rows; [CLS] alone needs 2")
    if not form.relative or "R" not in sizes:
        return faults
    if sizes["R"] < 5 or sizes["R"] % 2 == 0:
        return [
            *faults,
            f"relative_attention_bias has {sizes['R']} rows; an even number of buckets, and one, are expected",
        ]
    listing = file.weights.get(BUCKETS_OF_DISTANCE)
    if listing is not None and "P" in sizes and not torch.equal(listing.long(), _buckets(sizes)):
        faults.append(f"its buckets of distance (rp_bucket) are not those of T5 with {sizes['R'] - 1} buckets")
    return faults


def _buckets(sizes: Mapping[str, int]) -> Tensor:
    """Return our bucket of each pair of positions, those of [CLS] included."""
    buckets, index = sizes["R"] - 1, torch.arange(sizes["P"] - 1)
    ours = t5_bucket(index[None, :] - index[:, None], buckets=buckets)
    ours[:, 0], ours[0, :] = buckets, buckets // 2
    return ours


def _fields(args: Settings, form: Form, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the configuration, with everything written out that the reference code fixes: our defaults may change.

    Arguments that disagree with the weights are noted as faults; the code's own defaults stand for what is left out.
    """
    for name, shown, what in (
        ("encoder_layers", form.layers, "layers"),
        ("encoder_embed_dim", sizes.get("C"), "channels"),
        ("encoder_ffn_embed_dim", sizes.get("F"), "inner channels of the feed-forward networks"),
        ("encoder_attention_heads", sizes.get("H"), "heads"),
        ("max_positions", sizes["P"] - 1 if "P" in sizes else None, "positions"),
    ):
        args.size(name, shown, f" {what}")
    for name, has, part in (
        ("rel_pos", form.relative, "relative_attention_bias"),
        ("embedding_normalize", form.embedding_norm, "emb_layer_norm"),
        ("encoder_normalize_before", form.final_norm, "emb_out_layer_norm"),
    ):
        if args.switch(name, has) != has:
            args.fault(f"{name} is {not has}, but the checkpoint {'has' if has else 'has no'} {part}")
    classes = args.fields.get("num_classes")  # of a fine-tuning run; -1 and 0 mean that there was none
    if form.head is not None and type(classes) is int and 0 < classes != sizes.get("K", classes):
        args.fault(f"num_classes is {classes}, but head {form.head} has {sizes['K']} classes")
    heads = args.fields.get("encoder_attention_heads", sizes.get("H"))
    if heads is None:
        args.fault(
            "encoder_attention_heads is missing, and the weights of TUPE-A do not show the number of heads;"
            f" give it with --config, a JSON file such as {EXAMPLE}"
        )
    elif type(heads) is int and heads > 0 and sizes.get("C", 0) % heads:
        args.fault(f"encoder_attention_heads is {heads}, which does not divide {sizes['C']} channels")
    activation = args.choice("activation_fn", ("gelu", "relu"))
    if form.head is not None and form.head_dense:
        args.choice("pooler_activation_fn", ("tanh",))
    options = {"cls": "position-0", "theta": "table-rows", "projection_bias": True}
    if form.relative:
        options |= {"reset": "reference-code", "buckets": sizes.get("R", 1) - 1, "max_distance": 128}
    head = {"num_labels": sizes.get("K"), "classifier_dense": form.head_dense} if form.head is not None else {}
    return {
        "vocab_size": sizes.get("V"),
        "hidden_size": sizes.get("C"),
        "num_hidden_layers": form.layers,
        "num_attention_heads": heads,
        "intermediate_size": sizes.get("F"),
        "max_position_embeddings": sizes.get("P", 1) - 1,
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
        "encoding": "tupe-r" if form.relative else "tupe-a",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if form.final_norm else "post",
        "embedding_norm": form.embedding_norm,
        **head,
    }


def _notes(
    file: Checkpoint, form: Form, args: Mapping[Any, Any], vocabulary: Dictionary | None, *, tied: bool
) -> list[str]:
    notes: list[str] = []
    if not args:
        notes.append(
            "the checkpoint has no args that can be read: dropouts and activation are the reference code's defaults"
        )
    if args.get("activation_dropout"):
        notes.append(
            f"args.activation_dropout={args['activation_dropout']} has no counterpart here: outputs are the same, but"
            " further training does not drop activations inside the feed-forward networks"
        )
    if not tied:
        notes.append("lm_head.weight differs from the token embeddings, so the output layer is not tied to them")
    if file.has_halves:
        notes.append("weights in half precision were widened to float32, which changes none of them")
    others = [name for name in heads_of(file.weights) if name != form.head]
    if others:
        notes.append(f"classification heads that were left out: {listed(others)}")
    if vocabulary is None:
        notes.append(
            "no tokeniser was written (no dictionary was given); special ids are fairseq's: <s> 0, <pad> 1, </s> 2,"
            " <unk> 3, and <mask> the last one"
        )
    else:
        notes.append(
            "the tokeniser looks up pieces apart by spaces; it does not make them: prepare text as for the checkpoint"
            " (lower case, Moses tokeniser, fastBPE) first"
        )
        if vocabulary.repeated:
            notes.append(f"tokens that the dictionary has more than once: {listed(vocabulary.repeated, 10)}")
    return notes


# Values that the reference code can express, by field of the configuration.
_FIXED: dict[str, tuple[Any, ...]] = {
    "model_type": ("wordorder-encoder",),
    "encoding": ("tupe-a", "tupe-r"),
    "norm": ("layer",),
    "layer_norm_eps": (1e-5,),
    "hidden_act": ("gelu", "relu"),
    "tie_word_embeddings": (True,),
}
_OPTIONS: dict[str, Any] = {"cls": "position-0", "theta": "table-rows", "projection_bias": True, "norm_eps": 1e-5}
_RELATIVE_OPTIONS: dict[str, Any] = {
    "reset": "reference-code",
    "buckets": 32,
    "max_distance": 128,
    "bidirectional": True,
}


def to_reference_names(
    model: PreTrainedModel, *, head: str = "sentence_classification_head", prefix: str = "decoder."
) -> dict[str, Tensor]:
    """Return the state dict that the reference code would load: `convert_tupe` backwards.

    Args:
        model: an encoder of this package with a masked language modelling or text classification head.
        head: name of the classification head there.
        prefix: of all names but the classification head's; "" for a bare `TransformerSentenceEncoder` with heads.

    Returns:
        The reference's names and detached weights. ``lm_head.weight`` shares its memory with the token embeddings.

    Raises:
        BadInput: one line for each thing in which the model differs from any that the reference code can build.
    """
    form = _form(model, head)
    weights: dict[str, Tensor] = {name: weight.detach() for name, weight in model.state_dict().items()}
    theirs = to_theirs(weights, form)
    return {name if name.startswith("classification_heads.") else prefix + name: theirs[name] for name in theirs}


def _form(model: PreTrainedModel, head: str) -> Form:
    config: Any = model.config
    kinds = ("WordOrderEncoderForMaskedLM", "WordOrderEncoderForSequenceClassification")
    faults = [
        f"{name}={getattr(config, name, None)!r}, where it has {' or '.join(repr(value) for value in values)}"
        for name, values in _FIXED.items()
        if getattr(config, name, None) not in values
    ]
    if not faults:  # else the rest may have no meaning
        if config.num_key_value_heads not in (None, config.num_attention_heads):
            faults.append(f"num_key_value_heads={config.num_key_value_heads}, where it has as many as query heads")
        if config.head_act != config.hidden_act:
            faults.append(
                f"head_act={config.head_act!r} beside hidden_act={config.hidden_act!r}, where it has one for both"
            )
        chosen = options_of(CATALOG[config.encoding]) | config.options_for("encoder")[config.encoding]
        expected = _OPTIONS | (_RELATIVE_OPTIONS if config.encoding == "tupe-r" else {})
        faults += [
            f"encoding option {name}={chosen[name]!r}, where it has {value!r}"
            for name, value in expected.items()
            if chosen[name] != value
        ]
    architecture = type(model).__name__
    if architecture not in kinds:
        faults.append(f"{architecture}, where it has {' or '.join(kinds)}")
    if faults:
        raise BadInput([f"TUPE's reference code has no {fault}" for fault in faults])
    classifies = architecture == kinds[1]
    return Form(
        layers=config.num_hidden_layers,
        relative=config.encoding == "tupe-r",
        embedding_norm=config.norm_placement == "post" if config.embedding_norm is None else config.embedding_norm,
        final_norm=config.norm_placement == "pre",
        lm_head=not classifies,
        head=head if classifies else None,
        head_dense=config.classifier_dense,
    )
