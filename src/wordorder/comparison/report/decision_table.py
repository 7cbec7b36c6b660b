"""Write a decision table for its readers: headline, tables as markdown, and figures, from aggregate.json's content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wordorder.comparison.decision_table import Cell, DecisionTable, Group, Source
from wordorder.comparison.quality import METRICS
from wordorder.comparison.report.figures import FOLDER, drawn_styles
from wordorder.comparison.report.numbers import MISSING, listed, places_beside, significant
from wordorder.comparison.report.table import escaped, markdown_rows
from wordorder.comparison.report.view import styles_of
from wordorder.comparison.statistics.aggregate import Improvement, IntervalEstimate, tasks_needed
from wordorder.comparison.statistics.curves import LAST_SHARE, LEAST_RELATIVE_FALL
from wordorder.durable import make_folder, write_json, write_text
from wordorder.inspection.figures import new_figure

FILE = "aggregate.json"
FALLING, EDGE = "↓", "*"


def write_decision_table(table: DecisionTable, folder: Path) -> None:
    """Write aggregate.json, table.md and the figures into a folder.

    Raises:
        MissingExtra: matplotlib is not installed.
        OSError: the folder cannot be written.
    """
    make_folder(folder / FOLDER)
    write_json(folder / FILE, table.model_dump(mode="json"))
    write_text(folder / "table.md", markdown_decision_table(table))
    for stem, draw in (("mean_rank", _draw_ranks), ("probability_of_improvement", _draw_improvement)):
        figure = draw(table)
        for ending in ("png", "svg"):
            figure.savefig(folder / FOLDER / f"{stem}.{ending}", dpi=200)


def headline(table: DecisionTable) -> str:
    """Return the result in plain words: the arm with the best mean rank, and which others it differs from."""
    return " ".join([*(_group_in_words(table, group) for group in table.groups), *_turns_in_words(table)])


def _group_in_words(table: DecisionTable, group: Group) -> str:
    best, rank, tasks, arms = group.arms[0].arm, group.arms[0].mean_rank, len(group.tasks), len(table.arms)
    at = f"At {table.group_by} {group.value} " if table.group_by else ""
    pairs = [probability_of(group, best, score.arm) for score in group.arms[1:]]
    on_these = _differences(pairs, [is_claimed(table, pair.p_on_these) for pair in pairs])
    first = [score.arm for score in group.arms if score.mean_rank.value == rank.value]
    lead = f"{best} has" if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]} share"
    it = "it is" if len(first) == 1 else f"{best} is"
    words = (
        f"{at}{lead} the best mean rank, {in_words(rank.value, rank.over_seeds, 1)} of {arms} models, over {tasks} "
        f"task{'s' * (tasks != 1)}; on these tasks {it} {on_these}."
    )
    needed = tasks_needed(arms, 1 - table.confidence)
    if tasks < needed:
        return f"{words} About other tasks nothing can be said: for {arms} models that takes {needed} tasks."
    on_others = _differences(pairs, [is_claimed(table, pair.p_on_others) for pair in pairs])
    return f"{words} On other tasks like these {it} {on_others}."


def is_claimed(table: DecisionTable, p: float) -> bool:
    """Tell whether a corrected p-value is significant."""
    return p <= 1 - table.confidence + 1e-12


def _differences(pairs: Sequence[Improvement], claimed: Sequence[bool]) -> str:
    kinds: dict[str, list[str]] = {"better than": [], "worse than": [], "not significantly different from": []}
    for pair, different in zip(pairs, claimed, strict=True):
        direction = "better than" if pair.probability.value > 0.5 else "worse than"
        kinds[direction if different else "not significantly different from"].append(pair.against)
    return ", and ".join(f"{kind} {listed(names)}" for kind, names in kinds.items() if names)


def _turns_in_words(table: DecisionTable) -> list[str]:
    found: list[str] = []
    for turn in table.turns:
        between = f"Between {table.group_by} {turn.groups[0]} and {turn.groups[1]}"
        tau = "undefined" if turn.tau is None else f"{turn.tau:.2f}"
        said = (
            f"{between} Kendall's tau of the mean ranks is {tau}; {len(turn.turned)} of {turn.pairs} pairs turn round"
        )
        pairs = ", ".join(f"{first} before {second}" for first, second in turn.turned)
        found.append(f"{said}{f' ({pairs} at {turn.groups[0]})' * bool(pairs)}.")
        if not turn.same_tasks:
            found.append("The tasks or their data differ between the two, so a turn may be one of the tasks.")
    return found


def probability_of(group: Group, arm: str, against: str) -> Improvement:
    """Return the probability of improvement of an arm over another, in whatever order the table has the pair."""
    for pair in group.pairs:
        if (pair.arm, pair.against) == (arm, against):
            return pair
        if (pair.arm, pair.against) == (against, arm):
            seen = pair.probability
            turned = IntervalEstimate(
                value=1 - seen.value, over_seeds=_from_one(seen.over_seeds), over_tasks=_from_one(seen.over_tasks)
            )
            return replace(pair, arm=arm, against=against, probability=turned)
    raise KeyError((arm, against))


def _from_one(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if interval is None else (1 - interval[1], 1 - interval[0])


def in_words(value: float, interval: tuple[float, float] | None, places: int) -> str:
    """Return a number with its interval: "2.1 [1.6, 2.9]"."""
    ends = "" if interval is None else f" [{interval[0]:.{places}f}, {interval[1]:.{places}f}]"
    return f"{value:.{places}f}{ends}"


def rank_rows(table: DecisionTable) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the aggregates, best mean rank of the first group first."""
    heads = ["Model"]
    for group in table.groups:
        at = f", {table.group_by} {group.value}" if table.group_by else ""
        heads += [
            f"Mean rank{at}", f"on other tasks{at}", f"Interquartile mean{at}", f"P({group.arms[0].arm} is better){at}",
        ]  # fmt: skip
    rows: list[list[str]] = []
    for arm in (score.arm for score in table.groups[0].arms):
        row = [arm]
        for group in table.groups:
            score = next(score for score in group.arms if score.arm == arm)
            rank, middle, best, against = score.mean_rank, score.interquartile_mean, group.arms[0].arm, MISSING
            if arm != best:
                pair = probability_of(group, best, arm)
                against = in_words(pair.probability.value, pair.probability.over_seeds, 2)
                against += "" if is_claimed(table, pair.p_on_these) else ", not significant"
            row += [
                in_words(rank.value, rank.over_seeds, 1),
                MISSING if rank.over_tasks is None else "[{:.1f}, {:.1f}]".format(*rank.over_tasks),
                in_words(middle.value, middle.over_seeds, 3),
                against,
            ]
        rows.append(row)
    return heads, rows


