"""Check the section [training] with its trackers, fill in its defaults, and make TrainingArguments of it."""

import dataclasses
import os
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.launch import is_main, process_count
from wordorder.limits import one_line
from wordorder.section import unknown_choice
from wordorder.tasks import Metric
from wordorder.training.recipe.training_section import OWN, TrainingSettings

TENSORBOARD = "tensorboard"

FOLDERS: dict[str, dict[str, str]] = {
    "wandb": {
        "WANDB_DIR": "",
        "WANDB_CACHE_DIR": "wandb/cache",
        "WANDB_CONFIG_DIR": "wandb/config",
        "WANDB_DATA_DIR": "wandb/data",
        "WANDB_ARTIFACT_DIR": "wandb/artifacts",
    },
    "trackio": {"TRACKIO_DIR": "trackio"},
}
"""Tracker -> the environment variables with its folders -> the folder below <run folder>/logs. Without them wandb
writes into the working directory and the home, trackio into the home."""

_RUN_NAMES = {
    "wandb": "name",
    "trackio": "name",
    "mlflow": "run_name",
    "clearml": "task_name",
    "swanlab": "experiment_name",
}
"""Tracker -> its option for the name of a run."""


def tracker_names(report_to: Any) -> list[str]:
    """Return the trackers that a value of report_to names, each once; "all" means every one that is installed."""
    named = [report_to] if isinstance(report_to, str) else list(cast("Sequence[str]", report_to or ()))
    if "all" in named:
        named += _installed()
    return [name for name in dict.fromkeys(named) if name not in ("all", "none")]


def tracker_faults(report_to: Any) -> list[str]:
    named = tracker_names(report_to)
    if not set(named) - {TENSORBOARD}:  # it comes with the extra train
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    faults: list[str] = []
    for name in named:
        if name not in LOGGER_TYPE_TO_CLASS:
            faults.append(unknown_choice("training.report_to", name, [*sorted(LOGGER_TYPE_TO_CLASS), "all", "none"]))
        elif name not in _installed():
            package = name.replace("_", "-")
            faults.append(f"training.report_to: {name} is not installed; run: pip install {package}, or leave it out")
    return faults


def _installed() -> list[str]:
    from accelerate.tracking import get_available_trackers

    return [str(name) for name in cast("list[Any]", get_available_trackers())]


