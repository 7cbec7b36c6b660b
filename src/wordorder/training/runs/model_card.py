"""Write the model card of a run: its scores with their splits, its recipe, and what nobody tested."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from wordorder import __version__
from wordorder.limits import read_json, read_toml
from wordorder.models.hub.model_card import CardFacts, code, fenced, plain, write_card
from wordorder.tasks import TASKS
from wordorder.training.recipe.toml_text import to_toml
from wordorder.training.runs.folder import DATA, ENVIRONMENT, METRICS, PRETRAINED, RECIPE

_HUB = "hub:"
_SHORTENED = "With every default written out; of paths that name a place on one machine, the last part."


def write_run_card(model_dir: Path, run_folder: Path, metrics: Mapping[str, Any] | None = None) -> None:
    """Write the card of a run's model."""
    write_card(model_dir, run_facts(run_folder, metrics))


def run_facts(run_folder: Path, metrics: Mapping[str, Any] | None = None) -> CardFacts:
    """Return the contents of the card of a run's model."""
    recipe = read_toml(run_folder / RECIPE)
    found = _json(run_folder / METRICS) if metrics is None else metrics
    data: Mapping[str, Any] = recipe.get("data", {})
    source = str(data.get("source", ""))
    task = TASKS.get(str(data.get("task", "")))  # a card is written of any recipe.toml
    does, shown = task.summary if task else "reads texts", without_folders(source)
    scores = {split: found[split] for split in ("validation", "test") if split in found}
    return CardFacts(
        title=f"{run_folder.name}: {recipe['model'].get('encoding', recipe['model'].get('network'))}",
        summary=f"A model that {does}, trained by `wordorder train` on {code(shown)}.",
        data=shown.removeprefix(_HUB),
        datasets=(source.removeprefix(_HUB),) if source.startswith(_HUB) else (),
        scores=scores,
        sections=[
            ("How it was trained", _training(run_folder, found)),
            ("Recipe", f"{_SHORTENED}\n\n{fenced(to_toml(_shown(recipe)), 'toml')}"),
            ("Versions", _versions(run_folder)),
        ],
        untested=[*_untested(found, shown), *(task.card_warnings if task else ())],
    )


def without_folders(value: str) -> str:
    """Return the last part of a path that names a place on one machine; return any other text unchanged."""
    if PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name
    return PurePosixPath(value).name if value.startswith(("/", "~")) else value


def _training(run_folder: Path, metrics: Mapping[str, Any]) -> str:
    device = _json(run_folder / ENVIRONMENT).get("device")
    best = metrics.get("best_step")
    rows = [
        f"- {metrics.get('steps', 0):,} steps, seed {metrics.get('seed')}; the weights are those of step {best}",
        f"- {metrics.get('tokens', 0):,} tokens, {metrics.get('train_seconds', 0):,.0f} seconds on {code(device)}",
        f"- {metrics.get('parameters', 0):,} parameters",
    ]
    train = _json(run_folder / DATA).get("train", {})
    if isinstance(train, dict) and train:
        rows.append(f"- training texts: {code(json.dumps(train))}")
    if (run_folder / PRETRAINED).exists():
        start = _json(run_folder / PRETRAINED)
        rows.append(f"- began from the weights of {code(without_folders(str(start['folder'])))}")
    return "\n".join(rows)


def _shown(value: Any) -> Any:
    """Return the value with every path shortened by `without_folders`."""
    if isinstance(value, Mapping):
        return {name: _shown(inner) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_shown(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return without_folders(value) if isinstance(value, str) else value


def _versions(run_folder: Path) -> str:
    environment = _json(run_folder / ENVIRONMENT)
    packages = {"python": environment.get("python"), "wordorder": __version__, **environment.get("packages", {})}
    return ", ".join(f"{name} {plain(version)}" for name, version in packages.items())


def _untested(metrics: Mapping[str, Any], source: str) -> list[str]:
    split = "test" if "test" in metrics else "validation"
    lines = [
        f"Any texts but the {split} split of {code(source)}: other sources, times, domains and languages.",
        "What it has learned of people and groups of people, and any harm that its answers may do.",
        "Any use beyond the task that it was trained for.",
    ]
    if metrics.get("optimistic"):
        lines.insert(
            0, f"An unseen split: the {split} split also chose the checkpoint, so its scores are **optimistic**."
        )
    return lines


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
