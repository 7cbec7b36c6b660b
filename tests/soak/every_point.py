"""Write, replace and rotate checkpoints, and die at every single call that does it: what is left must be whole.

And when all calls are done, what they wrote must survive a power cut.

Without torch, so that some hundred processes take a second or two; prints what it tried and what was wrong as JSON.
"""

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from crash_points import CrashPoints

from wordorder.files import write_text
from wordorder.training.checkpoints.checkpoint import (
    checkpoints,
    clean,
    damage,
    find_newest,
    rotate,
    write_checkpoint,
    write_model,
)

POWER_CUTS = 3
"""How often the power is cut at each point, each time with another loss."""


def fill(age: str) -> Callable[[Path], None]:
    """Something that writes two files, as a trainer does: the system is not told to flush them."""

    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(age.encode() * 3000)
        (folder / "counts.json").write_text(json.dumps({"age": age}))

    return write


def age_of(folder: Path) -> str | None:
    """Which of `fill`'s contents a folder holds; None if it is neither."""
    for age in ("old", "new"):
        try:
            same = (folder / "weights").read_bytes() == age.encode() * 3000
            if same and json.loads((folder / "counts.json").read_text()) == {"age": age}:
                return age
        except (OSError, ValueError):
            continue
    return None


def save_first(folder: Path) -> None:
    """The first checkpoint of a run."""
    write_checkpoint(folder, 1, fill("new"))


def save_next(folder: Path) -> None:
    """A checkpoint, after which the one before is removed."""
    write_checkpoint(folder, 2, fill("new"))
    rotate(folder, keep=1, best=None, step=2)


def save_again(folder: Path) -> None:
    """A checkpoint in the place of the only one that there is."""
    write_checkpoint(folder, 1, fill("new"))


def save_model(folder: Path) -> None:
    """The model that a run leaves, in the place of an earlier one."""
    write_model(folder / "model", fill("new"))


def save_text(folder: Path) -> None:
    """A small file in the place of an earlier one."""
    write_text(folder / "recipe.toml", "new" * 3000)


WORKS = {save_first: None, save_next: "old", save_again: "old", save_model: "old", save_text: "old"}
"""What is done, and what of the things that it replaces was there before."""


def prepare(folder: Path, before: str | None) -> None:
    """Make the run folder as it was before the work began."""
    folder.mkdir()
    if before:
        write_checkpoint(folder, 1, fill(before))
        write_model(folder / "model", fill(before))
        write_text(folder / "recipe.toml", before * 3000)


def faults(folder: Path, before: str | None) -> list[str]:
    """What is wrong with a run folder after a crash and the cleaning with which the next start begins."""
    clean(folder)
    found = [f"{path.name} was left" for path in folder.glob(".*")]
    found += [f"{path.name} is damaged" for _, path in checkpoints(folder) if damage(path)]
    if before:
        newest = find_newest(folder).newest
        if newest is None or age_of(newest) is None:
            found.append(f"the newest checkpoint is {newest}")
        if age_of(folder / "model") is None:
            found.append("the model is neither the old nor the new one")
        if (folder / "recipe.toml").read_text() not in ("old" * 3000, "new" * 3000):
            found.append("the text is neither the old nor the new one")
    return found


def not_new(folder: Path, work: Callable[[Path], None]) -> list[str]:
    """What of a work that was done has not survived."""
    if work is save_text:
        return [] if (folder / "recipe.toml").read_text() == "new" * 3000 else ["the text is not the new one"]
    made = folder / "model" if work is save_model else find_newest(folder).newest
    return [] if made is not None and age_of(made) == "new" else [f"{made} is not the new one"]


def crash(
    work: Callable[[Path], None], place: Path, *, at: int | None, after: bool, power: int | None
) -> tuple[bool, list[str]]:
    """Do the work in a child that dies at a call, or at the end; return whether it died, and what is wrong then."""
    folder = place / "run"
    prepare(folder, WORKS[work])
    child = os.fork()
    if child == 0:
        try:
            points = CrashPoints(folder, at=at, after=after, power=None if power is None else random.Random(power))
            points.install()
            work(folder)
            if at is None:
                points.end()
        except BaseException as error:
            os.write(2, f"{work.__name__} at call {at}: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = faults(folder, WORKS[work]) + ([f"it ended with {code}"] if code not in (0, -9) else [])
    found += not_new(folder, work) if at is None else []
    shutil.rmtree(place)
    place.mkdir()
    return code == -9, found


def main() -> int:
    """Return 0 if nothing was wrong anywhere."""
    memory = (
        "/dev/shm"  # where there is one, thousands of flushes cost nothing; what is flushed is counted all the same
    )
    place = Path(tempfile.mkdtemp(prefix="wordorder-points-", dir=memory if os.access(memory, os.W_OK) else None))
    wrong: list[str] = []
    points: dict[str, int] = {}
    crashes = 0
    for work in WORKS:
        for at in range(1, 1000):
            tries = [(after, power) for after in (False, True) for power in (None, *range(POWER_CUTS))]
            died = False
            for after, power in tries:
                died, found = crash(work, place, at=at, after=after, power=power)
                crashes += died
                when = f"{work.__name__}, {'after' if after else 'before'} call {at}, power cut {power}"
                wrong += [f"{when}: {fault}" for fault in found]
            if not died:
                break
            points[work.__name__] = at
        for power in range(POWER_CUTS):
            died, found = crash(work, place, at=None, after=True, power=power)
            crashes += died
            wrong += [f"{work.__name__}, done, power cut {power}: {fault}" for fault in found]
    shutil.rmtree(place)
    print(json.dumps({"points": points, "crashes": crashes, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
