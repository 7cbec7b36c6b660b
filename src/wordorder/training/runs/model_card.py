"""Write the model card of a run: its scores with their splits, how it was trained, and its recipe."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from wordorder import __version__
from wordorder.files import read_json, read_toml
from wordorder.models.model_card import code, write_card
from wordorder.tasks import TASKS
from wordorder.training.recipe.files import to_toml
from wordorder.training.runs.folder import DATA, ENVIRONMENT, METRICS, PRETRAINED, RECIPE


def write_run_card(
    model_dir: Path,
    run_folder: Path,
    metrics: Mapping[str, Any] | None = None,
    *,
    title: str | None = None,
    comparison: str | None = None,
) -> None:
    """Write the card of a run's model.

    Args:
        model_dir: where the model lies.
        run_folder: where its recipe lies.
        metrics: its scores; None: those of metrics.json.
        title: None: the name of the folder and the encoding.
        comparison: Markdown on the comparison that the run is of.
    """
    recipe = read_toml(run_folder / RECIPE)
    values = _json(run_folder / METRICS) if metrics is None else metrics
    source, task = str(recipe["data"].get("source", "")), TASKS.get(str(recipe.get("task", {}).get("name", "")))
    summary = (
        f"A model that {task.summary if task else 'reads texts'}, trained by `wordorder train` on"
        f" {code(without_folders(source))}."
    )
    if values.get("optimistic"):
        split = "test" if "test" in values else "validation"
        summary += f" The {split} split also chose the checkpoint, so its scores are **optimistic**."
    written = f"With every default; of paths on one machine, the last part.\n\n```toml\n{to_toml(_shown(recipe))}\n```"
    write_card(
        model_dir,
        title=title or f"{run_folder.name}: {recipe['model'].get('encoding', recipe['model'].get('network'))}",
        summary=summary,
        data=without_folders(source),
        scores={split: _of_interest(values[split], recipe) for split in ("validation", "test") if split in values},
        sections=[
            *([("Its comparison", comparison)] if comparison else []),
            ("How it was trained", _training(run_folder, values)),
            ("Recipe", written),
        ],
    )


def _of_interest(scores: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    letters = recipe.get("tokenizer", {}).get("kind") == "character"
    return {name: value for name, value in scores.items() if not (letters and name == "word_perplexity")}


def without_folders(value: str) -> str:
    """Return the last part of a path that names a place on one machine; return any other text unchanged."""
    if PureWindowsPath(value).is_absolute():
        return PureWindowsPath(value).name
    return PurePosixPath(value).name if value.startswith(("/", "~")) else value


def _training(run_folder: Path, metrics: Mapping[str, Any]) -> str:
    environment = _json(run_folder / ENVIRONMENT)
    packages = {"python": environment.get("python"), "wordorder": __version__, **environment.get("packages", {})}
    rows = [
        f"- {metrics.get('steps', 0):,} steps, seed {metrics.get('seed')}; the weights are those of step"
        f" {metrics.get('best_step')}",
        f"- {metrics.get('tokens', 0):,} tokens, {metrics.get('train_seconds', 0):,.0f} seconds on"
        f" {code(environment.get('device'))}",
        f"- {metrics.get('parameters', 0):,} parameters",
        f"- {', '.join(f'{name} {version}' for name, version in packages.items())}",
    ]
    if train := _json(run_folder / DATA).get("train"):
        rows.append(f"- training texts: {code(json.dumps(train))}")
    if start := _json(run_folder / PRETRAINED):
        rows.append(f"- began from the weights of {code(without_folders(str(start['folder'])))}")
    return "\n".join(rows)


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shown(inner) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_shown(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return without_folders(value) if isinstance(value, str) else value


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
