"""Merge earlier results into one table, or refuse them with what differs besides the arms."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wordorder.comparison.budget import check_trained
from wordorder.comparison.earlier_results import OF_ARMS, Source, is_as_written, read_source
from wordorder.comparison.looks import earlier_looks, looks_of, together, with_look
from wordorder.comparison.mergeable import ambiguous, differing, settings
from wordorder.comparison.report import report_files, write_report
from wordorder.comparison.results import conclusions, finite, write_results
from wordorder.comparison.schedule import listed
from wordorder.comparison.statistics import summarise
from wordorder.errors import BadInput, RunFailed, WordOrderError
from wordorder.limits import one_line, read_json
from wordorder.training.checkpoint import run_folder_fault

MACHINE = ("device", "processors", "threads")
"""Names of an environment that decide the speed of a training, besides other programs on the machine."""


def merge(folders: Sequence[str], *, output_dir: Path | None = None) -> Path:
    """Write the table and the report of several comparisons' arms, without training anything.

    Args:
        folders: of comparisons, or `folder:prefix`, see `read_source`; the first one's baseline is that of all.
        output_dir: gets results.json, table.md, report.html and figures; by default beside the first folder, named
            after all of them.

    Returns:
        The path of results.json.

    Raises:
        BadInput: results that cannot stand in one table, one line per difference; nothing is written.
        RunFailed: the results cannot be written.
    """
    with _named(folders):
        sources = [read_source(text) for text in folders]
    if not sources:
        raise BadInput("--from: name at least one folder of a comparison")
    first = sources[0]
    with _named(folders):
        faults = [fault for other in sources[1:] for fault in differing(first, other)] or ambiguous(sources)
    if faults:
        raise BadInput(faults)
    names = list(dict.fromkeys(source.folder.resolve().name for source in sources))
    folder = output_dir or first.folder.parent / "+".join([*names, *(["merged"] if len(names) == 1 else [])])
    fault = _folder_fault(folder, sources)
    if fault:
        raise BadInput(fault)
    with _named(folders):
        results = merged(sources, folder)
        results["looks"] = together([*earlier_looks(folder / "results.json"), *results["looks"]])
        results["looks"] = with_look(results)
        report_files(results)  # before anything is written
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_results(results, folder / "results.json")
        write_report(results, folder)
    except OSError as error:
        raise RunFailed(f"cannot write the results into {folder}: {error}") from error
    from wordorder.comparison.figures import write_figures

    with _named(folders):
        write_figures(results, folder / "figures")
    return folder / "results.json"


@contextmanager
def _named(folders: Sequence[str]) -> Generator[None]:
    """Raise BadInput for errors in results that somebody changed; let errors in unchanged results pass: they are bugs.

    Files without a digest were written by an earlier version, or by somebody else.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, WordOrderError) or all(is_as_written(text) for text in folders):
            raise
        raise BadInput(
            f"--from {' '.join(folders)}: a results.json was changed or is damaged ({type(error).__name__}:"
            f" {one_line(error)}); run the comparison again"
        ) from error


def _folder_fault(folder: Path, sources: Sequence[Source]) -> str | None:
    if any(folder.resolve() == source.folder.resolve() for source in sources):
        return f"--output-dir {folder}: is one of the folders that are merged; name another one"
    path = folder / "results.json"
    if path.exists():
        try:
            there: dict[str, Any] = read_json(path)
        except (OSError, ValueError):
            there = {}
        if not there.get("merged_from"):
            return f"--output-dir {folder}: holds the results of a comparison; name another folder"
    return run_folder_fault(folder)


def merged(sources: Sequence[Source], folder: Path) -> dict[str, Any]:
    """Return the content of results.json for all arms and seeds of several comparisons.

    Args:
        sources: that can stand in one table.
        folder: where the results go; the rows name their models from there.

    Raises:
        UnfairComparison: arms of one seed were trained on other batches, or for other numbers of steps.
    """
    first = sources[0].results
    rows, notes = _rows(sources, folder)
    arms = _by_name(_all(sources, "arms"))
    seeds = sorted({int(seed) for source in sources for seed in source.results["planned"]["seeds"]})
    planned = len(arms) * len(seeds) * max(1, len(first["planned"].get("folds", ())))
    done = {_place(row) for row in rows}
    tuning = {(t["arm"], t["learning_rate"], t["seed"]): t for t in _all(sources, "tuning")}
    grid = {(entry["arm"], entry["learning_rate"]): entry for entry in _all(sources, "grid")}
    notes += _notes_on_machines(sources)
    results = {
        **{key: value for key, value in first.items() if key not in {"plan", "merged_from", "waiting"}},
        "name": folder.resolve().name,
        "complete": len(rows) == planned,
        "planned": {**first["planned"], "arms": len(arms), "seeds": seeds, "runs": planned},
        "recipe": _recipe(sources, [str(arm["name"]) for arm in arms], seeds),
        "arms": arms,
        "rows": rows,
        "failed": [failure for failure in _all(sources, "failed") if _place(failure) not in done],
        "tuning": list(tuning.values()),
        "grid": list(grid.values()),
        "summary": summarise(rows),
        "correlations": _first_of(source.results.get("correlations", {}) for source in sources),
        "probes": _probes(sources),
        "looks": together([look for source in sources for look in looks_of(source.results)]),
        "merged_from": _origins(sources, folder),
        "notes": notes,
    }
    budgets = [source.results["budget"] for source in sources if source.results.get("budget")]
    if budgets:
        by_arm = {key: _first_of(budget.get(key, {}) for budget in budgets) for key in OF_ARMS}
        results["budget"] = {**budgets[0], **by_arm}
    own = _first_of(source.results.get("own_encodings", {}) for source in sources)
    results |= {"own_encodings": own} if own else {}
    for key in ("comparisons", "significance", "steps_to_loss"):  # those of the first one alone
        results.pop(key, None)
    check_trained(results)
    return {**results, **finite(conclusions(results))}


