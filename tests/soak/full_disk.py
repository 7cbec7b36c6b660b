"""Let the disk become full at every stage of a run; then give it room, resume, and compare to the bit.

    unshare --user --map-root-user --mount python tests/soak/full_disk.py --json full-disk.json

Each run has a tmpfs of its own, whose size grows from run to run until one ends well. A run that meets the end of its
disk must end as RunFailed that says so and names the last good checkpoint, if there is one, which must be whole.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kill_and_resume import BROKE, Soak, tail
from same_run import differences, fingerprint
from small_runs import MODELS

PAGE = 4  # KiB: what a tmpfs grants at least
ROOM = 64 * 1024  # KiB


def mount(place: Path, kilobytes: int, *, again: bool = False) -> None:
    """Mount a tmpfs of a size, or give one that is mounted another size."""
    options = f"size={kilobytes}k" + (",remount" if again else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def one(soak: Soak, place: Path, kilobytes: int) -> tuple[dict[str, Any], bool]:
    """Run on a disk of a size, then with room; return what was found, and whether the disk was large enough."""
    from wordorder.training.checkpoints.checkpoint import checkpoints, damage, find_newest

    folder = place / "run"
    shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True)
    mount(folder, kilobytes)
    try:
        code, said = soak.start(place), tail(place)
        last = said.strip().splitlines()[-1] if said.strip() else ""
        wrong: list[str] = []
        newest = find_newest(folder).newest
        if code == BROKE:
            wrong += [] if "RunFailed" in last and "No space left" in last else [f"it ended with: {last}"]
            wrong += [] if newest is None or str(newest.relative_to(place)) in last else [f"{newest} is not named"]
        elif code != 0:
            wrong.append(f"it ended with {code}")
        wrong += [f"{path.name} is damaged" for _, path in checkpoints(folder) if damage(path)]
        wrong += [f"{path.name} takes room" for path in folder.glob(".saving-*")]
        mount(folder, ROOM, again=True)
        if soak.start(place) != 0:
            wrong.append("it cannot be resumed")
        else:
            wrong += differences(fingerprint(folder), soak.expected)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    found = {"kilobytes": kilobytes, "code": code, "newest": newest and newest.name, "said": last, "wrong": wrong}
    return found, code == 0


def main() -> int:
    """Return 0 if every run ended as it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=[*MODELS], default="memory")
    parser.add_argument("--first", type=int, default=PAGE, help="KiB of the first disk")
    parser.add_argument("--step", type=int, default=16, help="KiB that each disk has more than the one before")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="wordorder-disk-"))
    os.environ["WORDORDER_CACHE"] = str(folder / "cache")
    soak = Soak(arguments.model, seed=0, folder=folder)
    soak.measure()
    found: list[dict[str, Any]] = []
    kilobytes, enough = arguments.first, False
    while not enough:
        result, enough = one(soak, folder / "place", kilobytes)
        found.append(result)
        print(json.dumps(result), flush=True)
        kilobytes += arguments.step
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    shutil.rmtree(folder)
    return 1 if any(result["wrong"] for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
