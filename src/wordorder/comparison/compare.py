"""Run a comparison: every arm with every seed, resumable, on the same batches."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.budget import check_trained, fit_budget
from wordorder.comparison.engines.local import Job, LocalEngine, Outcome, devices_of, placements
from wordorder.comparison.engines.ray import RayCluster, RayEngine
from wordorder.comparison.engines.store import Store, local_folder
from wordorder.comparison.pipeline import Pipeline, forget_prepared
from wordorder.comparison.probes.measure import check_probes
from wordorder.comparison.report.differences import time_in_words
from wordorder.comparison.report.figures import FOLDER as FIGURES
from wordorder.comparison.report.figures import link_fault
from wordorder.comparison.report.html import write_report
from wordorder.comparison.report.table import markdown_table, place_of
from wordorder.comparison.results import Record, results_of
from wordorder.comparison.results_file import MatchedBudget, Results, faults_of, read_results
from wordorder.comparison.runs import (
    Rates,
    Run,
    Score,
    Search,
    Statistics,
    best_of,
    check_folders,
    metrics_of,
    runs_of,
    scores_of,
    trial_scores,
    trials_of,
)
from wordorder.comparison.statistics.summary import earlier_looks, with_look
from wordorder.data.settings import BEST_ON_TEST
from wordorder.errors import BadInput, RunFailed
from wordorder.files import is_url, write_json
from wordorder.launch import process_count
from wordorder.streams import printable
from wordorder.training.checkpoints.checkpoint import run_folder_fault
from wordorder.training.loop.interruption import SIGNALS, Signalled, handling
from wordorder.training.runs.folder import IDENTITY, locked, read_curve, read_metrics
from wordorder.training.runs.run import few_examples

if TYPE_CHECKING:
    from wordorder.comparison.arms import Arm
    from wordorder.training import CompareConfig, Recipe

RESULTS = "results.json"


def compare(
    recipe: Recipe,
    *,
    output_dir: Path | str | None = None,
    progress: bool = True,
    pipeline: Pipeline | None = None,
    ray: RayCluster | None = None,
) -> Path:
    """Train every arm of a recipe with every seed, and write results.json, table.md and report.html.

    Every arm sees the same data in the same order with the same masks (a pure function of the seed), and differs from
    the others by its overrides only. With ``compare.tune`` every arm first tries the same learning rates, and with
    ``compare.tune_encoding`` those of its encoding, on seeds of their own, and takes what is best on validation. With
    ``compare.grid`` it is trained with every rate on every seed, and the best median counts; with ``compare.folds`` on
    every fold of the data. Finished runs are not trained again; an unfinished one goes on from its newest checkpoint.
    The results file is rewritten after every run.

    Args:
        recipe: a recipe with a [compare] section.
        output_dir: where the runs and results go, a folder or the address of an object store (s3://bucket/folder, for
            instance); training.output_dir, or else runs/<name of the recipe>, by default.
        progress: show a live display on standard error (lines where that is not a terminal).
        pipeline: what to call for data, training, cost and probes; the package's own by default.
        ray: the Ray cluster to train on; None for processes of this machine, compare.workers of them. On CPUs the
            results are those of two or more workers, which have one thread each, to the bit.

    Returns:
        The path of results.json; of a copy of it where an object store has the folder.

    Raises:
        BadInput: arms that would see different batches, a folder that cannot be written or holds files of something
            else, or a run folder of a different recipe or of other data; nothing is started.
        UnfairComparison: a run was given something else than was matched, or other batches; its row is not written,
            and what has not begun is not trained.
        RunFailed: at least one run failed; the others were finished and the results file says which and why.
        Stopped: a signal asked to stop; finished runs and the state of unfinished ones are saved.
    """
    forget_prepared()
    arms, tools = resolve_arms(recipe), pipeline or Pipeline()
    check_probes(recipe)
    if process_count() > 1:
        raise BadInput(
            f"compare was started in {process_count()} processes by a launcher; it starts its runs itself: start it "
            "alone, with compare.workers=N for N runs at a time"
        )
    config = recipe.compare
    assert config is not None  # resolve_arms refused it
    place = str(output_dir or recipe.training.output_dir or recipe.output_dir)
    if place.startswith("memory://") and (ray is not None or config.workers > 1):
        raise BadInput(f"--output-dir: {place} is the memory of one process; it takes compare.workers=1 and no Ray")
    local = local_folder(place) if is_url(place) else None
    # before the store is read: what another comparison writes meanwhile would be missing in the copy
    with stopped_by_signals(), nullcontext() if local is None else locked(local):
        store = Store.open(place) if is_url(place) else None
        folder = Path(place) if store is None else store.here
        if fault := run_folder_fault(folder) or _replaced_files(folder, arms, place) or link_fault(folder / FIGURES):
            raise BadInput(fault)
        with locked(folder) if store is None else _named_by_address(store):
            return _compare_alone(recipe, arms, tools, folder, store=store, ray=ray, progress=progress)


def _compare_alone(
    recipe: Recipe,
    arms: tuple[Arm, ...],
    tools: Pipeline,
    folder: Path,
    *,
    store: Store | None,
    ray: RayCluster | None,
    progress: bool,
) -> Path:
    config = recipe.compare
    assert config is not None  # resolve_arms refused it
    statistics = _statistics(recipe, config, tools)
    # of folds the first is looked at
    if progress and (few := few_examples(next(iter(statistics.values())))):
        print(printable(few), file=sys.stderr)
    arms, matched = fit_budget(arms, recipe, pipeline=tools)
    print_changes(matched, Console(stderr=True, quiet=not progress))
    record = Record(
        recipe=recipe, config=config, arms=arms, folder=folder, statistics=statistics, pipeline=tools,
        budget=matched, looks=earlier_looks(folder / RESULTS), store=store,
    )  # fmt: skip
    _train_all(record, ray, progress=progress)
    return _conclude(record)


@contextmanager
def _named_by_address(store: Store) -> Generator[None]:
    """Name files in errors by their address in the store: the user does not see the copy that they were read from."""
    try:
        yield
    except BadInput as error:
        raise type(error)([fault.replace(str(store.here), store.url) for fault in error.faults]) from None
    except RunFailed as error:
        raise RunFailed(str(error).replace(str(store.here), store.url)) from None


def _replaced_files(folder: Path, arms: Iterable[Arm], place: str) -> str | None:
    files = [name for name in (RESULTS, "table.md", "report.html", FIGURES) if os.path.lexists(folder / name)]
    if not files or any(any((folder / arm.name).rglob(IDENTITY)) for arm in arms):
        return None
    try:
        read_results(folder / RESULTS)
    except BadInput:
        return (
            f"--output-dir: {place!r} holds {', '.join(files)} of something else than a comparison, which would be "
            "replaced; name another folder by --output-dir FOLDER"
        )
    return None


def _train_all(record: Record, ray: RayCluster | None, *, progress: bool) -> None:
    config, folder, arms, statistics = record.config, record.folder, record.arms, record.statistics
    searches = _searches(record)
    record.grid = runs_of(arms, config, folder, rates=config.grid)
    planned = record.grid or runs_of(arms, config, folder)
    check_folders(_next_trials(record, searches), statistics)
    # the rates of a run that counts may still be chosen, so they are compared after the tuning only
    open_rates = {"learning_rate", "encoding_learning_rate"} if config.tune else set[str]()
    check_folders(planned, statistics, skip=frozenset(open_rates))
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(pipeline=record.pipeline, statistics=statistics, store=record.store)
    if ray is not None:
        engine = RayEngine(job, ray, folder=folder, on_gpus=record.recipe.training.device != "cpu")
    else:
        engine = LocalEngine(job, places=placements(devices_of(record.recipe), config.workers, len(planned)))
    try:
        with Display(planned, show=progress) as display:
            while trials := _next_trials(record, searches):
                check_folders(trials, statistics)
                record.trials += trials
                display.expect(trials)
                _work(trials, record, engine, display)
            if not record.grid:
                rates = {arm: best for arm, own in _trial_scores(record).items() if (best := best_of(own)) is not None}
                record.runs = runs_of(arms, config, folder, chosen=rates)
                _give_up_untrainable(record, rates)
                check_folders(record.runs, statistics)
            _work(record.grid or record.runs, record, engine, display)
    finally:
        engine.cancel()


def _statistics(recipe: Recipe, config: CompareConfig, tools: Pipeline) -> Statistics:
    """Prepare the data of every fold, so that its faults show before anything is trained."""
    if not config.folds:
        return {None: tools.prepare(recipe, config.seeds[0]).statistics}
    recipes = {fold: recipe.with_run(fold=fold) for fold in config.folds}
    return {fold: tools.prepare(own, config.seeds[0]).statistics for fold, own in recipes.items()}


def _work(runs: Sequence[Run], record: Record, engine: LocalEngine | RayEngine, display: Display) -> None:
    unfinished = [run for run in runs if not run.finished() or run.to_probe()]
    for run in unfinished:
        if run.folder not in record.failed:
            engine.submit(run)
    for run, outcome in engine.as_completed(display.start):
        if outcome.status == "failed":
            record.failed[run.folder] = outcome.reason
        display.finish(run, outcome, _headline(run, record) if outcome.status == "finished" else "")
        _save(record)


def _headline(run: Run, record: Record) -> str:
    metrics = read_metrics(run.folder)
    if run.trial is not None:
        return f"validation {record.selection} {metrics['validation'].get(record.selection, math.nan):.4f}"
    optimistic = "optimistic " * (record.protocol == BEST_ON_TEST)
    value = scores_of(metrics).get(record.metric, math.nan)
    # "15" beside "14.58" looks like another kind of number
    shown = f"{value:,.2f}" if record.metric == "perplexity" else f"{value:.4g}"
    return f"{optimistic}{record.split} {record.metric} {shown}"


def _searches(record: Record) -> dict[str, Search]:
    config, found = record.config, dict[str, Search]()
    for arm in record.arms if config.tune else ():
        factors: tuple[float | None, ...] = config.tune_encoding or (None,)
        if config.tune_encoding and not record.pipeline.encoding_parameters(arm.recipe, config.seeds[0]):
            factors = (None,)
        found[arm.name] = Search(rates=config.tune, factors=factors, seeds=config.tune_seed, extend=config.tune_extend)
    return found


def _next_trials(record: Record, searches: Mapping[str, Search]) -> list[Run]:
    scores = _trial_scores(record)
    return [
        run
        for arm in record.arms
        if arm.name in searches
        for run in trials_of(
            arm, record.config, record.folder, searches[arm.name].next_trials(scores.get(arm.name, {}))
        )
    ]


def _trial_scores(record: Record) -> dict[str, dict[Rates, dict[int, Score | None]]]:
    return trial_scores(record.trials, metrics_of(record.trials), record.selection)


def _give_up_untrainable(record: Record, rates: Mapping[str, Rates]) -> None:
    tried = {run.arm: record.failed.get(run.folder, "the loss is not a number") for run in record.trials}
    for run in record.runs:  # a single rate that diverges is no failure
        if run.arm in tried and run.arm not in rates:
            record.failed[run.folder] = f"no learning rate of compare.tune could be trained: {tried[run.arm]}"


def _conclude(record: Record) -> Path:
    results = _save(record, is_a_look=True)
    from wordorder.comparison.report.figures import write_figures

    try:
        write_figures(results, record.folder / FIGURES)
        _write_cards(results, record.folder)
        if record.store is not None:
            record.store.save()
    except OSError as error:
        raise RunFailed(f"cannot write figures and model cards into {record.place}: {error}") from error
    if lost := [f"{run.arm}, {place_of(run)}: {run.reason}" for run in results.failed if run.stage == "seeds"]:
        head = f"{len(lost)} of {results.planned.runs} runs failed; the rest is in {record.place}"
        raise RunFailed("\n".join([head, *lost]))
    return record.folder / RESULTS


def _write_cards(results: Results, folder: Path) -> None:
    from wordorder.training.runs.model_card import write_run_card

    table = markdown_table(results)
    for row in results.rows:
        model, fold = folder / row.model, "" if row.fold is None else f", fold {row.fold}"
        if (model / "config.json").is_file():
            title = f"{results.name}: {row.arm}, seed {row.seed}{fold}"
            write_run_card(model, model.parent, title=title, comparison=table)


def _save(record: Record, *, is_a_look: bool = False) -> Results:
    metrics = metrics_of([*record.trials, *(record.grid or record.runs)])
    try:
        results = results_of(record, metrics)
    except ValidationError as error:
        named = f"{record.folder}: a file of a finished run was changed"
        raise RunFailed("\n".join(faults_of(error, named))) from None
    if is_a_look:  # the files that are written after each run only say how far it is
        results = results.having(looks=with_look(results))
    check_trained(results)  # first: no table may show arms that were not given the same
    try:
        write_json(record.folder / RESULTS, results.as_json())
        write_report(results, record.folder)
        if record.store is not None:
            record.store.save()
    except OSError as error:
        raise RunFailed(f"cannot write the results into {record.place}: {error}") from error
    return results


@contextmanager
def stopped_by_signals() -> Generator[None]:
    """Raise `Stopped` once at a signal that asks to stop; later ones are ignored while the state is being saved."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Signalled(f"stopped by {signal.Signals(number).name}; run the same command again to go on")

    with handling(SIGNALS, stop):
        yield


