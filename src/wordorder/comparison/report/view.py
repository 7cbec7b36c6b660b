"""Make the data that the report's scripts draw: one small JSON beside the results themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from wordorder.comparison.quality import quality_of
from wordorder.comparison.report.costs import costs_known, front_of, points_of
from wordorder.comparison.report.curves import (
    LARGEST,
    curve_label,
    curve_value,
    in_perplexity,
    learning_curves,
    target_lines,
)
from wordorder.comparison.report.differences import (
    against,
    difference_title,
    in_short,
    outcome_in_words,
    percent,
    places_of,
    references,
)
from wordorder.comparison.report.figures.arm_style import arm_styles
from wordorder.comparison.report.numbers import MISSING
from wordorder.comparison.report.probe_points import probe_panels, spans_octaves
from wordorder.comparison.report.table import columns
from wordorder.comparison.results_file import Comparison, ProbeResult, Results
from wordorder.comparison.statistics.summary import spread


def view_of(results: Results) -> dict[str, object]:
    """Return the data that the scripts draw, from the content of a results file."""
    quality, statistic, styles = quality_of(results), results.statistic, arm_styles(results)
    entries = {entry.arm: entry for entry in results.summary}
    return {
        "arms": [{"name": name, **asdict(style)} for name, style in styles.items()],
        "curves": learning_curves(results),
        "curve_label": curve_label(results),
        "log_curves": in_perplexity(results),
        "targets": [{"value": value, "baseline": baseline} for value, baseline in target_lines(results)],
        "reached": [
            {"arm": entry.arm, "steps": entry.steps, "value": curve_value(results, entry.target)}
            for entry in results.steps_to_loss
            if entry.steps is not None and entry.target is not None and entry.target < LARGEST
        ],
        "quality": {"title": columns(results)[0].title, "more_is_better": quality.higher_is_better},
        "ranges": {
            arm: spread(entry.columns[quality.key], statistic)
            for arm, entry in entries.items()
            if quality.key in entry.columns
        },
        "costs": [
            {
                "key": cost.key,
                "title": cost.title,
                "short": cost.short,
                "more_is_better": cost.more_is_better,
                "points": [asdict(point) for point in points_of(results, cost)],
                "words": front_of(results, cost).words,
            }
            for cost in costs_known(results)
        ],
        "differences": _differences(results),
        "probes": _probes(results),
        "correlations": results.correlations,
    }


def _differences(results: Results) -> dict[str, object]:
    found = references(results)
    return {
        "title": difference_title(results),
        "references": found,
        "rows": {
            reference: [_difference(entry, places_of(results)) for entry in against(results, reference).values()]
            for reference in found
        },
    }


def _difference(entry: Comparison, places: int) -> dict[str, object]:
    return {
        "arm": entry.arm,
        "difference": entry.difference,
        "low": entry.low,
        "high": entry.high,
        "outcome": entry.outcome,
        "words": outcome_in_words(entry),
        "short": in_short(entry, places),
        "percent": None if percent(entry) == MISSING else percent(entry),
    }


def _probes(results: Results) -> list[dict[str, object]]:
    arms = [arm.name for arm in results.arms]
    return [
        {
            "name": name,
            "title": probe.title,
            "x": probe.x,
            "x_kind": probe.x_kind,
            "value": probe.value,
            "higher_is_better": probe.higher_is_better,
            "log_value": bool(probe.log),
            "panels": [
                {
                    "group": panel.group,
                    "xs": panel.xs,
                    "log_x": probe.x_kind == "number" and spans_octaves(panel.xs),
                    "points": {arm: [asdict(point) for point in points] for arm, points in panel.points.items()},
                }
                for panel in probe_panels(probe, arms)
            ],
        }
        for name, probe in drawn_probes(results)
    ]


def drawn_probes(results: Results) -> Sequence[tuple[str, ProbeResult]]:
    """Return the probes, by name, in which at least one arm has a value."""
    return [(name, probe) for name, probe in results.probes.items() if any(row.value is not None for row in probe.rows)]
