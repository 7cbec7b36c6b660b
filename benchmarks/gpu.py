"""Everything that needs a GPU, in parts of at most nine minutes: `make gpu PART=tests`, and DRY=1 to try it on a CPU.

    PYTHONPATH=src python benchmarks/gpu.py --part speed --out benchmarks/results      # then: make pages

It needs torch, Triton and NumPy, and runs from the source folder without a network. A part is the step `smoke` and one
more; without a part all steps run. Each step is a process with a time limit of its own, writes a JSON as it goes, and
stops no other step when it fails:

- `smoke`: some calls of attention beside the slow reference, each written at once.
- `tests`, part tests: the tests marked gpu. Files that need a package that is not here are named and left out.
- `far`, part far: far and near parts (T5, TUPE, FoX; 512 to 32,768 tokens, dropout) beside every other way.
- `attention`, part speed: forward and backward with a bias that learns, in bfloat16, beside FlashAttention.
- `tuning`, part tuning: the fastest blocks of every attention kernel on this GPU; into the table that the kernels read
  they go by `python -m tools.attention_kernels --measured benchmarks/results/gpu-tuning.json`.
- `queue`, part queue: many small trainings at once, of a file of settings (--queue); see gpu_queue.py.
- `training`, part compare: steps per second of the demo's arms in bfloat16, on the letters of the documentation.

A dry run takes tiny shapes, and Triton's interpreter for the kernels; its JSON goes to build/gpu. Where the interpreter
does not work (that of Triton 3.6 with NumPy 2.4) the kernels are left out, and the JSON says why.
"""

import argparse
import importlib
import importlib.util
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"smoke": 120, "far": 400, "tests": 410, "attention": 300, "tuning": 300, "training": 120, "queue": 420}
"""Seconds of each step, in the order in which they run."""
PARTS = {
    "far": ["smoke", "far"],
    "tests": ["smoke", "tests"],
    "speed": ["smoke", "attention"],
    "tuning": ["smoke", "tuning"],
    "compare": ["smoke", "training"],
    "queue": ["smoke", "queue"],
}
"""Steps that run together, in at most nine minutes."""
DRY_LIMIT = 110
"""Seconds of each step of a dry run; one takes half a minute at most on a quiet machine."""


