"""Changes that make a step fit that does not: each change by itself, tried out."""

from collections.abc import Generator
from dataclasses import dataclass, replace

from wordorder.inspection.hardware import Device
from wordorder.inspection.prediction import Layout, memory_of
from wordorder.inspection.traced_step import Step, Trace, trace

MOST_DEVICES = 4096
"""Largest number of devices that is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that makes a step fit."""

    what: str
    """The change, in words."""
    memory_bytes: float
    """Bytes that each device then holds."""


def changes_that_fit(step: Step, traced: Trace, layout: Layout, device: Device) -> list[Change]:
    """Return every single change with which the step fits; if there is none, all of them together.

    Args:
        step: one that does not fit.
        traced: of the step.
        layout: how many devices, and who holds what.
        device: which.
    """
    found: dict[str, Change] = {}
    for kind, change in _single(step, traced, layout):
        if kind not in found and change.memory_bytes <= device.memory_bytes:  # the smallest of its kind
            found[kind] = change
    if found:
        return list(found.values())
    small, spread = replace(step, rows=1, checkpointing=True), replace(layout, strategy="fsdp2")
    kept = trace(small)
    for devices in _more(layout):
        change = Change(
            what=f"gradient checkpointing, fsdp2 on {devices:,} GPUs and 1 row at a time, together",
            memory_bytes=memory_of(small, kept, replace(spread, devices=devices)).total,
        )
        if change.memory_bytes <= device.memory_bytes:
            return [change]
    return []


def _single(step: Step, traced: Trace, layout: Layout) -> Generator[tuple[str, Change]]:
    if not step.checkpointing:
        kept = replace(step, checkpointing=True)
        yield (
            "checkpointing",
            Change(
                what="gradient checkpointing (--checkpointing; --set training.gradient_checkpointing=true)",
                memory_bytes=memory_of(kept, trace(kept), layout).total,
            ),
        )
    rows = step.rows // 2
    while rows:
        # what is alive grows with the rows, but for what they share, such as a bias: an upper bound of it
        share = rows / step.rows
        fewer = replace(
            traced,
            activation_bytes=round(share * traced.activation_bytes),
            logits_bytes=round(share * traced.logits_bytes),
            memory_bytes=round(share * traced.memory_bytes),
        )
        yield (
            "rows",
            Change(
                what=f"{rows} rows at a time (--set training.per_device_train_batch_size={rows})",
                memory_bytes=memory_of(replace(step, rows=rows), fewer, layout).total,
            ),
        )
        rows //= 2
    if layout.strategy != "fsdp2" and layout.devices > 1:
        yield (
            "strategy",
            Change(
                what="fsdp2 (--strategy fsdp2)",
                memory_bytes=memory_of(step, traced, replace(layout, strategy="fsdp2")).total,
            ),
        )
    for devices in _more(layout):
        spread = replace(layout, strategy="fsdp2", devices=devices)
        yield "devices", Change(what=f"fsdp2 on {devices:,} GPUs", memory_bytes=memory_of(step, traced, spread).total)


def _more(layout: Layout) -> Generator[int]:
    devices = layout.per_node if layout.devices < layout.per_node else 2 * layout.devices
    while devices <= MOST_DEVICES:
        yield devices
        devices *= 2
