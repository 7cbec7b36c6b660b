"""Kill a small training run at random points, resume it, and compare it with one that was left alone, to the bit.

    python tests/soak/kill_and_resume.py --kills 100 --json soak.json

This process imports torch once and forks a child for every start, so a start costs what a run costs. A kill is SIGKILL

- by the clock: after a random part of the time that an uninterrupted run takes;
- at a call: before or after a random one of all calls that flush, rename, make or remove something in the run folder;
- as a power cut: at such a call, and what had not been flushed is lost in part, see `crash_points.PowerCut`.

A run is killed one to three times before it may end. Between them some starts are asked to stop by SIGTERM, SIGUSR1,
SIGHUP or SIGXCPU at a random moment, which must end with exit code 3. Compared are all files that no clock decides, see
`same_run`.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash_points import CrashPoints
from same_run import differences, fingerprint
from small_runs import MODELS, RECIPE, write_corpus
from watch import Watch

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # read by torch and numpy as they load
    os.environ[_name] = "1"
os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

KINDS = ("clock", "clock", "call", "call", "power")
STOPS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGXCPU)
STOPPED, BROKE = 3, 70


class Soak:
    """One model's kills.

    Args:
        model: of `MODELS`.
        seed: decides where the kills fall, as far as no clock does.
        folder: an empty folder to work in.
    """

    def __init__(self, model: str, *, seed: int, folder: Path) -> None:
        from wordorder.tasks import prepare
        from wordorder.training import read_recipe  # fit: so that no child imports it
        from wordorder.training.runs import fit

        assert fit
        self.model, self.folder, self.draw = model, folder, random.Random(f"{model} {seed}")
        recipe = folder / "recipe.toml"
        recipe.write_text(RECIPE.format(corpus=write_corpus(folder / "corpus"), **MODELS[model]))
        self.recipe = read_recipe(recipe)
        self.prepared = prepare(
            self.recipe.data, self.recipe.task, self.recipe.tokenizer, seed=self.recipe.training.seed
        )
        self.watch = Watch()
        self.found: dict[str, Any] = {
            "model": model,
            "seed": seed,
            **{name: 0 for name in ("kills", "stops", "missed", "runs", "identical")},
            **{name: Counter[str]() for name in ("by_kind", "by_phase", "stops_by_phase")},
            "different": [],
        }

    def measure(self) -> None:
        """Run once without harm: what all others must be equal to, its time, and its calls."""
        begun = time.monotonic()
        code = self.start(self.folder / "whole", from_first_step=True)
        self.seconds, self.calls = time.monotonic() - begun, self.watch.calls
        self.step_seconds = time.time() - self.watch.first_step
        if code != 0:
            raise SystemExit(f"the uninterrupted run ended with {code}:\n{tail(self.folder / 'whole')}")
        self.expected = fingerprint(self.folder / "whole" / "run")
        self.found |= {"run_seconds": round(self.seconds, 2), "calls": self.calls, "compared": len(self.expected)}

    def start(self, place: Path, **harm: Any) -> int:
        """Start or resume a run in a child of its own, harm it, and return how it ended: 0, 3, 70 or -9.

        Args:
            place: holds the run folder.
            **harm: `seconds` and `signal`, and whether the time begins `from_first_step`; or `at`, `after` and `power`
                of `CrashPoints`.
        """
        place.mkdir(exist_ok=True)
        self.watch.enter("start")
        self.watch.tell(0)
        child = os.fork()
        if child == 0:
            self.live(place, harm)
        ended: int | None = None
        if harm.get("from_first_step"):
            ended = wait_for(child, lambda: self.watch.phase not in ("start", "setup"))
        if ended is None and "seconds" in harm:
            until = time.monotonic() + harm["seconds"]
            ended = wait_for(child, lambda: time.monotonic() >= until)
            if ended is None:
                os.kill(child, harm["signal"])
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if ended is None else ended

    def live(self, place: Path, harm: dict[str, Any]) -> None:
        """What a child does; it does not return."""
        code = BROKE
        try:
            os.chdir(place)
            with open("stderr.txt", "a") as log:
                os.dup2(log.fileno(), 2)
            from wordorder.errors import Stopped
            from wordorder.training import run

            at = {name: harm[name] for name in ("after", "power") if name in harm}
            CrashPoints(Path("run"), at=harm.get("at"), tell=self.watch.tell, **at).install()
            self.watch.install()
            try:
                run(self.recipe, output_dir=Path("run"), resume=True, prepared=self.prepared)
                code = 0
            except Stopped as stopped:
                print(stopped, file=sys.stderr)
                code = STOPPED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)  # nothing of the parent's is to be ended here

    def one(self, kills: int) -> None:
        """Kill a run up to so many times, let it end, and compare it."""
        name = f"{self.found['runs']:03d}"
        place, history = self.folder / name, list[str]()
        self.found["runs"] += 1
        for _ in range(kills):
            if self.draw.random() < 0.3:
                self.stop(place, history)
            if not self.kill(place, history):
                break  # it has ended
        code = self.start(place)
        differing = [f"it ended with {code}"]
        if code == 0:
            stopped = any(line.startswith("stopped") for line in history)
            differing = differences(fingerprint(place / "run"), self.expected, stopped=stopped)
        hidden = [path.name for path in (place / "run").glob(".*")]
        differing += [f"{name} was left" for name in hidden]
        broken = [line for line in history if line.startswith("broke")]
        if differing or broken:
            kept = {"run": name, "history": history, "differs": differing, "stderr": tail(place)}
            self.found["different"].append(kept)
        else:
            self.found["identical"] += 1
            shutil.rmtree(place)

    def kill(self, place: Path, history: list[str]) -> bool:
        """Start a run and kill it, and return whether that worked: it may end before the kill reaches it."""
        kind = self.draw.choice(KINDS)
        if kind == "clock":
            harm: dict[str, Any] = self.moment() | {"signal": signal.SIGKILL}
        else:
            harm = {"at": self.draw.randint(1, self.calls), "after": self.draw.random() < 0.5}
            if kind == "power":
                harm["power"] = random.Random(self.draw.random())
        code = self.start(place, **harm)
        if code == -signal.SIGKILL:
            self.found["kills"] += 1
            self.found["by_kind"][kind] += 1
            self.found["by_phase"][self.watch.phase] += 1
        elif code == 0:
            self.found["missed"] += 1
        told = {name: value for name, value in harm.items() if name != "power"}
        word = "killed" if code == -signal.SIGKILL else "missed" if code == 0 else f"broke with {code}"
        history.append(f"{word}: {kind} {told} in {self.watch.phase}, call {self.watch.calls}")
        return code != 0

    def moment(self) -> dict[str, Any]:
        """A random moment of a run; most of them after its first step began, which takes as long as all steps."""
        if self.draw.random() < 0.2:
            return {"seconds": self.draw.uniform(0, 1.05 * self.seconds)}
        return {"seconds": self.draw.uniform(0, 1.05 * self.step_seconds), "from_first_step": True}

    def stop(self, place: Path, history: list[str]) -> None:
        """Start a run and ask it to stop."""
        number = self.draw.choice(STOPS)
        code = self.start(place, **self.moment(), signal=number)
        # Before the run begins, a signal has the system's meaning; after its last step, the run may end first.
        fine = code in (STOPPED, 0) or (code == -number and self.watch.calls == 0)
        self.found["stops"] += code == STOPPED
        self.found["stops_by_phase"][self.watch.phase] += code == STOPPED
        history.append(f"{'stopped' if fine else 'broke'}: {number.name} in {self.watch.phase} gave {code}")


def wait_for(child: int, what: Callable[[], bool]) -> int | None:
    """Wait until something is so, and return None; or how the child ended, if it did before."""
    while not what():
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def tail(place: Path) -> str:
    """The last of what the runs of a place said."""
    return (place / "stderr.txt").read_text(errors="replace")[-2000:]


def soak(model: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill one model's runs as often as asked, or until the time is over, and return what was found."""
    work = Soak(model, seed=arguments.seed, folder=folder)
    begun = time.monotonic()
    work.measure()
    found = work.found
    while found["kills"] < arguments.kills and time.monotonic() - begun < 60 * arguments.minutes:
        left = arguments.kills - found["kills"]
        work.one(min(left, work.draw.choice((1, 1, 2, 3))))
        found["seconds"] = round(time.monotonic() - begun, 1)
        print(
            f"{model}: {found['kills']}/{arguments.kills} kills, {found['identical']}/{found['runs']} runs identical, "
            f"{found['seconds']:.0f} s",
            flush=True,
        )
    found["asked"] = arguments.kills
    found["passed"] = found["kills"] >= arguments.kills and found["identical"] == found["runs"]
    return found


def main() -> int:
    """Return 0 if every run that was killed ended as the uninterrupted one did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="of each model")
    parser.add_argument("--model", choices=[*MODELS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="most time for each model")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="wordorder-soak-"))
    os.environ["WORDORDER_CACHE"] = str(folder / "cache")
    import torch

    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for model in MODELS if arguments.model == "both" else (arguments.model,):
        (folder / model).mkdir()
        found.append(soak(model, arguments, folder / model))
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    for result in found:
        print(json.dumps({name: value for name, value in result.items() if name != "different"}))
        for case in result["different"]:
            print(json.dumps(case, indent=2))
    passed = all(result["passed"] for result in found)
    if passed:
        shutil.rmtree(folder)
    else:
        print(f"what differs is in {folder}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