def markdown_decision_table(table: DecisionTable) -> str:
    """Return table.md: headline, aggregates, one table of scores for each group, and their caption."""
    blocks = [f"# {escaped(table.title)}"] if table.title else []
    blocks += [escaped(headline(table)), markdown_rows(*rank_rows(table)), escaped(_caption(table))]
    for group in table.groups:
        if table.group_by:
            blocks.append(f"## {escaped(f'{table.group_by} {group.value}')}")
        blocks.append(markdown_rows(*cell_rows(table, group)))
    blocks.append(escaped(_caption_of_cells(table)))
    rows = [[source.task, source.group or MISSING, source.normalised, source.path] for source in table.sources]
    heads = ["Task", table.group_by or "Group", "Scale of the interquartile mean", "File"]
    blocks.append(markdown_rows(heads, rows))
    return "\n\n".join(blocks) + "\n"


def _caption(table: DecisionTable) -> str:
    percent = f"{100 * table.confidence:g}%"
    left_out = f" Left out, since some files lack them: {', '.join(table.left_out)}." if table.left_out else ""
    return (
        "Mean rank: of one training among one training of every model, 1 is best, averaged over tasks. Interquartile "
        "mean: of the middle half of all normalised scores. P: the probability that a training of the model with the "
        "best mean rank is better than one of this model, averaged over tasks; not significant: on these tasks, "
        f"by an exact test corrected for all pairs. [...]: {percent} intervals of a bootstrap over the seeds of these "
        f"tasks; on other tasks: over tasks and seeds. A lost run counts as the worst.{left_out}"
    )


