"""Find the files, folders or globs that [data] names."""

import os
from pathlib import Path

from wordorder.data.names import TASK, generated_task
from wordorder.limits import matches

BUILT_IN = ("sotu",)


TARGETS = ("target_source", "validation_target_source", "test_target_source")
SOURCES = ("source", "validation_source", "test_source", *TARGETS)
"""Names of [data] that hold a source."""


def find_source(source: str, name: str = "source") -> tuple[str, list[str]]:
    """Find a relative source in the working directory, or in the folder that WORDORDER_DATA names.

    What is built in, generated or of the Hub is left alone.

    Returns:
        The source that was found, and the faults of data.<name>: none, or one that says where was looked.
    """
    named = source in BUILT_IN or source.startswith("hub:") or generated_task(source) is not None
    if named or (name == "test_source" and source == "none"):
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
