"""Put what the roofline model predicts for many GPUs into docs/scaling.md: no number in its tables is typed.

    python benchmarks/publish_scaling.py

A test computes the tables again and holds the page to them; what was measured is from benchmarks/cost_check.py.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from publish_demo import ROOT, put

PAGE = ROOT / "docs" / "scaling.md"
GIB = 2**30
MODELS: dict[str, dict[str, Any]] = {
    # recipes/bert_base.toml
    "bert-base": {
        "network": "encoder",
        "task": "masked-lm",
        "length": 512,
        "rows": 64,
        "fields": {
            "encoding": "tupe-r",
            "cls_token_id": 2,
            "vocab_size": 32768,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "max_position_embeddings": 512,
            "norm_placement": "post",
            "sparse_prediction": True,
        },
    },
    "1b": {
        "network": "decoder",
        "task": "causal-lm",
        "length": 2048,
        "rows": 4,
        "fields": {
            "encoding": "rope",
            "vocab_size": 32768,
            "hidden_size": 2048,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "intermediate_size": 8192,
            "max_position_embeddings": 2048,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
    },
}
LAYOUTS = (
    (1, "ddp"),
    (8, "ddp"),
    (64, "ddp"),
    (64, "fsdp2"),
    (64, "hybrid"),
    (1024, "ddp"),
    (1024, "fsdp2"),
    (1024, "hybrid"),
)


@cache
def counted(name: str, checkpointing: bool = False) -> tuple[Any, Any, float]:
    """The step of a model, its trace and the model's FLOPs per token."""
    from wordorder.inspection import Step, cost, trace
    from wordorder.models import build_config

    model = MODELS[name]
    config = build_config(model["network"], **model["fields"])
    step = Step(
        config=config,
        task=model["task"],
        length=model["length"],
        rows=model["rows"],
        precision="bf16",
        checkpointing=checkpointing,
    )
    found = cost(config, model["task"], length=model["length"], batch_size=model["rows"])
    return step, trace(step), found["flops_per_token"]


def predicted(name: str, gpu: str) -> Iterator[Any]:
    """A prediction for each layout."""
    from wordorder.inspection import Layout, device_named, predict

    step, traced, flops = counted(name)
    for devices, strategy in LAYOUTS:
        layout: Any = Layout(devices=devices, strategy=strategy)  # pyright: ignore[reportArgumentType]
        yield predict(step, traced, layout, device_named(gpu), model_flops_per_token=flops)


def table_of(name: str, gpu: str = "h100") -> str:
    """One row a layout."""
    columns = ["GPUs", "", "GiB of each", "ms a step", "of them waiting", "million tokens a second", "of linear"]
    columns += ["utilisation", "limited by"]
    lines = ["| " + " | ".join(columns) + " |", "| ---: | :--- |" + " ---: |" * 6 + " :--- |"]
    alone = 0.0
    for one in predicted(name, gpu):
        alone = alone or one.tokens_per_second
        cells = [
            f"{one.layout.devices:,}",
            one.layout.strategy,
            f"{one.memory.total / GIB:.1f}",
            f"{1e3 * one.seconds:.1f}",
            f"{1e3 * one.communication.exposed_seconds:.1f}",
            f"{one.tokens_per_second / 1e6:.2f}",
            f"{one.tokens_per_second / (alone * one.layout.devices):.0%}",
            f"{one.utilisation:.0%}",
            one.limit,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    step, traced, _ = counted(name)
    return "\n".join(lines) + (
        f"\n\nPredicted, not measured: {traced.parameters / 1e6:,.0f} million parameters, {gpu}, bf16, {step.rows} rows"
        f" of {step.length:,} tokens on each GPU, no gradient checkpointing."
    )


def hardware_table() -> str:
    """The catalogue, one row a device."""
    from wordorder.inspection import DEVICES

    columns = ["`--gpu`", "dense bf16 (TFLOPS)", "float32", "GB", "GB/s", "link in a node", "to other nodes", "source"]
    lines = ["| " + " | ".join(columns) + " |", "| :--- |" + " ---: |" * 6 + " :--- |"]
    for device in DEVICES.values():
        rates = (device.memory_bytes, device.bandwidth[-1][1], device.node_link, device.network)
        cells = [f"{device.bf16_flops / 1e12:,g}", f"{device.float32_flops / 1e12:,g}"]
        cells += [f"{rate / 1e9:,g}" for rate in rates]
        lines.append("| " + " | ".join([f"`{device.name}`", *cells, device.source]) + " |")
    return "\n".join(lines) + "\n\nRates of links are for one direction."


def check_table() -> str:
    """Measured by predicted, from the committed measurements of benchmarks/cost_check.py."""
    record = json.loads((ROOT / "benchmarks" / "results" / "cost-check.json").read_text(encoding="utf-8"))
    lines = ["| Model | Precision | Width, layers | Step | Time | Memory |", "| :--- " * 4 + "| ---: | ---: |"]
    for case in record["cases"]:
        fields, time, memory = case["fields"], case["seconds"], case["bytes"]
        name = f"{case['network']}, {fields['encoding']}"
        name += f", {fields['memory']} memory of {fields['memory_length']}" if "memory" in fields else ""
        cells = [
            name + (", gradient checkpointing" if case["checkpointing"] else ""),
            case["precision"],
            f"{case['width']}, {case['layers']}",
            f"{case['rows']} x {case['length']} tokens of {case['vocabulary']:,}",
            f"{time['measured'] / time['predicted']:.2f}",
            f"{memory['measured'] / memory['predicted']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    machine = record["machine"]
    return "\n".join(lines) + (
        f"\n\nMeasured by predicted: benchmarks/cost_check.py, one process a case, {machine['threads']} thread of"
        f" {machine['processor']}, torch {machine['packages']['torch']}; the machine had other work."
    )


def tables() -> dict[str, str]:
    """Every table of the page by its marker."""
    scaling = {f"{name}-scaling": table_of(name) for name in MODELS}
    return {"hardware": hardware_table(), **scaling, "cost-check": check_table()}


def main() -> None:
    """Compute, and write the page."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        page = put(page, name, table)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