class Display:
    """A display of finished runs out of all, running ones with the steps of their curve.jsonl, and the time left."""

    def __init__(self, runs: Iterable[Run], *, show: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.total, self.left, self.done_before = 0, dict[Path, Run](), 0.0
        self.current: dict[Path, Run] = {}
        self.started = time.monotonic()
        self.show = show
        self.expect(runs)
        live = show and self.console.is_terminal
        self.live = Live(get_renderable=self.render, console=self.console, refresh_per_second=2) if live else None

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        elif self.show and self.total > len(self.left):
            print_line(f"{self.total - len(self.left)} of {self.total} runs were finished before", self.console)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def expect(self, runs: Iterable[Run]) -> None:
        every = {run.folder: run for run in runs}
        self.total += len(every)
        self.left |= {folder: run for folder, run in every.items() if not run.finished()}
        # runs done before this session say nothing about this session's speed
        self.done_before += len(every) - sum(folder in self.left for folder in every)
        self.done_before += sum(fraction(run) for folder, run in every.items() if folder in self.left)

    def start(self, run: Run) -> None:
        self.current[run.folder] = run
        if self.live is None and self.show:
            number = self.total - len(self.left) + len(self.current)
            print_line(f"[{number}/{self.total}] {run.label} ...", self.console)

    def finish(self, run: Run, outcome: Outcome, result: str) -> None:
        """Show how a run ended; ``result`` is its headline number in words."""
        self.current.pop(run.folder, None)
        self.left.pop(run.folder, None)
        if not self.show:
            return
        text = result if outcome.status == "finished" else f"FAILED: {outcome.reason}"
        print_line(f"{run.label}: {text} ({time_in_words(outcome.seconds)}{self._time_left()})", self.console)

    def render(self) -> Table:
        table = Table.grid(padding=(0, 1))
        finished, running, waiting = self.total - len(self.left), len(self.current), len(self.left) - len(self.current)
        head = f"{finished} of {self.total} runs, {running} running, {waiting} waiting{self._time_left()}"
        table.add_row(Text("comparison", style="bold"), ProgressBar(self.total, self._done(), width=30), head)
        for run in list(self.current.values()):
            part = fraction(run)
            table.add_row(Text(printable(run.at_work())), ProgressBar(1, part, width=30), f"{part:.0%}")
        return table

    def _done(self) -> float:
        return self.total - len(self.left) + sum(fraction(run) for run in list(self.left.values()))

    def _time_left(self) -> str:
        done, elapsed = self._done(), time.monotonic() - self.started
        here = done - self.done_before
        if here < 0.1 or done >= self.total:
            return ""
        return f"; about {time_in_words(elapsed / here * (self.total - done))} left"


def print_line(text: str, console: Console) -> None:
    """Print a line as it stands: an arm may be called [bold]."""
    console.print(escape(printable(text)), highlight=False, soft_wrap=True)


def fraction(run: Run) -> float:
    """Return the share of a run's steps that is done, 0 to 1; 0 if its number of steps is not known beforehand."""
    steps = run.recipe.training.max_steps or 0
    curve = read_curve(run.folder) if steps > 0 else []
    return min(1.0, float(curve[-1].get("step", 0)) / steps) if curve else 0.0


def print_changes(budget: MatchedBudget, console: Console) -> None:
    """Print the changes that make the budgets of all arms equal."""
    if budget.sentence:
        print_line(budget.sentence, console)
    for arm, entry in budget.arms.items():
        if entry.changed:
            changed = [f"{name} {before} -> {now}" for name, (before, now) in entry.changed.items()]
            print_line(f"  {arm}: {', '.join(changed)}", console)
