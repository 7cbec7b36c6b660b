"""Read the arguments of a training run of TUPE's reference code, and check them against the weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wordorder.conversion.reference_names import Form
from wordorder.conversion.torch_files.foreign import printable
from wordorder.errors import BadInput

_SIZES = {
    "encoder_layers": "layers",
    "encoder_embed_dim": "channels",
    "encoder_ffn_embed_dim": "inner channels of the feed-forward networks",
    "encoder_attention_heads": "heads",
    "max_positions": "positions",
}
_SWITCHES = {
    "rel_pos": "relative_attention_bias",
    "embedding_normalize": "emb_layer_norm",
    "encoder_normalize_before": "emb_out_layer_norm",
}
_RATES = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.0, "pooler_dropout": 0.1}
_FUNCTIONS = {"activation_fn": ("gelu", ("gelu", "relu")), "pooler_activation_fn": ("tanh", ("tanh",))}


@dataclass(frozen=True, kw_only=True)
class ReferenceArgs:
    """Settings that the arguments add to the weights; the reference code's own defaults stand for what they leave out.

    Args:
        activation: of the feed-forward networks and the language modelling head, "gelu" or "relu".
        activation_dropout: inside the feed-forward networks.
        pooler_dropout: before the output of a classification head.
    """

    heads: int
    activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float
    pooler_dropout: float


def read_args(given: Mapping[Any, Any], form: Form, sizes: Mapping[str, int]) -> ReferenceArgs:
    """Read the arguments that matter, and compare them with the weights.

    Args:
        sizes: what the weights say, by the letters of `reference_names`.

    Raises:
        BadInput: one line per value of the wrong type, per disagreement, and if nothing says how many heads there are.
    """
    args = {name: value for name, value in given.items() if value is not None}
    faults: list[str] = []
    shown = {
        "encoder_layers": form.layers,
        "encoder_embed_dim": sizes.get("C"),
        "encoder_ffn_embed_dim": sizes.get("F"),
        "encoder_attention_heads": sizes.get("H"),
        "max_positions": sizes["P"] - 1 if "P" in sizes else None,
    }
    for name, meaning in _SIZES.items():
        value = args.get(name, shown[name])
        if type(value) is not int or value <= 0:
            if name in args:
                faults.append(f"args.{name} must be a positive integer, got {printable(value)}")
        elif shown[name] is not None and value != shown[name]:
            faults.append(f"args.{name} is {printable(value)}, but the weights have {shown[name]} {meaning}")
    has = {"rel_pos": form.relative, "embedding_normalize": form.embedding_norm}
    has["encoder_normalize_before"] = form.final_norm
    for name, part in _SWITCHES.items():
        value = args.get(name, has[name])
        if type(value) is not bool:
            faults.append(f"args.{name} must be true or false, got {printable(value)}")
        elif value != has[name]:
            there = "has no" if value else "has"
            faults.append(f"args.{name} is {value}, but the checkpoint {there} {part}")
    faults += _classes_fault(args, form, sizes)
    heads = args.get("encoder_attention_heads", shown["encoder_attention_heads"])
    if heads is None:
        faults.append(
            "args.encoder_attention_heads is missing, and the weights of TUPE-A do not show the number of heads;"
            ' give it with --config, a JSON file such as {"encoder_attention_heads": 12}'
        )
    elif type(heads) is int and heads > 0 and sizes.get("C", 0) % heads:
        faults.append(
            f"args.encoder_attention_heads is {printable(heads)}, which does not divide {sizes['C']} channels"
        )
    rates = {name: _rate(args, name, default, faults) for name, default in _RATES.items()}
    if form.head is None or not form.head_dense:
        args.pop("pooler_activation_fn", None)  # then nothing uses it
    functions = {name: _function(args, name, faults) for name in _FUNCTIONS}
    if faults or heads is None:
        raise BadInput(faults)
    return ReferenceArgs(heads=heads, activation=functions["activation_fn"], **rates)


def _classes_fault(args: Mapping[object, object], form: Form, sizes: Mapping[str, int]) -> list[str]:
    """Check the number of classes of a fine-tuning run; -1 and 0 mean that there was none."""
    classes = args.get("num_classes")
    if form.head is None or type(classes) is not int or classes <= 0 or classes == sizes.get("K", classes):
        return []
    return [f"args.num_classes is {printable(classes)}, but head {printable(form.head)} has {sizes['K']} classes"]


def _rate(args: Mapping[object, object], name: str, default: float, faults: list[str]) -> float:
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        faults.append(f"args.{name} must be a number in [0, 1), got {printable(value)}")
        return default
    return float(value)


def _function(args: Mapping[object, object], name: str, faults: list[str]) -> str:
    default, known = _FUNCTIONS[name]
    value = args.get(name, default)
    if value not in known:
        faults.append(f"args.{name} must be one of {', '.join(known)} to be converted exactly, got {printable(value)}")
        return default
    return str(value)
