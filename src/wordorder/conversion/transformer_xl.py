"""Convert checkpoints of Transformer-XL's code, and of LaMemo's, which was made from it, to Hugging Face folders."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wordorder.conversion.hugging_face_folder import ConversionReport, staged_folder, write_folder
from wordorder.conversion.pickle_survey import printable
from wordorder.conversion.reference_file import (
    ReferenceFile,
    Wrapping,
    in_one_dtype,
    listed,
    open_reference_file,
    read_config,
)
from wordorder.conversion.transformer_xl_checkpoint import (
    EXAMPLE,
    KINDS,
    Parameter,
    XLSettings,
    biases_of,
    ignored_names,
    parameters_of,
    read_settings,
)
from wordorder.conversion.vocabulary import END, read_words, without_unknown, word_tokenizer
from wordorder.errors import BadInput

CODE = Wrapping(state="model_state", args="model_config", prefix="module.", bare=True)
"""The reference codes; "module." is torch's wrapper for several processes."""
TRANSFORMERS = Wrapping(state="model_state", args="model_config", prefix="transformer.", bare=True)
"""The former TransfoXL of transformers; its settings are in config.json."""


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
        checkpoint: a torch file {"model_config": ..., "model_state": ...}, a state dict as torch file or .safetensors,
            or a folder of transformers' former TransfoXL (config.json with model.safetensors or pytorch_model.bin).
        config: settings of the model, or a JSON file of them, in place of those in the file; a bare state dict has none
            and needs at least mem_len and tgt_len.
        vocab: the words, one a line, from which a tokeniser is written. A vocabulary inside a checkpoint is a pickled
            object, which is not read.
    """
    return _convert(checkpoint, out_dir, (0,), config=config, vocab=vocab, overwrite=overwrite)


def _convert(
    checkpoint: str | Path,
    out_dir: str | Path,
    kinds: tuple[int, ...],
    *,
    config: str | Path | Mapping[str, Any] | None,
    vocab: str | Path | None,
    overwrite: bool,
) -> ConversionReport:
    source = Path(checkpoint).expanduser()
    with staged_folder(Path(out_dir).expanduser(), overwrite=overwrite) as folder:
        given = read_config(Path(config).expanduser(), EXAMPLE) if isinstance(config, str | Path) else config
        with _open(source) as (file, of_folder):
            args = dict(given if given is not None else (of_folder or file.args or {}))
            settings, parameters = _understand(source, file, args, kinds, folder=of_folder is not None)
            words = None if vocab is None else read_words(Path(vocab).expanduser(), settings.vocabulary)
            weights = file.load([name for p in parameters for name in p.theirs if name in file.shapes])
        tied = _tied(weights, parameters)
        tensors = in_one_dtype(_ours(weights, parameters, settings, tied=tied))
        report = ConversionReport(
            checkpoint=source.name,
            layout=file.layout if of_folder is None else f"transformers folder, {file.layout}",
            architectures=("WordOrderDecoderForCausalLM",),
            config=_config_fields(settings, words, tied=tied),
            parameters=sum(tensor.numel() for tensor in tensors.values()),
            dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
            mapped={name: (p.ours,) for p in parameters for name in p.theirs if name in file.shapes},
            ignored=ignored_names(file.shapes, settings),
            placeholders=dict(file.placeholders),
            tokenizer=words is not None,
            notes=tuple(_notes(file, settings, words, tied=tied, folder=of_folder is not None)),
        )
        tokenizer = None if words is None else word_tokenizer(words)
        write_folder(folder, report, tensors, tokenizer, config_class="WordOrderDecoderConfig")
    return report


@contextmanager
def _open(source: Path) -> Generator[tuple[ReferenceFile, Mapping[str, Any] | None]]:
    """Open the weights, and read the configuration of a transformers folder."""
    if not source.is_dir():
        with open_reference_file(source, CODE) as file:
            yield file, None
        return
    settings = read_config(source / "config.json")
    if settings.get("model_type") != "transfo-xl":
        raise BadInput(
            f"checkpoint {source}: config.json is of model_type {printable(settings.get('model_type'))}, not transfo-xl"
        )
    names = ("model.safetensors", "pytorch_model.bin")
    found = next((source / name for name in names if (source / name).is_file()), None)
    if found is None:
        raise BadInput(f"checkpoint {source}: has neither {' nor '.join(names)} (weights in one file are read)")
    with open_reference_file(found, TRANSFORMERS) as file:
        yield file, settings


def _understand(
    source: Path, file: ReferenceFile, args: Mapping[Any, Any], kinds: tuple[int, ...], *, folder: bool
) -> tuple[XLSettings, list[Parameter]]:
    if "word_emb.emb_layers.0.weight" not in file.shapes:
        raise BadInput(
            f"checkpoint {source}: holds no model of Transformer-XL's or LaMemo's code (no"
            f" word_emb.emb_layers.0.weight); its weights are {listed(list(file.shapes), 5) or 'nothing'}"
        )
    try:
        settings = read_settings(args, file.shapes, kinds, folder=folder)
    except BadInput as error:
        raise BadInput([f"checkpoint {source}: {fault}" for fault in error.faults]) from None
    parameters = parameters_of(settings)
    tied = args.get("tie_weight", args.get("tie_word_embeddings")) is not False
    faults = file.faults(
        {name: shape for p in parameters for name, shape in zip(p.theirs, p.shape, strict=True)},
        optional={name for p in parameters if p.shares is not None and tied for name in p.theirs},
        ignored=ignored_names(file.shapes, settings),
        code="the reference code does not have with these settings",
    )
    if faults:
        raise BadInput([f"checkpoint {source}: {fault}" for fault in faults])
    return settings, parameters


def _tied(weights: Mapping[str, Tensor], parameters: Sequence[Parameter]) -> bool:
    """Return whether the output layer's table is the embeddings'; a file that stores it once has it in either case."""
    return all(
        name not in weights or torch.equal(weights[name], weights[p.shares])
        for p in parameters
        if p.shares is not None
        for name in p.theirs
    )


def _ours(
    weights: Mapping[str, Tensor], parameters: Sequence[Parameter], settings: XLSettings, *, tied: bool
) -> dict[str, Tensor]:
    """Return our tensors by our names; of tied ones the embeddings' alone."""
    found = {p.ours: p.join([weights[name] for name in p.theirs]) for p in parameters if not (tied and p.shares)}
    like = next(iter(found.values()))
    return found | {name: torch.zeros(size, dtype=like.dtype) for name, size in biases_of(settings).items()}


