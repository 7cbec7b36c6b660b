"""The learning curve of a run: one line of JSON for each step that was logged or evaluated."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from wordorder.durable import write_text
from wordorder.errors import RunFailed
from wordorder.limits import one_line, parse_json, read_bytes
from wordorder.tasks import metric_names

FILE = "curve.jsonl"


def rows(log_history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the learning curve of a training's log: one row a step, training and validation together.

    Args:
        log_history: the entries, in order.
    """
    by_step: dict[int, dict[str, Any]] = {}
    for entry in log_history:
        found = row(entry)
        if found:
            by_step.setdefault(entry["step"], {"step": entry["step"]}).update(found)
    return [by_step[step] for step in sorted(by_step)]


def row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one log entry that belong to the curve, without its step.

    Loss is the mean since the entry before, in nats; grad_norm is that of the last step, before clipping.

    Args:
        entry: of the log.
    """
    names = {name: name for name in ("loss", "learning_rate", "grad_norm", "train_seconds", "tokens")}
    names |= {f"eval_{name}": f"validation_{name}" for name in (*metric_names(), "perplexity")}
    return {new: entry[old] for old, new in names.items() if old in entry}


def rewrite(run_folder: Path, log_history: Iterable[Mapping[str, Any]]) -> None:
    """Write the curve up to a checkpoint, without the steps after it.

    Args:
        run_folder: an existing folder.
        log_history: the entries up to the checkpoint; empty for a run that starts.
    """
    write_text(run_folder / FILE, "".join(json.dumps(line) + "\n" for line in rows(log_history)))


def append(run_folder: Path, line: Mapping[str, Any]) -> None:
    """Append a row to the file.

    Args:
        run_folder: an existing folder.
        line: a row of `rows`.
    """
    with (run_folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read(run_folder: Path) -> list[dict[str, Any]]:
    """Read the rows of a run folder; a last line that a crash cut short is left out.

    Args:
        run_folder: a run folder.

    Raises:
        RunFailed: the file cannot be read, or a line of it is no row.
    """
    path = run_folder / FILE
    found: list[dict[str, Any]] = []
    try:
        for line in read_bytes(path).decode("utf-8").splitlines() if path.exists() else ():
            try:
                entry: Any = parse_json(line)
            except json.JSONDecodeError:
                break
            if not isinstance(entry, dict) or type(cast("dict[str, Any]", entry).get("step")) is not int:
                raise ValueError(f"line {len(found) + 1} is no row with a step")
            found.append(cast("dict[str, Any]", entry))
    except (OSError, ValueError) as error:
        raise RunFailed(f"{path}: cannot be read: {one_line(error)}; remove it, and there is no curve") from None
    return found
