"""Predict memory, time and what limits them: a training step on so many devices, by a roofline model."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from wordorder.errors import BadInput
from wordorder.inspection.communication import NOTHING, Communication, Group, data_parallel, fully_sharded
from wordorder.inspection.counted_operations import Phase
from wordorder.inspection.hardware import Device
from wordorder.inspection.traced_step import Step, Trace

Strategy = Literal["ddp", "fsdp2", "hybrid"]
STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp2", "hybrid")

MATMUL_SHARE = 0.6
"""Share of a data sheet's peak that matrix products with weights attain, assumed."""
ATTENTION_SHARE = 0.35
"""Share that fused attention attains, assumed: it is between products all the time."""
BANDWIDTH_SHARE = 0.8
"""Share of the memory's rate that operations attain that only move bytes, assumed."""
MOMENTS: dict[str, int] = {"sgd": 0, "adafactor": 0, "adamw_bnb_8bit": 2, "adamw_8bit": 2, "lion_32bit": 4}
"""Bytes of state per number that optimizers keep; Adam's 8 for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layout of the work over devices."""

    devices: int
    """Number of devices, in all nodes."""
    strategy: Strategy = "ddp"
    """Distribution of the model. ddp: a whole copy each. fsdp2: one copy, sharded over all. hybrid: one copy sharded
    over each node."""
    per_node: int = 8
    """Number of devices of a node."""
    overlap: bool = True
    """True if communication goes on while the device computes."""

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise BadInput(f"--gpus: must be at least 1, got {self.devices}")
        if self.per_node < 1:
            raise BadInput(f"--gpus-per-node: must be at least 1, got {self.per_node}")
        if self.strategy not in STRATEGIES:
            raise BadInput(f"--strategy: must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        if self.devices > self.per_node and self.devices % self.per_node:
            raise BadInput(
                f"--gpus: {self.devices} are not whole nodes of {self.per_node}; take a multiple, or --gpus-per-node"
            )

    @property
    def shards(self) -> int:
        """Number of devices that share one copy of the model's state."""
        if self.strategy == "ddp":
            return 1
        return self.devices if self.strategy == "fsdp2" else min(self.devices, self.per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on each device at the fullest moment of a step."""

    weights: float
    gradients: float
    """Gradients, whole during the backward pass already: from the second micro-batch on they are."""
    optimizer: float
    activations: float
    logits: float
    weight_copies: float
    """Copies of the weights in 16 bits, which autocast makes for a pass."""
    slots: float
    """Slots of the memories that go from step to step, one memory for each micro-batch with rows of its own."""
    communication: float
    """Buffers of communication: DDP's buckets, or FSDP2's gathered weights and gradients not yet scattered."""

    @property
    def total(self) -> float:
        """Bytes of all parts together."""
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Cost of a step; times in seconds, sizes in bytes, all per device unless it says otherwise."""

    step: Step
    layout: Layout
    device: Device
    memory: Memory
    parts: dict[str, float]
    """Seconds by what the device does then: matmul, attention, memory, optimizer, communication, launching. Each
    operation takes the longer of its arithmetic and its bytes; launching is what issuing them takes beyond that."""
    communication: Communication
    flops: float
    """FLOPs of a step, recomputation included."""
    model_flops: float
    """FLOPs of a step as the model has them: three forward passes' worth, nothing twice."""

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return sum(self.parts.values())

    @property
    def tokens(self) -> int:
        """Number of tokens of a step, on all devices."""
        return self.step.tokens * self.layout.devices

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second, on all devices."""
        return self.tokens / self.seconds

    @property
    def utilisation(self) -> float:
        """Model FLOPs utilisation: model_flops against the peak in the step's precision, as in PaLM (Chowdhery et al.
        2022, https://arxiv.org/abs/2204.02311, Appendix B)."""
        return self.model_flops / (self.seconds * self.device.flops(self.step.precision))

    @property
    def fits(self) -> bool:
        """True if the device has that much memory."""
        return self.memory.total <= self.device.memory_bytes

    @property
    def limit(self) -> str:
        """Part of the step that takes the most time."""
        return max(self.parts, key=lambda part: self.parts[part])

    def as_dict(self) -> dict[str, Any]:
        """Return the prediction as plain values, for JSON."""
        sizes = asdict(self.memory)
        return {
            "gpu": self.device.name,
            "gpus": self.layout.devices,
            "strategy": self.layout.strategy,
            "overlap": self.layout.overlap,
            "precision": self.step.precision,
            "checkpointing": self.step.checkpointing,
            "rows_per_gpu": self.step.rows,
            "accumulation": self.step.accumulation,
            "memory_bytes": {**sizes, "total": self.memory.total, "available": self.device.memory_bytes},
            "fits": self.fits,
            "flops_per_step": self.flops,
            "model_flops_per_step": self.model_flops,
            "communication": asdict(self.communication),
            "seconds": dict(self.parts),
            "seconds_per_step": self.seconds,
            "tokens_per_step": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "model_flops_utilisation": self.utilisation,
            "limit": self.limit,
        }


def predict(step: Step, traced: Trace, layout: Layout, device: Device, *, model_flops_per_token: float) -> Prediction:
    """Predict a step.

    Args:
        step: what each device computes.
        traced: of the step, on shapes.
        layout: how many devices, and who holds what.
        device: which; the layout's per_node goes before its own.
        model_flops_per_token: forward and backward, see `wordorder.inspection.cost`.
    """
    passes, shards = step.accumulation, layout.shards
    forward, backward = _pass_seconds(traced, "forward", device), _pass_seconds(traced, "backward", device)
    hidden = {"forward": sum(forward.values()), "backward": sum(backward.values())}
    spoken = _communication(step, traced, layout, device, **hidden)
    parts = {part: passes * (forward[part] + backward[part]) for part in ("matmul", "attention", "memory", "launching")}
    parts["optimizer"] = _optimizer_bytes(step, traced) / shards / _rate(device, float("inf"))
    parts["communication"] = spoken.exposed_seconds
    done = sum(one.flops * times for one, times in traced.work.items())
    return Prediction(
        step=step,
        layout=layout,
        device=device,
        memory=memory_of(step, traced, layout),
        parts=parts,
        communication=spoken,
        flops=passes * done,
        model_flops=model_flops_per_token * step.tokens,
    )


def memory_of(step: Step, traced: Trace, layout: Layout) -> Memory:
    """Return the memory that each device needs.

    Args:
        step: what each device computes.
        traced: of the step.
        layout: who holds what.
    """
    whole, narrow = 4.0 * traced.parameters, _gathered_bytes(step)
    sharded = layout.strategy != "ddp"
    buffers = 0.0
    if layout.devices > 1 and not sharded:
        buffers = whole  # gradient_as_bucket_view is off, so buckets are beside the gradients
    elif layout.devices > 1:
        outside, *layers = _pieces(traced)
        layer = max(layers, default=0)
        # the layer at work and the one that is gathered ahead, what stays, a gradient and its copy to be scattered
        buffers = narrow * (outside + 2 * layer + 2 * max(outside, layer))
        if step.accumulation > 1:
            buffers += narrow * traced.parameters  # until the last micro-batch nothing is scattered
    groups = step.accumulation // step.pieces
    return Memory(
        weights=whole / layout.shards,
        gradients=whole / layout.shards,
        optimizer=MOMENTS.get(step.optimizer, 8) * traced.parameters / layout.shards,
        activations=traced.activation_bytes,
        logits=traced.logits_bytes,
        weight_copies=0 if sharded and layout.devices > 1 else traced.copy_bytes,
        slots=groups * traced.memory_bytes,
        communication=buffers,
    )


def _pass_seconds(traced: Trace, phase: Phase, device: Device) -> dict[str, float]:
    """Return the seconds of a forward or backward pass, by part."""
    spent = {"matmul": 0.0, "attention": 0.0, "memory": 0.0}
    for one, times in traced.work.items():
        if one.phase != phase:
            continue
        share = 1.0 if device.attained else ATTENTION_SHARE if one.kind == "attention" else MATMUL_SHARE
        peak = share * device.flops("bf16" if one.half else "float32")
        spent[one.kind] += times * max(one.flops / peak, one.moved / _rate(device, one.moved))
    issuing = traced.operations.get(phase, 0) * device.launch
    spent["launching"] = max(0.0, issuing - sum(spent.values())) if device.asynchronous else issuing
    return spent


def _rate(device: Device, moved: float) -> float:
    return (1.0 if device.attained else BANDWIDTH_SHARE) * device.rate(moved)


def _optimizer_bytes(step: Step, traced: Trace) -> float:
    """Return the bytes that the optimizer moves.

    Weight, gradient and state are read, weight and state written; clipping reads gradients twice, writes once.
    """
    state = MOMENTS.get(step.optimizer, 8)
    return traced.parameters * (12 + 2 * state + (12 if step.clipped else 0))


def _gathered_bytes(step: Step) -> int:
    return 2 if step.precision == "bf16" else 4


def _pieces(traced: Trace) -> tuple[int, ...]:
    """Return the number of parameters outside of the layers, and of each layer."""
    return (traced.parameters - sum(traced.blocks), *traced.blocks)


def _communication(
    step: Step, traced: Trace, layout: Layout, device: Device, *, forward: float, backward: float
) -> Communication:
    if layout.devices == 1:
        return NOTHING
    everybody = Group(ranks=layout.devices, device=device, per_node=layout.per_node)
    if layout.strategy == "ddp":
        return data_parallel(everybody, 4.0 * traced.parameters, backward=backward, overlap=layout.overlap)
    shards = Group(ranks=layout.shards, device=device, per_node=layout.per_node)
    replicas = Group(ranks=layout.devices // layout.shards, device=device, per_node=1)
    return fully_sharded(
        shards,
        replicas,
        [_gathered_bytes(step) * size for size in _pieces(traced)],
        forward=forward,
        backward=backward,
        passes=step.accumulation,
        overlap=layout.overlap,
    )
