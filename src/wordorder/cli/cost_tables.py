"""The tables of `wordorder cost RECIPE --gpu NAME` and `--check`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wordorder.cli.output import print_table
from wordorder.streams import printable

if TYPE_CHECKING:
    from wordorder.inspection.measured_step import Check
    from wordorder.inspection.prediction import Prediction
    from wordorder.training import Recipe

GIB, MIB = 2**30, 2**20


def run_of(recipe: "Recipe", predicted: "Prediction") -> dict[str, Any]:
    """Return the steps of the recipe's run, its tokens and its seconds; None where only the data gives the steps."""
    steps = int(recipe.training.get("max_steps") or -1)
    if steps < 1:
        return {"steps": None, "tokens": None, "seconds": None}
    return {"steps": steps, "tokens": steps * predicted.tokens, "seconds": steps * predicted.seconds}


def print_predictions(found: "Mapping[str, tuple[Prediction, list[str]]]", recipes: Mapping[str, "Recipe"]) -> None:
    """Print memory, time and communication, one row per arm, and what does not fit."""
    first = next(iter(found.values()))[0]
    step, layout, device = first.step, first.layout, first.device
    title = f"{layout.devices:,} x {device.name}, {layout.strategy}, {step.precision}"
    title += ", gradient checkpointing" if step.checkpointing else ""
    kinds = ("weights", "gradients", "optimizer", "activations", "logits", "weight_copies", "slots", "communication")
    print_table(
        f"GiB on each device ({title}; it has {device.memory_bytes / GIB:.1f})",
        ("arm", *(kind.replace("_", " ") for kind in kinds), "total", "fits"),
        [
            (
                name,
                *(f"{getattr(one.memory, kind) / GIB:.3g}" for kind in kinds),
                f"{one.memory.total / GIB:.3g}",
                one.fits,
            )
            for name, (one, _) in found.items()
        ],
        numbers=True,
    )
    parts = list(first.parts)
    print_table(
        f"Milliseconds of a step (each device {step.rows} rows x {step.accumulation}; {first.tokens:,} tokens in all)",
        ("arm", *parts, "total", "limited by", "TFLOP"),
        [
            (
                name,
                *(f"{1e3 * one.parts[part]:.4g}" for part in parts),
                f"{1e3 * one.seconds:.4g}",
                one.limit,
                f"{one.flops * layout.devices / 1e12:.4g}",
            )
            for name, (one, _) in found.items()
        ],
        numbers=True,
    )
    print_table(
        f"Speed, and what goes over the links (communication {'overlaps' if layout.overlap else 'does not overlap'})",
        ("arm", "tokens per second", "model FLOPs utilisation", "MB sent by each", "MB through its port", "ms", "run"),
        [
            (
                name,
                round(one.tokens_per_second),
                f"{one.utilisation:.1%}",
                f"{one.communication.sent_bytes / 1e6:,.0f}",
                f"{one.communication.network_bytes / 1e6:,.0f}",
                f"{1e3 * one.communication.seconds:.4g}",
                _in_words(run_of(recipes[name], one)["seconds"]),
            )
            for name, (one, _) in found.items()
        ],
        numbers=True,
    )
    for name, (one, changes) in found.items():
        if not one.fits:
            need, has = one.memory.total / GIB, device.memory_bytes / GIB
            print(
                printable(f"{name} does not fit: {need:.1f} GiB on a device that has {has:.1f}. It would with any of:")
            )
            print("\n".join(f"  - {change}" for change in changes) or "  - nothing that is tried here: a smaller model")
    print("Predicted by a roofline model, not measured; docs/scaling.md says by which, and what it leaves out.")


def print_checks(found: "Mapping[str, Check]") -> None:
    """Print measured numbers beside predicted ones."""
    rows = [
        (
            name,
            f"{1e3 * one.seconds:.4g}",
            f"{1e3 * one.predicted.seconds:.4g}",
            f"{one.time_ratio:.2f}",
            f"{one.memory_bytes / MIB:.4g}",
            f"{one.predicted.memory.total / MIB:.4g}",
            f"{one.memory_ratio:.2f}",
        )
        for name, one in found.items()
    ]
    columns = ("arm", "ms measured", "ms predicted", "ratio", "MiB measured", "MiB predicted", "ratio")
    device = next(iter(found.values())).predicted.device
    print_table(f"A step, {device.source}", columns, rows, numbers=True)


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "set by epochs"
    days, hours, minutes = seconds / 86400, seconds / 3600, seconds / 60
    return f"{days:.1f} days" if days >= 2 else f"{hours:.1f} hours" if hours >= 1 else f"{minutes:.1f} minutes"
