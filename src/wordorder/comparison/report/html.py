"""Write the report: one HTML file that needs nothing else, made from the results file alone.

A library of charts would put 4.8 MB into it, against some 40 kB of our own script, and has no keyboard read-out.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import count
from pathlib import Path

from wordorder.comparison.costs import costs_known, front_of, points_of
from wordorder.comparison.report import differences, table
from wordorder.comparison.report.differences import MISSING, grouped, significant, time_in_words
from wordorder.comparison.report.figures import FOLDER, figure_files
from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.report.view import arm_styles, curve_label, probe_panels, probe_table, view_of
from wordorder.comparison.results_file import ArmBudget, Comparison, History, Results, StepsToLoss, Table
from wordorder.comparison.statistics.seeds import BETTER, IDENTICAL, WORSE
from wordorder.comparison.statistics.summary import centre, quality_of, repeats, spread
from wordorder.errors import MissingExtra
from wordorder.files import write_text
from wordorder.streams import printable
from wordorder.training.recipe.files import to_toml

MATCHED = {
    "none": "nothing: every model as its recipe says",
    "parameters": "parameters",
    "flops": "FLOPs per token",
}
"""compare.match -> words for a reader."""

HISTORIES = {
    "segment": "each model's segment has the same length, so a memory adds history",
    "equal": "segment and memory together have the same length",
}
"""compare.history -> words for a reader."""

SIGNS = {BETTER: "\u25b2", WORSE: "\u25bc", IDENTICAL: "="}


def write_report(results: Results, folder: Path) -> None:
    """Write table.md and report.html into a folder, from the content of a results.json alone.

    Raises:
        MissingExtra: jinja2 is not installed.
        OSError: the folder cannot be written.
    """
    write_text(folder / "table.md", printable(table.markdown_table(results)))  # a terminal may show both files
    write_text(folder / "report.html", printable(report_page(results)))


def report_page(results: Results) -> str:
    render, style, script = _page()
    return render(
        style=style,
        script=script,
        # The browser runs this script and no other: what data could smuggle in is not run even were it not escaped.
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        view_json=json_in_html(view_of(results)),
        **_content(results),
    )


@cache  # a comparison writes its report after each run, and to compile the page takes longer than to fill it
def _page() -> tuple[Callable[..., str], str, str]:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtra("jinja2", "train") from error
    page = files("wordorder.comparison.report") / "page"
    page_files = {name: (page / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js")}
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script = '"use strict";\n(() => {\n' + page_files["page.js"] + "\n})();\n"
    return template.from_string(page_files["page.html.j2"]).render, page_files["page.css"], script


def json_in_html(value: object) -> str:
    """Return JSON that is safe between script tags: no ``<``, so no ``</script>``, and no line separators."""
    # ensure_ascii already turns U+2028 and U+2029 into escapes
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _content(results: Results) -> dict[str, object]:
    shown, judged, (of, _) = table.columns(results), verdict(results), repeats(results)
    intervals, log_strip = _intervals(results)
    written = results.written or results.recipe.as_json()
    return {
        "results": results,
        "title": results.compare.title or results.name,
        "verdict": judged,
        "sentence": judged.sentence.replace(" ± ", "\u00a0±\u00a0"),
        "log_strip": log_strip,
        "caption": table.caption(results),
        "shown_as": table.shown_as(results),
        "columns": shown,
        "shown_first": table.SHOWN_FIRST,
        "rows": [
            (
                entry.arm,
                [(column.text(entry, arm), column.value(entry, arm)) for column in shown],
                intervals.get(arm.name),
            )
            for entry, arm in table.lines(results)
        ],
        "styles": arm_styles(results),
        "over": f"{of}s",
        "facts": _facts(results),
        "rates": table.rates_tried(results),
        "bars": f"from the lowest to the highest {of}" if results.statistic == "median" else "one standard deviation",
        "statistics": _statistics(results.data),
        "recipe": to_toml(written).strip(),
        "resolved": to_toml(results.recipe.as_json()).strip() if results.written else "",
        "environment": [(name.removeprefix("packages."), value) for name, value in _flat(results.environment)],
        "curve_label": curve_label(results),
        "has_curves": any(len(row.curve) > 1 for row in results.rows),
        "steps": [_steps_row(results, entry) for entry in results.steps_to_loss],
        "outcome": table.OUTCOME,
        "references": differences.references(results),
        "matrix": difference_matrix(results),
        "unit": differences.unit_of(results),
        "tests": _tests(results),
        "confidence": f"{100 * (1 - (results.significance.level or 0.05)):g}%",
        "fronts": [(cost, front_of(results, cost)) for cost in costs_known(results)],
        "cost_rows": cost_rows(results).items(),
        "probes": [
            (name, probe, probe_panels(probe, [arm.name for arm in results.arms]))
            for name, probe in results.probes.items()
        ],
        "no_budget": ArmBudget(),
        "budget_sentence": table.matched(results),
        "files": figure_files(results),
        "files_folder": FOLDER,
        "figure": _counter("Figure"),
        "table": _counter("Table"),
        "matched": MATCHED,
        "histories": HISTORIES,
        "missing": MISSING,
        **{function.__name__.lstrip("_"): function for function in CALLED},
    }


def _counter(word: str) -> Callable[[], dict[str, str]]:
    """Return a function that counts "Figure 1", "Figure 2" and so on; the data decides which figures there are."""
    numbers = count(1)
    return lambda: {"id": f"{word.lower()}-{(number := next(numbers))}", "name": f"{word} {number}."}


def _intervals(results: Results) -> tuple[dict[str, dict[str, float]], bool]:
    """Return each arm's place of mean and spread among all in percent, and whether the scale is logarithmic."""
    metric, statistic = quality_of(results).key, results.statistic
    ranges: dict[str, tuple[float, float, float]] = {}
    for entry in results.summary:
        column = entry.columns.get(metric)
        middle = centre(column, statistic)
        if column is not None and middle is not None:
            low, high = spread(column, statistic) or (middle, middle)
            ranges[entry.arm] = low, middle, high
    ends = [end for several in ranges.values() for end in several]
    # one bad arm must not press the others together
    logarithmic = bool(ends) and min(ends) > 0 and max(ends) > 2.2 * min(ends)
    scaled = math.log if logarithmic else float
    places: dict[str, dict[str, float]] = {}
    for arm, several in ranges.items():
        lowest, highest = scaled(min(ends)), scaled(max(ends))
        start, mean, end = (round(100 * (scaled(value) - lowest) / (highest - lowest or 1.0), 2) for value in several)
        places[arm] = {"from": start, "mean": mean, "span": round(end - start, 2)}
    return places, logarithmic


