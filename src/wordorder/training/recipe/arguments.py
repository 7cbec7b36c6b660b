"""Check the section [training], fill in its defaults, and make TrainingArguments of it."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from wordorder.hints import fits
from wordorder.launch import process_count
from wordorder.limits import MOST_BEAMS, MOST_COUNT, MOST_SEED, MOST_THREADS, MOST_WORKERS, one_line
from wordorder.tasks import Metric, metric_names
from wordorder.training.recipe.argument_names import BEAMS as BEAMS
from wordorder.training.recipe.argument_names import (
    DEFAULTS,
    FIXED,
    OWN,
    REMOVED_OPTIMIZERS,
    RENAMED,
    WRITTEN_OUT,
)
from wordorder.training.recipe.argument_names import GENERATION as GENERATION
from wordorder.training.recipe.argument_names import NO_EFFECT_ON_RESULTS as NO_EFFECT_ON_RESULTS
from wordorder.training.recipe.checks import table_faults, unknown_choice
from wordorder.training.recipe.trackers import TENSORBOARD, tracker_faults, tracker_names

_FSDP_CONFIG: dict[str, Any] = {"reshard_after_forward": bool, "cpu_offload": bool}

_POSITIVE = ("learning_rate", "num_train_epochs", "eval_steps", "save_steps", "logging_steps", "adam_epsilon")
_AT_LEAST_ONE = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "save_total_limit",
    "generation_num_beams",
    "threads",
    "segments_per_step",
    "eval_stride",
)
_AT_LEAST_ZERO = ("warmup_steps", "weight_decay", "max_grad_norm", "dataloader_num_workers", "eval_delay", "seed")
_BELOW_ONE = ("adam_beta1", "adam_beta2", "label_smoothing_factor")
_COUNTS = (
    *("max_steps", "num_train_epochs", "eval_steps", "save_steps", "logging_steps", "warmup_steps", "eval_delay"),
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "save_total_limit"),
    *("generation_max_length", "segments_per_step", "eval_stride"),
)
_RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (_POSITIVE, lambda value: value > 0, "greater than 0"),
    (_AT_LEAST_ONE, lambda value: value >= 1, "at least 1"),
    (_AT_LEAST_ZERO, lambda value: value >= 0, "at least 0"),
    (_BELOW_ONE, lambda value: 0 <= value < 1, "at least 0 and less than 1"),
    (("generation_max_length",), lambda value: value >= 2, "at least 2"),
    (("max_steps",), lambda value: value >= 1 or value == -1, "at least 1, or -1 for num_train_epochs"),
    (_COUNTS, lambda value: value <= MOST_COUNT, f"at most {MOST_COUNT:,}"),
    (("seed", "data_seed"), lambda value: value <= MOST_SEED, f"at most {MOST_SEED:,}"),
    (("threads",), lambda value: value <= MOST_THREADS, f"at most {MOST_THREADS:,}"),
    (("dataloader_num_workers",), lambda value: value <= MOST_WORKERS, f"at most {MOST_WORKERS:,}"),
    (("generation_num_beams",), lambda value: value <= MOST_BEAMS, f"at most {MOST_BEAMS:,}"),
)


@cache
def _fields() -> dict[str, Any]:
    from transformers import TrainingArguments

    return {field.name: field for field in dataclasses.fields(TrainingArguments) if field.init}


def argument_names() -> list[str]:
    """Return the names that [training] may hold, sorted."""
    return sorted((_fields().keys() | OWN.keys()) - FIXED.keys())


def argument_faults(table: Mapping[str, object]) -> list[str]:
    """Return every fault of the section [training].

    Args:
        table: the section as it was read, with or without our defaults.
    """
    faults = [f"training.{name}: cannot be set in a recipe: {FIXED[name]}" for name in table if name in FIXED]
    hints = {name: OWN.get(name) or _fields()[name].type for name in argument_names()}
    chosen = {name: value for name, value in table.items() if name not in FIXED}
    if isinstance(optim := chosen.get("optim"), str) and optim in REMOVED_OPTIMIZERS:
        faults.append(f"training.optim: {optim!r} has been removed; write {REMOVED_OPTIMIZERS[optim]!r}")
        del chosen["optim"]
    wrong_type = table_faults("training", chosen, hints)
    faults += wrong_type
    if isinstance(chosen.get("fsdp_config"), dict):
        faults += table_faults("training.fsdp_config", cast("dict[str, object]", chosen["fsdp_config"]), _FSDP_CONFIG)
    for name, value in chosen.items():
        allowed = _fields()[name].metadata.get("choices") if name in hints and name not in OWN else None
        if allowed and isinstance(value, str) and value not in allowed:
            faults.append(unknown_choice(f"training.{name}", value, allowed))
    for names, right, words in _RANGES:
        for name in names:
            value = chosen.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if (isinstance(value, int) or math.isfinite(value)) and not right(value):
                    faults.append(f"training.{name}: must be {words}, got {value!r}")
    faults += [
        f"training.{name}: must be a finite number, got {value!r}"
        for name, value in chosen.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
    if "report_to" in chosen and not wrong_type:
        faults += tracker_faults(chosen["report_to"])
    metric = chosen.get("metric_for_best_model")
    if isinstance(metric, str) and metric not in metric_names():
        faults.append(unknown_choice("training.metric_for_best_model", metric, metric_names()))
    steps = chosen.get("keep_steps")
    if isinstance(steps, list) and fits(OWN["keep_steps"], steps):  # pyright: ignore[reportUnknownArgumentType]
        faults += _keep_faults(cast("list[int]", steps), chosen.get("max_steps"))
    return faults or _combination_faults(table)


def _keep_faults(steps: list[int], last: object) -> list[str]:
    past = isinstance(last, int) and last > 0 and any(step > last for step in steps)
    if not past and all(step >= 1 for step in steps):
        return []
    limit = f" and at most training.max_steps = {last}" if past else ""
    return [f"training.keep_steps: must be at least 1{limit}, got {steps}"]


def _combination_faults(table: Mapping[str, Any]) -> list[str]:
    """Return the faults of values that are valid alone but not together, or not on this machine."""
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
    if table.get("use_liger_kernel"):
        return ["training.use_liger_kernel: Liger has no kernels for the networks of this package; leave it out"]
    if table.get("torch_compile_backend"):
        from accelerate.utils import DynamoBackend

        known = [backend.value.lower() for backend in DynamoBackend]
        if str(table["torch_compile_backend"]).lower() not in known:
            return [unknown_choice("training.torch_compile_backend", table["torch_compile_backend"], known)]
    try:
        arguments = build_arguments(resolved, Path("run"))
    except (ValueError, ImportError, TypeError, KeyError) as error:
        return [f"[training]: {' '.join(str(error).split())}"]
    return _optimizer_faults(table, arguments)


def _optimizer_faults(table: Mapping[str, Any], arguments: Any) -> list[str]:
    """Return the faults of the optimizer and the schedule, found by building each for a single weight."""
    named = [name for name in ("optim", "optim_args", "lr_scheduler_type", "lr_scheduler_kwargs") if table.get(name)]
    if not named or (named == ["optim"] and table["optim"] in ("adamw_torch", "adamw_torch_fused")):
        return []
    import torch
    import transformers

    library: Any = transformers
    # zeros: a layer would draw its weights, and the caller's random numbers would be others afterwards
    model, asked = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1, 1))]), "training.optim"
    try:
        kind, options = library.Trainer.get_optimizer_cls_and_kwargs(arguments, model)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1.0)
        if options.get("params") is None and "optimizer_dict" not in options:
            optimizer = kind(model.parameters(), **options)
        asked = "training.lr_scheduler_type"
        library.get_scheduler(
            arguments.lr_scheduler_type,
            optimizer=optimizer,
            num_warmup_steps=0,
            num_training_steps=max(1000, arguments.max_steps),
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,
        )
    except (ImportError, ValueError, TypeError, KeyError, AttributeError) as error:
        own = "optim_args" if asked.endswith("optim") else "lr_scheduler_kwargs"
        options = f" with training.{own} {table[own]!r}" if table.get(own) else ""
        value = getattr(arguments, asked.removeprefix("training."))
        return [f"{asked}: {getattr(value, 'value', value)!r}{options} cannot be made: {one_line(error)}"]
    return []


def _is_multiple(save: float, score: float) -> bool:
    """Tell whether every save falls on an evaluation: both in steps, or both in shares of the run."""
    if (save < 1) != (score < 1):
        return False
    unit = 1 if save >= 1 else 1_000_000
    return round(save * unit) % max(1, round(score * unit)) == 0


def with_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section [training] with its defaults filled in: ours, and transformers' for `WRITTEN_OUT`.

    Args:
        table: the section as it was read.
    """
    resolved = {**DEFAULTS, **table}
    for name in WRITTEN_OUT:
        default = _fields()[name].default
        resolved.setdefault(name, getattr(default, "value", default))
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
    """Make transformers.TrainingArguments from a resolved section [training].

    Args:
        table: the section with our defaults.
        output_dir: the run folder.
        metrics: of the task; they say whether more is better.

    Raises:
        ValueError: transformers refuses the combination.
    """
    import torch
    from transformers import TrainingArguments

    given = {name: value for name, value in table.items() if name != "output_dir" and name not in OWN}
    for old, new in RENAMED.items():
        if old in given and new in _fields():
            given.setdefault(new, given.pop(old))
    # transformers counts the pieces of a step, whether they have rows of their own or go on with the same
    pieces = int(table.get("segments_per_step") or 1)
    if pieces > 1:
        given["gradient_accumulation_steps"] = pieces * given.get("gradient_accumulation_steps", 1)
    reporters = tracker_names(given.pop("report_to", []))
    # Without an accelerator transformers would pin memory and warn; saying so keeps it quiet.
    given.setdefault("use_cpu", not torch.accelerator.is_available())
    given |= _of_several_processes(table, on_cpu=bool(given["use_cpu"]))
    # transformers takes every metric but a loss for one of which more is better
    chosen = given.get("metric_for_best_model")
    for metric in (metric for metric in metrics if metric.key == chosen):
        given.setdefault("greater_is_better", metric.higher_is_better)
    return TrainingArguments(
        output_dir=str(output_dir),
        disable_tqdm=True,
        remove_unused_columns=False,
        logging_nan_inf_filter=False,
        # TensorBoard is written by this package, into <output_dir>/logs, which transformers 5 cannot be told.
        report_to=[name for name in reporters if name != TENSORBOARD] or "none",
        **given,
    )


def _of_several_processes(table: Mapping[str, Any], *, on_cpu: bool) -> dict[str, Any]:
    """Return the arguments that a run in several processes needs besides the recipe's own names.

    Args:
        table: the section with our defaults.
        on_cpu: no accelerator is used.

    Raises:
        ValueError: weights cannot be shared out here, or the launcher asks for what the recipe is to say.
    """
    if process_count() == 1:
        return {}
    for name, remedy in (
        ("FSDP", "say it in the recipe, training.fsdp=true, and launch with --multi_gpu instead of --use_fsdp"),
        ("DEEPSPEED", f"{FIXED['deepspeed']}; set training.fsdp=true in the recipe instead"),
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


def wants_tensorboard(table: Mapping[str, Any]) -> bool:
    """Tell whether `report_to` names TensorBoard.

    Args:
        table: the section with our defaults.
    """
    return TENSORBOARD in tracker_names(table.get("report_to"))
