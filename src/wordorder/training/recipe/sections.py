"""Check the sections that make one run, [data] [tokenizer] [model] [training]: every fault of each, and the values."""

import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from wordorder.errors import BadInput
from wordorder.hints import describe, fits
from wordorder.section import Section, unknown_choice
from wordorder.tasks import TASKS, metric_fault, model_class, tasks_of
from wordorder.training.recipe.arguments import DEFAULTS, argument_faults, with_defaults
from wordorder.training.recipe.pretrained import complete, is_host
from wordorder.training.recipe.training_section import GENERATION

if typing.TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from wordorder.data import TokenizerConfig
    from wordorder.tasks import DataConfig
import os
from pathlib import Path

from wordorder.data.settings import LANES, TASK, generated_task
from wordorder.limits import matches

BUILT_IN = ("sotu",)


def is_named(source: str) -> bool:
    """Tell whether a source is built in, generated or of the Hub, and so no path."""
    return source in BUILT_IN or source.startswith("hub:") or generated_task(source) is not None


TARGETS = ("target_source", "validation_target_source", "test_target_source")
SOURCES = ("source", "validation_source", "test_source", *TARGETS)
"""Names of [data] that hold a source."""


def find_source(source: str, name: str = "source") -> tuple[str, list[str]]:
    """Find a relative source in the working directory, or in the folder that WORDORDER_DATA names.

    What is built in, generated or of the Hub is left alone.

    Returns:
        The source that was found, and the faults of data.<name>: none, or one that says where was looked.
    """
    if is_named(source) or (name == "test_source" and source == "none"):
        return source, []
    folder = os.environ.get("WORDORDER_DATA")
    for place in (source, str(Path(folder) / source) if folder else source):
        try:
            if Path(place).exists():
                unreadable = not os.access(place, os.R_OK | os.X_OK if Path(place).is_dir() else os.R_OK)
                return place, [f"data.{name}: {place!r} cannot be read: permission denied"] if unreadable else []
            if next(matches(place), None) is not None:
                return place, []
        except OSError as error:  # a folder above it may not be looked into, or the name is too long
            below = f" below {error.filename!r}" if error.filename not in (None, place) else ""
            return source, [f"data.{name}: {place[:200]!r} cannot be read{below}: {error.strerror}"]
        except ValueError as error:  # it is no path, or leads through too many folders
            return source, [f"data.{name}: {source!r}: {error}"]
    looked = f"the working directory and WORDORDER_DATA={folder}" if folder else "the working directory"
    remedy = "" if folder else "; the variable WORDORDER_DATA may name another folder"
    valid = f"valid: {', '.join(BUILT_IN)}, a path or glob, hub:NAME, {TASK}:NAME"
    return source, [f"data.{name}: no file matches {source!r} (looked in {looked}{remedy}); {valid}"]


_Section = TypeVar("_Section", bound=Section)


def declared_cls(tokenizer: "TokenizerConfig | None") -> dict[str, int]:
    """Return the field of a model's configuration that declares [CLS], or an empty dict without special tokens.

    The id is that of tokenizers trained here; of an existing one only that there is one is known before it is read.
    """
    return {"cls_token_id": 2} if tokenizer is None or tokenizer.add_special_tokens else {}


