"""Names of the figure files that a comparison leaves, known without drawing them."""

import re

from wordorder.comparison.results_file import Results, Summary

FOLDER = "figures"
"""Folder of the figures, beside results.json."""


def figure_files(results: Results) -> dict[str, tuple[str, ...]]:
    """Return the title of each figure -> the names of its files, in the order of the report.

    Differences need comparisons, curves need arms that were evaluated more than once, costs two arms with results,
    a map an arm that has some.
    """
    found: dict[str, tuple[str, ...]] = {}
    if results.comparisons:
        found["Differences"] = _both("differences")
    if any(len(row.curve) > 1 for row in results.rows):
        found["Learning curves"] = _both("learning_curves")
    if sum(entry_has_costs(results, entry) for entry in results.summary) > 1:
        found["Quality against cost"] = _both("quality_against_cost")
    for name, probe in results.probes.items():
        if any(row.value is not None for row in probe.rows):
            found[probe.title] = _both(f"probe_{plain_name(name)}")
    for arm in results.correlations:
        found[f"Position correlation, {arm}"] = (f"position_correlation_{plain_name(arm)}.png",)
    return found


def entry_has_costs(results: Results, entry: Summary) -> bool:
    """Tell whether an arm of the summary has a result and a known cost."""
    arm = next((arm for arm in results.arms if arm.name == entry.arm), None)
    return bool(entry.columns) and arm is not None and bool(arm.parameters)


def plain_name(text: str) -> str:
    """Return a text with the characters replaced that a file's name should not have."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text)


def _both(stem: str) -> tuple[str, ...]:
    return (f"{stem}.png", f"{stem}.svg")
