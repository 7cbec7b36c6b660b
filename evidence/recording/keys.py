"""Keys of recipes that had other names, or stood in another section, at 8e4fa2c."""

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "per_device_eval_batch_size": "eval_batch_size",
    "num_train_epochs": "epochs",
    "lr_scheduler_type": "lr_schedule",
    "save_total_limit": "keep_checkpoints",
    "metric_for_best_model": "select",
    "gradient_checkpointing": "activation_checkpointing",
    "full_determinism": "deterministic",
    "dataloader_num_workers": "workers",
    "label_smoothing_factor": "label_smoothing",
    "eval_steps": "evaluate_every",
    "save_steps": "save_every",
    "logging_steps": "log_every",
}
VALUES = {
    "inverse_sqrt": "inverse-sqrt",
    "constant_with_warmup": "constant",
    "warmup_stable_decay": "warmup-stable-decay",
}
TRANSLATION = {
    "predict_with_generate": "translate_while_training",
    "generation_num_beams": "beams",
    "generation_max_length": "max_target_length",
}
"""Keys of [training] that are now of the task translation."""
TASKS = {
    "masked-lm": ("mask_probability", "packing"),
    "causal-lm": ("packing", "reset_memory", "roll", "eval_lanes"),
    "classification": ("label_column", "pair_column", "max_pieces", "truncate"),
    "regression": ("label_column", "pair_column", "max_pieces", "truncate", "label_scale"),
    "translation": (
        *("target_column", "target_source", "validation_target_source", "test_target_source", "truncate"),
        *TRANSLATION.values(),
    ),
}
"""Task -> its options, which stood in [data]."""
GONE = (
    *("dataloader_drop_last", "log_level", "optim", "eval_strategy", "save_strategy", "load_best_model_at_end"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "tf32", "use_cpu", "report_to"),
    *("torch_compile", "fsdp", *TRANSLATION),
)


def training_today(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table [training] of 8e4fa2c with the names and values of today."""
    names = {RENAMED.get(key, key): VALUES.get(str(value), value) for key, value in table.items() if key not in GONE}
    for key, name in (("eval_strategy", "evaluate_every"), ("save_strategy", "save_every")):
        if table.get(key, "steps") != "steps":
            names[name] = {"no": "never"}.get(table[key], table[key])
    if names.get("save_every") == names.get("evaluate_every", 0.1):
        names.pop("save_every", None)
    if "per_device_train_batch_size" in table:
        size, steps = table["per_device_train_batch_size"], table.get("gradient_accumulation_steps", 1)
        names |= {"batch_size": size * steps} | ({"micro_batch_size": size} if steps > 1 else {})
    if not table.get("load_best_model_at_end", True):
        names["select"] = "last"
    for name in ("bf16", "fp16", "tf32"):
        if table.get(name):
            names["precision"] = name
    names |= {"device": "cpu"} if table.get("use_cpu") else {}
    names |= {"compile": "default"} if table.get("torch_compile") else {}
    names |= {"fsdp": "shard"} if table.get("fsdp") else {}
    if "report_to" in table:
        trackers = table["report_to"]
        names["trackers"] = [] if trackers == "none" else [trackers] if isinstance(trackers, str) else trackers
    return names


def arm_today(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Return an arm of 8e4fa2c with the names of today; its values may be dotted names or tables."""
    dotted = {key.removeprefix("training."): value for key, value in arm.items() if key.startswith("training.")}
    rest = {key: value for key, value in arm.items() if not key.startswith("training.")}
    if "training" in rest:
        rest["training"] = training_today(rest["training"])
    return rest | {f"training.{name}": value for name, value in training_today(dotted).items()}


def today(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a recipe of 8e4fa2c as a recipe says them today."""
    sections = {name: dict(table) if isinstance(table, Mapping) else table for name, table in recipe.items()}
    if "task" in sections.get("data", {}):
        data, training = sections["data"], sections.get("training", {})
        options = data | {new: training[old] for old, new in TRANSLATION.items() if old in training}
        name, known = data["task"], {option for names in TASKS.values() for option in names}
        sections["task"] = {"name": name} | {key: options[key] for key in TASKS[name] if key in options}
        if name == "causal-lm" and sections["task"].get("packing") == "full-sentences":
            sections["task"]["packing"] = "segments"
        sections["data"] = {key: value for key, value in data.items() if key not in known | {"task"}}
    if "training" in sections:
        sections["training"] = training_today(sections["training"])
    if "compare" in sections:
        arms = [arm_today(arm) for arm in sections["compare"].get("arms", ())]
        table = {name: value for name, value in sections["compare"].items() if name not in ("arms", "pairing")}
        sections["compare"] = table | ({"arms": arms} if arms else {})
    return sections
