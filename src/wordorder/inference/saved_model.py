"""Load a saved model with its tokenizer, and tell what it was trained for and with which settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from annotated_types import Ge, Gt, Le

from wordorder.errors import BadInput
from wordorder.limits import MOST_COUNT, one_line, read_toml
from wordorder.section import value_fault
from wordorder.tasks import TASKS, Task
from wordorder.training.recipe.training_section import BEAMS, GENERATION, TrainingSettings

if TYPE_CHECKING:
    import torch

_OURS = "wordorder-"  # prefix of the model types of this package


def task_of(model_dir: str | Path) -> Task:
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
    from wordorder.tasks import DataConfig

    section = _section(model_dir, "data")
    _check(model_dir, "data", section, length=_LENGTH, label_scale=_SCALE)
    values = {name: value for name, value in section.items() if name in DataConfig.model_fields}
    pieces, length = _section(model_dir, "training").get("segments_per_step"), values.get("length")
    if isinstance(pieces, int) and isinstance(length, int) and pieces > 0:
        values["length"] = length // pieces  # the segments that the model read
    return {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in values.items()}


def search_settings(model_dir: str | Path) -> tuple[int, int | None]:
    """Return the beams of the run's search, and the maximum length of a translation or None."""
    training = _section(model_dir, "training")
    beams, longest = training.get("generation_num_beams", BEAMS), training.get("generation_max_length")
    hints = {name: TrainingSettings.model_fields[name].rebuild_annotation() for name in GENERATION}
    _check(model_dir, "training", training, **hints)
    return beams, longest


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


_LENGTH, _SCALE = Annotated[int, Ge(1), Le(MOST_COUNT)], Annotated[float, Gt(0)]


def _check(model_dir: str | Path, section: str, table: Mapping[str, Any], **hints: Any) -> None:
    found = (value_fault(f"{section}.{name}", hint, table[name]) for name, hint in hints.items() if name in table)
    if faults := [f"{_recipe_beside(model_dir)}: {fault}" for fault in found if fault]:
        raise BadInput(faults)


def _recipe_beside(model_dir: str | Path) -> Path:
    return Path(model_dir).resolve().parent / "recipe.toml"
