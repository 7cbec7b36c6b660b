"""Read a model folder: check it before transformers reads it, then load the model.

Without these checks transformers would ask whether to run the folder's own code (``auto_map``), follow an index of
shards to files elsewhere, load adapters from a pickle, run code that it fetches from the Hub, and take another
configuration or other weights than those that were looked at.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from transformers import AutoConfig, GenerationConfig

from wordorder.errors import BadInput, WordOrderError
from wordorder.files import is_plain_name, one_line, read_json
from wordorder.models.faults import stranger_faults
from wordorder.networks import initialise

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
GENERATION = "generation_config.json"

_ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_ELSEWHERE = {
    "quantization_config": "quantised models are not read",
    "configuration_files": "another configuration than config.json is not read",
    "transformers_weights": f"other weights than {WEIGHTS} and its shards are not read",
}
"""Entries of config.json by which transformers would read something else, and why each is refused."""
_OF_THE_HUB = ("constraints", "force_words_ids", "penalty_alpha", "dola_layers", "num_beam_groups")
"""Settings for ways of generating of which transformers keeps the code on the Hub."""


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold a model's weights, in order: the one that transformers takes, or an index's shards.

    An index that leads elsewhere is refused even where it is not read.
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
    """Return a line on weights that cannot be read."""
    return f"{folder}: no weights can be read from safetensors, the only format taken: {one_line(reason)}"


def read_config(folder: Path) -> dict[str, object]:
    """Return the content of config.json, unchanged; callers say what it means that there is none (OSError)."""
    path = folder / CONFIG
    try:
        settings: Any = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {one_line(error)}") from None
    if not isinstance(settings, dict):
        raise BadInput(f"{path} does not hold a configuration")
    return cast("dict[str, Any]", settings)


def read_model(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the content of a saved model's config.json, and the class that it names, "" where it names none."""
    try:
        settings = fields_of(read_config(folder))
    except (FileNotFoundError, NotADirectoryError):
        state = "holds no model (no config.json)" if folder.exists() else "there is no such folder"
        raise BadInput(f"{folder}: {state}; name the folder model/ of a run") from None
    listed = settings.get("architectures")
    name = cast("list[object]", listed)[0] if isinstance(listed, list) and listed else None
    return settings, name if isinstance(name, str) else ""


