"""Make the report's blocks of text and small tables from the results file; a block without data is empty."""

from __future__ import annotations

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
from wordorder.comparison.report.numbers import MISSING, grouped, significant
from wordorder.comparison.report.probe_points import probe_panels, probe_table
from wordorder.comparison.report.table import lines, matched
from wordorder.comparison.results_file import ArmBudget, Comparison, History, Results, StepsToLoss
from wordorder.comparison.statistics.summary import baseline_of, repeats

MATCHED = {
    "none": "nothing: every arm as its recipe says",
    "parameters": "parameters",
    "flops": "FLOPs per token",
    "time": "training time",
}
"""compare.match -> words for a reader about what was held equal."""

HISTORIES = {
    "segment": "each arm's segment has the same length, so a memory adds history",
    "equal": "segment and memory together have the same length",
}
"""compare.history -> words for a reader about what of the history was held equal."""


def blocks_of(results: Results) -> dict[str, object]:
    """Return the blocks by their names in the page's template."""
    return {
        "differences": _differences(results),
        "steps": _steps(results),
        "fronts": [(cost, front_of(results, cost)) for cost in costs_known(results)],
        "probes": _probes(results),
        "budget": _budget(results),
        "plan": _plan(results),
        "merged": results.merged_from,
        "files": list(figure_files(results).items()),
        "files_folder": FOLDER,
    }


def cost_rows(results: Results) -> list[tuple[str, list[tuple[str, bool]]]]:
    """Return per arm each known cost in words, and whether the arm is on the Pareto front for it."""
    known = [(points_of(results, cost), front_of(results, cost).on) for cost in costs_known(results)]
    names = [entry.arm for entry, _ in lines(results)]
    costs = [({point.name: point.cost for point in points}, on) for points, on in known]
    return [(name, [(significant(values[name]), name in on) for values, on in costs]) for name in names]


def _differences(results: Results) -> dict[str, object] | None:
    entries = results.comparisons
    if not entries:
        return None
    significance, of = results.significance, f"{repeats(results)[0]}s"
    paired = {entry.paired for entry in entries}
    rows = [
        {
            "arm": entry.arm,
            "against": entry.against,
            "words": outcome_in_words(entry),
            "claimed": entry.outcome in {"better", "worse"},
            "difference": _signed(entry, places_of(results)),
            "percent": percent(entry),
            "p": _p(entry.p),
            "p_adjusted": _p(entry.p_adjusted),
            "effect": significant(entry.effect, 3).replace("-", "−"),
            "n": grouped(entry.n),
        }
        for entry in entries
    ]
    facts = [
        ("Test", significance.test),
        (
            "Pairing",
            f"paired by {of[:-1]}: the same batches, masks and initial weights"
            if paired == {True}
            else "not paired"
            if paired == {False}
            else "mixed",
        ),
        ("Correction", significance.correction),
        ("Effect size", significance.effect),
        ("Level", significance.level),
        (f"{of} that there are".capitalize(), significance.seeds),
        (f"{of} needed for a claim".capitalize(), significance.seeds_needed),
    ]
    return {
        "baseline": baseline_of(results),
        "rows": rows,
        "references": references(results),
        "matrix": _matrix(results),
        "log": any(row["percent"] != MISSING for row in rows),
        "facts": [(name, str(value)) for name, value in facts if value not in (None, "")],
        "meaning": meaning(results),
        "confidence": f"{100 * (1 - (significance.level or 0.05)):g}%",
    }


def _matrix(results: Results) -> dict[str, object] | None:
    """Return a matrix of all pairs of arms, best first; None unless all pairs of three or more were compared."""
    compared = set(references(results))
    if len(compared) < 3:
        return None
    names = [entry.arm for entry, _ in lines(results) if entry.arm in compared]
    columns = {name: against(results, name) for name in names}
    rows = [(name, [_cell_of(columns[other].get(name), places_of(results)) for other in names]) for name in names]
    return {"names": names, "rows": rows}


def _cell_of(entry: Comparison | None, places: int) -> dict[str, str] | None:
    if entry is None:
        return None
    outcome = entry.outcome
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


