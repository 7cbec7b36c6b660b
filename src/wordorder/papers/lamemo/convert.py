"""Convert checkpoints of Transformer-XL's code, and of LaMemo's, which was made from it, to Hugging Face folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.papers.folder import ConversionReport, check_target, write_folder
from wordorder.papers.lamemo.names import IGNORED, OUTPUT, TABLE, names_of, shapes_of, sizes_of, to_ours
from wordorder.papers.vocabulary import END, UNKNOWN, read_words, word_tokenizer
from wordorder.papers.weights import Checkpoint, Settings, Wrapping, in_one_dtype, listed, read_checkpoint

CODE = Wrapping(state="model_state", args="model_config", prefix="module.")
"""Both codes; "module." is torch's wrapper for several processes."""

EXAMPLE = '{"mem_len": 150, "tgt_len": 150}'
"""Example of what --config may hold, for messages."""

KINDS = {0: "Transformer-XL", 3: "disentangled", 31: "signed", 32: "two-vectors", 33: "disentangled"}
"""``attn_type`` -> the attention; LaMemo's by the option ``sides`` of the encoding."""

_OTHERS = {1: "learned tables of distances per layer", 2: "sines added to the embeddings"}


def convert_transformer_xl(
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    vocab: str | Path | None = None,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a Transformer-XL checkpoint to a folder for transformers' `AutoModelForCausalLM`.

    ``out_dir``, ``overwrite``, returns and errors are those of `convert_tupe`; nothing in the file is run either.

    Args:
        checkpoint: a torch file {"model_config": ..., "model_state": ...}, or a state dict as torch file or
            .safetensors.
        config: settings of the model, or a JSON file of them, in place of those in the file; a bare state dict has none
            and needs at least mem_len and tgt_len.
        vocab: the words, one a line, from which a tokeniser is written. A vocabulary inside a checkpoint is a pickled
            object, which is not read.
    """
    return _convert(checkpoint, out_dir, (0,), config=config, vocab=vocab, overwrite=overwrite)


def convert_lamemo(
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    config: str | Path | Mapping[str, object] | None = None,
    vocab: str | Path | None = None,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert a checkpoint of LaMemo's reference code to a folder for transformers' `AutoModelForCausalLM`.

    The folder computes what the reference code computes, its epsilon of 1e-6 included (``memory_options``), for
    segments of one length. ``attn_type`` 3 (the paper's), 31, 32, 33, and 0, Transformer-XL's attention in that code.

    Arguments, returns and errors are those of `convert_transformer_xl`.
    """
    return _convert(checkpoint, out_dir, tuple(KINDS), config=config, vocab=vocab, overwrite=overwrite)


def _convert(
    checkpoint: str | Path,
    out_dir: str | Path,
    kinds: tuple[int, ...],
    *,
    config: str | Path | Mapping[str, Any] | None,
    vocab: str | Path | None,
    overwrite: bool,
) -> ConversionReport:
    source, target = Path(checkpoint).expanduser(), Path(out_dir).expanduser()
    check_target(target, overwrite=overwrite)
    file = read_checkpoint(source, CODE)
    if TABLE not in file.weights:
        raise BadInput(
            f"checkpoint {source}: holds no model of Transformer-XL's or LaMemo's code (no {TABLE}); its weights are"
            f" {listed(file.weights, 5)}"
        )
    kind, fields = _understand(file, Settings(file.settings(config, EXAMPLE)), kinds)
    names = names_of(kind, fields["num_hidden_layers"])
    tensors = in_one_dtype(to_ours(file.weights, names, fields["hidden_size"]))
    tied = OUTPUT not in file.weights or file.weights[OUTPUT].equal(file.weights[TABLE])
    if tied:
        tensors.pop("lm_head.weight", None)
    words = None if vocab is None else read_words(Path(vocab).expanduser(), fields["vocab_size"])
    mapped = {theirs: (ours,) for ours, parts in names.items() for theirs in parts if theirs in file.weights}
    report = ConversionReport(
        checkpoint=source.name,
        architectures=("WordOrderDecoderForCausalLM",),
        config=fields
        | {
            "tie_word_embeddings": tied,
            "eos_token_id": None if words is None else next((words.index(word) for word in END if word in words), None),
        },
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
        mapped=mapped,
        ignored=tuple(name for name in file.weights if name not in mapped),
        tokenizer=words is not None,
        notes=tuple(_notes(file, fields, words, tied=tied)),
    )
    tokenizer = None if words is None else word_tokenizer(words)
    write_folder(target, report, tensors, tokenizer, config_class="WordOrderDecoderConfig")
    return report


def _understand(file: Checkpoint, settings: Settings, kinds: tuple[int, ...]) -> tuple[int, dict[str, Any]]:
    """Return attn_type, and the configuration with everything that the code fixes: our defaults may change."""
    if settings.fields.get("cutoffs") or "crit.cluster_weight" in file.weights:
        raise BadInput(
            f"checkpoint {file.path}: its words are in clusters (cutoffs, an adaptive softmax), which this package does"
            " not have; only models with one table of words are converted"
        )
    shown = sizes_of(file.weights)
    sizes = {"V": "n_token", "L": "n_layer", "H": "n_head", "C": "d_model", "F": "d_inner"}
    sizes = {letter: settings.size(name, shown.get(letter)) for letter, name in sizes.items()}
    sizes["D"] = settings.number("d_head", shown.get("D", 0))
    kind = _kind(file, settings, kinds)
    missing = [name for name in ("mem_len", "tgt_len") if name not in settings.fields]
    if missing:
        settings.fault(
            f"{' and '.join(missing)} must be known, and weights do not show it; give it with --config, a JSON file"
            f" such as {EXAMPLE}"
        )
    memory_length, same_length = settings.number("mem_len", 0, least=0), settings.switch("same_length", False)
    clamp = settings.number("clamp_len", -1)
    dropout = settings.rate("dropout", 0.1)
    fields: dict[str, Any] = {
        "vocab_size": sizes["V"],
        "hidden_size": sizes["C"],
        "num_hidden_layers": sizes["L"],
        "num_attention_heads": sizes["H"],
        "intermediate_size": sizes["F"],
        "max_position_embeddings": memory_length + (segment := settings.number("tgt_len", 1, least=1)),
        "hidden_act": "relu",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": settings.rate("dropatt", 0.0),
        "output_dropout": dropout,
        "layer_norm_eps": 1e-5,
        "encoding": "transformer-xl",
        "encoding_options": {"base": 10_000.0, "vectors_per_layer": False},
        "norm": "layer",
        "norm_placement": "pre" if settings.switch("pre_lnorm", False) else "post",
        "embedding_norm": False,
        "final_norm": False,
        "embedding_scale": sizes["C"] ** 0.5,
        "head_bias": True,
    }
    if clamp > 0:
        fields["encoding_options"]["clamp"] = clamp
    if kind != 0:
        fields["encoding_options"]["sides"] = KINDS[kind]
    if memory_length:
        fields |= {
            "memory": "look-ahead" if kind else "segment-recurrence",
            "memory_length": memory_length,
            "segment_length": segment,
            "memory_options": {"epsilon": 1e-6, "full": kind == 33} if kind else {"same_length": same_length},
        }
    _note_what_has_no_counterpart(settings, kind, sizes, shown)
    faults = settings.faults or file.faults(
        shapes_of(names_of(kind, sizes["L"]), sizes),
        optional={OUTPUT} if settings.fields.get("tie_weight") is not False else (),
        ignored={name for name in file.weights if IGNORED.fullmatch(name)},
    )
    if faults:
        raise BadInput([f"checkpoint {file.path}: {fault}" for fault in faults])
    return kind, fields


def _kind(file: Checkpoint, settings: Settings, kinds: tuple[int, ...]) -> int:
    """Return attn_type; where the settings do not name it, the one that the weights show."""
    fused = any(name.endswith("dec_attn.qkv_net.weight") for name in file.weights)
    shown = (
        0 if fused else 32 if "r_w_bias_future" in file.weights else None if "r_r_bias_future" in file.weights else 31
    )
    if shown is None and "attn_type" not in settings.fields and len(kinds) > 1:
        settings.fault(
            "attn_type is missing, and the weights of 3 and 33 have the same names; give it with --config, a JSON file"
        )
    kind = settings.number("attn_type", 3 if shown is None else shown)
    if kind in kinds:
        return kind
    if kind in KINDS:
        settings.fault(f"attn_type={kind} is LaMemo's: use wordorder convert lamemo")
    else:
        reason = f" ({_OTHERS[kind]})" if kind in _OTHERS else ""
        choice = " or ".join(map(str, kinds))
        settings.fault(f"attn_type={kind}{reason} has no counterpart here; attn_type={choice} has")
    return min(kinds)


def _note_what_has_no_counterpart(
    settings: Settings, kind: int, sizes: Mapping[str, int], shown: Mapping[str, int]
) -> None:
    """Note as faults what this package has no form for."""
    for name, values in (("enhance_recurrence", (False,)), ("sample_softmax", (-1, 0)), ("attn_norm_type", (0,))):
        if settings.fields.get(name, values[0]) not in values:
            settings.fault(f"{name}={settings.fields[name]!r} has no counterpart here; {name}={values[0]} has")
    if sizes["H"] * sizes["D"] != sizes["C"]:
        settings.fault(
            f"n_head * d_head = {sizes['H'] * sizes['D']} is not d_model = {sizes['C']}: heads here are d_model /"
            " n_head wide"
        )
    if (width := settings.number("d_embed", shown.get("E", sizes["C"]))) != sizes["C"]:
        settings.fault(f"d_embed={width} is not d_model={sizes['C']}: projected embeddings have no counterpart here")
    if kind != 0 and settings.number("mem_len", 1) == 0:
        settings.fault("mem_len=0: LaMemo's attention without memory is that of its attn_type 0, whose weights differ")
    if kind != 0 and settings.fields.get("same_length") is True:
        settings.fault("same_length=true has no counterpart for look-ahead memory, only for Transformer-XL's")
    if kind == 31 and (clamp := settings.number("clamp_len", -1)) > 0:
        settings.fault(f"clamp_len={clamp} with attn_type=31: that code clamps distances to the left alone, here both")


def _notes(file: Checkpoint, fields: Mapping[str, Any], words: Sequence[str] | None, *, tied: bool) -> list[str]:
    notes = ["projections have biases here, which are 0: the reference code has none"]
    if fields["hidden_dropout_prob"] > 0:
        notes.append("the reference code also drops channels of position vectors in training; outputs are the same")
    if fields.get("memory") == "look-ahead":
        notes.append(
            "outputs are the reference code's for segments of one length; for others its look-ahead windows leave gaps"
            " or overlap, and here they do not"
        )
    if not tied:
        notes.append("the output layer differs from the embeddings, so it is not tied to them")
    if file.has_halves:
        notes.append("weights in half precision were widened to float32, which changes none of them")
    if words is None:
        notes.append("no tokeniser was written (no --vocab was given); ids are those of the checkpoint's vocabulary")
        return notes
    if not any(word in words for word in UNKNOWN):
        notes.append(
            f"the list of words has none of {', '.join(UNKNOWN)}, so the tokeniser refuses a text with other words"
        )
    notes.append(
        "the tokeniser looks up words apart by white space, and adds nothing: where lines end, write the vocabulary's"
        " word for it"
    )
    return notes
