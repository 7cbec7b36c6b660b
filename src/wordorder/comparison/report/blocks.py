"""Make the report's blocks of text and small tables from the results file; a block without data is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wordorder.comparison.report.costs import costs_known, front_of, points_of
from wordorder.comparison.report.differences import (
    against,
    in_parts,
    in_short,
    meaning,
    outcome_in_words,
    percent,
    places_of,
    references,
)
from wordorder.comparison.report.figures.arm_style import arm_styles
from wordorder.comparison.report.figures.names import FOLDER, figure_files
from wordorder.comparison.report.newer_keys import entries_of, mapping_of
from wordorder.comparison.report.numbers import MISSING, grouped, significant
from wordorder.comparison.report.probe_points import probe_panels, probe_table
from wordorder.comparison.report.table import lines, matched
from wordorder.comparison.statistics.summary import baseline_of, repeats

MATCHED = {
    "none": "nothing: every arm as its recipe says",
    "parameters": "parameters",
    "flops": "FLOPs per token",
    "time": "training time",
}
"""compare.match -> words for a reader about what was held equal."""

_HISTORY = (("segment", "in the segment"), ("memory", "in the memory"))

HISTORIES = {
    "segment": "each arm's segment has the same length, so a memory adds history",
    "equal": "segment and memory together have the same length",
}
"""compare.history -> words for a reader about what of the history was held equal."""


def blocks_of(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the blocks by their names in the page's template."""
    return {
        "differences": _differences(results),
        "steps": _steps(results),
        "fronts": [(cost, front_of(results, cost)) for cost in costs_known(results)],
        "probes": _probes(results),
        "budget": _budget(results),
        "plan": _plan(results),
        "merged": entries_of(results, "merged_from"),
        "files": list(figure_files(results).items()),
        "files_folder": FOLDER,
    }


def cost_rows(results: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Return per arm each known cost in words, and whether the arm is on the Pareto front for it."""
    known = [(points_of(results, cost), front_of(results, cost).on) for cost in costs_known(results)]
    names = [entry["arm"] for entry, _ in lines(results)]
    costs = [({point.name: point.cost for point in points}, on) for points, on in known]
    return [(name, [(significant(values[name]), name in on) for values, on in costs]) for name in names]


def _differences(results: Mapping[str, Any]) -> dict[str, Any] | None:
    entries = entries_of(results, "comparisons")
    if not entries:
        return None
    significance, of = mapping_of(results, "significance"), f"{repeats(results)[0]}s"
    paired = {bool(entry.get("paired")) for entry in entries}
    rows = [
        {
            "arm": entry["arm"],
            "against": entry["against"],
            "words": outcome_in_words(entry),
            "claimed": entry["outcome"] in {"better", "worse"},
            "difference": _signed(entry, places_of(results)),
            "percent": percent(entry),
            "p": _p(entry.get("p")),
            "p_adjusted": _p(entry.get("p_adjusted")),
            "effect": significant(entry.get("effect"), 3).replace("-", "−"),
            "n": grouped(entry.get("n")),
        }
        for entry in entries
    ]
    facts = [
        ("Test", significance.get("test")),
        (
            "Pairing",
            f"paired by {of[:-1]}: the same batches, masks and initial weights"
            if paired == {True}
            else "not paired"
            if paired == {False}
            else "mixed",
        ),
        ("Correction", significance.get("correction")),
        ("Effect size", significance.get("effect")),
        ("Level", significance.get("level")),
        (f"{of} that there are".capitalize(), significance.get("seeds")),
        (f"{of} needed for a claim".capitalize(), significance.get("seeds_needed")),
    ]
    return {
        "baseline": baseline_of(results),
        "rows": rows,
        "references": references(results),
        "matrix": _matrix(results),
        "log": any(row["percent"] != MISSING for row in rows),
        "facts": [(name, str(value)) for name, value in facts if value not in (None, "")],
        "meaning": meaning(results),
        "confidence": f"{100 * (1 - float(significance.get('level') or 0.05)):g}%",
    }


def _matrix(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a matrix of all pairs of arms, best first; None unless all pairs of three or more were compared."""
    compared = set(references(results))
    if len(compared) < 3:
        return None
    names = [entry["arm"] for entry, _ in lines(results) if entry["arm"] in compared]
    columns = {name: against(results, name) for name in names}
    rows = [(name, [_cell_of(columns[other].get(name), places_of(results)) for other in names]) for name in names]
    return {"names": names, "rows": rows}


def _cell_of(entry: Mapping[str, Any] | None, places: int) -> dict[str, str] | None:
    if entry is None:
        return None
    outcome = str(entry["outcome"])
    sign = {
        "better": "\u25b2",
        "worse": "\u25bc",
        "not distinguishable": "\u2248",
        "identical": "=",
        "too few": "?",
        "no claim": "!",
    }
    number = "" if outcome == "identical" else in_parts(entry, places)[0].rsplit(" ", 1)[-1]
    return {
        "kind": outcome.replace(" ", "-"),
        "sign": f"{sign.get(outcome, '')} {number}".strip(),
        "words": in_short(entry, places),
    }


def _signed(entry: Mapping[str, Any], places: int) -> str:
    """Return the difference with its sign and interval; the outcome's words are in their own column."""
    if entry.get("difference") is None:
        return MISSING
    number, interval = in_parts({**entry, "outcome": "", "lost": None, "p": None, "p_adjusted": None}, places)
    return f"{number.lstrip(': ')} {interval}".strip()


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def _steps(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "arm": entry["arm"],
            "baseline": entry["baseline"],
            "target": significant(entry.get("target")),
            "steps": "not reached" if entry.get("steps") is None else grouped(entry["steps"]),
            "range": _range(entry),
            "share": _share(entry),
            "n": f"{entry['reached']} of {entry['n']}" if "reached" in entry else grouped(entry.get("n")),
        }
        for entry in entries_of(results, "steps_to_loss")
    ]