def _first_of(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the union of the tables; for a name in several of them, the value of the first."""
    found: dict[str, Any] = {}
    for table in tables:
        found = {**found, **{name: value for name, value in table.items() if name not in found}}
    return found


def _all(sources: Sequence[Source], key: str) -> list[dict[str, Any]]:
    return [entry for source in sources for entry in source.results.get(key, [])]


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["arm"], row["seed"], row.get("fold")


def _rows(sources: Sequence[Source], folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every run once, with its model's path from the new folder, and notes on runs with two results."""
    found: dict[tuple[Any, ...], tuple[Source, dict[str, Any]]] = {}
    notes: list[str] = []
    for source in sources:
        for row in source.results["rows"]:
            if _place(row) not in found:
                found[_place(row)] = source, row
                continue
            kept, there = found[_place(row)]
            if there["loss"] != row["loss"]:
                notes.append(
                    f"{row['arm']}, seed {row['seed']}, was trained twice with different results, as on two machines: "
                    f"loss {there['loss']:.6g} in {kept.name}, which counts, and {row['loss']:.6g} in {source.name}."
                )
    rows: list[dict[str, Any]] = []
    for source, row in found.values():
        model = (source.folder / row["model"]).resolve()
        place = Path(os.path.relpath(model, folder.resolve())).as_posix()
        rows.append({**row, "model": place, "from": str(source.folder)})
    order = list(dict.fromkeys(str(arm["name"]) for arm in _all(sources, "arms")))
    return sorted(rows, key=lambda row: (row["seed"], row.get("fold") or 0, order.index(row["arm"]))), notes


def _by_name(arms: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per arm: the one that knows its cost, if there are several."""
    found: dict[str, dict[str, Any]] = {}
    for arm in arms:
        if arm["name"] not in found or not found[arm["name"]].get("parameters"):
            found[arm["name"]] = arm
    return list(found.values())


def _recipe(sources: Sequence[Source], names: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the first recipe with the arms and seeds of all: it trains the same runs.

    What another one's [model], or [training], has otherwise becomes an override of its arms.
    """
    first = sources[0].results["recipe"]
    base = settings(sources[0].results, {"name": ""})
    entries: dict[str, dict[str, Any]] = {}
    for source in sources:
        for arm in source.results["recipe"]["compare"]["arms"]:
            own = settings(source.results, {"name": ""})
            changed = {
                f"{section}.{name}": value
                for section, table in own.items()
                for name, value in table.items()
                if value is not None and value != base[section].get(name)
            }
            entries.setdefault(arm["name"], {"name": arm["name"], **changed, **arm})
    arms = [entries[name] for name in names if name in entries]
    return {**first, "compare": {**first["compare"], "seeds": list(seeds), "arms": arms}}


def _probes(sources: Sequence[Source]) -> dict[str, dict[str, Any]]:
    """Return every probe that is measured alike, with the rows of all runs, each once."""
    found: dict[str, dict[str, Any]] = {}
    for source in sources:
        for name, probe in source.results.get("probes", {}).items():
            there = found.setdefault(name, {**probe, "rows": [], "skipped": [], "notes": []})
            if there.get("options") != probe.get("options"):
                there["skipped"] += [
                    {"arm": arm, "reason": f"measured with other options in {source.name}: {probe.get('options')}"}
                    for arm in dict.fromkeys(row["arm"] for row in probe["rows"])
                ]
                continue
            runs = {_place(row) for row in there["rows"]}
            there["rows"] += [row for row in probe["rows"] if _place(row) not in runs]
            for key in ("skipped", "notes"):
                there[key] += [entry for entry in probe.get(key, []) if entry not in there[key]]
    return found


def _origins(sources: Sequence[Source], folder: Path) -> list[dict[str, Any]]:
    """Return the origins of the results; those of an earlier merge are named one by one."""
    found: dict[str, dict[str, Any]] = {}
    for source in sources:
        earlier = source.results.get("merged_from") or [{"name": source.results["name"], "folder": "."}]
        for entry in earlier:
            place = os.path.relpath((source.folder / entry["folder"]).resolve(), folder.resolve())
            own = {name: source.results["environment"].get(name) for name in ("device", "threads")}
            found.setdefault(place, {**own, **entry, "folder": Path(place).as_posix()})
    return list(found.values())


def _notes_on_machines(sources: Sequence[Source]) -> list[str]:
    """Return a note on the conditions between which speeds do not compare; [] if there is only one."""
    machines: dict[tuple[Any, ...], list[Source]] = {}
    for source in sources:
        environment = source.results["environment"]
        workers = source.results["recipe"]["compare"].get("workers", 1)
        machines.setdefault((*(environment.get(name) for name in MACHINE), workers), []).append(source)
    if len(machines) < 2:
        return []
    told = [
        f"{listed([source.name for source in own])} on {device} with {threads} thread{'s' * (threads != 1)}"
        f" and {workers} at once"
        for (device, _, threads, workers), own in machines.items()
    ]
    return [
        f"Tokens per second and peak memory were measured in different conditions and compare only within one: "
        f"{'; '.join(told)}."
    ]
