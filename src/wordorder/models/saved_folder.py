"""A model folder, which may be a stranger's: what is looked at before transformers reads it, and how it is then read.

What transformers would do with a folder if it were let: ask whether to run the folder's own code (``auto_map``), follow
an index of shards to files elsewhere, load adapters from a pickle and their base model from anywhere, fetch a backend
of attention or a way of generating from the Hub and run it, take another configuration or other weights than those that
were looked at, and make room for whatever sizes config.json claims. None of this happens here.
"""

from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput, WordOrderError
from wordorder.limits import StoredShape, is_plain_name, one_line, read_json, safetensors_header

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
GENERATION = "generation_config.json"
MOST_CONFIG = 16 * 2**20
"""Bytes of config.json. A million names of classes have as many."""

_ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_ELSEWHERE = {
    "quantization_config": "quantised models are not read",
    "configuration_files": "another configuration than config.json is not read",
    "transformers_weights": f"other weights than {WEIGHTS} and its shards are not read",
}
"""What config.json may name, by which transformers would read something else -> why it is refused."""
_OF_THE_HUB = ("constraints", "force_words_ids", "penalty_alpha", "dola_layers", "num_beam_groups")
"""Ways of generating of which transformers keeps the code on the Hub."""
_ROOM = 65_536
"""Numbers that a model may have beside twice those of its file: less than that does no harm, and weights that are
missing are named when they are read."""


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights, in order: one, or the shards that an index names.

    Where there are both it is the one, as transformers has it; but an index that leads elsewhere is refused all the
    same.

    Args:
        folder: where `save_pretrained` wrote.

    Raises:
        BadInput: a file is missing, or the index cannot be read, or it names a file outside of the folder.
    """
    index = folder / INDEX
    try:
        shards: Any = read_json(index)["weight_map"] if index.exists() else {}
        names = cast("list[object]", [*shards.values()])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(no_weights(folder, f"{INDEX} is no index: {one_line(error)}")) from None
    elsewhere = [name for name in names if not is_plain_name(name) or not str(name).endswith(".safetensors")]
    if elsewhere:
        raise BadInput(no_weights(folder, f"{INDEX} names {elsewhere[0]!r}, which is no file of this folder"))
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    files = [folder / str(name) for name in sorted(set(names), key=str) or [WEIGHTS]]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise BadInput(no_weights(folder, f"there is no {', '.join(missing)}"))
    return files


def no_weights(folder: Path, reason: object) -> str:
    """One line on weights that cannot be read.

    Args:
        folder: of the model.
        reason: an error, or its message.
    """
    return f"{folder}: no weights can be read from safetensors, the only format taken: {one_line(reason)}"


def stored_shapes(folder: Path) -> dict[str, StoredShape]:
    """What a model folder's weights are, by name, from the headers alone.

    Args:
        folder: of the model.

    Raises:
        BadInput: as `weight_files`; or a header is too long, is no header, or claims what its file does not hold.
    """
    found: dict[str, StoredShape] = {}
    for path in weight_files(folder):
        try:
            found |= safetensors_header(path)
        except (OSError, ValueError) as error:
            raise BadInput(no_weights(folder, error)) from None
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """What config.json says, as it stands there.

    Args:
        folder: of the model.

    Raises:
        FileNotFoundError: there is none.
        NotADirectoryError: the folder is none.
        BadInput: it cannot be read, or holds no JSON object.
    """
    path = folder / CONFIG
    try:
        settings: Any = read_json(path, MOST_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {one_line(error)}") from None
    if not isinstance(settings, dict):
        raise BadInput(f"{path} does not hold a configuration")
    return cast("dict[str, Any]", settings)


def load_config(kind: Any, folder: Path) -> Any:
    """The configuration of a folder; its own code, if it has any, is neither run nor asked about.

    Args:
        kind: a class of configurations, or AutoConfig.
        folder: of the model.

    Raises:
        BadInput: a field is unknown, or has a value that it cannot have.
    """
    settings = read_config(folder)
    faults = [f"{folder / CONFIG}: {n}: {why}" for n, why in _ELSEWHERE.items() if settings.get(n) is not None]
    if faults:
        raise BadInput(faults)
    from transformers import AutoConfig

    asked = {"trust_remote_code": False} if kind is AutoConfig else {}  # one class by itself looks for no code
    reader: Any = kind
    try:
        return reader.from_pretrained(str(folder), local_files_only=True, **asked)
    except BadInput as error:
        raise BadInput([f"{folder / CONFIG}: {fault}" for fault in error.faults]) from None
    except WordOrderError:
        raise
    except Exception as error:  # what transformers and huggingface_hub raise of a damaged file is of any type
        raise BadInput(f"{folder / CONFIG}: {one_line(error)}") from error


def load_model_of(kind: Any, folder: Path, *, config: Any = None, **options: Any) -> Any:
    """A model, from safetensors only, of no more than its files hold.

    Args:
        kind: a class of models, or one of transformers' Auto classes for them.
        folder: of the model.
        config: in place of the folder's own.
        **options: passed on to from_pretrained.

    Raises:
        BadInput: as `check_model_of`; or a weight is damaged or has another shape.
    """
    config = check_model_of(kind, folder, config=config)
    try:
        return kind.from_pretrained(
            str(folder), config=config, local_files_only=True, use_safetensors=True, trust_remote_code=False, **options
        )
    except WordOrderError:
        raise
    except Exception as error:  # what transformers raises of a damaged file is of any type
        raise BadInput(
            no_weights(folder, str(error).strip().splitlines()[0] if str(error).strip() else error)
        ) from error


def check_model_of(kind: Any, folder: Path, *, config: Any = None) -> Any:
    """The configuration of a model whose folder may be read; all is looked at but the weights' own numbers.

    Args:
        kind: a class of models, or one of transformers' Auto classes for them.
        folder: of the model.
        config: in place of the folder's own.

    Raises:
        BadInput: the folder holds adapters; weights are missing, damaged, pickled, or fewer than config.json claims;
            config.json is not one of this package's; or generation_config.json cannot be read or asks for code.
    """
    adapters = [name for name in _ADAPTERS if (folder / name).exists()]
    if adapters:
        raise BadInput(
            f"{folder}: holds adapters ({adapters[0]}); merge them into the model (merge_and_unload) and save it, or"
            " load them with peft"
        )
    shapes = stored_shapes(folder)
    if config is None:
        from transformers import AutoConfig

        config = load_config(getattr(kind, "config_class", None) or AutoConfig, folder)
    check_claims(kind, config, shapes, folder)
    _check_generation(folder)
    return config


def _check_generation(folder: Path) -> None:
    """Refuse settings of generation that cannot be read, or that only code of the Hub could carry out."""
    from transformers import GenerationConfig

    path = folder / GENERATION
    if not path.is_file():
        return
    try:
        settings: Any = read_json(path, MOST_CONFIG)
        asked = [name for name in _OF_THE_HUB if settings.get(name) not in (None, 0, 1)]
        cast("Any", GenerationConfig).from_dict(settings)
    except Exception as error:  # what transformers raises of wrong settings is of any type
        raise BadInput(f"{path} cannot be read: {one_line(error)}") from error
    if asked:
        raise BadInput(f"{path}: {asked[0]}: such generation is code of the Hub, which is not run")


def check_claims(kind: Any, config: Any, shapes: dict[str, StoredShape], folder: Path) -> None:
    """Refuse a configuration whose model has more numbers than the files of its weights, before room is made for it.

    Args:
        kind: a class of models, or one of transformers' Auto classes for them.
        config: of the model.
        shapes: of the stored weights.
        folder: for the message.

    Raises:
        BadInput: it has.
    """
    import torch

    layers = max(int(getattr(config, name, None) or 0) for name in ("num_hidden_layers", "decoder_layers"))
    held, count = sum(shape.count for shape in shapes.values()), 0
    if layers <= max(len(shapes), 1):  # a layer has a tensor at the least, so the model is soon built
        build = getattr(kind, "from_config", None) or kind
        try:
            with torch.device("meta"):
                count = sum(parameter.numel() for parameter in build(config).parameters())
        except WordOrderError:
            raise
        except Exception as error:  # sizes whose product no index reaches, and the like
            raise BadInput(f"{folder / CONFIG}: {one_line(error)}") from error
    if layers > max(len(shapes), 1) or count > 2 * held + _ROOM:
        claimed = f"{layers:,} layers" if not count else f"{count:,} numbers"
        raise BadInput(
            f"{folder}: config.json describes a model of {claimed}, but the weights are {len(shapes):,} tensors with"
            f" {held:,} numbers; they do not belong together"
        )
