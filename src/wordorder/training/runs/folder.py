"""The files of a run folder, and the result that a finished one holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from wordorder.errors import RunFailed
from wordorder.limits import one_line, read_json
from wordorder.training.runs import curve

RECIPE, METRICS, ENVIRONMENT, MODEL, LOGS = "recipe.toml", "metrics.json", "environment.json", "model", "logs"
PRETRAINED = "pretrained.json"
"""File with the origin of the weights, and which are new; only in a run that started from a saved model."""
DATA = "data.json"
"""File with the statistics of the prepared data; a resumed run compares its fingerprint."""
IDENTITY = "arm.json"
"""File that a comparison writes into a run's folder before training: everything that the run's numbers depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The scores of a finished run, and the place of its model."""

    metrics: dict[str, Any]
    """Scores of the task on `validation` and, where there is one, `test`: see `TokenTally`, `ClassTally`,
    `NumberTally`.

    Beside them: optimistic (whether the part that chose the checkpoint is also the one that is reported),
    train_seconds, tokens (padding left out), tokens_per_second, peak_memory_bytes (see `Meter`), parameters, steps,
    seed, best_step (whose weights `model/` holds), batches (digests of what was trained on, see `FedBatches`); for
    translation bleu_signature (sacrebleu's) and generation (num_beams, max_length).
    """
    model_dir: Path
    """Folder of the model and the tokenizer, for `from_pretrained` and `pipeline`."""
    curve: list[dict[str, Any]]
    """Rows of step with loss, learning_rate, grad_norm, train_seconds, tokens; validation_loss ... where evaluated."""


def read_result(folder: Path) -> RunResult:
    """Read the result of a finished run.

    Args:
        folder: a run folder that holds metrics.json.

    Raises:
        RunFailed: metrics.json or curve.jsonl cannot be read.
    """
    return RunResult(metrics=read_metrics(folder), model_dir=folder / MODEL, curve=curve.read(folder))


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read the metrics of a finished run.

    Args:
        folder: a run folder that holds metrics.json.

    Raises:
        RunFailed: it cannot be read.
    """
    path = folder / METRICS
    try:
        metrics: Any = read_json(path)
        if not isinstance(metrics, dict):
            raise ValueError("it holds no table")
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it, and --resume makes it anew") from None
    return cast("dict[str, Any]", metrics)
