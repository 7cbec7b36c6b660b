"""Write the compiler's findings about the kernels, and a GPU's measurements, into docs/backends.md.

    python -m tools.kernels --json benchmarks/results/kernels.json    # needs Triton, and no GPU
    make gpu                                                          # needs a GPU; writes gpu-*.json beside it
    python evidence/publish/publish_backends.py

Until there are such files, the page says in sentences what the first run, on an H200, showed (gpu-h200-*.json).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blocks import put
from publish_demo import ROOT, SPEED

PAGE = ROOT / "docs" / "backends.md"
STEPS = ("tests", "attention", "tuning", "training")
SHOWN = (
    "t5, 512 tokens",
    "t5, 2,048 tokens",
    "tupe-r, 2,048 tokens",
    "tupe-r, 8,192 tokens",
    "tupe-r, causal, 8,192 tokens",
)
"""Sections of the run on an H200 that the page shows."""
GPUS = {"sm_80": "A100", "sm_86": "RTX 30", "sm_90": "H100", "sm_100": "B200", "gfx942": "MI300"}


def kernels_table(results: dict[str, Any]) -> str:
    """Return a row for each target: the most registers and shared memory that one of its kernels takes."""
    lines = ["| GPU | Registers of a thread | Shared memory of a block |", "| :--- | ---: | :--- |"]
    for target, limit in results["shared_limits"].items():
        rows = [row for row in results["rows"] if row["target"] == target]
        cells = [
            f"{GPUS[target]} ({target})" if target in GPUS else target,
            f"up to {max(row['registers'] for row in rows)}",
            f"up to {max(row['shared'] for row in rows) / 1024:.0f} of {limit / 1024:.0f} KiB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    inside = [row for row in results["rows"] if row["inside"]]
    named = "".join(f"\n- {row['kernel']}, {row['target']}: **{row['spills']} bytes**" for row in inside)
    outside = sum(bool(row["spills"]) for row in results["rows"]) - len(inside)
    found = f"{outside} of {len(results['rows'])} kernels spill registers outside of inner loops, {len(inside)} inside"
    return "\n".join(lines) + (
        f"\n\nCompiled by triton {results['compiler']['triton']}; `benchmarks/results/kernels.json` has every kernel."
        f" {found}{':' if inside else '.'}{chr(10) * bool(inside)}{named}"
    )


def first_run() -> str:
    """Write what the run on an H200 showed, which the choice of a backend follows."""
    results, probe = (
        json.loads((SPEED / f"gpu-h200-{name}.json").read_text(encoding="utf-8")) for name in ("attention", "probe")
    )

    def lost(case: str) -> float:
        """Return how many times as long as SDPA Triton took in a case of the probe."""
        return probe[f"{case} triton"][0] / probe[f"{case} sdpa"][0]

    cases = [case.removesuffix(" sdpa") for case in probe if case.endswith(" sdpa") and f"{case[:-4]}triton" in probe]
    dropout = max(lost(case) for case in cases if "bfloat16" in case and not case.endswith("drop0.0"))
    float32 = max(lost(case) for case in cases if "float32" in case)
    shares = [rows["wordorder, triton"]["share"] for rows in results["sections"].values()]
    versions = results["versions"]
    lines = [
        f"A training step of attention in bfloat16 on one {results['gpu']['name'].split()[-1]}, milliseconds:",
        "",
        "| Bias | Triton | SDPA, bias written out |",
        "| :--- | ---: | ---: |",
    ]
    for section in SHOWN:
        rows = results["sections"][section]
        times = [f"{rows[name]['milliseconds']:.1f}" for name in ("wordorder, triton", "SDPA, bias written out")]
        lines.append(f"| {section} | {' | '.join(times)} |")
    return "\n".join(lines) + (
        f"\n\nWith dropout Triton took up to {dropout:.1f} times as long as SDPA, in float32 up to {float32:.0f} times."
        f" FlashAttention without a bias was {1 / max(shares):.0f} to {1 / min(shares):.0f} times as fast as Triton"
        " with one. torch"
        f" {versions['torch']}, triton {versions['triton']}; `benchmarks/results/gpu-h200-*.json`."
    )


def gpu_section(found: Mapping[str, dict[str, Any]]) -> str:
    """Return what the steps of `make gpu` found."""
    if not found:
        return first_run()
    if any(results["dry"] for results in found.values()):
        raise ValueError("results of a dry run say nothing: remove benchmarks/results/gpu-*.json, and run make gpu")
    parts = [step(found[name]) for name, step in SECTIONS.items() if name in found]
    return "\n\n".join(part for part in parts if part)


def where(results: Mapping[str, Any]) -> str:
    """Return where and with what it was measured, and whether it was stopped."""
    packages = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"{results['gpu']['name']}, {packages}.{'' if results['finished'] else ' Stopped at its time limit.'}"


def tests_of(results: dict[str, Any]) -> str:
    """Return the counts of the tests that need a GPU."""
    counts = results.get("tests", {})
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "not run"
    failed = "".join(f"\n- {name}" for name in results["failed"])
    return f"Tests marked `gpu`: {said}. {where(results)}" + (f"\n\nFailed:\n{failed}" if failed else "")


def attention_of(results: dict[str, Any]) -> str:
    """Return shares of FlashAttention's throughput, the goals, and memory."""
    lines = ["| Forward and backward | | Share | Quartiles | ms | TFLOP/s |", "| :--- | :--- |" + " ---: |" * 4]
    for section, rows in results["sections"].items():
        for name, row in rows.items():
            if "failed" in row:
                cells = [f"not measured: {row['failed']}", "", "", ""]
            else:
                low, high = row["share_quartiles"]
                cells = [f"{row['share']:.2f}", f"{low:.2f} to {high:.2f}"]
                cells += [f"{row['milliseconds']:.3f}", f"{row['tflops']:.0f}"]
            lines.append("| " + " | ".join([section, name, *cells]) + " |")
    dtype = results["dtype"].removeprefix("torch.")
    lines += ["", f"{dtype}; a share is that of the throughput of {results['limit']}: more is better; medians over"]
    lines[-1] += f" interleaved rounds; FLOPs are those of the content alone. {where(results)}"
    lines += ["", "| Goal | | Found | |", "| :--- | :--- | ---: | :--- |"]
    for goal in results["goals"]:
        share = "" if goal["found"] is None else f"{goal['found']:.2f}"
        verdict = {None: "not measured", True: "met", False: "missed"}[goal["met"]]
        lines.append(f"| {goal['section']} | {goal['goal']} | {share} | {verdict} |")
    names = list(dict.fromkeys(name for rows in results["memory"].values() for name in rows))
    if names:
        lines += ["", "| Memory of a step, one text (MiB) | " + " | ".join(names) + " |"]
        lines.append("| :--- |" + " ---: |" * len(names))
    for tokens, rows in results["memory"].items():
        sizes = [rows[name].get("bytes") for name in names]
        cells = ["" if size is None else f"{size / 2**20:,.0f}" for size in sizes]
        lines.append("| " + " | ".join([f"{tokens} tokens", *cells]) + " |")
    return "\n".join(lines)


def training_of(results: dict[str, Any]) -> str:
    """Return steps per second of the demo by encoding."""
    lines = ["| Encoding of the demo, bfloat16 | Steps per second |", "| :--- | ---: |"]
    lines += [f"| {name} | {row['steps_per_second']:.0f} |" for name, row in results["arms"].items()]
    return "\n".join(lines) + f"\n\n{where(results)}"


SECTIONS = {"tests": tests_of, "attention": attention_of, "training": training_of}


def gpu_results(folder: Path = SPEED) -> dict[str, dict[str, Any]]:
    """Return the JSON of every step that has one."""
    files = {step: folder / f"gpu-{step}.json" for step in STEPS}
    return {step: json.loads(file.read_text(encoding="utf-8")) for step, file in files.items() if file.is_file()}


def page_of(text: str) -> str:
    """Return the page with both parts as the files have them."""
    kernels = json.loads((SPEED / "kernels.json").read_text(encoding="utf-8"))
    return put(put(text, "kernels", kernels_table(kernels)), "gpu", gpu_section(gpu_results()))


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
