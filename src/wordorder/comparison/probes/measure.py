"""The probes by name, made of the tables `[compare.probes.NAME]`, and their measurements of one trained model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import torch

from wordorder.comparison.probes.extrapolation import Extrapolation
from wordorder.comparison.probes.lengths import Lengths
from wordorder.comparison.probes.probe import Axes, CannotProbe, Probe, Trained
from wordorder.comparison.probes.shuffled_windows import ShuffledWindows
from wordorder.errors import BadInput
from wordorder.files import finite, read_json, write_json
from wordorder.hints import option_faults
from wordorder.inference.saved_model import load_model
from wordorder.tasks import TASKS
from wordorder.training.loop.meter import cpu_threads
from wordorder.training.loop.progress import quiet_libraries

if TYPE_CHECKING:
    from wordorder.data import PreparedData
    from wordorder.training import Recipe

AXES = tuple(field.name for field in fields(Axes))

KILLED = "its process ended before it was measured (killed when memory ran out, or by hand)"

PROBES: dict[str, type[Probe]] = {
    "extrapolation": Extrapolation,
    "shuffled-windows": ShuffledWindows,
    "lengths": Lengths,
}
"""Name in `[compare.probes.NAME]` -> the probe's class, whose fields are its options."""


def check_probes(recipe: Recipe) -> None:
    """Refuse unknown probes and options, values that are out of range, and probes of other tasks."""
    given: Mapping[str, Mapping[str, Any]] = recipe.compare.probes if recipe.compare is not None else {}
    faults: list[str] = []
    for name, options in given.items():
        try:
            probe = make_probe(name, options)
        except BadInput as error:
            faults += error.faults
            continue
        task = TASKS[recipe.task.name]
        if recipe.data.generated is not None and task.running_text and not probe.measures_answers:
            faults.append(
                f"compare.probes.{name}: reads running text, and of {recipe.data.source} only answers are predicted; "
                "leave it out"
            )
        elif not probe.can_measure(task):
            tasks = ", ".join(name for name, task in TASKS.items() if probe.can_measure(task))
            faults.append(f"compare.probes.{name}: is for tasks {tasks}, not for {recipe.task.name}; leave it out")
        else:
            faults += [f"compare.probes.{name}: {fault}" for fault in probe.faults(recipe)]
    if faults:
        raise BadInput(faults)


def make_probe(name: str, options: Mapping[str, Any]) -> Probe:
    """Return a probe with its options."""
    table = f"compare.probes.{name}"
    if name not in PROBES:
        near = get_close_matches(name, PROBES, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise BadInput(f"{table}: there is no such probe; {meant}known: {', '.join(PROBES)}")
    kind: Callable[..., Probe] = PROBES[name]
    types = get_type_hints(kind)
    faults = option_faults("compare.probes", name, options, {f.name: types[f.name] for f in fields(PROBES[name])})
    if faults:
        raise BadInput(faults)
    try:
        return kind(**{key: tuple(cast("list[Any]", v)) if isinstance(v, list) else v for key, v in options.items()})
    except ValueError as error:
        raise BadInput(f"{table}: {error}") from None


def path_of(run_folder: Path, name: str) -> Path:
    """Return the path of a probe's file, which may not exist yet."""
    return run_folder / "probes" / f"{name}.json"


def read_measured(run_folder: Path, name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of a probe's file; None if there is none of the same options.

    It has `given` (options as the recipe has them), `options` (all of them), the axes, `rows`, `notes`, `skipped` (why
    there are no rows, or None), `failed` (trying again may help) and `seconds`.
    """
    try:
        content: object = read_json(path_of(run_folder, name))
    except (OSError, ValueError):
        return None
    as_read: object = json.loads(json.dumps(given, default=str))  # tuples are lists there
    measured = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    return measured if measured and measured.get("given") == as_read else None


def is_measured(run_folder: Path, name: str, given: Mapping[str, Any]) -> bool:
    """Tell whether a probe was measured with the same options and did not fail."""
    content = read_measured(run_folder, name, given)
    return content is not None and not content.get("failed")


def measure_probes(
    options: Mapping[str, Mapping[str, Any]],
    recipe: Recipe,
    model_dir: Path,
    run_folder: Path,
    *,
    prepare: Callable[[], PreparedData],
) -> None:
    """Measure a trained model with every probe that has no valid file yet; a fault loses that probe alone."""
    wanted = {name: given for name, given in options.items() if not is_measured(run_folder, name, given)}
    if not wanted:
        return
    task = recipe.task.name
    probes = {name: make_probe(name, given) for name, given in wanted.items()}
    heads = {
        name: {"given": dict(wanted[name]), "options": asdict(probe)} | asdict(probe.axes(task))
        for name, probe in probes.items()
    }

    def write(name: str, content: Mapping[str, Any]) -> None:
        path = path_of(run_folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, finite({**heads[name], **content}))

    with quiet_libraries(), cpu_threads(recipe.training.threads):
        try:
            trained = _load(recipe, model_dir, prepare())
        except Exception as error:  # a run that is finished must not be lost to what comes after it
            for name in heads:
                write(name, _failure(error))
            return
        for name, probe in probes.items():
            # this file stays if the system kills the process meanwhile
            write(name, {"rows": [], "skipped": KILLED, "failed": True})
            write(name, _measured(probe, trained))


def _load(recipe: Recipe, model_dir: Path, prepared: PreparedData) -> Trained:
    on_cpu = recipe.training.device == "cpu" or not torch.accelerator.is_available()
    device = (None if on_cpu else torch.accelerator.current_accelerator()) or torch.device("cpu")
    model = load_model(model_dir).to(device).eval()
    return Trained(recipe=recipe, model_dir=model_dir, model=model, prepared=prepared, device=device)


def _measured(probe: Probe, trained: Trained) -> dict[str, Any]:
    start = time.monotonic()
    try:
        with torch.no_grad():
            found = probe.measure(trained)
    except CannotProbe as error:
        return {"rows": [], "notes": [], "skipped": str(error), "failed": False}
    except Exception as error:  # as above
        return _failure(error)
    seconds = round(time.monotonic() - start, 3)
    return {"rows": found.rows, "notes": found.notes, "skipped": None, "failed": False, "seconds": seconds}


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, BadInput):
        reason = " ".join(error.faults)
    else:
        reason = f"failed: {type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    return {"rows": [], "notes": [], "skipped": reason, "failed": True}