@contextmanager
def running_trackers(report_to: Any, folder: Path, *, first_step: int) -> Generator[list[Any]]:
    """Start the trackers of a run in its first process, and finish them at the end of the block.

    They write into <run folder>/logs, and what they print goes to stderr. A folder that the user has chosen by the
    tracker's own variable stays. trackio reads its folder once in a process: later runs of the same process (arms of a
    comparison) write where the first one does. TensorBoard's viewer drops what a killed run wrote from `first_step` on.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    names, logs = tracker_names(report_to) if is_main() else [], folder / "logs"
    trackers: list[Any] = []
    with ExitStack() as stack:
        if set(names) - {TENSORBOARD}:
            stack.enter_context(redirect_stdout(sys.stderr))  # stdout is for --json
        for name in names:
            for variable, subfolder in FOLDERS.get(name, {}).items():
                if variable not in os.environ:
                    (logs / subfolder).mkdir(parents=True, exist_ok=True)
                    os.environ[variable] = str(logs / subfolder)
                    stack.callback(os.environ.pop, variable, None)
            kind: Any = LOGGER_TYPE_TO_CLASS[name]
            if name == TENSORBOARD:
                tracker = kind("", str(logs), purge_step=first_step)
            else:
                project = os.environ.get(f"{name.upper()}_PROJECT", "wordorder")
                paths = [str(logs)] if kind.requires_logging_directory else []
                options = {_RUN_NAMES[name]: "/".join(folder.parts[-2:])} if name in _RUN_NAMES else {}
                if name == "wandb":  # which reads the variable once in a process
                    options["dir"] = os.environ["WANDB_DIR"]
                tracker = kind(project, *paths, **options)
            tracker.start()
            # trackio would finish once more at exit, on stdout, if only the tracker were finished
            stack.callback(sys.modules["trackio"].finish if name == "trackio" else tracker.finish)
            trackers.append(tracker)
        yield trackers


DEFAULTS: dict[str, Any] = {
    name: field.default for name, field in TrainingSettings.model_fields.items() if field.default is not None
}
"""Default values that a resolved recipe writes out: ours, and those of transformers that decide what is learned, so
that a recipe repeats its run with a version of transformers that has other defaults."""


def argument_names() -> list[str]:
    """Return the names that [training] may hold, sorted."""
    return sorted(TrainingSettings.model_fields)


def argument_faults(table: Mapping[str, Any]) -> list[str]:
    try:
        TrainingSettings(**table)
    except BadInput as error:
        return list(error.faults)
    if faults := tracker_faults(table["report_to"]) if "report_to" in table else []:
        return faults
    last, kept = table.get("max_steps") or -1, table.get("keep_steps") or ()
    if 0 < last < max(kept, default=0):
        return [f"training.keep_steps: must be at most training.max_steps = {last}, got {kept}"]
    resolved = with_defaults(table)
    saves, scores = resolved["save_strategy"], resolved["eval_strategy"]
    if resolved["load_best_model_at_end"] and saves not in (scores, "best"):
        return [
            f"training.save_strategy: must be that of training.eval_strategy = {scores!r}, got {saves!r}, since the"
            " best checkpoint is one that was scored; set both to 'steps' or to 'epoch', or load_best_model_at_end to"
            " false"
        ]
    save, score = resolved.get("save_steps"), resolved.get("eval_steps")
    if resolved["load_best_model_at_end"] and save is not None and score is not None and not _is_multiple(save, score):
        return [
            f"training.save_steps: must be a multiple of training.eval_steps = {score}, got {save}, since the best"
            f" checkpoint is one that was scored; set eval_steps to {save}, or load_best_model_at_end to false"
        ]
    if table.get("torch_compile_backend") is not None and (faults := _backend_faults(table["torch_compile_backend"])):
        return faults
    try:
        arguments = build_arguments(resolved, Path("run"))
    except (ValueError, ImportError, TypeError, KeyError) as error:
        return [f"[training]: {' '.join(str(error).split())}"]
    return _schedule_faults(table, arguments)


def _backend_faults(backend: str) -> list[str]:
    import torch
    from accelerate.utils import DynamoBackend

    compiler: Any = torch.compiler  # its list of backends has types in part
    usable = {"no", *compiler.list_backends(exclude_tags=())}
    if find_spec("tvm") is None:  # torch names it without looking
        usable.discard("tvm")
    valid = [name.value.lower() for name in DynamoBackend if name.value.lower() in usable]
    if backend.lower() in valid:
        return []
    return [unknown_choice("training.torch_compile_backend", backend, valid)]


def _schedule_faults(table: Mapping[str, Any], arguments: Any) -> list[str]:
    if not (table.get("lr_scheduler_type") or table.get("lr_scheduler_kwargs")):
        return []
    import torch
    from transformers import get_scheduler  # pyright: ignore[reportUnknownVariableType]  # it has types in part

    # zeros: a layer would draw its weight, and the caller's random numbers would be others afterwards
    optimizer: Any = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, 1))], lr=arguments.learning_rate)
    try:
        get_scheduler(
            arguments.lr_scheduler_type,
            optimizer=optimizer,
            num_warmup_steps=0,
            num_training_steps=max(1000, arguments.max_steps),
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
        )
    except (ImportError, ValueError, TypeError, KeyError, AttributeError) as error:
        name, options = arguments.lr_scheduler_type.value, table.get("lr_scheduler_kwargs")
        with_options = f" with training.lr_scheduler_kwargs {options!r}" if options else ""
        return [f"training.lr_scheduler_type: {name!r}{with_options} cannot be made: {one_line(error)}"]
    return []


def _is_multiple(save: float, score: float) -> bool:
    if (save < 1) != (score < 1):
        return False
    unit = 1 if save >= 1 else 1_000_000
    return round(save * unit) % max(1, round(score * unit)) == 0


def with_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section [training] with its defaults filled in, where one may follow from other values."""
    resolved = {**DEFAULTS, **table}
    if resolved.get("max_steps", -1) > 0 and "num_train_epochs" not in table:
        del resolved["num_train_epochs"]
    resolved.setdefault("per_device_eval_batch_size", resolved["per_device_train_batch_size"])
    if "load_best_model_at_end" not in table and "no" in (resolved["eval_strategy"], resolved["save_strategy"]):
        resolved["load_best_model_at_end"] = False
    if "save_strategy" not in table and resolved["eval_strategy"] == "epoch":
        resolved["save_strategy"] = "epoch"
    follows = resolved["save_strategy"] == "epoch" and resolved["load_best_model_at_end"]
    if follows and not {"eval_strategy", "eval_steps"} & table.keys():
        resolved["eval_strategy"] = "epoch"  # the best checkpoint is one that was scored
    if resolved["eval_strategy"] == "steps" and "save_steps" not in table and "eval_steps" in table:
        resolved["save_steps"] = resolved["eval_steps"]
    both = resolved["eval_strategy"] == resolved["save_strategy"] == "steps" and resolved["load_best_model_at_end"]
    if both and "eval_steps" not in table and isinstance(table.get("save_steps"), int):
        resolved["eval_steps"] = resolved["save_steps"]  # the best checkpoint is one that was scored
    for strategy, steps in (("eval_strategy", "eval_steps"), ("save_strategy", "save_steps")):
        if resolved[strategy] != "steps" and steps not in table:
            del resolved[steps]
    return resolved


