"""Rates and sizes of accelerators, as data: every number with its public source."""

from dataclasses import dataclass
from typing import Literal

from wordorder.errors import BadInput

Precision = Literal["bf16", "float32"]

LAUNCH = 5e-6
"""Seconds that PyTorch takes to issue one operation from Python, assumed: no data sheet says it. A step of many small
operations cannot be faster than that, whatever the accelerator can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator and how it is connected. Decimal units, as data sheets have them."""

    name: str
    """Name, as `--gpu` takes it."""
    bf16_flops: float
    """Peak of dense bf16 matrix products with float32 sums, per second: never the figure "with sparsity"."""
    float32_flops: float
    """Peak in float32 per second, without TF32: PyTorch's default for matrix products."""
    memory_bytes: float
    """Data sheets' GB read as 10^9 bytes. The driver reports some 6% more, which CUDA's context and fragmentation use
    up."""
    bandwidth: tuple[tuple[float, float], ...]
    """Bytes per second of the memory: (up to so many bytes per operation, rate), the last without a limit. Data sheets
    have one rate; a CPU has one for each of its caches."""
    node_link: float
    """Bytes per second, one direction, between two devices of one node."""
    network: float
    """Bytes per second, one direction, that each device has to other nodes."""
    per_node: int
    """Devices of one node."""
    source: str
    """Source of the numbers."""
    launch: float = LAUNCH
    """Seconds per operation on the side that issues them."""
    asynchronous: bool = True
    """True if issuing runs beside computing, as on GPUs; on a CPU they follow each other."""
    attained: bool = False
    """True if the rates were measured, not promised: no share is taken of them."""
    nvlink: bool = True
    """True if node_link is NVLink, False if it is PCI Express."""

    def flops(self, precision: Precision) -> float:
        """Return the peak in a precision, in operations per second."""
        return self.bf16_flops if precision == "bf16" else self.float32_flops

    def rate(self, moved: float) -> float:
        """Return the bytes per second of an operation that moves so many bytes."""
        return next(rate for limit, rate in self.bandwidth if moved <= limit)


def _gpu(
    name: str,
    *,
    bf16: float,
    float32: float,
    memory: float,
    bandwidth: float,
    link: float,
    network: float,
    source: str,
    per_node: int = 8,
    nvlink: bool = True,
) -> Device:
    """Make a GPU from the units of data sheets: TFLOPS, GB and GB/s."""
    return Device(
        name=name,
        bf16_flops=bf16 * 1e12,
        float32_flops=float32 * 1e12,
        memory_bytes=memory * 1e9,
        bandwidth=((float("inf"), bandwidth * 1e9),),
        node_link=link * 1e9,
        network=network * 1e9,
        per_node=per_node,
        source=source,
        nvlink=nvlink,
    )


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        # 1,979 TFLOPS with sparsity, so 989.5 dense. NVLink 900 GB/s is both directions together.
        _gpu(
            "h100",
            bf16=989.5,
            float32=67,
            memory=80,
            bandwidth=3350,
            link=450,
            network=50,
            source="NVIDIA H100 data sheet (SXM); network: DGX H100 data sheet, 8 ports of 400 Gb/s for 8 GPUs",
        ),
        _gpu(
            "h200",
            bf16=989.5,
            float32=67,
            memory=141,
            bandwidth=4800,
            link=450,
            network=50,
            source="NVIDIA H200 data sheet (SXM); network: DGX H200 data sheet, 8 ports of 400 Gb/s for 8 GPUs",
        ),
        _gpu(
            "a100-80",
            bf16=312,
            float32=19.5,
            memory=80,
            bandwidth=2039,
            link=300,
            network=25,
            source="NVIDIA A100 data sheet (80 GB SXM); network: DGX A100 data sheet, 8 ports of 200 Gb/s for 8 GPUs",
        ),
        # 36 PFLOPS with sparsity, 600 TFLOPS float32, 1,440 GB and 64 TB/s for eight.
        _gpu(
            "b200",
            bf16=2250,
            float32=75,
            memory=180,
            bandwidth=8000,
            link=900,
            network=50,
            source="NVIDIA HGX B200 and DGX B200 data sheets, an eighth of each; network: 8 ports of 400 Gb/s",
        ),
        _gpu(
            "l40s",
            bf16=362.05,
            float32=91.6,
            memory=48,
            bandwidth=864,
            link=32,
            network=12.5,
            nvlink=False,
            source="NVIDIA L40S data sheet (PCIe Gen4 x16, 64 GB/s both directions); network assumed: 100 Gb/s per GPU",
        ),
        _gpu(
            "rtx-4090",
            bf16=165.2,
            float32=82.6,
            memory=24,
            bandwidth=1008,
            link=32,
            network=3.125,
            per_node=4,
            nvlink=False,
            source=(
                "NVIDIA Ada GPU architecture white paper, Appendix A (bf16 with float32 sums; PCIe Gen4 x16); "
                "network assumed: 100 Gb/s for a machine of 4"
            ),
        ),
        Device(
            name="cpu-measured",
            bf16_flops=460e9,
            float32_flops=108e9,
            memory_bytes=25.3e9,
            bandwidth=((2**18, 90e9), (2**21, 101e9), (2**24, 120e9), (float("inf"), 42e9)),
            node_link=42e9,
            network=1.25e9,
            per_node=1,
            source="measured: one thread of an AMD EPYC (Zen 5), torch 2.13, machine busy; network assumed: 10 Gb/s",
            launch=7.8e-6,
            asynchronous=False,
            attained=True,
            nvlink=False,
        ),
    )
}
"""Name -> accelerator.

Sources: the vendor's data sheets, https://www.nvidia.com/en-us/data-center/h100/, .../h200/, .../a100/, .../hgx/,
.../l40s/ and the white paper of the Ada architecture; cpu-measured by `wordorder.inspection.measure_here` on the
machine that its source names.
"""


def device_named(name: str) -> Device:
    """Return the accelerator of this name.

    Raises:
        BadInput: unknown name; the known ones are listed.
    """
    if name not in DEVICES:
        known = ", ".join((*DEVICES, "here"))
        raise BadInput(f"--gpu: unknown {name!r}; known: {known} (here: measure this machine)")
    return DEVICES[name]