def cell_rows(table: DecisionTable, group: Group) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the scores of a group, best mean rank first."""
    sources = {source.task: source for source in table.sources if source.group == group.value}
    cells = {(cell.arm, cell.task): cell for cell in table.cells if cell.group == group.value}
    heads = ["Model"]
    for task in group.tasks:
        metric = sources[task].metric
        heads.append(f"{task}: {METRICS[metric].name if metric in METRICS else metric}")
    rows = [
        [score.arm, *(cell_in_words(cells[score.arm, task], sources[task]) for task in group.tasks)]
        for score in group.arms
    ]
    return heads, rows


def cell_in_words(cell: Cell, source: Source) -> str:
    """Return a cell with its interval, number of runs and marks: "4.43 [4.21, 4.66] n 5 ↓ *"."""
    digits = METRICS[source.metric].digits if source.metric in METRICS else 4
    if cell.score is None:
        words = MISSING
    elif cell.low is None or cell.high is None or cell.high == cell.low:
        words = significant(cell.score, digits)
    else:
        places = places_beside(cell.score, cell.high - cell.low, digits)
        words = f"{cell.score:,.{places}f} [{cell.low:,.{places}f}, {cell.high:,.{places}f}]"
    lost = f" ({cell.lost} lost)" if cell.lost else ""
    return (
        f"{words} n {cell.runs}{lost}{f' {FALLING}' * bool(cell.still_falling)}{f' {EDGE}' * bool(cell.rate_at_edge)}"
    )


def _caption_of_cells(table: DecisionTable) -> str:
    unknown = sum(cell.still_falling is None for cell in table.cells), sum(c.rate_at_edge is None for c in table.cells)
    notes = [
        f"Mean over the finished runs (geometric mean of perplexities) with its {100 * table.confidence:g}% interval; "
        f"n: number of runs. {FALLING} the validation loss still fell by {LEAST_RELATIVE_FALL:.0%} or more over the "
        f"last {LAST_SHARE:.0%} of the steps: such a number says who is fast, not who is best. {EDGE} the learning "
        "rate, or that of the encoding, is the lowest or highest that was tried: a wider search might help this model."
    ]
    if unknown[0]:
        notes.append(f"{unknown[0]} cells have no validation curve, so cannot be marked {FALLING}.")
    if unknown[1]:
        notes.append(f"In {unknown[1]} cells fewer than two rates were tried, so the rate cannot be judged.")
    return " ".join(notes)


def _draw_ranks(table: DecisionTable) -> Any:
    """Draw each arm's mean rank, a panel for each group: thick over seeds, thin over tasks and seeds."""

    def estimate(group: Group, arm: str) -> tuple[IntervalEstimate, bool]:
        return next(score.mean_rank for score in group.arms if score.arm == arm), True

    return _dots(table, estimate, "Mean rank; left is better", None)


def _draw_improvement(table: DecisionTable) -> Any:
    """Draw the probability that the arm with the best mean rank is better than each other; filled where they differ."""

    def estimate(group: Group, arm: str) -> tuple[IntervalEstimate, bool] | None:
        best = group.arms[0].arm
        if arm == best:
            return None
        pair = probability_of(group, best, arm)
        return pair.probability, is_claimed(table, pair.p_on_these)

    return _dots(table, estimate, "P({best} is better)", 0.5)


def _dots(
    table: DecisionTable,
    estimate: Callable[[Group, str], tuple[IntervalEstimate, bool] | None],
    label: str,
    line: float | None,
) -> Any:
    styles = drawn_styles(styles_of(table.arms))
    ordered = [score.arm for score in table.groups[0].arms]
    names = [arm for arm in ordered if any(estimate(group, arm) for group in table.groups)]
    figure = new_figure(1.6 + 4.0 * len(table.groups), 1.3 + 0.32 * len(names))
    panels = figure.subplots(1, len(table.groups), sharey=True, squeeze=False)[0]
    for group, axes in zip(table.groups, panels, strict=True):
        for place, arm in enumerate(names):
            if found := estimate(group, arm):
                number, filled = found
                colour = styles[arm]["color"]
                for ends, width in ((number.over_tasks, 1.0), (number.over_seeds, 3.0)):
                    if ends is not None:
                        axes.plot(ends, [place, place], color=colour, linewidth=width, solid_capstyle="butt")
                axes.plot(
                    [number.value], [place], marker=styles[arm]["marker"], color=colour, markersize=7,
                    markerfacecolor=colour if filled else "white",
                )  # fmt: skip
        if line is not None:
            axes.axvline(line, color="#8b939b", linewidth=1, zorder=0)
        axes.set_xlabel(label.format(best=styles[group.arms[0].arm]["label"]))
        if table.group_by:
            axes.set_title(f"{table.group_by} {group.value}", fontsize="medium")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), [styles[arm]["label"] for arm in names])
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    words = f"Thick: {100 * table.confidence:g}% interval over the seeds of these tasks. Thin: over tasks and seeds."
    figure.supxlabel(words, fontsize="x-small", color="#555d66")
    return figure