def _config_fields(settings: XLSettings, words: Sequence[str] | None, *, tied: bool) -> dict[str, Any]:
    """Return the configuration, with everything written out that the reference code fixes: our defaults may change."""
    eos = settings.eos if words is None else next((words.index(word) for word in END if word in words), settings.eos)
    options: dict[str, object] = {"base": 10_000.0, "vectors_per_layer": settings.own_vectors}
    if settings.clamp is not None:
        options["clamp"] = settings.clamp
    if settings.looks_ahead:
        options["sides"] = {31: "signed", 32: "two-vectors"}.get(settings.kind, "disentangled")
    fields = {
        "vocab_size": settings.vocabulary,
        "hidden_size": settings.channels,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.inner,
        "max_position_embeddings": settings.memory_length + settings.segment_length,
        "hidden_act": "relu",
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        "output_dropout": settings.dropout,
        "layer_norm_eps": settings.norm_eps,
        "tie_word_embeddings": tied,
        "eos_token_id": eos,
        "encoding": "transformer-xl",
        "encoding_options": options,
        "norm": "layer",
        "norm_placement": "pre" if settings.pre_norm else "post",
        "embedding_norm": False,
        "final_norm": False,
        "embedding_scale": settings.channels**0.5,
        "head_bias": True,
    }
    if settings.memory_length:
        fields |= {
            "memory": "look-ahead" if settings.looks_ahead else "segment-recurrence",
            "memory_length": settings.memory_length,
            "segment_length": settings.segment_length,
            "memory_options": {"epsilon": 1e-6, "full": settings.kind == 33}
            if settings.looks_ahead
            else {"same_length": settings.same_length},
        }
    return fields


def _notes(
    file: ReferenceFile, settings: XLSettings, words: Sequence[str] | None, *, tied: bool, folder: bool
) -> list[str]:
    notes = [*settings.notes, "projections have biases here, which are 0: the reference code has none"]
    if settings.dropout > 0:
        notes.append("the reference code also drops channels of position vectors in training; outputs are the same")
    if folder:
        notes.append(
            "transformers began with mem_len vectors of zeros as memory, which queries could see; here memory begins"
            " empty, so outputs are equal once those would have left it"
        )
    if settings.looks_ahead:
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
    else:
        notes += without_unknown(words)
        notes.append(
            "the tokeniser looks up words apart by white space, and adds nothing: where lines end, write the"
            " vocabulary's word for it"
        )
    return notes


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

    Arguments, returns and errors are those of `convert_transformer_xl`; ``checkpoint`` is no folder.
    """
    return _convert(checkpoint, out_dir, tuple(KINDS), config=config, vocab=vocab, overwrite=overwrite)
