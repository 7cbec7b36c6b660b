"""Make the table of a comparison for a terminal and as markdown, both from the results file alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from wordorder.comparison.report import differences
from wordorder.comparison.report.differences import MISSING, grouped, significant, steady, time_in_words, with_spread
from wordorder.comparison.report.verdict import ranked, verdict
from wordorder.comparison.results_file import Aggregate, ArmResult, Failure, Results, SavedRecipe, Summary
from wordorder.comparison.runs import Rates
from wordorder.comparison.statistics.curves import rate_at_edge
from wordorder.comparison.statistics.seeds import BETTER, WORSE
from wordorder.comparison.statistics.summary import (
    METRICS,
    SEEDS_FOR_A_SPREAD,
    baseline_of,
    beside,
    centre,
    floor_of,
    is_marked_optimistic,
    loss_unit,
    middle,
    quality_of,
    repeats,
)
from wordorder.streams import printable
from wordorder.tasks import Metric
from wordorder.training.recipe.pretrained import ARM

OUTCOME = "outcome"
"""Key of the column that holds each arm's difference from the baseline."""

SHOWN_FIRST = ("quality", OUTCOME, "parameters", "train_seconds")
"""Keys of the columns that a terminal shows, and that the report shows before it is asked for more."""

NAME_WIDTH = 24
"""Characters of a model's name that a terminal keeps in one line at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the table: one number per model."""

    key: str
    title: str
    """Title with the unit."""
    value: Callable[[Summary, ArmResult], float | None]
    """Function from the model's summary and its entry in "arms" to the number that the column is sorted by."""
    text: Callable[[Summary, ArmResult], str]
    descending_is_better: bool = False


def columns(results: Results) -> list[Column]:
    """Return the columns for a results file, the headline metric first."""
    quality, statistic = quality_of(results), results.statistic
    title = f"{results.split} {quality.name}{', optimistic' if is_marked_optimistic(results) else ''}"
    time = _of_runs("train_seconds", "Training time", middle, lambda own: time_in_words(middle(own)))
    own_rate = _of_arm(
        "encoding_learning_rate", "Rate of the encoding, times that", lambda arm: arm.encoding_learning_rate, _rate
    )
    return [
        replace(_score(quality, title, statistic), key="quality"),
        *([_outcome(results)] if results.comparisons else []),
        *(_score(other, f"{results.split} {other.name}", statistic) for other in beside(results)),
        _of_arm("parameters", "Parameters", lambda arm: arm.total_parameters),
        *([time] if any("train_seconds" in entry.columns for entry in results.summary) else []),
        _of_arm("encoding_parameters", "of which for the encoding", encoding_parameters),
        _of_arm(
            "flops_per_token",
            "MFLOP per token (forward + backward)",
            lambda arm: arm.flops_per_token,
            lambda value: significant(_share(value, 1e6)),
        ),
        _of_runs("tokens_per_second", "Tokens per second", _mean, steady, descending_is_better=True),
        _of_runs("peak_memory_bytes", "Peak memory (MiB)", _mean, lambda own: grouped(_share(_mean(own), 2**20))),
        _of_arm("learning_rate", "Learning rate", lambda arm: arm.learning_rate, _rate),
        *([own_rate] if any(arm.encoding_learning_rate is not None for arm in results.arms) else []),
    ]


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:g}"


def _of_arm(
    key: str,
    title: str,
    value: Callable[[ArmResult], float | None],
    text: Callable[[float | None], str] = grouped,
) -> Column:
    return Column(key=key, title=title, value=lambda _, arm: value(arm), text=lambda _, arm: text(value(arm)))


def _of_runs(
    key: str,
    title: str,
    value: Callable[[Aggregate | None], float | None],
    text: Callable[[Aggregate | None], str],
    *,
    descending_is_better: bool = False,
) -> Column:
    return Column(
        key=key,
        title=title,
        value=lambda summary, _: value(summary.columns.get(key)),
        text=lambda summary, _: text(summary.columns.get(key)),
        descending_is_better=descending_is_better,
    )


