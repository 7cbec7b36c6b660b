"""Write the file of a measured probe, `<run folder>/probes/<name>.json`, and collect those of all runs for
results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from wordorder.durable import write_json
from wordorder.limits import read_json

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