def _facts(results: Results) -> list[tuple[str, str]]:
    planned, environment, recipe = results.planned, results.environment, results.recipe
    model, training = recipe.model, recipe.training
    row = next((row for row in results.rows if row.steps), None)
    seconds = sum(row.train_seconds or 0 for row in results.rows)
    layers, width = model.get("num_hidden_layers"), model.get("hidden_size")
    totals = [arm.total_parameters for arm in results.arms if arm.total_parameters]
    sizes = list(dict.fromkeys(map(grouped, (min(totals), max(totals))))) if totals else []
    batch, length = training.get("batch_size"), recipe.data.get("length")
    packages, train = environment.get("packages"), results.data.get("train")
    versions = packages if isinstance(packages, dict) else {}
    cores = environment.get("processors")
    machine = str(environment.get("device") or environment.get("machine") or MISSING)
    facts = [
        (
            f"Models × {'folds × ' if planned.folds else ''}seeds",
            " × ".join(str(n) for n in (planned.arms, len(planned.folds), len(planned.seeds)) if n),
        ),
        ("Network", f"{layers} layer{'s' * (layers != 1)}, width {width}" if layers and width else MISSING),
        ("Parameters", " to ".join(sizes) or MISSING),
        ("Data", str(recipe.data.get("source"))),
        ("Tokens to train on", _shown(train.get("tokens")) if isinstance(train, dict) else MISSING),
        *([("Learning rates", str(len(planned.rates)))] if results.grid else []),
        ("Steps", grouped(row.steps if row else None)),
        ("Batch", " × ".join(str(n) for n in (batch, length) if n) + " tokens" if batch and length else MISSING),
        ("Training time, all runs", time_in_words(seconds)),
        ("Date", str(environment.get("started") or "")[:10] or MISSING),
        ("Machine", f"{machine}, {cores} cores" if cores else machine),
        ("Versions", ", ".join(f"{name} {versions[name]}" for name in ("wordorder", "torch") if name in versions)),
    ]
    return [(name, value) for name, value in facts if value not in {"", "None", MISSING}]


def _statistics(data: Table) -> dict[str, object]:
    splits = {name: value for name, value in data.items() if isinstance(value, dict)}
    names = list(dict.fromkeys(key for value in splits.values() for key in value))
    return {
        "names": names,
        "splits": [(split, [_shown(value.get(name)) for name in names]) for split, value in splits.items()],
        "others": [(name, _shown(value)) for name, value in data.items() if name not in splits],
    }


