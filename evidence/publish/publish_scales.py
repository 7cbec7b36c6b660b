"""Put the share of BERT's training steps that TUPE needs, at several sizes, into docs/tupe.md.

    python evidence/train.py tupe-64x2 tupe-128x2 tupe-128x4
    python evidence/publish/publish_scales.py

The table has the sizes of which there are results.
"""

import math
from statistics import fmean, stdev

from blocks import put
from publish_demo import RESULTS, ROOT
from scipy.stats import t as student

from wordorder.comparison.report.table import markdown_rows
from wordorder.comparison.results_file import Results, read_results
from wordorder.comparison.statistics.curves import first_step_at
from wordorder.comparison.statistics.summary import baseline_of, by_run

PAGE = ROOT / "docs" / "tupe.md"
CONFIDENCE = 0.95


def shares(results: Results) -> dict[str, list[float]]:
    """Return by model, for each seed, its step at the baseline's lowest validation loss over the baseline's step there.

    A model that never gets there has an infinite share.
    """
    runs, baseline = by_run(results), baseline_of(results)
    assert baseline is not None, "a comparison with a baseline"
    found: dict[str, list[float]] = {}
    for model, rows in runs.items():
        for unit, row in rows.items() if model != baseline else ():
            own, usual = ([(s, loss) for s, loss in r.curve if loss is not None] for r in (row, runs[baseline][unit]))
            target, last = min((loss, step) for step, loss in usual)
            found.setdefault(model, []).append(first_step_at(own, target)[0] / last)
    return found


def in_words(own: list[float]) -> str:
    """Write the geometric mean of shares with Student's interval of their logarithms."""
    if not all(map(math.isfinite, own)):
        return f"never in {sum(map(math.isinf, own))} of {len(own)} seeds"
    logs = [math.log(share) for share in own]
    mean = fmean(logs)
    half = student.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.0%} [{math.exp(mean - half):.0%}, {math.exp(mean + half):.0%}]"


def table() -> str:
    """Write the share of every model at every size of which there are results."""
    files = [read_results(path) for path in sorted(RESULTS.glob("tupe-*x*.json"))]
    files.sort(key=lambda results: (results.recipe.model["hidden_size"], results.recipe.model["num_hidden_layers"]))
    sizes, found = ["Model"], [shares(results) for results in files]
    for results in files:
        model = results.recipe.model
        sizes.append(f"width {model['hidden_size']}, {model['num_hidden_layers']} layers")
    rows = [[name, *(in_words(own[name]) for own in found)] for name in found[0]]
    seeds, steps = {len({row.seed for row in r.rows}) for r in files}, {row.steps for r in files for row in r.rows}
    assert len(seeds) == len(steps) == 1, "one line says the seeds and steps of all columns"
    return f"{markdown_rows(sizes, rows)}\n\n{seeds.pop()} seeds, {max(steps):,} steps."


def page_of(text: str) -> str:
    """Return the page with its table as the files have it."""
    return put(text, "scales", table())


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