def fields_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a model in the content of config.json, one level deeper where its encoding was swapped."""
    host, swapped = settings.get("host"), settings.get("wordorder")
    if not isinstance(host, dict) or not isinstance(swapped, dict):
        return dict(settings)
    fields, encoding = cast("dict[str, Any]", host), cast("dict[str, Any]", swapped)
    return {**settings, **fields, "encoding": encoding.get("encoding"), "encoding_options": encoding.get("options")}


def elsewhere_faults(folder: Path, settings: Mapping[str, object]) -> list[str]:
    """Return a line for each file that config.json names in place of those that are read."""
    return [f"{folder / CONFIG}: {n}: {why}" for n, why in _ELSEWHERE.items() if settings.get(n) is not None]


def adapter_faults(folder: Path) -> list[str]:
    """Return a line where adapters lie beside a model: without them it would not be what was trained."""
    adapters = [name for name in _ADAPTERS if (folder / name).exists()]
    merge = "merge them into the model (merge_and_unload) and save it, or load them with peft"
    return [f"{folder}: holds adapters ({adapters[0]}); {merge}"] if adapters else []


def load_config(kind: Any, folder: Path) -> Any:
    """Load the configuration of a folder; its own code, if it has any, is neither run nor asked about."""
    settings = fields_of(read_config(folder))
    names = settings.get("id2label")
    faults = stranger_faults(settings, cast("Any", names)) if isinstance(names, dict | None) else []
    faults = [*elsewhere_faults(folder, settings), *(f"{folder / CONFIG}: {fault}" for fault in faults)]
    if faults:
        raise BadInput(faults)
    code = {"trust_remote_code": False} if kind is AutoConfig else {}  # one class by itself looks for no code
    try:
        config = cast("Any", kind).from_pretrained(str(folder), local_files_only=True, **code)
        config.return_dict = True  # what reads the outputs here reads them by name
        return config
    except BadInput as error:
        raise BadInput([f"{folder / CONFIG}: {fault}" for fault in error.faults]) from None
    except WordOrderError:
        raise
    except Exception as error:  # what transformers and huggingface_hub raise of a damaged file is of any type
        raise BadInput(f"{folder / CONFIG}: {one_line(error)}") from error


def load_model_of(kind: Any, folder: Path, *, config: Any = None) -> Any:
    """Load a model of a class, or by an Auto class, from safetensors only, and all of it.

    Raises:
        BadInput: as `check_model_of`; or weights are damaged or missing, have another shape or type, or are not finite.
    """
    model, missing, mismatched, _ = _loaded(kind, folder, check_model_of(kind, folder, config=config))
    _check_weights(model, folder, missing=missing, mismatched=mismatched)
    return model


def load_with_new_head(kind: Any, folder: Path, *, config: Any, seed: int) -> tuple[Any, list[str], list[str]]:
    """Load a model of transformers for another task; what the folder lacks outside of the body is drawn.

    A classifier's output layer is drawn even if it is there: its classes were others. Weights have the type that
    `config` names. Faults are those of `load_model_of`, but for weights of the head.

    Returns:
        The model, the names of weights that are new, and of those in the folder that are unused.
    """
    check_model_of(kind, folder, config=config)
    # transformers' own default is the type of the weights in the file
    model, missing, mismatched, unused = _loaded(kind, folder, config, dtype=config.dtype)
    parameters = dict(model.named_parameters())
    body = {name for name in parameters if name.startswith(f"{model.base_model_prefix}.")}
    needed = {name for name in body if ".pooler." not in name}  # a part of BERT that language models leave out
    absent = {*missing, *mismatched} - needed
    _, named = read_model(folder)
    if named == type(model).__name__ and named.endswith("ForSequenceClassification"):
        absent |= parameters.keys() - body
    _check_weights(
        model, folder, missing=[n for n in missing if n in needed], mismatched=[n for n in mismatched if n in needed]
    )
    new = [name for name in parameters if name in absent]
    stay = [parameter for name, parameter in parameters.items() if name not in absent]
    initialise(model, seed=seed, std=getattr(config, "initializer_range", 0.02), leave=stay)
    return model, new, sorted({*unused, *(absent - {*missing})})


def _loaded(kind: Any, folder: Path, config: Any, **how: Any) -> tuple[Any, list[str], list[str], list[str]]:
    """Return what transformers loads: the model, and the names of missing, mismatched and unused weights."""
    try:
        model, report = kind.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that the caller can name all of them
            **how,
        )
    except WordOrderError:
        raise
    except Exception as error:  # what transformers raises of a damaged file is of any type
        raise BadInput(no_weights(folder, (str(error).strip().splitlines() or [error])[0])) from error
    mismatched = [name if isinstance(name, str) else name[0] for name in report["mismatched_keys"]]
    return model, list(report["missing_keys"]), mismatched, list(report["unexpected_keys"])


def _check_weights(model: Any, folder: Path, *, missing: list[str], mismatched: list[str]) -> None:
    weights, prefix = model.state_dict(), f"{model.base_model_prefix}."  # which names in the file may have or lack
    floating = {
        n.removeprefix(prefix) for n, weight in weights.items() if weight.is_floating_point() or weight.is_complex()
    }
    faults = {  # transformers would draw these at random, and chance would answer
        "weights are missing from the file": missing,
        "weights have other sizes than config.json says": mismatched,
        "weights are not of a floating-point type": [
            n for n in whole_numbers(folder) if n.removeprefix(prefix) in floating
        ],
        "weights are not finite": not_finite(dict(model.named_parameters())),
    }
    if any(faults.values()):
        listed = {fault: one_line(", ".join(sorted(names))) for fault, names in faults.items() if names}
        raise BadInput(f"{folder}: {fault}: {names}" for fault, names in listed.items())


def whole_numbers(folder: Path) -> list[str]:
    """Return the names of tensors that a model's files hold as whole numbers, as quantised weights are."""
    import safetensors

    names: list[str] = []
    for path in weight_files(folder):
        with cast("Any", safetensors).safe_open(path, "pt") as file:
            types = {name: str(file.get_slice(name).get_dtype()) for name in file.keys()}
        names += [name for name, kind in types.items() if not kind.startswith(("F", "BF", "C"))]
    return names


