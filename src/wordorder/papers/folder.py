"""Write the Hugging Face folder of a converted model, with the report beside it: it appears whole or not at all."""

import json
import secrets
import shutil
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

REPORT = "conversion.json"
REPLACEABLE = frozenset(
    (REPORT, *"config.json model.safetensors special_tokens_map.json tokenizer.json tokenizer_config.json".split())
)
"""Files that a conversion writes. A folder with anything else in it, or without the report, is not replaced."""


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


def check_target(out_dir: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds anything; with ``overwrite`` one that holds more than an earlier conversion."""
    try:
        restore_replaced(out_dir.resolve().parent, out_dir.resolve().name)  # of a conversion that crashed
        if not out_dir.exists():
            return
        if not out_dir.is_dir():
            raise BadInput(f"OUT_DIR {out_dir} is not a folder")
        names = sorted(path.name for path in out_dir.iterdir())
        others = [name for name in names if name not in REPLACEABLE or not (out_dir / name).is_file()]
    except OSError as error:
        raise BadInput(f"OUT_DIR {str(out_dir)[:200]!r} cannot be written: {error.strerror}") from None
    if names and not overwrite:
        raise BadInput(f"OUT_DIR {out_dir} is not empty; name another folder, or pass --overwrite")
    if others:
        raise BadInput(
            f"OUT_DIR {out_dir} holds more than an earlier conversion ({', '.join(others[:5])}), so it is not"
            " overwritten; name another folder"
        )
    if names and REPORT not in names:  # a trained model has the other names too
        raise BadInput(
            f"OUT_DIR {out_dir} is no earlier conversion (it has no {REPORT}), so it is not overwritten; name another"
            " folder"
        )


def write_folder(
    out_dir: Path,
    report: ConversionReport,
    tensors: dict[str, Tensor],
    tokenizer: PreTrainedTokenizerFast | None,
    *,
    config_class: str,
) -> None:
    """Make a folder that `AutoModelForMaskedLM` and the like load under another name; rename it when it is whole."""
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
    final = out_dir.resolve()  # a link stays a link
    staging = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
    try:
        staging.mkdir(parents=True)
        save_file(tensors, staging / "model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(staging)
        # safetensors gives its files to their owner alone; the folder's are for whom the umask says
        (staging / "model.safetensors").chmod((staging / "config.json").stat().st_mode)
        if tokenizer is not None:
            cast("Any", tokenizer).save_pretrained(staging)
        text = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (staging / REPORT).write_text(f"{text}\n", encoding="utf-8")
        sync_files(staging)
        replace_folder(staging, final)
    except (OSError, SafetensorError) as error:
        raise RunFailed(f"OUT_DIR {out_dir} could not be written: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
