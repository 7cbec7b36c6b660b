"""Finding the file, folder or glob that `data.source` names."""

import glob
import os
from pathlib import Path

BUILT_IN = ("sotu",)


def find_source(source: str) -> tuple[str, list[str]]:
    """Find a relative source from the working directory, or in the folder that WORDORDER_DATA names.

    Args:
        source: a path or glob; what is built in or of the Hub is left alone.

    Returns:
        The source that was found, and the faults: none, or one that says where was looked.
    """
    if source in BUILT_IN or source.startswith("hub:"):
        return source, []
    folder = os.environ.get("WORDORDER_DATA")
    for place in (source, str(Path(folder) / source) if folder else source):
        if Path(place).exists() or glob.glob(place, recursive=True):
            return place, []
    looked = f"the working directory and WORDORDER_DATA={folder}" if folder else "the working directory"
    remedy = "" if folder else "; the variable WORDORDER_DATA may name another folder"
    valid = f"valid: {', '.join(BUILT_IN)}, a path or glob, hub:NAME"
    return source, [f"data.source: no file matches {source!r} (looked in {looked}{remedy}); {valid}"]
