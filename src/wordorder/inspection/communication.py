"""Time that processes take to sum gradients and gather weights, and bytes that each link carries."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log2

from wordorder.inspection.hardware import Device

LINK_SHARE = 0.8
"""Share of a link's rate that large messages attain, assumed: no data sheet says it."""
STEP_IN_NODE, STEP_IN_NODE_PCI, STEP_BETWEEN_NODES = 3.4e-6, 5.7e-6, 9.6e-6
"""Seconds that a message takes from one device of a ring to the next, over NVLink, PCI Express and network: those of
NCCL's own model (github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat, ring, simple protocol)."""
TREE_IN_NODE, TREE_BETWEEN_NODES = 1.2e-6, 8.5e-6
"""Seconds that a message takes from one node of a tree to the next (hwLat, tree, LL128 protocol)."""
BUCKET = 25 * 2**20
"""Bytes of gradients that DDP sums at a time: bucket_cap_mb of torch.nn.parallel.DistributedDataParallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Processes that communicate with each other.

    A ring goes through all devices of a node before it leaves it, and there are as many rings as ports, so that a node
    sends and receives through all of its ports at once. What goes from device to device is then limited by the slower
    of the link in the node and all ports of a node together.

    Args:
        ranks: how many, N.
        device: which.
        per_node: how many of them share a node.
    """

    ranks: int
    device: Device
    per_node: int

    @property
    def nodes(self) -> int:
        """Number of nodes that the processes are on."""
        return ceil(self.ranks / self.per_node)

    @property
    def rate(self) -> float:
        """Bytes per second from one device of a ring to the next."""
        ports = self.per_node * self.device.network
        if self.per_node == 1:
            return LINK_SHARE * ports
        return LINK_SHARE * (self.device.node_link if self.nodes == 1 else min(self.device.node_link, ports))

    def _ring_latency(self, steps: int) -> float:
        """Return the seconds of so many rounds, each through all devices but one."""
        between = self.nodes - 1 if self.nodes > 1 else 0
        in_node = STEP_IN_NODE if self.device.nvlink else STEP_IN_NODE_PCI
        return steps * ((self.ranks - 1 - between) * in_node + between * STEP_BETWEEN_NODES)

    def gather(self, size: float) -> float:
        """Return the seconds of a ring all-gather that gives every process ``size`` bytes.

        A reduce-scatter of as many takes as long: N - 1 messages of size / N, one after another.
        """
        if self.ranks == 1:
            return 0.0
        return self._ring_latency(1) + (self.ranks - 1) / self.ranks * size / self.rate

    def all_reduce(self, size: float) -> float:
        """Return the seconds to sum ``size`` bytes over all processes.

        A ring sends 2 (N - 1) messages of size / N; a tree wins where its fewer steps do.

        NCCL takes the faster too; trees matter for small messages among many nodes.
        """
        if self.ranks == 1:
            return 0.0
        moving = 2 * (self.ranks - 1) / self.ranks * size / self.rate
        within = min(self.per_node, self.ranks) - 1
        tree = 2 * (within * TREE_IN_NODE + log2(max(self.nodes, 1)) * TREE_BETWEEN_NODES)
        return min(self._ring_latency(2), tree) + moving


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Bytes and seconds of the communication of one step of the optimizer.

    Args:
        sent_bytes: by each device, over all rings.
        network_bytes: of them through each device's own port to other nodes.
        seconds: if nothing else went on.
        exposed_seconds: of them during which the device waits.
    """

    sent_bytes: float
    network_bytes: float
    seconds: float
    exposed_seconds: float


NOTHING = Communication(sent_bytes=0, network_bytes=0, seconds=0, exposed_seconds=0)


def data_parallel(group: Group, gradients: float, *, backward: float, overlap: bool) -> Communication:
    """Return the communication of DDP: gradients are summed in buckets, each as soon as backward has it.

    Args:
        group: all processes.
        gradients: bytes.
        backward: seconds of the backward pass that hides it: the last one of the step.
        overlap: whether anything is hidden.
    """
    if group.ranks == 1:
        return NOTHING
    buckets = max(1, ceil(gradients / BUCKET))
    one = group.all_reduce(gradients / buckets)
    seconds = buckets * one
    # the last bucket is ready when backward is done
    exposed = max(one, seconds - backward) if overlap else seconds
    sent = 2 * (group.ranks - 1) / group.ranks * gradients
    return Communication(
        sent_bytes=sent,
        network_bytes=_through_port(sent, group),
        seconds=seconds,
        exposed_seconds=exposed,
    )


def fully_sharded(
    group: Group,
    replicas: Group,
    pieces: Iterable[float],
    *,
    forward: float,
    backward: float,
    passes: int,
    overlap: bool,
) -> Communication:
    """Return the communication of FSDP2, or of hybrid shard where there are several replicas.

    Weights of each piece are gathered for the forward pass and, except of the first piece, which stays, again for the
    backward pass; gradients are scattered once a step, and a hybrid then sums each device's part over the replicas.

    Args:
        group: the processes that share one copy of the model.
        replicas: the processes that hold the same part of it.
        pieces: bytes of each sharded module, in the precision that it is gathered and scattered in: first what is
            outside of the layers, then each layer.
        forward: seconds of one forward pass, which hides its gathering.
        backward: seconds of one backward pass, which hides its own.
        passes: of each per step.
        overlap: whether anything is hidden.
    """
    sizes = list(pieces)
    whole, again = sum(sizes), sum(sizes[1:])
    gather_forward, gather_backward = sum(map(group.gather, sizes)), sum(map(group.gather, sizes[1:]))
    part = [size / group.ranks for size in sizes]
    scatter = gather_forward + sum(map(replicas.all_reduce, part))
    first, last = group.gather(sizes[0]), group.gather(sizes[0]) + replicas.all_reduce(part[0])
    seconds = passes * (gather_forward + gather_backward) + scatter
    exposed = seconds
    if overlap:
        # nothing is there to hide the first gathering, nor the last scattering
        fed = passes * max(first, gather_forward - forward) + (passes - 1) * max(0.0, gather_backward - backward)
        exposed = fed + max(last, gather_backward + scatter - backward)
    share = (group.ranks - 1) / group.ranks
    sent = share * (passes * (whole + again) + whole)
    summed = 2 * (replicas.ranks - 1) / replicas.ranks * whole / group.ranks
    between = summed if replicas.nodes > 1 else 0.0
    return Communication(
        sent_bytes=sent + summed,
        network_bytes=_through_port(sent, group) + between,
        seconds=seconds,
        exposed_seconds=exposed,
    )


def _through_port(sent: float, group: Group) -> float:
    """Return the sent bytes that leave the node by each port: one device's per node, shared by all ports."""
    return sent / min(group.per_node, group.ranks) if group.nodes > 1 else 0.0
