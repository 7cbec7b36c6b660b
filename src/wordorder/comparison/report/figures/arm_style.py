"""The style of an arm in every figure: its colour, dash and marker, the same in the page and in the files."""

from dataclasses import dataclass

from wordorder.comparison.results_file import Results

COLOURS = ("#0c8be0", "#8a2c0a", "#11785b", "#e8359f", "#a18e17", "#163f85", "#0f0f0f", "#7417e6")
"""The page's palette on white (page/page.css); the ninth arm has the first colour again, with another dash.

Chosen by search so that any two stay apart (0.1 and more in OKLab) also for readers with protanopia or deuteranopia.
"""

DASHES = ("-", "--", ":")
MARKERS = "os^Dv*PX"
"""Matplotlib's names of the page's eight shapes (page/core.js); an arm that shares its colour has the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmStyle:
    """Indices into `COLOURS`, `DASHES` and `MARKERS`."""

    colour: int
    dash: int
    marker: int


def arm_styles(results: Results) -> dict[str, ArmStyle]:
    """Return the style of each arm by name, in the order of the recipe."""
    return {
        arm.name: ArmStyle(
            colour=index % len(COLOURS),
            dash=index // len(COLOURS) % len(DASHES),
            marker=(index + index // len(COLOURS)) % len(MARKERS),
        )
        for index, arm in enumerate(results.arms)
    }
