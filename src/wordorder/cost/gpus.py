"""Estimate the memory of each of several GPUs and the time of a training step, by formulas that the user can check."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal, get_args

from wordorder.errors import BadInput

Sharding = Literal["ddp", "fsdp"]

MOMENT_BYTES: dict[str, int] = {"sgd": 0, "adafactor": 0, "adamw_8bit": 2, "adamw_bnb_8bit": 2}
"""Bytes of state for each weight, of optimizers other than AdamW in float32, which has 8; all others count as AdamW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemory:
    """Bytes that each GPU needs in a training step."""

    parameters: int
    gradients: int
    optimizer: int
    """States of the optimizer: AdamW's two moments."""
    copies: int
    """16-bit copies of the weights, which autocast makes, and DDP's buckets of gradients."""
    activations: int

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUs:
    """The GPUs that a model is trained on, each with the batch that the recipe says.

    Args:
        count: number of GPUs, N; at least 1.
        sharding: "ddp" (every GPU holds all states) or "fsdp" (FSDP2: parameters, gradients and states of the optimizer
            are divided by N).
        peak_tflops: peak of one GPU in the precision of training, P, from its data sheet; None = no time is wanted.
        utilisation: share of the peak that training reaches, U, 0.0001 to 1; measured or assumed.

    Raises:
        BadInput: a value is out of range, or one of peak_tflops and utilisation is missing.
    """

    count: int = 1
    sharding: Sharding = "ddp"
    peak_tflops: float | None = None
    utilisation: float | None = None

    def __post_init__(self) -> None:
        faults: list[str] = []
        if not 1 <= self.count <= 1_000_000:
            faults.append(f"--gpus: must be at least 1 and at most 1,000,000, got {self.count}")
        if self.sharding not in get_args(Sharding):
            faults.append(f"--sharding: must be ddp or fsdp, got {self.sharding!r}")
        if self.peak_tflops is not None and not 0.001 <= self.peak_tflops <= 1_000_000:
            faults.append(
                f"--peak-tflops: must lie between 0.001 and 1,000,000, got {self.peak_tflops}; take it from the GPU's"
                " data sheet"
            )
        if self.utilisation is not None and not 0.0001 <= self.utilisation <= 1:
            faults.append(f"--utilisation: must lie between 0.0001 and 1, such as 0.4, got {self.utilisation}")
        if (self.peak_tflops is None) != (self.utilisation is None):
            missing = "peak-tflops" if self.peak_tflops is None else "utilisation"
            faults.append(f"--{missing}: is missing; a time needs both --peak-tflops and --utilisation, such as 0.4")
        if faults:
            raise BadInput(faults)

    def memory(
        self, counted: Mapping[str, Any], *, activations: int, half: bool = False, optimizer: str = "adamw_torch"
    ) -> GPUMemory:
        """Return the bytes that each GPU needs.

        Weights, gradients and AdamW's two moments have 4 bytes a number, also under autocast. With ddp, autocast's
        16-bit copies of the weights take 2 bytes more, and from two GPUs on the buckets in which gradients are averaged
        take 4. Left out: the layer that FSDP2 gathers at a time, buffers of kernels, fragments, and the CUDA context.

        Args:
            counted: of `cost`.
            activations: bytes that one forward pass keeps, of `activation_bytes`.
            half: products are computed in 16 bits, by autocast.
            optimizer: as in training.optim.
        """
        shards = self.count if self.sharding == "fsdp" else 1
        weights, gradients, moments = (counted[f"{kind}_bytes"] for kind in ("parameter", "gradient", "optimizer"))
        copies = weights // 2 * half + gradients * (self.count > 1)
        return GPUMemory(
            parameters=ceil(weights / shards),
            gradients=ceil(gradients / shards),
            optimizer=ceil(moments * MOMENT_BYTES.get(optimizer, 8) / 8 / shards),
            copies=copies if self.sharding == "ddp" else 0,
            activations=activations,
        )

    def flops(self, counted: Mapping[str, Any], *, tokens: int, checkpointing: bool = False) -> int:
        """Return the FLOPs of a step on all GPUs; gradient checkpointing computes the forward pass twice.

        Args:
            counted: of `cost`.
            tokens: that one GPU reads in a step.
        """
        each = counted["flops_per_token"] + checkpointing * counted["forward_flops_per_token"]
        return self.count * tokens * each

    def seconds(self, flops: float) -> float | None:
        """Return the time of FLOPs on all GPUs together, FLOPs / (N x P x U); None where the peak is not given."""
        if self.peak_tflops is None or self.utilisation is None:
            return None
        return flops / (self.count * self.peak_tflops * 1e12 * self.utilisation)
