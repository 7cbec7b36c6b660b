"""Both ends of a conversion: read a checkpoint, and write a Hugging Face folder that appears whole or not at all."""

import json
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from wordorder import models
from wordorder.errors import BadInput, RunFailed
from wordorder.files import check_writable, replace_folder, restore_replaced, sync_files
from wordorder.models.model_card import code, write_card
from wordorder.papers.weights import Checkpoint, Code, Settings, listed, read_checkpoint, read_settings

REPORT = "conversion.json"
REPLACEABLE = frozenset(
    (
        REPORT,
        *"README.md config.json model.safetensors special_tokens_map.json tokenizer.json tokenizer_config.json".split(),
    )
)
"""Files that a conversion writes. A folder with anything else in it, or without the report, is not replaced."""

Names = Sequence[tuple[str, str]]
"""Their name and ours. Several stand apart by a space: the rows of theirs, one after the other, are those of ours."""


def weights_and_biases(*modules: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the rows of `Names` for modules that have a weight and a bias."""
    return [
        (f"{theirs}{end}", " ".join(f"{name}{end}" for name in ours.split()))
        for theirs, ours in modules
        for end in ("weight", "bias")
    ]


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """The report of a conversion, for its caller and for those who find the folder later.

    Args:
        architectures: classes that the folder's weights serve; the first one is what the model was trained for last.
        config: the fields of the model's configuration that the conversion chose.
        parameters: numbers in the written weights.
        dtype: of the written weights.
        mapped: the reference's name -> our names; several where one tensor holds the rows of several.
        ignored: names in the checkpoint that were not converted.
        notes: what a user should know, a sentence each.
    """

    checkpoint: str
    architectures: tuple[str, ...]
    config: dict[str, Any]
    parameters: int
    dtype: str
    mapped: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    tokenizer: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Model:
    architectures: tuple[str, ...]
    config_class: str
    fields: dict[str, Any]
    names: Names
    ignored: re.Pattern[str]
    """Names that may be there and hold nothing to convert."""
    zeros: tuple[str, ...] = ()
    """Ends of our names of parameters that the code does not have, and that are 0."""
    tokenizer: PreTrainedTokenizerFast | None
    notes: tuple[str, ...]


def open_checkpoint(
    checkpoint: str | Path,
    out_dir: str | Path,
    origin: Code,
    config: str | Path | Mapping[str, Any] | None,
    *,
    overwrite: bool,
) -> tuple[Checkpoint, Settings]:
    """Read a checkpoint and the settings of its run, where the folder may be written and it is one of this code."""
    _check_target(Path(out_dir).expanduser(), overwrite=overwrite)
    file = read_checkpoint(Path(checkpoint).expanduser(), origin)
    if origin.table not in file.weights:
        raise BadInput(
            f"checkpoint {file.path}: holds no model of {origin.name} (no {origin.table}); its weights are"
            f" {listed(file.weights, 5)}"
        )
    return file, read_settings(file, config, origin)


def _check_target(out_dir: Path, *, overwrite: bool) -> None:
    try:
        restore_replaced(out_dir.resolve().parent, out_dir.resolve().name)  # of a conversion that crashed
        if not out_dir.exists():
            if reason := check_writable(out_dir.absolute()):
                raise BadInput(f"OUT_DIR {str(out_dir)[:200]!r} cannot be written: {reason}")
            return
        if not out_dir.is_dir():
            raise BadInput(f"OUT_DIR {out_dir} is not a folder")
        names = sorted(path.name for path in out_dir.iterdir())
        others = [name for name in names if name not in REPLACEABLE or not (out_dir / name).is_file()]
    except OSError as error:
        raise BadInput(f"OUT_DIR {str(out_dir)[:200]!r} cannot be written: {error.strerror}") from None
    if names and not overwrite:
        raise BadInput(f"OUT_DIR {out_dir} is not empty; name another folder, or pass --overwrite")
    if names and (others or REPORT not in names):  # a trained model has the other names too
        reason = f"it holds more: {', '.join(others[:5])}" if others else f"it has no {REPORT}"
        raise BadInput(
            f"OUT_DIR {out_dir} is no earlier conversion ({reason}), so it is not overwritten; name another folder"
        )


def write_folder(file: Checkpoint, origin: Code, model: Model, out_dir: str | Path) -> ConversionReport:
    """Make a folder that `AutoModelForMaskedLM` and the like load under another name; rename it when it is whole."""
    target, weights = Path(out_dir).expanduser(), file.weights
    copy = weights.get(origin.output)
    tied = copy is None or copy.equal(weights[origin.table])
    fields = {**model.fields, "tie_word_embeddings": tied}
    try:
        config = getattr(models, model.config_class)(**fields)
        shapes = _shapes(config, model.architectures)
        tensors = _renamed(weights, model, shapes, optional=origin.output)
    except BadInput as error:
        raise BadInput([f"checkpoint {file.path}: {fault}" for fault in error.faults]) from None
    dtype = next(iter(tensors.values())).dtype
    mapped = {each: tuple(ours.split()) for theirs, ours in model.names for each in theirs.split() if each in weights}
    notes = [] if tied else [f"{origin.output} differs from the token embeddings, so it is not tied to them"]
    if model.tokenizer is None:
        notes.append("no tokeniser was written, since no list of tokens was given; ids are those of the checkpoint")
    report = ConversionReport(
        checkpoint=file.path.name,
        architectures=model.architectures,
        config=fields,
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        dtype=str(dtype).removeprefix("torch."),
        mapped=mapped,
        ignored=tuple(name for name in weights if name not in mapped),
        tokenizer=model.tokenizer is not None,
        notes=(*notes, *model.notes),
    )
    config.architectures = list(model.architectures)
    config.dtype = dtype
    if fields.get("num_labels") == 1:
        config.problem_type = "regression"
    final = target.resolve()  # a link stays a link
    staging = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
    new_parents = [path for path in final.parents if not path.exists()]
    try:
        staging.mkdir(parents=True)
        save_file(tensors, staging / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(staging)
        # safetensors gives its files to their owner alone; the folder's are for whom the umask says
        (staging / "model.safetensors").chmod((staging / "config.json").stat().st_mode)
        if model.tokenizer is not None:
            cast("Any", model.tokenizer).save_pretrained(staging)
        text = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (staging / REPORT).write_text(f"{text}\n", encoding="utf-8")
        _write_card(staging, report)
        sync_files(staging)
        replace_folder(staging, final)
    except (OSError, SafetensorError) as error:
        raise RunFailed(f"OUT_DIR {target} could not be written: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for parent in new_parents:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
    return report


def _write_card(folder: Path, report: ConversionReport) -> None:
    lines = [
        f"- {report.parameters:,} numbers, {report.dtype}; {len(report.mapped)} weights were mapped,"
        f" {len(report.ignored)} left out; {REPORT} lists them",
        *(f"- {note}" for note in report.notes),
    ]
    write_card(
        folder,
        title=f"{Path(report.checkpoint).stem or 'checkpoint'}, converted",
        summary=f"The weights of {code(report.checkpoint)}, converted by `wordorder convert`; they were not trained"
        " here, and their licence, data and scores are those of whoever trained them.",
        sections=[("Where it comes from", "\n".join(lines))],
    )


def _shapes(config: Any, architectures: Sequence[str]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name in architectures:
        with torch.device("meta"):
            model = getattr(models, name)(config)
        tied = model.get_expanded_tied_weights_keys()
        shapes |= {name: tuple(weight.shape) for name, weight in model.state_dict().items() if name not in tied}
    return shapes


def _renamed(
    weights: Mapping[str, Tensor], model: Model, shapes: Mapping[str, tuple[int, ...]], *, optional: str
) -> dict[str, Tensor]:
    """Return our names with copies of the weights: in float32, which holds every half exactly, or in float64."""
    theirs_of_all = [name for theirs, _ in model.names for name in theirs.split()]
    missing = [name for name in theirs_of_all if name not in weights and name != optional]
    extra = [name for name in weights if name not in theirs_of_all and not model.ignored.fullmatch(name)]
    faults = [f"weights are missing: {listed(missing)}"] if missing else []
    if extra:
        faults.append(f"there are weights that the reference code does not have with these settings: {listed(extra)}")
    double = any(weights[name].dtype == torch.float64 for name in theirs_of_all if name in weights)
    dtype = torch.float64 if double else torch.float32
    tensors: dict[str, Tensor] = {}
    for theirs, ours in ((theirs.split(), ours.split()) for theirs, ours in model.names):
        if not ({*theirs} <= {*weights} and {*ours} <= {*shapes}):
            continue
        parts, rows = [weights[name] for name in theirs], [shapes[name][0] for name in ours]
        expected = (sum(rows), *shapes[ours[0]][1:])
        shown = ", ".join(str(tuple(part.shape)) for part in parts)
        fits = all(part.dim() and part.shape[1:] == expected[1:] for part in parts)
        if not all(part.is_floating_point() for part in parts):
            faults.append(f"{' '.join(theirs)} holds {parts[0].dtype} numbers, not floating-point ones")
        elif not fits or sum(map(len, parts)) != expected[0]:
            faults.append(f"{' '.join(theirs)} has shape {shown} instead of {expected}")
        else:
            rest = torch.cat([part.to(dtype) for part in parts])
            for name, count in zip(ours, rows, strict=True):
                tensors[name], rest = rest[:count].clone(), rest[count:]
    if faults:
        raise BadInput(faults)
    tensors |= {n: torch.zeros(shape, dtype=dtype) for n, shape in shapes.items() if n.endswith(model.zeros)}
    # the models find each weight under its name and in its shape; anything else is a bug of ours
    assert shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return tensors
