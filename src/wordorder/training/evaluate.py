"""Score a saved model on any data, exactly."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from wordorder.errors import BadInput
from wordorder.training.predict import architecture_of, load_model
from wordorder.training.sources import find_source

if TYPE_CHECKING:
    from torch import Tensor

    from wordorder.data import DataConfig, PreparedData

SPLITS = ("train", "validation", "test")
_TASKS = {"ForMaskedLM": "masked-lm", "ForSequenceClassification": "classification"}


def evaluate_model_dir(
    model_dir: str | Path,
    data: "DataConfig | str",
    *,
    split: Literal["train", "validation", "test", "all"] = "test",
    batch_size: int = 32,
) -> dict[str, Any]:
    """The exact scores of a saved model: sums over all predictions, divided once.

    Args:
        model_dir: holds the model and its tokenizer, as a run saves them.
        data: what to score on; a string is a source, read with the settings of the run that the model belongs to (its
            recipe.toml lies beside the folder), so that the same source gives the same test split.
        split: which part of the source; "all" scores the whole of it, for data that the model has not been trained on.
        batch_size: examples at a time; changes speed and memory, not the scores.

    Returns:
        loss [nats a prediction], accuracy [0 to 1], perplexity and tokens (predicted ones), or macro_f1 and examples.

    Raises:
        BadInput: there is no such model, its recipe.toml cannot be read, or the data is wrong or has classes that the
            model does not know.
    """
    import torch

    from wordorder.data import TokenizerConfig, prepare
    from wordorder.models import check_length
    from wordorder.training.quiet import quiet_libraries
    from wordorder.training.scores import score

    folder = Path(model_dir)
    data = _complete(folder, data)
    with quiet_libraries():
        model = load_model(folder)
        length = data.length or model.config.max_position_embeddings
        check_length(model.config, length)
        tokenizer = TokenizerConfig(kind="existing", path=str(folder))
        prepared = prepare(replace(data, length=length), tokenizer, seed=data.seed)
        classes = model.config.num_labels if data.task == "classification" else None
        collate = _with_the_models_classes(prepared, model.config.label2id) if classes else prepared.collate
        names = SPLITS if split == "all" else (split,)
        batches = _batches([getattr(prepared, name) for name in names], collate, batch_size)
        device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device = device or torch.device("cpu")
        return score(model.to(device).eval(), batches, device=device, classes=classes).scores()


def _complete(folder: Path, data: "DataConfig | str") -> "DataConfig":
    """Settings for a bare source: those of the model's own run, or else the defaults."""
    from wordorder.data import DataConfig

    architecture = architecture_of(folder)
    task = next((task for ending, task in _TASKS.items() if architecture.endswith(ending)), None)
    if task is None:
        raise BadInput(f"{folder}: {architecture} is none of the models that can be evaluated: {', '.join(_TASKS)}")
    if isinstance(data, str):
        settings: dict[str, Any] = {}
        recipe = folder.resolve().parent / "recipe.toml"
        if recipe.exists():
            known = {field.name for field in fields(DataConfig)}
            settings = {name: value for name, value in _data_section(recipe).items() if name in known}
        settings["source"], settings["task"] = data, task
        data = DataConfig(**settings)
    if data.task != task:
        raise BadInput(f"data.task: {folder} holds a model for {task}, not for {data.task}")
    source, faults = find_source(data.source)
    if faults:
        raise BadInput(faults)
    return replace(data, source=source)


def _data_section(recipe: Path) -> dict[str, Any]:
    try:
        table: Any = tomllib.loads(recipe.read_text(encoding="utf-8")).get("data", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{recipe}: the recipe of the model's run cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise BadInput(f"{recipe}: data must be a section, [data], got {table!r}")
    return cast(dict[str, Any], table)


def _batches(
    datasets: Sequence[Any], collate: Callable[[list[Any]], Mapping[str, "Tensor"]], batch_size: int
) -> Iterator[Mapping[str, "Tensor"]]:
    from torch.utils.data import DataLoader

    for dataset in datasets:
        yield from DataLoader(dataset, batch_size=batch_size, collate_fn=collate)


def _with_the_models_classes(prepared: "PreparedData", ids: Mapping[str, int]) -> Callable[[list[Any]], Any]:
    """The collator, giving the model's class ids: the data may lack a class, or order them otherwise."""
    import torch

    unknown = [name for name in prepared.label_names if name not in ids]
    if unknown:
        raise BadInput(
            f"the data has classes that the model does not know: {', '.join(unknown)}; it knows: {', '.join(ids)}"
        )
    table = torch.tensor([ids[name] for name in prepared.label_names])

    def collate(examples: list[Any]) -> Any:
        batch = prepared.collate(examples)
        return {**batch, "labels": table[batch["labels"]]}

    return collate
