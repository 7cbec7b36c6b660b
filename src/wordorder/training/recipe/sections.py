"""Check the sections that make one run, all but [compare]: every fault of each, and the values."""

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from wordorder.errors import BadInput
from wordorder.hints import describe, fits
from wordorder.section import Section, unknown_choice
from wordorder.tasks import TASKS, TaskOptions, metric_fault, model_class, task_options, tasks_of
from wordorder.tasks import task_faults as faults_together
from wordorder.tasks.translation import TARGETS, TranslationOptions
from wordorder.training.recipe.comparison_section import CompareConfig
from wordorder.training.recipe.pretrained import complete, is_host
from wordorder.training.recipe.settings import LAST, TrainingSettings

if typing.TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from wordorder.data import DataSettings, TokenizerConfig
import os
from pathlib import Path

from wordorder.data.settings import TASK, generated_task
from wordorder.files import matches

BUILT_IN = ("sotu",)


def is_named(source: str) -> bool:
    """Tell whether a source is built in, generated or of the Hub, and so no path."""
    return source in BUILT_IN or source.startswith("hub:") or generated_task(source) is not None


SOURCES = ("source", "validation_source", "test_source")
"""Names of [data] that hold a source."""


def find_source(source: str, name: str = "data.source") -> tuple[str, list[str]]:
    """Find a relative source in the working directory, or in the folder that WORDORDER_DATA names.

    What is built in, generated or of the Hub is left alone.

    Returns:
        The source that was found, and the faults of the key `name`: none, or one that says where was looked.
    """
    if is_named(source) or (name == "data.test_source" and source == "none"):
        return source, []
    folder = os.environ.get("WORDORDER_DATA")
    for place in (source, str(Path(folder) / source) if folder else source):
        try:
            if Path(place).exists():
                unreadable = not os.access(place, os.R_OK | os.X_OK if Path(place).is_dir() else os.R_OK)
                return place, [f"{name}: {place!r} cannot be read: permission denied"] if unreadable else []
            if next(matches(place), None) is not None:
                return place, []
        except OSError as error:  # a folder above it may not be looked into, or the name is too long
            below = f" below {error.filename!r}" if error.filename not in (None, place) else ""
            return source, [f"{name}: {place[:200]!r} cannot be read{below}: {error.strerror}"]
        except ValueError as error:  # it is no path, or leads through too many folders
            return source, [f"{name}: {source!r}: {error}"]
    looked = f"the working directory and WORDORDER_DATA={folder}" if folder else "the working directory"
    remedy = "" if folder else "; the variable WORDORDER_DATA may name another folder"
    valid = f"valid: {', '.join(BUILT_IN)}, a path or glob, hub:NAME, {TASK}:NAME"
    return source, [f"{name}: no file matches {source!r} (looked in {looked}{remedy}); {valid}"]


def with_sources(data: "DataSettings") -> "tuple[DataSettings, list[str]]":
    """Return [data] with its sources found, and the faults of those that are not."""
    return _found(data, SOURCES)


def with_targets(options: TaskOptions) -> tuple[TaskOptions, list[str]]:
    """Return [task] with its files found, and the faults of those that are not."""
    return _found(options, TARGETS if isinstance(options, TranslationOptions) else ())


_Section = TypeVar("_Section", bound=Section)
_Made = TypeVar("_Made")


def _source_faults(source: object, name: str) -> list[str]:
    return find_source(source, f"data.{name}")[1] if isinstance(source, str) and source.strip() else []


def _found(section: _Section, names: tuple[str, ...]) -> tuple[_Section, list[str]]:
    faults: list[str] = []
    for name in names:
        source = getattr(section, name)
        if source is not None:
            path, more = find_source(source, f"{section.section}.{name}")
            faults += more
            section = section if path == source else section.having(**{name: path})
    return section, faults


def declared_cls(tokenizer: "TokenizerConfig | None") -> dict[str, int]:
    """Return the field of a model's configuration that declares [CLS], or an empty dict without special tokens.

    The id is that of tokenizers trained here; of an existing one only that there is one is known before it is read.
    """
    return {"cls_token_id": 2} if tokenizer is None or tokenizer.add_special_tokens else {}