def main() -> None:
    """Run the steps one after the other, or a single one where this is its process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="try the script on the CPU, with tiny shapes")
    parser.add_argument("--part", choices=PARTS, help="run the smoke step and one more; all of them without it")
    parser.add_argument("--out", type=Path, help="folder of the JSON; benchmarks/results, of a dry run build/gpu")
    parser.add_argument("--queue", type=Path, help="settings of the step queue; without it that step is left out")
    parser.add_argument("--step", choices=LIMITS, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    out = arguments.out or ROOT / ("build/gpu" if arguments.dry else "benchmarks/results")
    out.mkdir(parents=True, exist_ok=True)
    if arguments.step:
        run_step(arguments.step, out / f"gpu-{arguments.step}.json", dry=arguments.dry, queue=arguments.queue)
        return
    if arguments.part == "queue" and arguments.queue is None:
        sys.exit("--part queue wants --queue FILE, a JSON of settings: see benchmarks/gpu_queue.py")
    if not arguments.dry:
        import torch

        if not torch.cuda.is_available():
            sys.exit("torch sees no CUDA device; `make gpu DRY=1` tries the script on the CPU")
    steps = PARTS[arguments.part] if arguments.part else LIMITS
    steps = [step for step in steps if step != "queue" or arguments.queue is not None]
    failed = [step for step in steps if not start(step, out, dry=arguments.dry, queue=arguments.queue)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else None)


def start(step: str, out: Path, *, dry: bool, queue: Path | None = None) -> bool:
    """Run one step as a process within its limit; log how it ended, and return whether it did well."""
    limit, file = (DRY_LIMIT if dry else LIMITS[step]), out / f"gpu-{step}.json"
    environment = os.environ | {"TRITON_INTERPRET": "1" if dry else "0"}
    source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, str(Path(__file__).resolve()), "--step", step, "--out", str(out), *["--dry"] * dry]
    command += [] if queue is None else ["--queue", str(queue.resolve())]
    print(f"== {step}, at most {limit} s", flush=True)
    started = time.monotonic()
    # a session of its own, so that what the step started ends with it
    process = subprocess.Popen(command, cwd=ROOT, env=environment | {"PYTHONPATH": source}, start_new_session=True)
    try:
        code = process.wait(limit)
        how = "done" if code == 0 else f"failed with status {code}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        code, how = 1, "stopped at its limit"
    print(f"== {step}: {how} after {time.monotonic() - started:.0f} s, {file}", flush=True)
    return code == 0


def run_step(step: str, file: Path, *, dry: bool, queue: Path | None = None) -> None:
    """Do one step, and write its JSON: what it has found by then counts if it is stopped."""
    import torch

    device = torch.device("cpu" if dry else "cuda")
    if dry:
        torch.set_num_threads(1)
    document = {"dry": dry, "gpu": gpu_of(device), "versions": versions(), "finished": False}
    started = time.monotonic()

    def write(found: dict[str, Any], *, finished: bool = False) -> None:
        seconds = round(time.monotonic() - started, 1)
        text = json.dumps(document | found | {"seconds": seconds, "finished": finished}, indent=1)
        partial = file.with_suffix(".partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(file)

    steps: dict[str, Callable[..., dict[str, Any]]] = {
        "smoke": smoke,
        "far": far,
        "tests": gpu_tests,
        "attention": attention,
        "tuning": tuning,
        "training": training,
    }
    if step == "queue":
        assert queue is not None
        earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        steps["queue"] = partial(trainings, queue=queue, earlier=earlier)
        write({"rows": earlier.get("rows", [])})
    else:
        write({})  # a step that is stopped before its first result leaves no older file
    results = steps[step](device, dry, write)
    write(results, finished=True)
    if results.get("failed"):
        sys.exit(1)


Write = Callable[[dict[str, Any]], None]


def gpu_of(device: Any) -> dict[str, Any]:
    """Return name and architecture of the GPU, or of the CPU of a dry run."""
    if device.type != "cuda":
        return {"name": f"none, a dry run on {platform.machine()}", "arch": "none"}
    import torch

    major, minor = torch.cuda.get_device_capability()
    return {"name": torch.cuda.get_device_name(), "arch": f"sm_{major}{minor}"}


def versions() -> dict[str, str]:
    """Return the versions that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton", "transformers", "x-transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def smoke(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Compare some calls of attention with the slow reference; see gpu_attention.py."""
    from gpu_attention import smoke_test

    return smoke_test(device, dry=dry, write=write)


def gpu_tests(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Run the tests marked gpu under pytest; without a GPU they are collected and skip."""
    del device, write
    if importlib.util.find_spec("pytest") is None:
        return {"failed": ["pytest is not installed; the step `attention` compares outputs and gradients too"]}
    files = [str(path) for path in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    report = ROOT / "build" / "gpu" / "junit.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    # other versions than the pinned ones are welcome here: no minimum, and warnings are no errors
    options = ["-o", "addopts=--import-mode=importlib", "-o", "minversion=0", "-o", "filterwarnings=default"]
    options += ["-p", "no:cacheprovider", "-m", "gpu", "-v", "--continue-on-collection-errors", f"--junitxml={report}"]
    limit = (DRY_LIMIT if dry else LIMITS["tests"]) - 10
    if importlib.util.find_spec("xdist") and not dry:  # most of the time goes into compiling
        options += ["-n", str(max(1, (os.cpu_count() or 1) - 2))]
    command, log = [sys.executable, "-m", "pytest", *options, *files], report.with_suffix(".log")
    with log.open("w", encoding="utf-8") as lines:
        # a session of its own, so that its workers end with it
        process = subprocess.Popen(command, cwd=ROOT, stdout=lines, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return outcomes_by_line(log.read_text("utf-8"), f"not done after {limit} s")
    print(log.read_text("utf-8")[-4000:], flush=True)
    if not report.is_file():
        return {"failed": [f"pytest wrote no report, and ended with status {process.returncode}: see {log}"]}
    return outcomes_of(report)


def outcomes_by_line(log: str, reason: str) -> dict[str, Any]:
    """Read the lines that pytest has written by the time at which it was stopped, for the reason that is named."""
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, [reason]
    # "tests/a.py::b PASSED [ 1%]", and with several processes "[gw1] [ 1%] PASSED tests/a.py::b"
    for line in log.splitlines():
        outcome = re.search(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b", line)
        test = re.search(r"\S+::\S+", line)
        if outcome and test and not line.startswith(outcome[0]):  # pytest's summary begins with the outcome
            kind = {"ERROR": "failed"}.get(outcome[0], outcome[0].lower())
            counts[kind] += 1
            failed += [test[0]] * (kind == "failed")
    return {"tests": counts, "failed": failed}


def outcomes_of(report: Path) -> dict[str, Any]:
    """Read pytest's report: counts, the tests that failed, and the files whose packages are missing."""
    counts, failed, left_out = {"passed": 0, "failed": 0, "skipped": 0}, list[str](), list[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        faults = [*case.iter("failure"), *case.iter("error")]
        missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", "".join(f.text or "" for f in faults))
        if missing:
            left_out.append(f"{name}: {missing[1]} is not installed")
        elif faults:
            counts["failed"] += 1
            failed.append(f"{name}: {(faults[0].get('message') or 'no message').splitlines()[0]}")
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return {"tests": counts, "failed": failed, "left_out": left_out}


def attention(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Measure attention with a bias; see gpu_attention.py."""
    from gpu_attention import benchmark

    return benchmark(device, dry=dry, write=write)


def far(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Measure far and near parts; see gpu_attention.py."""
    from gpu_attention import far_and_near

    return far_and_near(device, dry=dry, write=write)


def trainings(device: Any, dry: bool, write: Write, *, queue: Path, earlier: dict[str, Any]) -> dict[str, Any]:
    """Train the jobs of a queue, several at once; see gpu_queue.py."""
    from gpu_queue import Queue, run

    return run(Queue(queue), device, earlier, write, workers=2 if dry else None)


def tuning(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Find the fastest blocks of each kernel, rows for the table of configurations."""
    from gpu_attention import tune

    return tune(device, dry=dry, write=write)


def training(device: Any, dry: bool, write: Write) -> dict[str, Any]:
    """Train the arms of the recipe demo to restore masked letters, and count steps per second.

    The demo's sizes, rates and number of steps; a plain loop, since `wordorder compare` needs packages and a corpus
    that may be missing here. So its losses are not those of the demo.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    import wordorder

    recipe = tomllib.loads((ROOT / "src" / "wordorder" / "recipes" / "demo.toml").read_text("utf-8"))
    sizes, options, length = recipe["model"], recipe["training"], recipe["data"]["length"]
    text = "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))).lower()
    letters = {letter: index for index, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text], device=device)
    steps, batch, mask = (3, 4, len(letters)) if dry else (options["max_steps"], 32, len(letters))
    rows: dict[str, Any] = {}
    for arm in recipe["compare"]["arms"]:
        torch.manual_seed(0)
        width = sizes["hidden_size"]
        network = wordorder.Encoder(
            len(letters) + 1,
            width=width,
            layers=sizes["num_hidden_layers"],
            heads=sizes["num_attention_heads"],
            max_positions=length,
            encoding=arm["model.encoding"],
            encoding_options=arm.get("model.encoding_options"),
            dropout=0.0,
            attention_dropout=0.0,
        ).to(device)
        head = nn.Linear(width, len(letters)).to(device)
        parameters = [*network.parameters(), *head.parameters()]
        rate = arm.get("training.learning_rate", options["learning_rate"])
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, options["adam_beta2"]))
        warm, losses = min(50, steps // 2), list[torch.Tensor]()
        for step in range(steps):
            if step == warm:  # what is compiled, and the first allocations, are not counted
                wait(device)
                started = time.perf_counter()
            optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / options["warmup_steps"])
            starts = torch.randint(len(text) - length, (batch, 1), device=device)
            labels = ids[starts + torch.arange(length, device=device)]
            hidden = torch.rand(labels.shape, device=device) < 0.15
            with torch.autocast(device.type, torch.bfloat16):
                logits = head(network(labels.masked_fill(hidden, mask)).hidden)
            loss = F.cross_entropy(logits.float().flatten(0, 1), labels.masked_fill(~hidden, -100).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        wait(device)
        pace, last = (steps - warm) / (time.perf_counter() - started), float(torch.stack(losses[-20:]).mean())
        rows[arm["name"]] = {"steps_per_second": pace, "loss": last if math.isfinite(last) else None}
        print(f"{arm['name']:12} {pace:8.1f} steps/s, loss {last:.3f} over the last {len(losses[-20:])}", flush=True)
        write({"steps": steps, "arms": rows})
    diverged = [f"{name}: its loss is not finite" for name, row in rows.items() if row["loss"] is None]
    return {"steps": steps, "arms": rows, "failed": diverged}


def wait(device: Any) -> None:
    """Let a GPU finish what it was given."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
