"""Load a saved model with its tokenizer, and tell what it was trained for."""

from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.tasks import TASKS, Task

_OURS = "wordorder-"  # prefix of the model types of this package, grafted ones too


def task_of(model_dir: str | Path) -> Task:
    """Return the task that a saved model was trained for."""
    config = _config(model_dir)
    for task in TASKS.values():
        if task.fits(config):
            return task
    raise BadInput(f"{model_dir}: {config['architectures'][0]} neither fills masks nor classifies nor writes texts")


def _config(model_dir: str | Path) -> dict[str, Any]:
    """Read config.json of a saved model, and check that it names a model class of this package."""
    from wordorder.models.hub.saved_folder import read_config

    try:
        config = read_config(Path(model_dir))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{model_dir}: holds no model (no config.json); name the folder model/ of a run") from None
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise BadInput(f"{Path(model_dir) / 'config.json'}: does not say which model it is: architectures has no name")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind.startswith(_OURS):
        raise BadInput(
            f"{model_dir}: holds a model of type {kind!r}, not one of this package ({_OURS}...); "
            "transformers' own pipeline reads it, and wordorder.models.graft gives BERT and RoBERTa an encoding"
        )
    return config


def remembers(model_dir: str | Path) -> bool:
    """Tell whether a saved model has a memory of earlier segments."""
    return _config(model_dir).get("memory", "none") != "none"


def load_model(model_dir: str | Path, *, memory_length: int | None = None, segment_length: int | None = None) -> Any:
    """Load a saved model with the head of its task, from safetensors only: nothing is unpickled."""
    import transformers

    from wordorder.models import NETWORK_TASKS
    from wordorder.models.hub.model_card import task_of_architecture
    from wordorder.models.hub.saved_folder import load_config, load_model_of

    folder, task = Path(model_dir), task_of(model_dir)
    config = load_config(transformers.AutoConfig, folder)
    network = config.model_type.removeprefix(_OURS)
    kind: Any = task.model_class(network) if network in NETWORK_TASKS else None
    if kind is None:  # a grafted BERT is no network of recipes
        kind = getattr(transformers, task_of_architecture(_config(model_dir))[1])
    if memory_length is not None:
        config.memory_length = memory_length
        config.segment_length = segment_length or config.segment_length
        if config.faults():
            raise BadInput([f"{model_dir}: {fault}" for fault in config.faults()])
    return load_model_of(kind, folder, config=config)


def load_tokenizer_of(model_dir: str | Path) -> Any:
    """Load the tokenizer beside a saved model."""
    from wordorder.data import TokenizerConfig, load_tokenizer

    return load_tokenizer(TokenizerConfig(kind="existing", path=str(model_dir)), [], cache_dir=Path())
