"""The probes by name."""

from __future__ import annotations

from wordorder.comparison.probes.extrapolation import Extrapolation
from wordorder.comparison.probes.minimal_pairs import MinimalPairs
from wordorder.comparison.probes.position_probe import PositionProbe
from wordorder.comparison.probes.probe import Probe
from wordorder.comparison.probes.shuffled_windows import ShuffledWindows

PROBES: dict[str, type[Probe]] = {
    "extrapolation": Extrapolation,
    "shuffled-windows": ShuffledWindows,
    "minimal-pairs": MinimalPairs,
    "position-probe": PositionProbe,
}
"""Name in `[compare.probes.NAME]` -> the probe's class, whose fields are its options."""