def not_finite(weights: Mapping[str, Any]) -> list[str]:
    """Return the names of weights that are NaN or infinite somewhere."""
    return [name for name, weight in weights.items() if not bool(weight.isfinite().all())]


def check_tokenizer(tokenizer: Any, config: Any, folder: Path) -> None:
    """Refuse a tokenizer that is not the model's, whose ids would mean other words than the model learned."""
    highest, faults = max(tokenizer.get_vocab().values(), default=-1), list[str]()
    if highest >= config.vocab_size:
        faults.append(f"{folder}: the tokenizer has ids up to {highest}, the model has {config.vocab_size} tokens")
    # padding is masked, so that another special token may be taken for it: tokenizer.pad_token = tokenizer.eos_token
    shared = {getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "cls", "sep", "unk", "mask")}
    # models that write text use the tokens that begin and end it; elsewhere these may be defaults of the class
    writes = str((config.architectures or [""])[0]).endswith(("ForCausalLM", "ForConditionalGeneration"))
    for name, roles in {**_ROLES, **(_ROLES_OF_WRITERS if writes else {})}.items():
        expected = getattr(config, f"{name}_token_id", None)
        ids = [getattr(tokenizer, f"{role}_token_id", None) for role in roles]
        numbers = sorted({int(number) for number in ids if number is not None} - (shared if name == "pad" else set()))
        if isinstance(expected, int) and numbers and expected not in numbers:
            shown = " or ".join(map(str, numbers))
            faults.append(f"{folder}: the tokenizer's {name} token has the id {shown}, config.json says {expected}")
    if faults:
        raise BadInput([f"{fault}; put the tokenizer there that the model was trained with" for fault in faults])


_ROLES = {"pad": ("pad",), "mask": ("mask",), "cls": ("cls", "bos"), "sep": ("sep", "eos")}
"""Names that a tokenizer may have for a special token of config.json."""
_ROLES_OF_WRITERS = {"bos": ("bos", "cls", "sep", "eos"), "eos": ("eos", "sep")}
"""The same for models that write: running text begins with what ends the text before."""


def check_model_of(kind: object, folder: Path, *, config: object = None) -> Any:
    """Check all of a model's folder but what its weights hold, and return its configuration.

    Raises:
        BadInput: the folder holds adapters; weights are missing or pickled; config.json is not one of this
            package's; or generation_config.json cannot be read or asks for code.
    """
    if adapters := adapter_faults(folder):
        raise BadInput(adapters)
    weight_files(folder)
    if config is None:
        config = load_config(getattr(kind, "config_class", None) or AutoConfig, folder)
    _check_generation(folder)
    return config


def _check_generation(folder: Path) -> None:
    """Refuse settings of generation that cannot be read, or that only code of the Hub could carry out."""
    path = folder / GENERATION
    if not path.is_file():
        return
    try:
        settings = read_json(path)
        of_the_hub = [name for name in _OF_THE_HUB if settings.get(name) not in (None, 0, 1)]
        cast("Any", GenerationConfig).from_dict(settings)
    except Exception as error:  # what transformers raises of wrong settings is of any type
        raise BadInput(f"{path} cannot be read: {one_line(error)}") from error
    if of_the_hub:
        raise BadInput(f"{path}: {of_the_hub[0]}: such generation is code of the Hub, which is not run")
