"""What two finished runs have in common: every file that the mathematics decides, to the bit; clocks are left out."""

import hashlib
import json
from pathlib import Path
from typing import Any

CLOCK = ("train_seconds", "seconds", "tokens_per_second", "peak_memory_bytes", "peak_bytes", "train_runtime")
"""Names whose values a clock or the system decides, wherever they stand in a file."""

NOT_COMPARED = ("manifest.json", "README.md")
"""Files of a checkpoint or a model that quote clocks: digests of files with them, and the card with its seconds."""


def fingerprint(run_folder: Path) -> dict[str, str]:
    """File -> digest of what must be the same in an uninterrupted run: model/, metrics, curve, and every checkpoint.

    A checkpoint holds the weights, optimizer, schedule, random generators, the position in the data (step, epoch and
    the chained digest of all batches), the average that is half taken, the scores so far, and the carried memory.

    Args:
        run_folder: of a finished run.
    """
    folders = [run_folder / "model", *sorted(run_folder.glob("checkpoint-*"))]
    files = [run_folder / "metrics.json", run_folder / "curve.jsonl", run_folder / "data.json"]
    files += [path for folder in folders for path in sorted(folder.iterdir()) if path.name not in NOT_COMPARED]
    return {str(path.relative_to(run_folder)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".json":
        content = json.dumps(without_clock(json.loads(content)), sort_keys=True).encode()
    elif path.suffix == ".jsonl":
        rows = [without_clock(json.loads(line)) for line in content.splitlines()]
        content = json.dumps(rows, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def without_clock(value: Any) -> Any:
    """A value read from JSON without what a clock decided; states are written as lists of pairs, see `save_state`.

    Args:
        value: from `json.loads`.
    """
    if isinstance(value, dict):
        return {name: without_clock(inner) for name, inner in value.items() if name not in CLOCK}
    if isinstance(value, list):
        timed = [item for item in value if isinstance(item, list) and len(item) == 2 and item[0] in CLOCK]
        return [without_clock(item) for item in value if item not in timed]
    return value


def differences(found: dict[str, str], expected: dict[str, str], *, stopped: bool = False) -> list[str]:
    """The files in which two runs differ, or that only one of them has.

    Args:
        found: from `fingerprint`.
        expected: likewise, of the uninterrupted run.
        stopped: whether a signal made the run save between the usual steps. Which checkpoint is kept beside the newest
            may then be another one, and those that only one of the runs has are not looked at.
    """
    if stopped:
        both = _checkpoints(found) & _checkpoints(expected)
        one = (_checkpoints(found) | _checkpoints(expected)) - both
        if max(_checkpoints(expected), key=_step) in one:
            return ["the newest checkpoint is another"]
        found, expected = ({n: d for n, d in run.items() if n.split("/")[0] not in one} for run in (found, expected))
    lost = [f"{name} is missing" for name in expected.keys() - found.keys()]
    new = [f"{name} is new" for name in found.keys() - expected.keys()]
    return sorted(lost + new + [name for name in found.keys() & expected.keys() if found[name] != expected[name]])


def _checkpoints(files: dict[str, str]) -> set[str]:
    return {name.split("/")[0] for name in files if name.startswith("checkpoint-")}


def _step(checkpoint: str) -> int:
    return int(checkpoint.removeprefix("checkpoint-"))
