"""Put the decision table, several tasks at two widths, into docs/choose.md and docs/comparisons.md.

    python evidence/train.py decision/n_back_64 decision/n_back_128    # and the other tasks
    python evidence/publish/publish_decision.py

`python evidence/decide.py evidence/results/decision/*.json --group-by model.hidden_size` prints the same numbers.
"""

import sys

from blocks import put
from publish_demo import RESULTS, ROOT

from wordorder.comparison.report.table import markdown_rows

sys.path.append(str(ROOT / "evidence"))

from decide import DecisionTable, Group, cell_rows, in_words, is_claimed, make_decision_table, probability_of

FOLDER = RESULTS / "decision"
WIDTH = "model.hidden_size"
CHOICE, COMPARISONS = ROOT / "docs" / "choose.md", ROOT / "docs" / "comparisons.md"

TITLES = {
    "n_back": "word four before the last",
    "even_pairs": "even pairs",
    "reverse": "reverse",
    "questions": "TREC",
    "masked_letters": "masked letters",
    "causal_letters": "causal letters",
}
"""Recipe -> title of its column."""


def decision() -> DecisionTable:
    """Aggregate the committed results."""
    return make_decision_table(sorted(FOLDER.glob("*.json")), group_by=WIDTH)


def ranks(found: DecisionTable) -> str:
    """Write the mean rank of every model at each width, and how often the best model is better than it."""
    heads, rows = ["Model"], {score.arm: [score.arm] for score in found.groups[0].arms}
    for group in found.groups:
        best = group.arms[0].arm
        heads += [f"Mean rank, width {group.value}", f"P({best} is better)"]
        for score in group.arms:
            words = "–"
            if score.arm != best:
                pair = probability_of(group, best, score.arm)
                words = f"{pair.probability.value:.2f}" + "*" * is_claimed(pair.p_on_these)
            interval = score.mean_rank.over_tasks or score.mean_rank.over_seeds
            rows[score.arm] += [in_words(score.mean_rank.value, interval, 1), words]
    titles = [f"{', '.join(TITLES[name] for name in group.tasks)} (width {group.value})" for group in found.groups]
    runs = sum(
        cell.runs for cell in found.cells if any(cell.group == g.value and cell.task in g.tasks for g in found.groups)
    )
    return f"{markdown_rows(heads, list(rows.values()))}\n\n{runs} trainings. Tasks: {'; '.join(titles)}."


def cells(found: DecisionTable) -> str:
    """Write the scores of every model in every task, a table for each width."""
    return "\n\n".join(cells_of(found, group) for group in found.groups)


def cells_of(found: DecisionTable, group: Group) -> str:
    """Write the scores at one width; the number of runs stands in the heading, since it is the same in every cell."""
    (runs,) = {cell.runs for cell in found.cells if cell.group == group.value}
    (_, *columns), rows = cell_rows(found, group)
    heads = [f"Width {group.value}, {runs} seeds"]
    for task, column in zip(group.all_tasks, columns, strict=True):
        heads.append(column.replace(task, TITLES[task], 1))
    rows = [[cell.replace(f" n {runs}", "").replace(" ↓", "↓").replace(" *", "*") for cell in row] for row in rows]
    return markdown_rows(heads, rows)


def pages() -> dict[str, str]:
    """Return the pages with their tables as the files have them."""
    found = decision()
    return {
        "choose.md": put(CHOICE.read_text(encoding="utf-8"), "ranks", ranks(found)),
        "comparisons.md": put(COMPARISONS.read_text(encoding="utf-8"), "cells", cells(found)),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