def _signed(entry: Comparison, places: int) -> str:
    """Return the difference with its sign and interval; the outcome's words are in their own column."""
    if entry.difference is None:
        return MISSING
    number, interval = in_parts(entry.having(outcome="", lost=None, p=None, p_adjusted=None), places)
    return f"{number.lstrip(': ')} {interval}".strip()


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def _steps(results: Results) -> list[dict[str, object]]:
    return [
        {
            "arm": entry.arm,
            "baseline": entry.baseline,
            "target": significant(entry.target),
            "steps": "not reached" if entry.steps is None else grouped(entry.steps),
            "range": _range(entry),
            "share": _share(entry),
            "n": grouped(entry.n) if entry.reached is None else f"{entry.reached} of {entry.n}",
        }
        for entry in results.steps_to_loss
    ]


def _range(entry: StepsToLoss) -> str:
    if entry.low is None:
        return MISSING
    return f"{grouped(entry.low)} to {'not reached' if entry.high is None else grouped(entry.high)}"


def _share(entry: StepsToLoss) -> str:
    share = entry.share
    if share is None:
        return MISSING
    if round(share, 2) == 1:
        return "the same"
    return f"{100 * abs(1 - share):.0f}% {'earlier' if share < 1 else 'later'}"


def _probes(results: Results) -> list[dict[str, object]]:
    arms, styles = [arm.name for arm in results.arms], arm_styles(results)
    return [
        {
            "name": name,
            "title": probe.title,
            "x": probe.x,
            "x_kind": probe.x_kind,
            "value": probe.value,
            "meaning": probe.meaning,
            "higher_is_better": probe.higher_is_better,
            "panels": [
                {
                    "group": panel.group,
                    "xs": [f"{x:,g}" if isinstance(x, int | float) else str(x) for x in panel.xs],
                    "rows": [(arm, styles[arm], cells) for arm, cells in probe_table(panel)],
                }
                for panel in probe_panels(probe, arms)
            ],
            "notes": probe.notes,
            "skipped": [(entry.arm, entry.reason) for entry in probe.skipped],
        }
        for name, probe in results.probes.items()
    ]


def _budget(results: Results) -> dict[str, object] | None:
    budget = results.budget
    if budget is None:
        return None
    return {
        "sentence": matched(results),
        "match": MATCHED.get(budget.match, budget.match),
        "is_matched": budget.match != "none",
        "tolerance": f"{100 * budget.tolerance:g}%",
        "history": HISTORIES.get(budget.history or "", budget.history or MISSING),
        "reference": budget.reference,
        "is_sized": bool(budget.arms),
        "has_histories": bool(budget.histories),
        "rows": [
            _budget_row(name, budget.arms.get(name, ArmBudget()), budget.histories.get(name, History()))
            for name in {**budget.arms, **budget.histories}
        ],
    }


def _budget_row(name: str, own: ArmBudget, history: History) -> dict[str, object]:
    parts = ((history.segment, "in the segment"), (history.memory, "in the memory"))
    seen = [f"{grouped(tokens)} {words}" for tokens, words in parts if tokens]
    return {
        "arm": name,
        "value": _amount(own.value),
        "target": _amount(own.target),
        "unit": own.unit,
        "apart": _apart(own),
        "history": " + ".join(seen) or MISSING,
        "changed": [(key, _setting(before), _setting(after)) for key, (before, after) in own.changed.items()],
    }


def _amount(value: float | None) -> str:
    return significant(value) if value is not None and abs(value) < 1000 else grouped(value)


def _apart(own: ArmBudget) -> str:
    if own.value is None or not own.target:
        return MISSING
    return f"{100 * (own.value / own.target - 1):+.2f}%".replace("-", "\u2212")


def _setting(value: float) -> str:
    return grouped(value) if isinstance(value, int) else str(value)


def _plan(results: Results) -> dict[str, object] | None:
    plan = results.plan
    if plan is None:
        return None
    return {
        "budget": _duration(plan.budget_seconds),
        "estimated": _duration(plan.estimated_seconds),
        "arms": len(plan.arms),
        "seeds": len(plan.seeds),
        "left_out": plan.left_out,
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds / 60:,.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