def _mean(column: Aggregate | None) -> float | None:
    return centre(column, "mean")


def _share(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _score(quality: Metric, title: str, statistic: str) -> Column:
    return _of_runs(
        quality.key,
        title if quality.name.isupper() else title[:1].upper() + title[1:],
        lambda column: centre(column, statistic),
        lambda column: with_spread(column, quality.digits, statistic),
        descending_is_better=quality.higher_is_better,
    )


def _outcome(results: Results) -> Column:
    baseline = str(baseline_of(results))
    found, unit = differences.against(results, baseline), differences.unit_of(results)

    def text(_: Summary, arm: ArmResult) -> str:
        if arm.name == baseline:
            return "baseline"
        return differences.in_short(found[arm.name], unit) if arm.name in found else MISSING

    def value(_: Summary, arm: ArmResult) -> float | None:
        if arm.name == baseline:
            return 0.0
        difference = found[arm.name].difference if arm.name in found else None
        return None if difference is None else unit.change(difference)

    title = f"Difference from {baseline}"
    return Column(key=OUTCOME, title=title, value=value, text=text, descending_is_better=unit.higher_is_better)


def encoding_parameters(arm: ArmResult) -> float | None:
    """Return the number of parameters of a model's encoding of word order; None until its cost is known."""
    return sum(arm.encoding_parameters.values()) if arm.parameters else None


def lines(results: Results) -> list[tuple[Summary, ArmResult]]:
    """Return (summary, arm) pairs, best first, then the models without a finished run."""
    arms = {arm.name: arm for arm in results.arms}
    done = [(entry, arms[entry.arm]) for entry in ranked(results)]
    names = {entry.arm for entry, _ in done}
    return done + [(Summary(arm=name), arm) for name, arm in arms.items() if name not in names]


def shown_as(results: Results) -> str:
    """Return how the table shows a model: "mean ± standard deviation over 3 seeds"."""
    of, count = repeats(results)
    shown = {"mean": "mean ± standard deviation", "median": "median (lowest to highest)"}[results.statistic]
    if count >= SEEDS_FOR_A_SPREAD:
        return f"{shown} over {count} {of}s"
    few = f"fewer than {SEEDS_FOR_A_SPREAD} {of}s give no spread"
    return f"{results.statistic} over {count} {of}{'s' * (count > 1)}; {few}"


def caption(results: Results) -> str:
    """Return the caption of the numbers: metric, split, data, steps, seeds, and what they do not show."""
    quality, recipe, planned = quality_of(results), results.recipe, results.planned
    steps = sorted({row.steps for row in results.rows if row.steps is not None})
    budget = f", {' or '.join(grouped(step) for step in steps)} training steps" if steps else ""
    of = repeats(results)[0]
    name, meaning = quality.name[:1].upper() + quality.name[1:], quality.meaning.format(split=results.split)
    others = "".join(
        f" {other.name[:1].upper()}{other.name[1:]}: {other.meaning.format(split=results.split)}."
        for other in beside(results)
    )
    if results.bleu_signature:
        others += f" BLEU is sacrebleu's, {results.bleu_signature}."
    parts = [
        f"{name}: {meaning}.{others} Data {recipe.data.get('source')}{budget}; {shown_as(results)}.",
        *([_folds(results)] if of == "fold" else []),
        f"All models see the same batches in the same order and start from {_start(recipe)}.",
    ]
    if floor := floor_of(results):
        parts.append(f"Guessing {floor.answer!r}, the most frequent answer, has {quality.name} {floor.share:.4f}.")
    parts += [sentence for sentence in (differences.meaning(results), matched(results)) if sentence]
    workers = results.compare.workers
    if workers > 1:
        threads = recipe.training.get("threads") or 1
        each = "one thread each" if threads == 1 else f"{threads} threads each"
        parts.append(
            f"Tokens per second were measured with {workers} trainings side by side, {each}, which slow each "
            "other down: they compare only roughly."
        )
    if any(" to " in steady(entry.columns.get("tokens_per_second")) for entry in results.summary):
        parts.append(
            "Tokens per second with a range are a median (lowest to highest): the runs of that model differ by so much "
            "that something else kept the machine busy; measure anew before comparing speed."
        )
    if not str(results.environment.get("device", "")).startswith("cuda"):
        parts.append(
            "Peak memory is that of the whole process, libraries included; it may have trained other models before, "
            "which leaves it larger."
        )
    if planned.rates:
        by = f"by the median over the {of}s of {quality.name} " if results.grid else ""
        where = "held-out texts themselves" if is_marked_optimistic(results) else "validation split"
        tried = "its trials" if results.tuning else str(len(planned.rates))
        parts.append(f"Each model's learning rate is the best of {tried} {by}on the {where}.")
    if results.split == "validation":
        chosen = "learning rates and checkpoints" if planned.rates else "the checkpoints"
        parts.append(f"There is no test split: {chosen} were chosen on the same data, so the numbers are optimistic.")
    elif is_marked_optimistic(results):
        parts.append(
            f"Protocol {results.protocol}: the checkpoint that is best on the held-out texts is scored on these "
            "same texts, so the numbers are optimistic; they compare with others of this protocol only."
        )
    parts += results.notes
    return " ".join(parts)


def matched(results: Results) -> str:
    """Return a sentence on the budget that all models share; "" if nothing was matched."""
    # the file has it in the words of recipes
    return results.budget.sentence.replace("Every arm ", "Every model ") if results.budget else ""


def _folds(results: Results) -> str:
    data, planned = results.recipe.data, results.planned
    folds, seeds = data.get("folds"), len(planned.seeds)
    mean = f"; the {seeds} seeds of a fold are averaged first" if seeds > 1 else ""
    kind = (
        f"Each fold is a draw of its own of 1/{folds} of the texts"
        if data.get("fold_kind") == "independent"
        else f"Cross-validation with {len(planned.folds)} of {folds} folds: no text is tested in two of them"
    )
    return f"{kind}, and models are paired by fold{mean}."


def _start(recipe: SavedRecipe) -> str:
    own = recipe.compare is not None and any("model.pretrained" in arm for arm in recipe.compare.arms)
    pretrained = recipe.model.get("pretrained")
    if pretrained is None and not own:
        return "the same weights where they share them"
    # One folder for all of them holds one encoding, so such arms differ in how they are trained.
    return "saved models of their own" if own or ARM in str(pretrained) else "the same saved model"


def place_of(run: Failure) -> str:
    """Return the seed, and the fold if there is one, of a failed run: "fold 2, seed 0"."""
    fold = "" if run.fold is None else f"fold {run.fold}, "
    return f"{fold}seed {run.seed}"


def markdown_table(results: Results) -> str:
    """Return table.md: the headline, the table, how it was tested, the caption."""
    shown = columns(results)
    rows = [[entry.arm, *(column.text(entry, arm) for column in shown)] for entry, arm in lines(results)]
    judged = verdict(results)
    failures = [f"- failed: {escaped(run.arm)}, {place_of(run)}: {paragraph(run.reason)}" for run in results.failed]
    blocks = [*map(paragraph, judged.headline), markdown_rows(["Model", *(column.title for column in shown)], rows)]
    if judged.method:
        blocks.append(f"How this was tested: {paragraph(' '.join(judged.method))}")
    blocks.append(paragraph(caption(results)))
    tried = rates_tried(results)
    if tried is not None and results.grid:
        rows = [
            [row.arm, *(f"**{text}**{' *' * row.edge}" if best else text for text, best in row.cells)]
            for row in tried.rows
        ]
        blocks += [markdown_rows(["Model", *tried.rates], rows), escaped(tried.meaning)]
    return "\n\n".join([*blocks, *(["\n".join(failures)] if failures else [])]) + "\n"


def markdown_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table in which no cell is markup; all columns but the first are aligned to the right."""
    shown = [[escaped(cell) for cell in row] for row in (heads, *rows)]
    shown.insert(1, [":---", *["---:"] * (len(heads) - 1)])
    return "\n".join("| " + " | ".join(row) + " |" for row in shown)


def render_table(results: Results, console: Console) -> None:
    """Print a results file in at most five columns, fewer in a narrow terminal, and the first layer of its verdict.

    In a pipe it is plain text. table.md has all columns, and how the differences were tested.
    """
    judged, found = verdict(results), differences.against(results, str(baseline_of(results)))
    shown = [column for column in columns(results) if column.key in SHOWN_FIRST]
    table = _terminal_table(results, shown, judged.best, console)
    if console.is_terminal:
        folded = max(0, max(cell_len(printable(entry.arm)) for entry, _ in lines(results)) - NAME_WIDTH)
        while len(shown) > 1 and _full_width(table, console) - folded > console.width:
            shown = shown[:-1]
            table = _terminal_table(results, shown, judged.best, console)
        console.print(table)
    else:  # a pipe has no width to fit
        width = _full_width(table, console)
        for line in console.render_lines(table, console.options.update(width=width, max_width=width)):
            text = "".join(segment.text for segment in line).rstrip()
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    told = any(column.key == OUTCOME for column in shown)
    if told and any(entry.outcome in (BETTER, WORSE) for entry in found.values()):
        console.print("* significant")
    for paragraph in judged.headline:
        console.print(escape(printable(paragraph)), highlight=False, soft_wrap=not console.is_terminal)


def _terminal_table(results: Results, shown: Sequence[Column], best: str | None, console: Console) -> Table:
    found, unit = differences.against(results, str(baseline_of(results))), differences.unit_of(results)
    terminal = console.is_terminal
    table = Table(box=box.SIMPLE_HEAD if terminal else None, header_style="bold", pad_edge=False)
    longest = max(cell_len(printable(entry.arm)) for entry, _ in lines(results))
    table.add_column("Model", overflow="fold", no_wrap=not terminal, min_width=min(longest, NAME_WIDTH))
    for column in shown:
        title = "\n".join(wrap(printable(column.title), 16, break_long_words=False))
        table.add_column(escape(title), justify="right", no_wrap=True)
    for entry, arm in lines(results):
        cells = {column.key: column.text(entry, arm) for column in shown}
        if entry.arm in found and OUTCOME in cells:  # the interval and p are in table.md and in the report
            marked = found[entry.arm].outcome in (BETTER, WORSE)
            cells[OUTCOME] = differences.in_parts(found[entry.arm], unit)[0] + ("*" if marked else " ")
        style = "bold" if entry.arm == best else ""
        table.add_row(escape(printable(entry.arm)), *(escape(printable(text)) for text in cells.values()), style=style)
    return table


def _full_width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def paragraph(text: object) -> str:
    """Return a text as a paragraph in which nothing is markup, such as the stars of "texts/*/*.txt"."""
    return escaped(text).replace("*", "&#42;").replace("_", "&#95;").replace("~", "&#126;")


def escaped(text: object) -> str:
    """Return a text as a cell of a markdown table, in which nothing is markup but what makes it bold or a star."""
    # markdown readers run HTML, split cells at bars, load pictures, and take a backslash before a bar for an escape: so
    # backslashes go first, and the only ones left are those before bars
    plain = " ".join(str(text).splitlines())
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\", "&#92;"), ("|", "\\|")):
        plain = plain.replace(mark, written)
    return plain.replace("](", "]&#40;").replace("`", "&#96;")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesOfArm:
    """The row of one arm."""

    arm: str
    cells: tuple[tuple[str, bool], ...]
    """For each rate the score in words, and whether the arm was given this rate."""
    edge: bool
    """True if the arm's rate, or that of its encoding, is the lowest or the highest that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesTried:
    """The table of rates, one row per arm."""

    rates: tuple[str, ...]
    rows: tuple[RatesOfArm, ...]
    meaning: str


_Tried = Mapping[str, Mapping[Rates, tuple[float | None, int]]]
"""Arm -> rates -> the median score, and how many trials failed."""


def rates_tried(results: Results) -> RatesTried | None:
    """Return the table of a results file; None if every arm had the rate of its recipe."""
    if results.grid:
        tried = {
            arm: {Rates(own.learning_rate): (own.median, own.failed) for own in results.grid if own.arm == arm}
            for arm in dict.fromkeys(entry.arm for entry in results.grid)
        }
        chosen = {entry.arm: Rates(entry.learning_rate) for entry in results.grid if entry.chosen}
        meaning = (
            f"Validation {quality_of(results).name} at each learning rate, median over the {repeats(results)[0]}s; a "
            "model's result is that at its best rate (bold)."
        )
    elif results.tuning:
        tried = _of_trials(results)
        given = {arm.name: (arm.learning_rate, arm.encoding_learning_rate) for arm in results.arms}
        # an arm that no rate could train has that of its recipe, which was not chosen
        chosen = {
            arm: rates
            for arm, of in tried.items()
            for rates, (middle, _) in of.items()
            if rates == given.get(arm) and middle is not None
        }
        meaning = _meaning_of_trials(results, tried)
    else:
        return None
    columns = sorted({rates for of in tried.values() for rates in of}, key=lambda one: (one.rate, one.factor or 0.0))
    rows: list[RatesOfArm] = []
    for arm, of in tried.items():
        cells = tuple((_in_words(*of.get(rates, (None, 0))), rates == chosen.get(arm)) for rates in columns)
        rows.append(RatesOfArm(arm=arm, cells=cells, edge=arm in chosen and rate_at_edge(results, arm) is True))
    if any(row.edge for row in rows):
        meaning += " * The best rate is the lowest or the highest that was tried: a wider grid might help this model."
    return RatesTried(rates=tuple(rates.words for rates in columns), rows=tuple(rows), meaning=meaning)


def _of_trials(results: Results) -> _Tried:
    scores: dict[str, dict[Rates, list[float | None]]] = {}
    for trial in results.tuning:
        rates = Rates(trial.learning_rate, trial.encoding_learning_rate)
        scores.setdefault(trial.arm, {}).setdefault(rates, []).append(trial.score(results.selection))

    def of_rates(own: list[float | None]) -> tuple[float | None, int]:
        known = [value for value in own if value is not None]
        return median(known) if known else None, len(own) - len(known)

    return {arm: {rates: of_rates(own) for rates, own in of.items()} for arm, of in scores.items()}


def _meaning_of_trials(results: Results, tried: _Tried) -> str:
    metric, seeds = results.selection, len({trial.seed for trial in results.tuning})
    name = f"loss ({loss_unit(results)})" if metric not in METRICS else METRICS[metric].name
    own = any(rates.factor is not None for of in tried.values() for rates in of)
    over = "one seed" if seeds == 1 else f"median over up to {seeds} seeds, the better half on each further one"
    counts = [sum(trial.arm == arm for trial in results.tuning) for arm in tried]
    trials = " to ".join(dict.fromkeys(map(str, (min(counts), max(counts)))))
    factors = " (x4: 4 times that for the encoding)" if own else ""
    return (
        f"Validation {name} after training with each learning rate{factors}, {over}; the best (bold) is used for every "
        f"seed of that model. Tuned over {trials} trials per model."
    )


def _in_words(middle: float | None, failed: int) -> str:
    if middle is None and failed:
        return "failed"
    return significant(middle) + f" ({failed} failed)" * bool(failed)
