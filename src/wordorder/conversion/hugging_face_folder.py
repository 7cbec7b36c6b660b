"""The Hugging Face folder of a converted model, with the report beside it: it appears whole or not at all."""

import html
import json
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from wordorder import models
from wordorder.durable import replace_folder, restore_replaced, sync_files
from wordorder.errors import BadInput, RunFailed
from wordorder.models.hub.model_card import code, write_card

REPLACEABLE = frozenset(
    "README.md config.json conversion.json model.safetensors special_tokens_map.json tokenizer.json"
    " tokenizer_config.json".split()
)
"""Files that a conversion writes. A folder with anything else in it, or without conversion.json, is not replaced,
whatever the caller wishes."""


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """The report of a conversion, for its caller and for those who find the folder later.

    Args:
        layout: format of the checkpoint: "torch zip", "torch stream" (before torch 1.6) or "safetensors".
        architectures: classes that the folder's weights serve; the first one is what the model was trained for last.
        config: the fields of the model's configuration that the conversion chose.
        parameters: numbers in the written weights.
        dtype: of the written weights.
        mapped: the reference's name -> our names; several where one tensor holds the rows of several.
        ignored: names in the checkpoint that were not converted.
        placeholders: globals that the file names outside the closed list, with how often; none was imported or called.
        notes: what a user should know, a sentence each.
    """

    checkpoint: str
    layout: str
    architectures: tuple[str, ...]
    config: dict[str, Any]
    parameters: int
    dtype: str
    mapped: dict[str, tuple[str, ...]]
    ignored: tuple[str, ...]
    placeholders: dict[str, int]
    tokenizer: bool
    notes: tuple[str, ...]


@contextmanager
def staged_folder(out_dir: Path, *, overwrite: bool = False) -> Generator[Path]:
    """Give a folder to fill; flush it and put it in the place of ``out_dir`` if the block ends well, else remove it.

    With ``overwrite`` an earlier conversion stays until the new one is whole.
    """
    shown, out_dir = out_dir, out_dir.resolve()
    try:
        restore_replaced(out_dir.parent, out_dir.name)  # of a conversion that crashed
        _check_place(out_dir, shown, overwrite)
        missing = [path for path in (out_dir.parent, *out_dir.parent.parents) if not path.exists()]
    except OSError as error:  # a name that is too long, or a folder that may not be looked into
        raise BadInput(f"OUT_DIR {str(shown)[:200]!r} cannot be written: {error.strerror}") from None
    staging = out_dir.with_name(f".{out_dir.name}.{secrets.token_hex(4)}")
    try:
        try:
            staging.mkdir(parents=True)
        except OSError as error:
            raise BadInput(f"OUT_DIR {shown} cannot be written: {error.strerror}") from None
        yield staging
        try:
            sync_files(staging)
            replace_folder(staging, out_dir)
        except OSError as error:
            raise RunFailed(f"OUT_DIR {shown} could not be written: {error}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        for path in missing:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def _check_place(out_dir: Path, shown: Path, overwrite: bool) -> None:
    if not out_dir.exists():
        return
    if not out_dir.is_dir():
        raise BadInput(f"OUT_DIR {shown} is not a folder")
    held = sorted(path.name for path in out_dir.iterdir())
    if held and not overwrite:
        raise BadInput(f"OUT_DIR {shown} is not empty; name another folder, or pass --overwrite")
    others = [name for name in held if name not in REPLACEABLE or not (out_dir / name).is_file()]
    if others:
        raise BadInput(
            f"OUT_DIR {shown} holds more than an earlier conversion ({', '.join(others[:5])}), so it is not"
            " overwritten; name another folder"
        )
    if held and "conversion.json" not in held:  # a trained model has the other names too
        raise BadInput(
            f"OUT_DIR {shown} is no earlier conversion (it has no conversion.json), so it is not overwritten; name"
            " another folder"
        )


def write_folder(
    folder: Path,
    report: ConversionReport,
    tensors: dict[str, Tensor],
    tokenizer: PreTrainedTokenizerFast | None,
    *,
    config_class: str,
) -> None:
    """Fill a folder that `AutoModelForMaskedLM` and the like load."""
    config = getattr(models, config_class)(**report.config)
    config.architectures = list(report.architectures)
    config.dtype = getattr(torch, report.dtype)
    if report.config.get("num_labels") == 1:
        config.problem_type = "regression"
    shapes: dict[str, tuple[int, ...]] = {}
    for name in report.architectures:
        with torch.device("meta"):
            model = getattr(models, name)(config)
        tied = model.get_expanded_tied_weights_keys()
        shapes |= {name: tuple(weight.shape) for name, weight in model.state_dict().items() if name not in tied}
    # the models find each weight under its name and in its shape; anything else is a bug of ours
    assert shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    try:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(folder)
        # safetensors gives its files to their owner alone; the folder's are for whom the umask says
        (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)
        if tokenizer is not None:
            cast("Any", tokenizer).save_pretrained(folder)
        text = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (folder / "conversion.json").write_text(f"{text}\n", encoding="utf-8")
        write_conversion_card(folder, report)
    except (OSError, SafetensorError) as error:
        raise RunFailed(f"the converted model could not be written: {error}") from error


def write_conversion_card(folder: Path, report: ConversionReport) -> None:
    """Write README.md beside a converted model."""
    lines = [
        f"- read from {code(report.checkpoint)} ({report.layout}) without running anything in it",
        f"- {report.parameters:,} numbers, {report.dtype}; {len(report.mapped)} weights were mapped,"
        f" {len(report.ignored)} left out; conversion.json lists them",
        f"- tokeniser: {'written' if report.tokenizer else 'not written'}",
        f"- loads as {', '.join(code(name) for name in report.architectures)}",
        *(f"- {html.escape(note, quote=False)}" for note in report.notes),
    ]
    write_card(
        folder,
        title=f"{Path(report.checkpoint).stem or 'checkpoint'}, converted",
        summary=f"The weights of {code(report.checkpoint)}, converted by `wordorder convert`; they were not trained"
        " here, and their licence and data are those of whoever trained them. The conversion measures no score: compare"
        " with the checkpoint's own on data that you know.",
        sections=[("Where it comes from", "\n".join(lines))],
    )
