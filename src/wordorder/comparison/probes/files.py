"""Write the file of a measured probe, `<run folder>/probes/<name>.json`, and collect those of all runs for
results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wordorder.durable import write_json
from wordorder.limits import read_json

if TYPE_CHECKING:
    from wordorder.comparison.runs import Run

FOLDER = "probes"

AXES = ("title", "x", "x_kind", "value", "higher_is_better", "log", "meaning")
"""Names of the axes in a probe's file, see `wordorder.comparison.probes.probe.Axes`."""

KILLED = "its process ended before it was measured (killed when memory ran out, or by hand)"


def path_of(run_folder: Path, name: str) -> Path:
    """Return the path of a probe's file, which may not exist yet."""
    return run_folder / FOLDER / f"{name}.json"


def write_probe(run_folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a probe's file, whole or not at all.

    Args:
        run_folder: of the training.
        name: of the probe.
        content: given (the options as the recipe has them), options (all of them), the names of `AXES`, rows, notes,
            skipped (why there are no rows, or None), failed (whether trying again may help) and seconds.
    """
    path = path_of(run_folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def read_probe(run_folder: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a probe's file; None if there is none that can be read."""
    try:
        content: object = read_json(path_of(run_folder, name))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def is_measured(run_folder: Path, name: str, given: Mapping[str, Any]) -> bool:
    """Tell whether a probe is measured: its file exists, was made with the same options, and records no failure.

    Args:
        run_folder: of the training.
        name: of the probe.
        given: its options as the recipe has them.
    """
    content = read_probe(run_folder, name)
    as_read: object = json.loads(json.dumps(given, default=str))  # tuples are lists there
    return content is not None and not content.get("failed") and content.get("given") == as_read


def collect(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return results.json's "probes": for each probe its axes, the rows of all runs, and why others have none.

    Args:
        runs: the finished ones that count; what of theirs is not measured yet is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for name, given in run.probes.items():
            content = read_probe(run.folder, name)
            as_read: object = json.loads(json.dumps(given, default=str))
            if content is None or content.get("given") != as_read:
                continue
            axes = {axis: content.get(axis) for axis in AXES}
            probe = found.setdefault(
                name, {**axes, "options": content.get("options", {}), "rows": [], "skipped": [], "notes": []}
            )
            _add(probe, run, content)
    return found


def _add(probe: dict[str, Any], run: Run, content: Mapping[str, Any]) -> None:
    of_run = {"arm": run.arm, "seed": run.seed, **({} if run.fold is None else {"fold": run.fold})}
    probe["rows"] += [{**of_run, **row} for row in content.get("rows", ())]
    probe["notes"] += [note for note in content.get("notes", ()) if note not in probe["notes"]]
    reason = content.get("skipped")
    # every seed of an arm has the same reason where its encoding is the reason
    if reason and {"arm": run.arm, "reason": reason} not in probe["skipped"]:
        probe["skipped"].append({"arm": run.arm, "reason": reason})
