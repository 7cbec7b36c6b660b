"""Load a saved model with its tokenizer, and tell what it was trained for and with which settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from annotated_types import Ge, Le

from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT, one_line, read_toml
from wordorder.section import value_fault
from wordorder.tasks import TASKS, Task, TaskOptions, task_options

if TYPE_CHECKING:
    import torch

_OURS = "wordorder-"  # prefix of the model types of this package


def task_of(model_dir: str | Path) -> Task[Any]:
    config = _config(model_dir)
    for task in TASKS.values():
        if task.fits(config):
            return task
    raise BadInput(f"{model_dir}: {config['architectures'][0]} neither fills masks nor classifies nor writes texts")


def _config(model_dir: str | Path) -> dict[str, Any]:
    from wordorder.models.saved_folder import read_model
    from wordorder.models.swap.families import FAMILIES

    config, named = read_model(Path(model_dir))
    if not named:
        raise BadInput(f"{Path(model_dir) / 'config.json'}: does not say which model it is: architectures has no name")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not (kind.startswith(_OURS) or kind in FAMILIES):
        raise BadInput(
            f"{model_dir}: holds a model of type {kind!r}, not one of this package ({_OURS}...) or of "
            f"{', '.join(FAMILIES)}; transformers' own pipeline reads it"
        )
    return config


def remembers(model_dir: str | Path) -> bool:
    return _config(model_dir).get("memory", "none") != "none"


def load_model(model_dir: str | Path, *, memory_length: int | None = None, segment_length: int | None = None) -> Any:
    """Load a saved model with the head of its task, from safetensors only: nothing is unpickled.

    Args:
        memory_length: slots of its memory, which no weight depends on; None = as it was saved.
        segment_length: tokens of the segments that will be read beside another memory_length; None = as it was saved.
    """
    import transformers

    from wordorder.models import NETWORK_TASKS
    from wordorder.models.model_card import task_of_architecture
    from wordorder.models.saved_folder import load_config, load_model_of

    folder, task = Path(model_dir), task_of(model_dir)
    config = load_config(transformers.AutoConfig, folder)
    network = config.model_type.removeprefix(_OURS)
    kind: Any = task.model_class(network) if network in NETWORK_TASKS else None
    if kind is None:  # another model is no network of recipes
        kind = getattr(transformers, task_of_architecture(_config(model_dir))[1])
    if memory_length is not None:
        config.memory_length = memory_length
        config.segment_length = segment_length or config.segment_length
        if config.faults():
            raise BadInput([f"{model_dir}: {fault}" for fault in config.faults()])
    return load_model_of(kind, folder, config=config)


def load_tokenizer_of(model_dir: str | Path) -> Any:
    from wordorder.data import TokenizerConfig, load_tokenizer

    return load_tokenizer(TokenizerConfig(kind="existing", path=str(model_dir)), [], cache_dir=Path())


def best_device() -> "torch.device":
    import torch

    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def data_settings(model_dir: str | Path) -> dict[str, Any]:
    """Return the values of [data] that the model was trained with; {} if no recipe lies beside its folder."""
    from wordorder.data import DataSettings

    section = _section(model_dir, "data")
    for name, hint, usual in (("length", _LENGTH, 1), ("source", str, "")):
        if fault := value_fault(f"data.{name}", hint, section.get(name, usual)):
            raise BadInput(f"{_recipe_beside(model_dir)}: {fault}")
    values = {name: value for name, value in section.items() if name in DataSettings.model_fields}
    pieces, length = _section(model_dir, "training").get("segments_per_step"), values.get("length")
    if isinstance(pieces, int) and isinstance(length, int) and pieces > 0:
        values["length"] = length // pieces  # the segments that the model read
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}


def saved_options(model_dir: str | Path, changes: Mapping[str, Any] | None = None) -> TaskOptions:
    """Return the section [task] that the model was trained with; the task's defaults if no recipe lies beside it.

    Args:
        changes: options that are to be others.
    """
    name, recipe = task_of(model_dir).name, _recipe_beside(model_dir)
    asked = (changes or {}).get("name", name)
    if asked != name:
        raise BadInput(f"task.name: {model_dir} holds a model for {name}, not for {asked}")
    section = _section(model_dir, "task")
    if recipe.exists() and section.get("name") != name:
        raise BadInput(
            f"{recipe}: [task] must have the name of what the model does, {name}, got {section.get('name')!r}; where "
            "the file is of an earlier version, write [task] with that name, and its keys, which stood in [data]"
        )
    section["name"] = name
    try:
        options = task_options(section)
    except BadInput as error:
        raise BadInput([f"{recipe}: {fault}" for fault in error.faults]) from None
    return task_options({**section, **changes}) if changes else options


def reads_pairs(model_dir: str | Path) -> bool | None:
    """Tell whether the model was trained on pairs of texts; None if no recipe lies beside its folder."""
    if not _recipe_beside(model_dir).exists():
        return None
    return getattr(saved_options(model_dir), "pair_column", None) is not None


def _section(model_dir: str | Path, name: str) -> dict[str, Any]:
    recipe = _recipe_beside(model_dir)
    if not recipe.exists():
        return {}
    try:
        table = read_toml(recipe).get(name, {})
    except (OSError, ValueError) as error:
        raise BadInput(f"{recipe}: the recipe of the model's run cannot be read: {one_line(error)}") from None
    if not isinstance(table, dict):
        raise BadInput(f"{recipe}: {name} must be a section, [{name}], got {table!r}")
    return cast("dict[str, Any]", table)


_LENGTH = Annotated[int, Ge(1), Le(MOST_COUNT)]


def _recipe_beside(model_dir: str | Path) -> Path:
    return Path(model_dir).resolve().parent / "recipe.toml"
