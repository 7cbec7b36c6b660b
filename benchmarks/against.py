"""Time this tree against an earlier commit: two processes by turns on one core, ratios with their quartiles.

    python benchmarks/against.py 8e4fa2c                       # 20 rounds of each workload; about four minutes
    python benchmarks/against.py 8e4fa2c --only tupe-r-encoder --rounds 40 --json against.json

Both processes are pinned to the same core with one thread. In each round each does the same work once, the one that
begins changing from round to round, and the ratio of the round is now / then of the process CPU time: below 1 is
faster. A machine that does something else (load above 0.3) is refused, unless --force. Networks are built by the
public calls of evidence/recording, so that names may change between the commits.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
QUIET = 0.3
VOCABULARY, SIZES = 1000, {"width": 128, "layers": 2, "heads": 4, "max_positions": 256}
Work = Callable[[], object]


def training(calls: ModuleType, kind: str, encoding: str, rows: int, length: int) -> Work:
    """Return forward and backward of a network, padding in one row."""
    import torch

    net = calls.network(kind, VOCABULARY, encoding=encoding, **SIZES)
    ids, padding = torch.randint(1, VOCABULARY, (rows, length)), torch.zeros(rows, length, dtype=torch.bool)
    padding[-1, -3:] = True
    return lambda: net(ids, key_padding_mask=padding).hidden.square().mean().backward()


def segments(calls: ModuleType, memory: str) -> Work:
    """Return forward and backward of a segment after a full memory."""
    import torch

    net = calls.network("Decoder", VOCABULARY, encoding="transformer-xl", memory=memory, **SIZES)
    ids = torch.randint(1, VOCABULARY, (4, 64))
    full = net(ids).memory
    return lambda: net(ids, memory=full).hidden.square().mean().backward()


def steps(calls: ModuleType) -> Work:
    """Return 32 tokens that are read one by one with a cache of keys."""
    import torch

    net = calls.network("Decoder", VOCABULARY, encoding="rope", **SIZES).eval()
    ids = torch.randint(1, VOCABULARY, (1, 32))

    def read() -> None:
        cache = calls.key_cache()
        with torch.no_grad():
            for token in ids.split(1, dim=1):
                net(token, cache=cache)

    return read


WORKLOADS: dict[str, Callable[[ModuleType], Work]] = {
    "tiny-encoder": lambda calls: training(calls, "Encoder", "tupe-r", 2, 16),
    "tupe-r-encoder": lambda calls: training(calls, "Encoder", "tupe-r", 8, 128),
    "t5-decoder": lambda calls: training(calls, "Decoder", "t5", 8, 128),
    "rope-decoder": lambda calls: training(calls, "Decoder", "rope", 8, 128),
    "transformer-xl-segment": lambda calls: segments(calls, "segment-recurrence:64"),
    "look-ahead-segment": lambda calls: segments(calls, "look-ahead:64"),
    "cached-steps": steps,
}


def serve(side: str, name: str) -> None:
    """Do a workload once for each line of stdin, and print its CPU seconds; in a process of one commit."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    work = WORKLOADS[name](importlib.import_module(f"recording.{side}"))
    repeats = 1
    for _ in range(3):  # warm, and long enough that the clock's grain does not count
        begun = time.process_time()
        for _ in range(repeats):
            work()
        repeats = max(1, round(repeats * 0.2 / max(time.process_time() - begun, 1e-4)))
    print(repeats, flush=True)
    repeats = int(sys.stdin.readline())
    for _ in sys.stdin:
        begun = time.process_time()
        for _ in range(repeats):
            work()
        print(time.process_time() - begun, flush=True)


def timed(trees: dict[str, Path], name: str, rounds: int) -> list[tuple[float, float]]:
    """Return (then, now) seconds of each round of a workload."""
    processes: dict[str, subprocess.Popen[str]] = {}
    core = max(os.sched_getaffinity(0))
    for side, tree in trees.items():
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT / "evidence"))),
            **{variable: "1" for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
        }
        processes[side] = subprocess.Popen(
            [sys.executable, __file__, "--serve", side, name],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

    def ask(side: str, line: object) -> None:
        print(line, file=processes[side].stdin, flush=True)

    def answer(side: str) -> float:
        line = processes[side].stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{name}: the process of {side} ended")
        return float(line)

    try:
        # Both do the same number of repetitions, so that a round compares equal work.
        repeats = int(min(answer("then"), answer("now")))
        for side in trees:
            ask(side, repeats)
        seconds: dict[str, list[float]] = {"then": [], "now": []}
        for number in range(rounds):
            for side in ("then", "now") if number % 2 else ("now", "then"):
                ask(side, "go")
                seconds[side].append(answer(side))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return list(zip(seconds["then"], seconds["now"], strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the workloads and print their ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--force", action="store_true", help="also on a machine that is busy")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    if load > QUIET and not options.force:
        raise SystemExit(f"the load is {load:.2f}, above {QUIET}: wait until the machine is quiet, or pass --force")
    results: dict[str, Any] = {"commit": options.commit, "rounds": options.rounds, "load": load, "ratios": {}}
    with tempfile.TemporaryDirectory(prefix="against-") as folder:
        tree = Path(folder) / "then"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", tree, options.commit], cwd=ROOT, check=True)
        try:
            print(f"{'now / then':24}{'median':>8}{'quartiles':>16}{'then, ms':>10}")
            for name in options.only:
                pairs = timed({"then": tree, "now": ROOT}, name, options.rounds)
                low, middle, high = statistics.quantiles([now / then for then, now in pairs], n=4)
                results["ratios"][name] = {"median": middle, "quartiles": [low, high], "seconds": pairs}
                each = 1000 * statistics.median(then for then, _ in pairs)
                print(f"{name:24}{middle:8.3f}{f'{low:.3f}-{high:.3f}':>16}{each:10.1f}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3])
    else:
        main()
