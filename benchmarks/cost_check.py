"""Small training steps on this machine beside what `wordorder cost --check` predicts of them.

    OMP_NUM_THREADS=1 python benchmarks/cost_check.py --json benchmarks/results/cost-check.json
    python benchmarks/publish_scaling.py

Nothing of a prediction is fitted to a model: the machine's rates are measured on matrices and arrays, before each case
and in its process. Each case has a process of its own, so that its memory is not what another one left.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from timing import machine

XL = {"encoding": "transformer-xl", "memory": "look-ahead", "memory_length": 64, "segment_length": 64}
CASES: tuple[dict[str, Any], ...] = (
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "none"}, "width": 64, "rows": 4, "length": 64},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "none"}},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "tupe-r"}},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "tupe-r"}, "precision": "bf16"},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "shaw"}},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "complex-order"}},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "t5"}, "width": 256, "layers": 4},
    {"network": "encoder", "task": "masked-lm", "fields": {"encoding": "none"}, "width": 512, "layers": 4},
    {
        "network": "encoder",
        "task": "masked-lm",
        "fields": {"encoding": "none"},
        "width": 512,
        "layers": 4,
        "checkpointing": True,
    },
    {"network": "decoder", "task": "causal-lm", "fields": {"encoding": "rope"}, "width": 256},
    {"network": "decoder", "task": "causal-lm", "fields": XL, "length": 64},
    {"network": "seq2seq", "task": "translation", "fields": {"encoding": "t5"}},
)
DEFAULTS: dict[str, Any] = {
    "width": 128,
    "layers": 2,
    "rows": 8,
    "length": 128,
    "precision": "float32",
    "checkpointing": False,
}


def measured(case: dict[str, Any]) -> dict[str, Any]:
    """A case with its seconds and bytes, measured and predicted."""
    from wordorder.inspection import Step, check_prediction, cost, measure_here
    from wordorder.models import build_config

    full = {**DEFAULTS, **case}
    sizes = {
        "vocab_size": 8000 if full["width"] == 512 else 1000,
        "hidden_size": full["width"],
        "num_hidden_layers": full["layers"],
        "num_attention_heads": 4,
    }
    config = build_config(full["network"], **sizes, **full["fields"])
    step = Step(
        config=config,
        task=full["task"],
        **{name: full[name] for name in ("rows", "length", "precision")},
        checkpointing=full["checkpointing"],
    )
    flops = cost(config, full["task"], length=full["length"], batch_size=full["rows"])["flops_per_token"]
    device = measure_here(half=full["precision"] == "bf16")
    found = check_prediction(step, device, model_flops_per_token=flops)
    return {
        **full,
        "vocabulary": sizes["vocab_size"],
        "seconds": {"measured": found.seconds, "predicted": found.predicted.seconds},
        "bytes": {"measured": found.memory_bytes, "predicted": found.predicted.memory.total},
    }


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="results file to write")
    place = parser.parse_args().json
    cases: list[dict[str, Any]] = []
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for case in CASES:
            cases.append(pool.submit(measured, case).result())
            print(
                case,
                {
                    name: round(cases[-1][name]["measured"] / cases[-1][name]["predicted"], 2)
                    for name in ("seconds", "bytes")
                },
            )
    place.write_text(json.dumps({"machine": machine(), "cases": cases}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