def _range(entry: Mapping[str, Any]) -> str:
    if entry.get("low") is None:
        return MISSING
    high = "not reached" if entry.get("high") is None else grouped(entry["high"])
    return f"{grouped(entry['low'])} to {high}"


def _share(entry: Mapping[str, Any]) -> str:
    share = entry.get("share")
    if share is None:
        return MISSING
    if round(share, 2) == 1:
        return "the same"
    return f"{100 * abs(1 - share):.0f}% {'earlier' if share < 1 else 'later'}"


def _probes(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    arms, styles = [arm["name"] for arm in results["arms"]], arm_styles(results)
    return [
        {
            "name": name,
            **{key: probe[key] for key in ("title", "x", "x_kind", "value", "meaning", "higher_is_better")},
            "panels": [
                {
                    "group": panel.group,
                    "xs": [f"{x:,g}" if isinstance(x, int | float) else str(x) for x in panel.xs],
                    "rows": [(arm, styles[arm], cells) for arm, cells in probe_table(panel)],
                }
                for panel in probe_panels(probe, arms)
            ],
            "notes": [str(note) for note in entries_of(probe, "notes")],
            "skipped": [(entry["arm"], entry["reason"]) for entry in entries_of(probe, "skipped")],
        }
        for name, probe in mapping_of(results, "probes").items()
    ]


def _budget(results: Mapping[str, Any]) -> dict[str, Any] | None:
    budget = mapping_of(results, "budget")
    if not budget:
        return None
    arms, histories = mapping_of(budget, "arms"), mapping_of(budget, "histories")
    return {
        "sentence": matched(results),
        "match": MATCHED.get(str(budget.get("match")), str(budget.get("match"))),
        "is_matched": budget.get("match") not in {None, "none"},
        "tolerance": f"{100 * float(budget.get('tolerance') or 0):g}%",
        "history": HISTORIES.get(str(budget.get("history")), str(budget.get("history") or MISSING)),
        "reference": budget.get("reference"),
        "is_sized": bool(arms),
        "has_histories": bool(histories),
        "rows": [
            _budget_row(name, mapping_of(arms, name), mapping_of(histories, name)) for name in {**arms, **histories}
        ],
    }


def _budget_row(name: str, own: Mapping[str, Any], history: Mapping[str, Any]) -> dict[str, Any]:
    seen = [f"{grouped(history.get(part))} {word}" for part, word in _HISTORY if history.get(part)]
    return {
        "arm": name,
        "value": _amount(own.get("value")),
        "target": _amount(own.get("target")),
        "unit": own.get("unit", ""),
        "apart": _apart(own),
        "history": " + ".join(seen) or MISSING,
        "changed": [
            (key, _setting(before), _setting(after)) for key, (before, after) in mapping_of(own, "changed").items()
        ],
    }


def _amount(value: float | None) -> str:
    return significant(value) if value is not None and abs(value) < 1000 else grouped(value)


def _apart(own: Mapping[str, Any]) -> str:
    value, target = own.get("value"), own.get("target")
    return MISSING if value is None or not target else f"{100 * (value / target - 1):+.2f}%".replace("-", "\u2212")


def _setting(value: object) -> str:
    return grouped(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _plan(results: Mapping[str, Any]) -> dict[str, Any] | None:
    plan = mapping_of(results, "plan")
    if not plan:
        return None
    return {
        "budget": _duration(plan.get("budget_seconds")),
        "estimated": _duration(plan.get("estimated_seconds")),
        "arms": len(plan.get("arms") or []),
        "seeds": len(plan.get("seeds") or []),
        "left_out": list(_sentences(plan)),
    }


def _sentences(plan: Mapping[str, Any]) -> Sequence[str]:
    return plan.get("left_out") or ()


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds / 60:,.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
