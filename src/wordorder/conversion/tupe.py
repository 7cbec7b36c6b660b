"""Convert TUPE's reference checkpoints to Hugging Face folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.conversion.dictionary import fit_dictionary, make_tokenizer, read_tokens
from wordorder.conversion.hugging_face_folder import architectures_of, config_fields, write_folder
from wordorder.conversion.reference_args import ReferenceArgs, read_args
from wordorder.conversion.reference_file import ReferenceFile, open_reference_file, read_config
from wordorder.conversion.reference_names import (
    OPTIONAL,
    Form,
    differences,
    form_of,
    heads_of,
    listed,
    sizes_of,
    to_ours,
)
from wordorder.conversion.report import ConversionReport, notes_of
from wordorder.conversion.staging import staged_folder
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

BUCKETS_OF_DISTANCE = "sentence_encoder.rp_bucket"
_FLOATS = ("float16", "bfloat16", "float32", "float64")


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
    training run. Nothing in the file is imported or called; see `wordorder.conversion.torch_files.torch_file`.

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
    import wordorder.models  # says what to install  # noqa: F401  # pyright: ignore[reportUnusedImport]

    source = Path(checkpoint).expanduser()
    with staged_folder(Path(out_dir).expanduser(), overwrite=overwrite) as folder:
        args = read_config(Path(config).expanduser()) if isinstance(config, str | Path) else config
        listing = None if dictionary is None else Path(dictionary).expanduser()
        tokens = None if listing is None else read_tokens(listing)
        with open_reference_file(source) as file:
            form, sizes, settings = _understand(source, file, args, head)
            vocabulary = fit_dictionary(tokens, sizes["V"], listing) if listing and tokens is not None else None
            names = form.names()
            read = {*names, BUCKETS_OF_DISTANCE} if form.relative else {*names}
            weights = file.load([name for name in file.shapes if name in read])
        _check_buckets(source, weights.pop(BUCKETS_OF_DISTANCE, None), sizes)
        tied = _is_tied(weights)
        tensors = in_one_dtype(to_ours(weights, form))
        if tied:
            tensors.pop("head.decoder.weight", None)
        report = ConversionReport(
            checkpoint=source.name,
            layout=file.layout,
            architectures=architectures_of(form),
            config=config_fields(form, sizes, settings, vocabulary, tied=tied),
            parameters=sum(tensor.numel() for tensor in tensors.values()),
            dtype=str(next(iter(tensors.values())).dtype).removeprefix("torch."),
            mapped={theirs: ours for theirs, (ours, _) in names.items() if theirs in file.shapes},
            ignored=tuple(name for name in file.shapes if name not in names),
            placeholders=dict(file.placeholders),
            tokenizer=vocabulary is not None,
            notes=tuple(notes_of(file, form, settings, vocabulary, given=args, tied=tied)),
        )
        length = report.config["max_position_embeddings"]
        write_folder(folder, report, tensors, None if vocabulary is None else make_tokenizer(vocabulary, length))
    return report


def _understand(
    source: Path, file: ReferenceFile, args: Mapping[str, Any] | None, head: str | None
) -> tuple[Form, dict[str, int], ReferenceArgs]:
    """Return the model's parts, sizes and settings, or raise every fault at once."""
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
    sizes = sizes_of(file.shapes, form)
    faults = differences(file.shapes, form, sizes) + _number_faults(file, form, sizes)
    given = dict(args if args is not None else file.args or {})
    if len(heads) > 1:
        given.pop("num_classes", None)  # says nothing about the chosen head
    try:
        settings = read_args(given, form, sizes)
    except BadInput as error:
        raise BadInput([f"checkpoint {source}: {fault}" for fault in (*faults, *error.faults)]) from None
    if faults:
        raise BadInput([f"checkpoint {source}: {fault}" for fault in faults])
    return form, sizes, settings


def _number_faults(file: ReferenceFile, form: Form, sizes: Mapping[str, int]) -> list[str]:
    """List weights that hold no fractions, and sizes that no model of the reference code has."""
    faults = [
        f"{name} holds {file.kinds[name]} numbers, not floating-point ones"
        for name in form.names()
        if file.kinds.get(name, "float32") not in _FLOATS
    ]
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


def _check_buckets(source: Path, found: "Tensor | None", sizes: Mapping[str, int]) -> None:
    """Check that our buckets of all pairs of positions are those of the checkpoint, where it holds them."""
    if found is None:
        return
    import torch

    from wordorder.ops import t5_bucket

    buckets, index = sizes["R"] - 1, torch.arange(sizes["P"] - 1)
    ours = t5_bucket(index[None, :] - index[:, None], buckets=buckets)
    ours[:, 0], ours[0, :] = buckets, buckets // 2
    if not torch.equal(found.long(), ours):
        raise BadInput(
            f"checkpoint {source}: its buckets of distance (rp_bucket) are not those of T5 with {buckets} buckets"
        )


def _is_tied(weights: "Mapping[str, Tensor]") -> bool:
    import torch

    copy = weights.get(OPTIONAL)
    return copy is None or torch.equal(copy, weights["sentence_encoder.embed_tokens.weight"])


def in_one_dtype(tensors: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Copy tensors to float32, which holds every half exactly; to float64 if any of them is."""
    import torch

    double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    dtype = torch.float64 if double else torch.float32
    return {name: tensor.to(dtype, copy=True).contiguous().requires_grad_(False) for name, tensor in tensors.items()}
