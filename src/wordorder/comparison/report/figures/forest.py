"""Draw the forest plot: every arm's difference from the baseline, with its interval."""

from collections.abc import Callable, Mapping
from typing import Any

from wordorder.comparison.report.differences import against, difference_title, p_in_words, references
from wordorder.comparison.results_file import Results


def draw_differences(results: Results, axes: Any, style: Callable[[str], Mapping[str, Any]]) -> None:
    """Draw the comparisons of a results file with its baseline, one line each, the first arm at the top.

    Args:
        results: the content of a results.json with "comparisons".
        axes: matplotlib axes.
        style: from an arm's name to its color, marker and label.
    """
    baseline = references(results)[0]
    entries = list(against(results, baseline).values())
    for place, entry in enumerate(entries):
        own, difference = style(entry.arm), entry.difference
        if difference is not None:
            low, high = (difference if end is None else end for end in (entry.low, entry.high))
            claimed = entry.outcome in {"better", "worse"}
            axes.errorbar(
                [difference], [place], xerr=[[difference - low], [high - difference]], color=own["color"],
                marker=own["marker"], markerfacecolor=own["color"] if claimed else "white", linestyle="none",
                markersize=6, capsize=3,
            )  # fmt: skip
        words = ", ".join(part for part in (entry.outcome, p_in_words(entry)) if part)
        axes.annotate(words, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    names = [style(entry.arm)["label"] for entry in entries]
    axes.axvline(0, color="#8b939b", linewidth=1, zorder=0)
    axes.set_yticks(range(len(entries)), names)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.set_xlabel(f"{difference_title(results)} from {style(baseline)['label']}; right is better")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
