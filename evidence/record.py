"""Show that a rebuild moved nothing: record two commits on this machine, and compare every value that both have.

    python evidence/record.py 8e4fa2c HEAD                     # all groups; about ten minutes on two cores
    python evidence/record.py 8e4fa2c HEAD --only core search  # some of them

Each commit is checked out beside this one and recorded in a process of its own, with one thread and the packages of the
Python that runs this. `recording/then.py` and `recording/now.py` hold the public calls of either side, so names may
change. Values are compared to the last digit. Keys that only one side has are listed. A difference that is meant stands
in `recording/allowed.toml` with the issue and the reason; any other one fails.

NOW may be the word `tree`: the files as they lie here, committed or not.
"""

import argparse
import fnmatch
import importlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GROUPS = ("core", "text", "recipes", "search", "statistics", "cost", "training", "comparison")
PORTABLE = ("text/*", "search/*", "cost/*", "training/*/batches/*", "training/*/data/*")
"""Values that are the same on every CPU; they are committed to tests/recordings."""
RECORDINGS = ROOT / "tests" / "recordings"
SHOWN = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Record both commits side by side, print what differs, and return 1 if a difference is not allowed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("then", help="the commit that is right")
    parser.add_argument("now", help="the commit to prove, or `tree`")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=" ".join(GROUPS))
    parser.add_argument("--keep", type=Path, help="a folder for both recordings as JSON")
    parser.add_argument("--write", action="store_true", help="write what every CPU gives to tests/recordings")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="record-") as name:
        folder = options.keep or Path(name)
        then, now = record_both(options.then, options.now, options.only, folder)
    if options.write:
        write_portable(now)
    return report(then, now, tomllib.loads((HERE / "recording" / "allowed.toml").read_text(encoding="utf-8")))


def record_both(then: str, now: str, groups: Sequence[str], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record two commits at the same time, each in one process, and return their values."""
    folder.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    trees: list[Path] = []
    try:
        for side, commit in (("then", then), ("now", now)):
            tree = ROOT
            if commit != "tree":
                tree = folder / f"{side}-tree"
                subprocess.run(["git", "worktree", "add", "--detach", "--quiet", tree, commit], cwd=ROOT, check=True)
                trees.append(tree)
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(HERE))),
                "PYTHONHASHSEED": "0",
                "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": "1",
                **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")},
            }
            command = [sys.executable, __file__, "--side", side, tree, folder / side, *groups]
            processes[side] = subprocess.Popen(command, env=environment)
        failed = [side for side, process in processes.items() if process.wait() != 0]
    finally:
        for process in processes.values():
            process.kill()
        for tree in trees:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    if failed:
        raise SystemExit(f"the recording of {' and '.join(failed)} failed")
    then_values, now_values = (json.loads((folder / f"{side}.json").read_text()) for side in ("then", "now"))
    return then_values, now_values


def record_side(side: str, tree: Path, folder: Path, groups: Sequence[str]) -> None:
    """Record one commit, whose package is the one that is imported, into a JSON file beside its folder."""
    import torch

    import wordorder

    assert Path(wordorder.__file__ or "").is_relative_to(tree), f"{wordorder.__file__} is not of {tree}"
    torch.set_num_threads(1)
    calls = importlib.import_module(f"recording.{side}")
    calls.ROOT = tree
    values = dict(values_of(calls, folder, groups, say=lambda text: print(f"{side}: {text}", flush=True)))
    folder.with_suffix(".json").write_text(json.dumps(values, indent=0, sort_keys=True, default=str), encoding="utf-8")


def values_of(calls: Any, folder: Path, groups: Sequence[str], say: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of some groups; `say` gets a line for each."""
    from recording import core, tool

    folder.mkdir(parents=True)
    command_line = None
    for group in groups:
        if group == "core":
            values = dict(core.values(calls))
        else:
            command_line = command_line or tool.Tool(calls, folder)
            values = dict(tool.GROUPS[group](command_line))
        say(f"{group}: {len(values):,} values")
        yield from values.items()


def report(then: Mapping[str, Any], now: Mapping[str, Any], allowed: Mapping[str, Any]) -> int:
    """Print how two recordings compare, and return the exit code."""
    both = then.keys() & now.keys()
    different = sorted(key for key in both if then[key] != now[key])
    rules = {rule["value"]: rule for rule in allowed.get("difference", ())}
    reasons = {key: next((value for value in rules if fnmatch.fnmatchcase(key, value)), None) for key in different}
    for title, keys in (("gone", then.keys() - both), ("new", now.keys() - both)):
        for place, count in sorted(Counter("/".join(key.split("/")[:3]) for key in keys).items()):
            print(f"{title}: {place} ({count:,})")
    for value, rule in rules.items():
        if count := sum(reason == value for reason in reasons.values()):
            print(f"allowed: {value} ({count:,}), issue {rule['issue']}: {rule['reason']}")
    faults = [key for key in different if reasons[key] is None]
    for key in faults[:SHOWN]:
        print(f"DIFFERENT {key}\n    then {str(then[key])[:200]}\n    now  {str(now[key])[:200]}")
    if len(faults) > SHOWN:
        print(f"... and {len(faults) - SHOWN:,} more")
    allowed_count = len(different) - len(faults)
    print(f"{len(both):,} values on both sides; {allowed_count:,} differ and may, {len(faults):,} differ and may not")
    return int(bool(faults))


def write_portable(values: Mapping[str, Any]) -> None:
    """Write what every CPU gives to tests/recordings, a file for each group."""
    RECORDINGS.mkdir(exist_ok=True)
    files: dict[str, dict[str, Any]] = {}
    for key in sorted(values):
        if any(fnmatch.fnmatchcase(key, pattern) for pattern in PORTABLE):
            files.setdefault(key.split("/")[0], {})[key] = values[key]
    for name, content in files.items():
        text = json.dumps(content, indent=0, sort_keys=True)
        (RECORDINGS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        record_side(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
    else:
        sys.exit(main())
