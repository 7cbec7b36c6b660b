"""The probes by name, made of the tables `[compare.probes.NAME]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from wordorder.comparison.probes.extrapolation import Extrapolation
from wordorder.comparison.probes.lengths import Lengths
from wordorder.comparison.probes.minimal_pairs import MinimalPairs
from wordorder.comparison.probes.position_probe import PositionProbe
from wordorder.comparison.probes.probe import Probe
from wordorder.comparison.probes.shuffled_windows import ShuffledWindows
from wordorder.errors import BadInput
from wordorder.hints import option_faults
from wordorder.tasks import TASKS

if TYPE_CHECKING:
    from wordorder.training import Recipe


PROBES: dict[str, type[Probe]] = {
    "extrapolation": Extrapolation,
    "shuffled-windows": ShuffledWindows,
    "minimal-pairs": MinimalPairs,
    "position-probe": PositionProbe,
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
        task = TASKS[recipe.data.task]
        if recipe.data.generated is not None and task.running_text and not probe.measures_answers:
            faults.append(
                f"compare.probes.{name}: reads running text, and of {recipe.data.source} only answers are predicted; "
                "leave it out"
            )
        elif not probe.can_measure(task):
            tasks = ", ".join(name for name, task in TASKS.items() if probe.can_measure(task))
            faults.append(f"compare.probes.{name}: is for tasks {tasks}, not for {recipe.data.task}; leave it out")
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
    known = {field.name: field for field in fields(PROBES[name])}
    hints = {option: hint for option, hint in get_type_hints(kind).items() if option in known}
    faults = option_faults("compare.probes", name, options, hints)
    needed = [option for option, field in known.items() if field.default is MISSING and option not in options]
    faults += [f"{table}: option {option!r} is needed" for option in needed]
    if faults:
        raise BadInput(faults)
    try:
        return kind(**{key: tuple(cast("list[Any]", v)) if isinstance(v, list) else v for key, v in options.items()})
    except ValueError as error:
        raise BadInput(f"{table}: {error}") from None