def check_run(tables: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Check the sections that make one run; return the recipe's fields (None when there are faults) and the faults."""
    from wordorder.data import DataSettings, TokenizerConfig

    settings, training_faults = _made(TrainingSettings, "training", tables)
    training = TrainingSettings() if settings is None else settings
    pretrained, faults = None, list[str]()
    if "model" in tables:
        tables, pretrained, faults = complete(tables, seed=training.seed)
    # A section that is missing altogether is one fault, not one for each name that it should have had.
    data, data_faults = _made(DataSettings, "data", tables) if "data" in tables else (None, [])
    options, task_faults = _made(task_options, "task", tables) if "task" in tables else (None, [])
    tokenizer, tokenizer_faults = _made(TokenizerConfig, "tokenizer", tables)
    pieces = training.segments_per_step
    config, model_faults = None, list[str]()
    from_host = pretrained is not None and is_host(tables["model"]["network"])
    if from_host and not faults:
        config, model_faults = _host(tables["model"], options, Path(str(pretrained)))
    elif "model" in tables and not faults:
        fields = declared_cls(tokenizer) | _with_segments(tables["model"], data, options, pieces)
        config, model_faults = _model(fields, options)
    faults += data_faults + task_faults + tokenizer_faults + model_faults + training_faults
    if data is not None:
        data, source_faults = with_sources(data)
        faults += source_faults
    else:  # other values are wrong
        faults += [fault for name in SOURCES for fault in _source_faults(tables.get("data", {}).get(name), name)]
    if options is not None:
        options, source_faults = with_targets(options)
        source = tables.get("data", {}).get("source")
        generated = isinstance(source, str) and generated_task(source) is not None
        faults += source_faults + _training_faults(training, options, generated=generated)
    if data is not None and options is not None:
        faults += faults_together(data, options, tokenizer)
        if config is not None and not model_faults:
            data = data if data.length is not None else data.having(length=_longest(config))
            faults += _too_long(config, data.length // pieces, "data.length") if data.length is not None else []
            if isinstance(options, TranslationOptions) and options.max_target_length is not None:
                longest = options.max_target_length  # the last token is written and not read again
                faults += _too_long(config, longest - 1, f"task.max_target_length: {longest}")
            if training.random_positions is not None:
                faults += _position_faults(config, data, options, training.random_positions)
            faults += _running_text_faults(data, options, tables["model"], training)
            if from_host and options.in_lanes:
                faults.append("task.packing: lanes are for models of this package; leave it out")
            if tables["model"].get("label_smoothing") and training.label_smoothing:
                faults.append("training.label_smoothing: model.label_smoothing smooths the labels too; say it once")
    if "model" in tables and not from_host and (data is None or options is None or config is None or model_faults):
        # a text that is too long is said even if other values are wrong too
        length, decisive = tables.get("data", {}).get("length"), {"network", *_DECISIVE}
        config, _ = _model({name: value for name, value in tables["model"].items() if name in decisive}, None)
        faults += _too_long(config, length, "data.length") if config is not None and type(length) is int else []
    if faults or data is None or options is None or tokenizer is None or "model" not in tables:
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
        "task": options,
        "tokenizer": tokenizer,
        "network": network,
        "model": model,
        "pretrained": pretrained,
        "training": training,
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


def _training_faults(training: TrainingSettings, options: TaskOptions, *, generated: bool) -> list[str]:
    """Return the faults of [training] and [task] together."""
    task, metric = TASKS[options.name], training.select
    fault = metric_fault(metric, task.name, generated=generated)
    faults = [] if metric == LAST or fault is None else [fault]
    if isinstance(options, TranslationOptions):
        if any(known.key == metric and known.of_translations for known in task.metrics):
            if not options.translate_while_training:
                faults.append(
                    f"training.select: {metric} is measured while training only with task.translate_while_training"
                )
        if training.fsdp != "off":
            faults.append("training.fsdp: translation searches in each process by itself; leave fsdp out for this task")
    if task.labels == "number" and training.label_smoothing:
        faults.append(f"training.label_smoothing: spreads over classes, and {task.name} has none; leave it out")
    return faults


def _made(kind: Callable[..., _Made], section: str, tables: Mapping[str, Any]) -> tuple[_Made | None, list[str]]:
    """Return a section, or None, and its faults; of a key that another section has, the fault says where."""
    table = dict(tables.get(section, {}))
    keys = _keys()
    homes = {name: [f"[{other}]" for other, names in keys.items() if name in names] for name in table}
    faults = [
        f"{section}.{name}: is a key of {' and '.join(homes[name])}; move it there"
        for name in table
        if name not in keys[section] and homes[name]
    ]
    for name in [name for name in table if name not in keys[section] and homes[name]]:
        del table[name]
    try:
        made = kind(table) if kind is task_options else kind(**table)
    except BadInput as error:
        return None, [*faults, *error.faults]
    return (None if faults else made), faults


@cache
def _keys() -> dict[str, frozenset[str]]:
    """Return the keys of all sections but [model], whose keys depend on its network."""
    from wordorder.data import DataSettings, TokenizerConfig

    kinds: tuple[type[Section], ...] = (DataSettings, TokenizerConfig, TrainingSettings, CompareConfig)
    keys = {kind.section: frozenset(kind.model_fields) for kind in kinds}
    return keys | {"task": frozenset(name for task in TASKS.values() for name in task.Options.model_fields)}


def _in_model(fault: str) -> str:
    fault = " ".join(fault.split())
    return fault if fault.startswith(("model.", "[model]")) else f"[model]: {fault}"


def _with_segments(
    model: Mapping[str, Any], data: "DataSettings | None", options: TaskOptions | None, pieces: int
) -> dict[str, Any]:
    running = data is not None and options is not None and TASKS[options.name].running_text
    fields, length = dict(model), data.length if data is not None and running else None
    if length is not None and fields.get("memory", "none") != "none":
        fields.setdefault("segment_length", length // pieces)
    return fields


_DECISIVE = ("encoding", "max_position_embeddings", "memory", "memory_length", "segment_length")
"""Fields that say how long a text may be."""


def _model(table: Mapping[str, Any], options: TaskOptions | None) -> tuple["PreTrainedConfig | None", list[str]]:
    from wordorder.models import NETWORK_TASKS, WordOrderConfig, build_config

    network, task = table.get("network"), None if options is None else options.name
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


def _host(
    table: Mapping[str, Any], options: TaskOptions | None, folder: Path
) -> tuple["PreTrainedConfig | None", list[str]]:
    from wordorder.models import HOST_FIELDS, host_config

    network, task = table["network"], None if options is None else options.name
    fields = {name: table[name] for name in HOST_FIELDS if name in table}
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
            f"task.name: {folder} holds a model of transformers ({network}), which has no head for {task} here; tasks "
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


def _position_faults(
    config: "PreTrainedConfig", data: "DataSettings", options: TaskOptions, positions: int
) -> list[str]:
    where = "training.random_positions"
    takes_positions = config.model_type in ("wordorder-encoder", "wordorder-decoder")
    if not takes_positions or options.in_lanes or getattr(config, "memory", "none") != "none":
        return [f"{where}: is for encoders and decoders of this package, without lanes and memory; leave it out"]
    if data.length is not None and positions < data.length:
        return [f"{where}: must be at least data.length {data.length}, got {positions}"]
    return _too_long(config, positions, f"{where}: {positions}")


def _running_text_faults(
    data: "DataSettings", options: TaskOptions, model: Mapping[str, Any], training: TrainingSettings
) -> list[str]:
    faults: list[str] = []
    in_lanes, segment = options.in_lanes, model.get("segment_length")
    if model.get("memory", "none") != "none" and TASKS[options.name].running_text and not in_lanes:
        faults.append(
            f"task.packing: model.memory {model['memory']!r} goes from segment to segment of running text; set "
            'task.packing = "lanes"'
        )
    pieces = training.segments_per_step
    if in_lanes and segment is not None and data.length is not None and segment != data.length // pieces:
        whole = f"data.length {data.length}" + (f" / training.segments_per_step {pieces}" if pieces > 1 else "")
        faults.append(f"model.segment_length {segment} is not {whole}; leave one of them out")
    remembers = in_lanes and model.get("memory", "none") != "none"
    faults += _piece_faults(data, training, in_lanes=in_lanes, remembers=remembers)
    if in_lanes and training.label_smoothing:
        faults.append("training.label_smoothing does nothing for task.packing lanes; set model.label_smoothing")
    return faults


def _piece_faults(data: "DataSettings", training: TrainingSettings, *, in_lanes: bool, remembers: bool) -> list[str]:
    pieces, stride, length = training.segments_per_step, training.eval_stride, data.length or 1
    faults: list[str] = []
    if pieces > 1 and not remembers:
        faults.append(
            f"training.segments_per_step: {pieces} segments of a lane are read one after another only by a model with "
            "a memory, of task.packing lanes; leave it out"
        )
    elif length % pieces:
        faults.append(f"training.segments_per_step: must divide data.length {length}, got {pieces}")
    if stride is not None and (remembers or not in_lanes):
        faults.append(
            "training.eval_stride: is for models without a memory on running text, task.packing lanes; leave it out"
        )
    elif stride is not None and stride > length:
        faults.append(f"training.eval_stride: must be at most data.length {length}, got {stride}")
    return faults