def build_arguments(table: Mapping[str, Any], output_dir: Path, metrics: Sequence[Metric] = ()) -> Any:
    """Make transformers.TrainingArguments from a section [training] with its defaults.

    The task's metrics say whether more is better.

    Raises:
        ValueError: transformers refuses the combination.
    """
    import torch
    from transformers import TrainingArguments

    given = {name: value for name, value in table.items() if name != "output_dir" and name not in OWN}
    # transformers later than 5.18 warns of the name that earlier versions know alone
    if any(field.name == "activation_checkpointing" for field in dataclasses.fields(TrainingArguments)):
        given = {re.sub("^gradient_checkpointing", "activation_checkpointing", name): v for name, v in given.items()}
    # transformers counts the pieces of a step, whether they have rows of their own or go on with the same
    pieces = int(table.get("segments_per_step") or 1)
    if pieces > 1:
        given["gradient_accumulation_steps"] = pieces * given.get("gradient_accumulation_steps", 1)
    # Without an accelerator transformers would pin memory and warn; saying so keeps it quiet.
    given.setdefault("use_cpu", not torch.accelerator.is_available())
    given |= _of_several_processes(table, on_cpu=bool(given["use_cpu"]))
    # transformers takes every metric but a loss for one of which more is better
    chosen = given.get("metric_for_best_model")
    for metric in (metric for metric in metrics if metric.key == chosen):
        given.setdefault("greater_is_better", metric.higher_is_better)
    with redirect_stdout(sys.stderr):  # with WANDB_MODE offline transformers prints a line
        return TrainingArguments(
            output_dir=str(output_dir),
            disable_tqdm=True,
            remove_unused_columns=False,
            logging_nan_inf_filter=False,
            report_to="none",
            **given,
        )


def _of_several_processes(table: Mapping[str, Any], *, on_cpu: bool) -> dict[str, Any]:
    if process_count() == 1:
        return {}
    for name, remedy in (
        ("FSDP", "say it in the recipe, training.fsdp=true, and launch with --multi_gpu instead of --use_fsdp"),
        ("DEEPSPEED", "its checkpoints hold pickled files; set training.fsdp=true in the recipe instead"),
    ):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("true", "1"):
            raise ValueError(f"accelerate's configuration asks for {name}: {remedy}")
    # No model of this package leaves a parameter unused, so DDP need not look for them in each batch.
    found: dict[str, Any] = {"ddp_find_unused_parameters": table.get("ddp_find_unused_parameters", False)}
    if not table.get("fsdp"):
        return found
    if on_cpu:
        raise ValueError(
            "training.fsdp shares weights out over accelerators, and none is used here: accelerate would train with "
            "whole weights in each process (DDP) and not say so; set training.fsdp=false"
        )
    return {**found, "fsdp": True, "fsdp_config": {**table.get("fsdp_config", {}), "version": 2}}