def _flat(value: Table, prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, inner in value.items():
        found += _flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else [(f"{prefix}{name}", _shown(inner))]
    return found


def _shown(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, int) and not isinstance(value, bool):
        return grouped(value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return json.dumps(value) if isinstance(value, list | dict | bool) else str(value)


def cost_rows(results: Results) -> dict[str, list[tuple[str, bool]]]:
    """Return per arm each known cost in words, and whether the arm is on the Pareto front for it."""
    rows: dict[str, list[tuple[str, bool]]] = {entry.arm: [] for entry, _ in table.lines(results)}
    for cost in costs_known(results):
        on = front_of(results, cost).on
        for point in points_of(results, cost):
            rows[point.name].append((significant(point.cost), point.name in on))
    return rows


def _tests(results: Results) -> list[tuple[str, str]]:
    significance, of = results.significance, f"{repeats(results)[0]}s"
    facts = [
        ("Test", significance.test),
        ("Correction", significance.correction),
        ("Level", significance.level),
        (of.capitalize(), significance.seeds),
        (f"{of} needed for a test".capitalize(), significance.seeds_needed),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def difference_matrix(results: Results) -> dict[str, object] | None:
    """Return a matrix of all pairs of models, best first; None unless all pairs of three or more were compared."""
    compared = set(differences.references(results))
    if len(compared) < 3:
        return None
    names = [entry.arm for entry, _ in table.lines(results) if entry.arm in compared]
    unit, columns = differences.unit_of(results), [differences.against(results, name) for name in names]
    return {"names": names, "rows": [(name, [_cell_of(own.get(name), unit) for own in columns]) for name in names]}


def _cell_of(entry: Comparison | None, unit: differences.Unit) -> dict[str, str] | None:
    return (
        None
        if entry is None
        else {
            "kind": entry.outcome.replace(" ", "-"),
            "sign": SIGNS.get(entry.outcome, ""),
            "number": "" if entry.outcome == IDENTICAL else differences.in_parts(entry, unit)[0],
            "words": differences.in_short(entry, unit),
        }
    )


def _signed(entry: Comparison, unit: differences.Unit) -> str:
    return MISSING if entry.difference is None else f"{unit.text(entry.difference)} {unit.interval(entry)}".strip()


def _in_nats(entry: Comparison) -> str:
    difference, high, low = map(differences.nats, (entry.difference, entry.high, entry.low))
    return difference if MISSING in (low, high) else f"{difference} [{high}, {low}]"


def _p(value: float | None) -> str:
    return MISSING if value is None else "< 0.001" if value < 0.001 else f"{value:.2g}"


def _steps_row(results: Results, entry: StepsToLoss) -> dict[str, str]:
    """Return a row of the table of steps to a loss; a step of the first evaluation is an upper bound."""
    first = min((row.curve[0][0] for row in results.rows if row.arm == entry.arm and row.curve), default=0)

    def words(steps: float | None) -> str:
        return "not reached" if steps is None else f"{'≤ ' * (steps <= first)}{grouped(steps)}"

    share, at_most = entry.share, entry.steps is not None and entry.steps <= first
    compared = MISSING
    if share is not None:
        change = f"{100 * abs(1 - share):.0f}% {'earlier' if share < 1 else 'later'}"
        compared = "the same" if round(share, 2) == 1 else f"{'at least ' * (at_most and share < 1)}{change}"
    return {
        "arm": entry.arm,
        "steps": words(entry.steps),
        "range": MISSING if entry.low is None else f"{words(entry.low)} to {words(entry.high)}",
        "compared": compared,
        "target": significant(entry.target),
        "reached": grouped(entry.n) if entry.reached is None else f"{entry.reached} of {entry.n}",
    }


def _apart(own: ArmBudget) -> str:
    if own.value is None or not own.target:
        return MISSING
    return f"{100 * (own.value / own.target - 1):+.2f}%".replace("-", "\u2212")


def _looks_back(history: History | None) -> str:
    parts = ((history.segment, "in the segment"), (history.memory, "in the memory")) if history else ()
    return " + ".join(f"{grouped(tokens)} {words}" for tokens, words in parts if tokens) or MISSING


def _amount(value: float | None) -> str:
    return significant(value) if value is not None and abs(value) < 1000 else grouped(value)


CALLED = (
    table.encoding_parameters, grouped, differences.outcome_in_words, table.place_of, probe_table, significant,
    _amount, _apart, _in_nats, _looks_back, _p, _signed,
)  # fmt: skip
"""Functions that the template calls, by their names without the underscore."""
