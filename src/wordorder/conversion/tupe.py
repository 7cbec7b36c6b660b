"""Convert TUPE's reference checkpoints to Hugging Face folders, and a model's weights back to its names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from wordorder.conversion.hugging_face_folder import ConversionReport, staged_folder, write_folder
from wordorder.conversion.pickle_survey import printable
from wordorder.conversion.reference_file import (
    ReferenceFile,
    Settings,
    in_one_dtype,
    listed,
    open_reference_file,
    read_config,
)
from wordorder.conversion.tupe_names import (
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
from wordorder.conversion.vocabulary import Dictionary, fit_dictionary, make_tokenizer, read_tokens
from wordorder.encodings import CATALOG, options_of
from wordorder.errors import BadInput
from wordorder.ops import t5_bucket

BUCKETS_OF_DISTANCE = "sentence_encoder.rp_bucket"


@dataclass(frozen=True, kw_only=True)
class ReferenceArgs:
    """Settings that the arguments add to the weights; the code's own defaults stand for what they leave out."""

    heads: int
    activation: str
    """The activation of the feed-forward networks and the language modelling head, "gelu" or "relu"."""
    dropout: float
    attention_dropout: float
    activation_dropout: float
    """Inside the feed-forward networks."""
    pooler_dropout: float
    """Before the output of a classification head."""


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
    training run. Nothing in the file is imported or called; see `wordorder.conversion.torch_file`.

    Args:
        checkpoint: a torch file {"args": ..., "model": ...} of any version of torch since 0.4, or a state dict as
            .safetensors.
        out_dir: folder to make; it appears whole or not at all.
        config: the arguments, or a JSON file of them, in place of those in the file. Safetensors have none, and the
            weights of TUPE-A do not show the number of heads.
        dictionary: fairseq's dict.txt; with it a tokeniser for text in pieces is written (`make_tokenizer`).
        head: the classification head to take, where there are several.
        overwrite: replace an earlier conversion.

    Returns:
        What was mapped, ignored and left alone; also written to conversion.json.

    Raises:
        BadInput: one line per fault of the checkpoint, the arguments, the dictionary or the folder.
        RunFailed: the folder could not be written in full; nothing is left of it.
        MissingExtra: transformers or safetensors is not installed.
    """
    source = Path(checkpoint).expanduser()
    with staged_folder(Path(out_dir).expanduser(), overwrite=overwrite) as folder:
        args = read_config(Path(config).expanduser()) if isinstance(config, str | Path) else config
        listing = None if dictionary is None else Path(dictionary).expanduser()
        with open_reference_file(source) as file:
            form, sizes, settings = _understand(source, file, args, head)
            vocabulary = None if listing is None else fit_dictionary(read_tokens(listing), sizes["V"], listing)
            names = form.names()
            read = {*names, BUCKETS_OF_DISTANCE} if form.relative else {*names}
            weights = file.load([name for name in file.shapes if name in read])
        _check_buckets(source, weights.pop(BUCKETS_OF_DISTANCE, None), sizes)
        copy = weights.get(OPTIONAL)
        tied = copy is None or copy.equal(weights["sentence_encoder.embed_tokens.weight"])
        tensors = in_one_dtype(to_ours(weights, form))
        if tied:
            tensors.pop("head.decoder.weight", None)
        report = ConversionReport(
            checkpoint=source.name,
            layout=file.layout,
            architectures=tuple(  # the classifier first: it was trained last
                f"WordOrderEncoderFor{head}"
                for head, there in (("SequenceClassification", form.head is not None), ("MaskedLM", form.lm_head))
                if there
            ),
            config=_config_fields(form, sizes, settings, vocabulary, tied=tied),
            parameters=sum(tensor.numel() for tensor in tensors.values()),
            dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
            mapped={theirs: ours for theirs, (ours, _) in names.items() if theirs in file.shapes},
            ignored=tuple(name for name in file.shapes if name not in names),
            placeholders=dict(file.placeholders),
            tokenizer=vocabulary is not None,
            notes=tuple(_notes(file, form, settings, vocabulary, given=args, tied=tied)),
        )
        length = report.config["max_position_embeddings"]
        tokenizer = None if vocabulary is None else make_tokenizer(vocabulary, length)
        write_folder(folder, report, tensors, tokenizer, config_class="WordOrderEncoderConfig")
    return report


def _understand(
    source: Path, file: ReferenceFile, args: Mapping[str, Any] | None, head: str | None
) -> tuple[Form, dict[str, int], ReferenceArgs]:
    heads = heads_of(file.shapes)
    if "sentence_encoder.embed_tokens.weight" not in file.shapes:
        found = listed(list(file.shapes), 5) or "nothing"
        raise BadInput(
            f"checkpoint {source}: holds no model of TUPE's reference code (no sentence_encoder.embed_tokens.weight);"
            f" its weights are {found}"
        )
    if head is not None and head not in heads:
        raise BadInput(f"head {head!r} is not in the checkpoint; it has: {listed(list(heads)) or 'none'}")
    if head is None and len(heads) > 1:
        raise BadInput(
            f"checkpoint {source}: has {len(heads)} classification heads; choose with --head: {listed(list(heads))}"
        )
    form = form_of(file.shapes, head or next(iter(heads), None))
    other_heads = {
        name for name in file.shapes if name.startswith("classification_heads.") and name.split(".")[1] != form.head
    }
    sizes = sizes_of(file.shapes, form)
    faults = file.faults(
        shapes_of(form, sizes),
        optional={OPTIONAL},
        ignored=IGNORED | other_heads,
        code="TUPE's reference code does not have",
    )
    faults += _size_faults(file, form, sizes)
    given = dict(args if args is not None else file.args or {})
    if len(heads) > 1:
        given.pop("num_classes", None)  # says nothing about the chosen head
    settings, wrong = _read_args(given, form, sizes)
    if faults or wrong:
        raise BadInput([f"checkpoint {source}: {fault}" for fault in (*faults, *wrong)])
    return form, sizes, settings


def _size_faults(file: ReferenceFile, form: Form, sizes: Mapping[str, int]) -> list[str]:
    faults: list[str] = []
    if form.layers == 0:
        faults.append("there are no layers (sentence_encoder.layers.0.*)")
    if sizes.get("V", 5) < 5:
        faults.append(f"the vocabulary has {sizes['V']} tokens; <s> <pad> </s> <unk> <mask> alone are 5")
    if sizes.get("P", 3) < 2:
        faults.append(f"the position table has {sizes['P']} rows; [CLS] alone needs 2")
    if form.relative and "R" in sizes and (sizes["R"] < 5 or sizes["R"] % 2 == 0):
        faults.append(
            f"relative_attention_bias has {sizes['R']} rows; an even number of buckets, and one, are expected"
        )
    square = (sizes.get("P", 1) - 1,) * 2
    if form.relative and file.shapes.get(BUCKETS_OF_DISTANCE, square) != square:
        faults.append(f"rp_bucket has shape {file.shapes[BUCKETS_OF_DISTANCE]} instead of {square}")
    return faults


def _check_buckets(source: Path, found: Tensor | None, sizes: Mapping[str, int]) -> None:
    """Check that our buckets of all pairs of positions are those of the checkpoint, where it holds them."""
    if found is None:
        return
    buckets, index = sizes["R"] - 1, torch.arange(sizes["P"] - 1)
    ours = t5_bucket(index[None, :] - index[:, None], buckets=buckets)
    ours[:, 0], ours[0, :] = buckets, buckets // 2
    if not torch.equal(found.long(), ours):
        raise BadInput(
            f"checkpoint {source}: its buckets of distance (rp_bucket) are not those of T5 with {buckets} buckets"
        )


_RATES = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.0, "pooler_dropout": 0.1}


def _read_args(given: Mapping[Any, Any], form: Form, sizes: Mapping[str, int]) -> tuple[ReferenceArgs, list[str]]:
    """Read the arguments that matter, and list their faults, also where they disagree with the weights."""
    args = Settings(given, prefix="args.")
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
    classes = args.given.get("num_classes")  # of a fine-tuning run; -1 and 0 mean that there was none
    if form.head is not None and type(classes) is int and 0 < classes != sizes.get("K", classes):
        args.fault(f"num_classes is {printable(classes)}, but head {printable(form.head)} has {sizes['K']} classes")
    heads = args.given.get("encoder_attention_heads", sizes.get("H"))
    if heads is None:
        args.fault(
            "encoder_attention_heads is missing, and the weights of TUPE-A do not show the number of heads;"
            ' give it with --config, a JSON file such as {"encoder_attention_heads": 12}'
        )
    elif type(heads) is int and heads > 0 and sizes.get("C", 0) % heads:
        args.fault(f"encoder_attention_heads is {printable(heads)}, which does not divide {sizes['C']} channels")
    rates = {name: args.rate(name, default) for name, default in _RATES.items()}
    activation = args.choice("activation_fn", ("gelu", "relu"))
    if form.head is not None and form.head_dense:
        args.choice("pooler_activation_fn", ("tanh",))
    return ReferenceArgs(heads=heads or 1, activation=activation, **rates), args.faults


def _config_fields(
    form: Form, sizes: Mapping[str, int], settings: ReferenceArgs, vocabulary: Dictionary | None, *, tied: bool
) -> dict[str, Any]:
    """Return the configuration, with everything written out that the reference code fixes: our defaults may change."""
    options = {"cls": "position-0", "theta": "table-rows", "projection_bias": True}
    if form.relative:
        options |= {"reset": "reference-code", "buckets": sizes["R"] - 1, "max_distance": 128}
    head = {"num_labels": sizes["K"], "classifier_dense": form.head_dense} if form.head is not None else {}
    return {
        "vocab_size": sizes["V"],
        "hidden_size": sizes["C"],
        "num_hidden_layers": form.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": sizes["F"],
        "max_position_embeddings": sizes["P"] - 1,
        "hidden_act": settings.activation,
        "head_act": settings.activation,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        "classifier_dropout": settings.pooler_dropout,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "bos_token_id": 0,
        "cls_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "sep_token_id": 2,
        "mask_token_id": sizes["V"] - 1 if vocabulary is None else vocabulary.ids["<mask>"],
        "encoding": "tupe-r" if form.relative else "tupe-a",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if form.final_norm else "post",
        "embedding_norm": form.embedding_norm,
        **head,
    }


def _notes(
    file: ReferenceFile,
    form: Form,
    settings: ReferenceArgs,
    vocabulary: Dictionary | None,
    *,
    given: Mapping[str, object] | None,
    tied: bool,
) -> list[str]:
    notes: list[str] = []
    if file.args is None and given is None:
        notes.append(
            "the checkpoint has no args that can be read: dropouts and activation are the reference code's defaults"
        )
    if settings.activation_dropout > 0:
        notes.append(
            f"args.activation_dropout={settings.activation_dropout} has no counterpart here: outputs are the same, but"
            " further training does not drop activations inside the feed-forward networks"
        )
    if not tied:
        notes.append("lm_head.weight differs from the token embeddings, so the output layer is not tied to them")
    if file.has_halves:
        notes.append("weights in half precision were widened to float32, which changes none of them")
    others = [name for name in heads_of(file.shapes) if name != form.head]
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
            notes.append(f"tokens that the dictionary has more than once: {listed(list(vocabulary.repeated), 10)}")
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
    """Return the state dict that the reference code would load: `wordorder.conversion.convert_tupe` backwards.

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
    found = to_theirs(weights, form)
    return {name if name.startswith("classification_heads.") else prefix + name: found[name] for name in found}


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
        wanted = _OPTIONS | (_RELATIVE_OPTIONS if config.encoding == "tupe-r" else {})
        faults += [
            f"encoding option {name}={chosen[name]!r}, where it has {value!r}"
            for name, value in wanted.items()
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