def check_run(tables: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Check the sections that make one run; return the recipe's fields (None when there are faults) and the faults."""
    from wordorder.data import TokenizerConfig
    from wordorder.tasks import DataConfig, token_faults

    training = tables.get("training", {})
    pretrained, faults = None, list[str]()
    if "model" in tables:
        seed = training.get("seed", DEFAULTS["seed"])
        tables, pretrained, faults = complete(tables, seed=seed)
    # A section that is missing altogether is one fault, not one for each name that it should have had.
    data, data_faults = _made(DataConfig, tables["data"]) if "data" in tables else (None, [])
    tokenizer, tokenizer_faults = _made(TokenizerConfig, tables.get("tokenizer", {}))
    task = data.task if data is not None else None
    pieces = training.get("segments_per_step")
    pieces = pieces if type(pieces) is int and pieces > 0 else 1
    config, model_faults = None, list[str]()
    from_host = pretrained is not None and is_host(tables["model"]["network"])
    if from_host and not faults:
        config, model_faults = _host(tables["model"], task, Path(str(pretrained)))
    elif "model" in tables and not faults:
        fields = declared_cls(tokenizer) | _with_segments(tables["model"], data, pieces)
        config, model_faults = _model(fields, task)
    faults += data_faults + tokenizer_faults + model_faults + argument_faults(training)
    faults += _metric_faults(training, task, data) + _worker_faults(training)
    if task is not None and TASKS[task].labels == "number" and training.get("label_smoothing_factor"):
        faults.append(f"training.label_smoothing_factor: spreads over classes, and {task} has none; leave it out")
    faults += token_faults(data, tokenizer) if data is not None and tokenizer is not None else []
    for name in SOURCES:
        source = tables.get("data", {}).get(name)
        if isinstance(source, str) and source.strip():
            source, source_faults = find_source(source, name)
            faults += source_faults
            data = data and data.having(**{name: source})
    longest = training.get("generation_max_length")
    if data is not None and config is not None and not model_faults:
        data = data if data.length is not None else data.having(length=_longest(config))
        faults += _too_long(config, data.length // pieces, "data.length") if data.length is not None else []
        if type(longest) is int:  # the last token is written and not read again
            faults += _too_long(config, longest - 1, f"training.generation_max_length: {longest}")
        faults += _running_text_faults(data, tables["model"], {**training, "segments_per_step": pieces})
        if from_host and data.packing == LANES:
            faults.append("data.packing: lanes are for models of this package; leave it out")
        if tables["model"].get("label_smoothing") and training.get("label_smoothing_factor"):
            faults.append("training.label_smoothing_factor: model.label_smoothing smooths the labels too; say it once")
    elif "model" in tables and not from_host:  # a text that is too long is said even if other values are wrong too
        length, decisive = tables.get("data", {}).get("length"), {"network", *_DECISIVE}
        config, _ = _model({name: value for name, value in tables["model"].items() if name in decisive}, None)
        faults += _too_long(config, length, "data.length") if config is not None and type(length) is int else []
    if faults or data is None or tokenizer is None or "model" not in tables:
        return None, faults
    from wordorder.encodings import canonical_name
    from wordorder.models import FOLLOWED, filled_fields

    model = dict(tables["model"])
    network = model.pop("network")
    # A saved model says itself what follows from its sizes, and an arm may change what others follow from.
    by_arms = _changed_by_arms(tables.get("compare", {}))
    following, one_block = pretrained is None and not FOLLOWED & by_arms, "block" not in by_arms
    model = model if from_host else filled_fields(network, model, following=following, one_block=one_block)
    if "encoding" in model:
        model["encoding"] = canonical_name(str(model["encoding"]))
    return {
        "data": data,
        "tokenizer": tokenizer,
        "network": network,
        "model": model,
        "pretrained": pretrained,
        "training": with_defaults(training),
    }, []


def _changed_by_arms(compare: Mapping[str, Any]) -> set[str]:
    names: set[str] = set()
    arms = compare.get("arms")
    if not fits(list[dict[str, Any]], arms):
        return names  # another check reports it
    for arm in cast("list[dict[str, Any]]", arms):
        for key, value in arm.items():
            section, _, name = key.partition(".")
            if section == "model":
                names |= {name.partition(".")[0]} if name else set(value)
    return names


def _metric_faults(training: Mapping[str, Any], task: str | None, data: "DataConfig | None") -> list[str]:
    metric = training.get("metric_for_best_model")
    on_answers = data is not None and data.generated is not None
    fault = metric_fault(metric, task, generated=on_answers) if isinstance(metric, str) and task is not None else None
    faults = [] if fault is None else [fault]
    translates = task is not None and TASKS[task].translates
    generated = task is not None and any(known.key == metric and known.of_translations for known in TASKS[task].metrics)
    if generated and training.get("predict_with_generate") is not True:
        faults.append(
            f"training.metric_for_best_model: {metric} is measured while training only with predict_with_generate"
        )
    if translates and training.get("fsdp"):
        faults.append("training.fsdp: translation searches in each process by itself; leave fsdp out for this task")
    if task is not None and not translates:
        faults += [
            f"training.{name}: is only for task translation; leave it out" for name in GENERATION if name in training
        ]
    return faults


def _made(kind: type[_Section], table: Mapping[str, Any]) -> tuple[_Section | None, list[str]]:
    try:
        return kind(**table), []
    except BadInput as error:
        return None, list(error.faults)


def _in_model(fault: str) -> str:
    fault = " ".join(fault.split())
    return fault if fault.startswith(("model.", "[model]")) else f"[model]: {fault}"


def _with_segments(model: Mapping[str, Any], data: "DataConfig | None", pieces: int) -> dict[str, Any]:
    fields, length = dict(model), None if data is None or not TASKS[data.task].running_text else data.length
    if length is not None and fields.get("memory", "none") != "none":
        fields.setdefault("segment_length", length // pieces)
    return fields


_DECISIVE = ("encoding", "max_position_embeddings", "memory", "memory_length", "segment_length")
"""Fields that say how long a text may be."""


def _model(table: Mapping[str, Any], task: str | None) -> tuple["PreTrainedConfig | None", list[str]]:
    from wordorder.models import NETWORK_TASKS, WordOrderConfig, build_config

    network = table.get("network")
    if network is None:
        return None, [f"[model]: network is missing; valid values: {', '.join(NETWORK_TASKS)}"]
    if not isinstance(network, str) or network not in NETWORK_TASKS:
        return None, [unknown_choice("model.network", network, NETWORK_TASKS)]
    faults: list[str] = []
    if task is not None and task not in tasks_of(network):
        faults.append(
            f"model.network: {network!r} cannot do the task {task!r}; its tasks: {', '.join(tasks_of(network))}"
        )
    try:
        config = build_config(network, **{name: value for name, value in table.items() if name != "network"})
    except (ValueError, TypeError) as error:
        found = error.faults if isinstance(error, BadInput) else (str(error),)
        return None, faults + [_in_model(fault) for fault in found]
    if task is not None and TASKS[task].predicts_tokens and isinstance(config, WordOrderConfig):
        faults += map(_in_model, config.tying_faults())
    return config, faults


def _host(table: Mapping[str, Any], task: str | None, folder: Path) -> tuple["PreTrainedConfig | None", list[str]]:
    from wordorder.models import HOST_FIELDS, host_config

    network, fields = table["network"], {name: table[name] for name in HOST_FIELDS if name in table}
    faults = [
        f"model.{name}: must be {describe(HOST_FIELDS[name])}, got {value!r}"
        for name, value in fields.items()
        if not fits(HOST_FIELDS[name], value)
    ]
    if not faults and fields.get("max_position_embeddings", 1) < 1:
        faults.append(f"model.max_position_embeddings: must be positive, got {fields['max_position_embeddings']}")
    done = tasks_of(network)
    if task is not None and task not in done:
        faults.append(
            f"data.task: {folder} holds a model of transformers ({network}), which has no head for {task} here; tasks "
            f"that it can be trained for: {', '.join(done) or 'none'}"
        )
    if faults or not done:
        return None, faults
    try:
        return host_config(folder, model_class(network, task or done[0]), fields, {}), []
    except (ValueError, TypeError) as error:
        return None, [_in_model(fault) for fault in (error.faults if isinstance(error, BadInput) else (str(error),))]


def _longest(config: "PreTrainedConfig") -> int | None:
    from wordorder.models import longest_text, takes_any_length

    if is_host(config.model_type):
        return longest_text(config)
    longest = getattr(config, "max_position_embeddings", None)
    # another network with a memory was made for segments, which leave room for its slots
    return longest if takes_any_length(config) else getattr(config, "segment_length", None) or longest


def _too_long(config: "PreTrainedConfig", length: int, where: str) -> list[str]:
    from wordorder.models import check_length

    try:
        check_length(config, length)
    except BadInput as error:
        return [f"{where}: {fault}" for fault in error.faults]
    return []


def _running_text_faults(data: "DataConfig", model: Mapping[str, Any], training: Mapping[str, Any]) -> list[str]:
    faults: list[str] = []
    in_lanes, segment = data.packing == "lanes", model.get("segment_length")
    if model.get("memory", "none") != "none" and TASKS[data.task].running_text and not in_lanes:
        faults.append(
            f"data.packing: model.memory {model['memory']!r} goes from segment to segment of running text; set "
            'data.packing = "lanes"'
        )
    pieces = training.get("segments_per_step") or 1
    if in_lanes and segment is not None and data.length is not None and segment != data.length // pieces:
        whole = f"data.length {data.length}" + (f" / training.segments_per_step {pieces}" if pieces > 1 else "")
        faults.append(f"model.segment_length {segment} is not {whole}; leave one of them out")
    remembers = in_lanes and model.get("memory", "none") != "none"
    faults += _piece_faults(data, training, in_lanes=in_lanes, remembers=remembers)
    if in_lanes and training.get("label_smoothing_factor"):
        faults.append("training.label_smoothing_factor does nothing for data.packing lanes; set model.label_smoothing")
    return faults


def _worker_faults(training: Mapping[str, Any]) -> list[str]:
    if training.get("dataloader_num_workers"):
        return []
    names = ("dataloader_persistent_workers", "dataloader_multiprocessing_context")
    return [
        f"training.{name}: is for processes that make batches; set training.dataloader_num_workers too, or leave it out"
        for name in names
        if training.get(name)
    ]


def _piece_faults(data: "DataConfig", training: Mapping[str, Any], *, in_lanes: bool, remembers: bool) -> list[str]:
    pieces, stride, length = training.get("segments_per_step") or 1, training.get("eval_stride"), data.length or 1
    faults: list[str] = []
    if pieces > 1 and not remembers:
        faults.append(
            f"training.segments_per_step: {pieces} segments of a lane are read one after another only by a model with "
            "a memory, of data.packing lanes; leave it out"
        )
    elif length % pieces:
        faults.append(f"training.segments_per_step: must divide data.length {length}, got {pieces}")
    if stride is not None and (remembers or not in_lanes):
        faults.append(
            "training.eval_stride: is for models without a memory on running text, data.packing lanes; leave it out"
        )
    elif stride is not None and stride > length:
        faults.append(f"training.eval_stride: must be at most data.length {length}, got {stride}")
    return faults
