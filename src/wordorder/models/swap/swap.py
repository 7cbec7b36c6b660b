"""Swap the encoding of a model of transformers by name, in place."""

# transformers' modules are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from wordorder.encodings import (
    CATALOG,
    Encoding,
    LayerKind,
    OnEmbeddings,
    ReplacesEmbedding,
    Rotary,
    build_encoding,
    canonical_name,
    names_of,
    options_of,
    pattern_of,
)
from wordorder.errors import BadInput
from wordorder.models.configuration import complete_options
from wordorder.models.swap import folder
from wordorder.models.swap.call import register_attention
from wordorder.models.swap.families import Host, hosts_of
from wordorder.models.swap.install import install, uninstall
from wordorder.models.swap.order import MODEL, WordOrder
from wordorder.networks.initialisation import initialise

Start = Literal["drawn", "zero", "copy"]


def swap_encoding(
    model: PreTrainedModel,
    encoding: str,
    *,
    options: Mapping[str, Any] | None = None,
    max_positions: int | None = None,
    start: Start | None = None,
    seed: int | None = None,
) -> PreTrainedModel:
    """Replace how a model of transformers knows word order, in place; "model" stands for its present positions.

    ``"t5"`` replaces the model's positions, ``"model+t5"`` adds to them, ``"model*3,none"`` takes them from every
    fourth layer, ``"none"`` from all, ``"rope@512*5,none"`` gives five layers a window of 512 tokens. New weights are
    in ``wordorder``, a sub-module of the body, so that optimizers, DDP, PEFT, save and load see them. Positions count
    from each row's first token, on either side of padding.

    The model is saved by ``save_pretrained`` as a folder of its own type, which the Auto classes load after
    ``import wordorder.models``; `save_swapped` writes the encoding alone.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> import wordorder.models
    >>> sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes))
    >>> wordorder.models.swap_encoding(model, "model*3,none").config.wordorder["encoding"]
    'model*3,none'

    Args:
        model: a model of transformers with any head, of one of the families in `FAMILIES`.
        encoding: a name of the catalogue or "model"; several joined by "+" act together, "," lets layers take turns,
            "*" repeats a layer, "@" gives it a window in tokens.
        options: options of the encoding; nested by name for several. Beyond the catalogue's defaults, "rope" and its
            scalings take the model's own base where it has one, "sinusoidal" leaves embeddings as large as they are.
        max_positions: rows of learned tables; None = ``config.max_position_embeddings``, or 512.
        start: "drawn" draws the weights; "zero" makes the new terms 0, so that the model computes what it did until
            training moves it; "copy" takes the model's own table ("t5" of a T5, "learned" of a BERT or GPT-2). None =
            "zero" where "model" stands beside a term, else "drawn".
        seed: of the new weights, each drawn by its name; None = torch's global generator.

    Raises:
        BadInput: the family is not known or its attention cannot be reached; the model is swapped already, is
            quantised, is on several devices, holds adapters or has cross-attention that is not T5's; the encoding is
            unknown, replaces the token table, is not defined for this kind of model, or has no weights that make it 0
            beside "model".
    """
    hosts = hosts_of(model)
    _check_model(model, hosts)
    pattern_of(encoding, reserved=(MODEL,))  # refuses what is no pattern
    encoding = canonical_name(encoding)
    planned = [_build(host, encoding, options, max_positions, start, seed) for host in hosts]
    # From here on nothing is refused: a model is swapped as a whole, or left as it was.
    register_attention()
    settings = {"encoding": encoding, "options": planned[0][1], "max_positions": planned[0][2]}
    folder.give_config(model, settings)
    for order, _, _ in planned:
        install(order, model.config)
    return model


def unswap(model: PreTrainedModel) -> PreTrainedModel:
    """Make a swapped model a plain one of transformers again, in place, with what its encoding has learned.

    Possible where the encoding is of the kind that the model had: "model"; "rope" in a model that rotates whole heads
    with the same base, unscaled; "t5" in a T5 with the same buckets and max_distance; "learned" in a model with a table
    of as many positions.

    Raises:
        BadInput: the model is not swapped, or has an encoding that the plain model cannot compute.
    """
    hosts = hosts_of(model)
    orders = [host.body.wordorder for host in hosts if hasattr(host.body, "wordorder")]
    if not orders:
        raise BadInput(f"model is a {type(model).__name__} whose encoding was not swapped")
    for order in orders:
        _check_own_kind(order)
    for order in orders:
        uninstall(order)
    folder.take_config(model)
    return model


def _check_model(model: PreTrainedModel, hosts: tuple[Host, ...]) -> None:
    name, config = type(model).__name__, cast(Any, model.config)
    if any(hasattr(host.body, "wordorder") for host in hosts):
        raise BadInput(
            f"the encoding of this model was swapped already, for {config.wordorder['encoding']!r}; load the model anew"
        )
    if any(type(module).__module__.startswith("peft.") for module in model.modules()):
        raise BadInput("the model holds adapters; swap its encoding first, then add them")
    devices = sorted({str(p.device) for p in model.parameters()})
    if len(devices) > 1:
        raise BadInput(f"the model's weights are on {', '.join(devices)}; swap its encoding on one device")
    narrow = any(not p.is_floating_point() or p.dtype.itemsize < 2 for p in model.parameters())
    if narrow or getattr(model, "hf_quantizer", None) is not None:
        raise BadInput("the model is quantised; swap its encoding first, then quantise")
    if getattr(config, "add_cross_attention", False):
        raise BadInput(f"{name} has cross-attention beside its self-attention; only that of T5 is computed")
    for host in hosts:
        if not host.layers:
            raise BadInput(f"{name} has no layers")


def _build(
    host: Host,
    encoding: str,
    options: Mapping[str, Any] | None,
    max_positions: int | None,
    start: Start | None,
    seed: int | None,
) -> tuple[WordOrder, dict[str, dict[str, Any]], int]:
    """Build the encoding of a body; return it with its completed options and the rows of its tables."""
    pattern = pattern_of(encoding, reserved=(MODEL,))
    if len(pattern) > len(host.layers):
        raise BadInput(f"encoding {encoding!r} is a pattern of {len(pattern)} layers, the model has {len(host.layers)}")
    kinds = tuple(pattern[layer % len(pattern)] for layer in range(len(host.layers)))
    beside = [
        ("+".join(name for name in kind.names if name != MODEL) or "none") + (f"@{kind.window}" if kind.window else "")
        for kind in pattern
    ]
    new = ",".join(beside[:1] if len(set(beside)) == 1 else beside)
    _check_places(host, encoding, kinds, names_of(new))

    if start not in (None, "drawn", "zero", "copy"):
        raise BadInput(f"start must be 'drawn', 'zero', 'copy' or None, got {start!r}")
    # Beside the model's own positions a new term begins at 0, so that the model does.
    beside_model = {name for kind in kinds if MODEL in kind.names for name in kind.names} - {MODEL}
    from_zero = set(names_of(new)) if start == "zero" else beside_model if start is None else set[str]()
    rows = max_positions or (getattr(host.config, "max_position_embeddings", None) or 512) - host.first_id
    if host.family.table is not None and any(MODEL in kind.names for kind in kinds):
        model_rows = host.config.max_position_embeddings - host.first_id
        if rows > model_rows:
            raise BadInput(f"max_positions must be at most {model_rows}, the model's own table, got {rows}")
    completed = _options(host, new, options, from_zero)
    if start == "copy":
        if options:
            raise BadInput(f"start='copy' takes the sizes of the model's own table; leave options out, got {options}")
        rows, copied = _options_of_copy(host, encoding, max_positions or 0)
        completed[encoding] = copied
    try:
        composition = build_encoding(
            new,
            width=int(host.config.hidden_size),
            heads=host.heads,
            head_dim=host.head_dim,
            layers=len(host.layers),
            max_positions=rows,
            use="decoder" if host.causal else "encoder",
            options=completed,
        )
    except ValueError as error:
        raise error if isinstance(error, BadInput) else BadInput(f"encoding {encoding!r}: {error}") from None
    # With the dtype and on the device of the model; transformers loads one on the meta device first.
    like = next(p for p in host.body.parameters() if p.is_floating_point())
    initialise(composition, seed=seed, std=float(getattr(host.config, "initializer_range", None) or 0.02))
    for name, part in zip(names_of(new), composition.parts.values(), strict=True):
        if name in from_zero:
            _start_at_zero(name, cast(Encoding, part), encoding)
    composition.to(device=like.device, dtype=like.dtype)
    order = WordOrder(host, composition, kinds)
    if start == "copy":
        _copy_table(order, encoding)
    return order, completed, rows


def _check_places(host: Host, encoding: str, kinds: tuple[LayerKind, ...], names: tuple[str, ...]) -> None:
    """Refuse encodings that act where a model of transformers cannot be reached."""
    keeps = [MODEL in kind.names for kind in kinds]
    kind_of_model = type(host.body).__name__
    for name in names:
        if issubclass(CATALOG[name], ReplacesEmbedding):
            raise BadInput(f"encoding {name!r} replaces the token table, which a trained model needs")
        reason = CATALOG[name].refused_in.get("moved")
        if reason and host.family.rotary and any({MODEL, name} <= {*kind.names} for kind in kinds):
            raise BadInput(f"encoding {name!r} is not defined beside the rotation of {kind_of_model}: {reason}")
    if any(keeps) and not all(keeps) and host.family.table is not None:
        raise BadInput(
            f"encoding {encoding!r}: {kind_of_model} adds its positions before the first layer, so that no layer can be"
            f" without them; name {MODEL!r} in all layers, or in none"
        )
    if any(keeps) and "learned" in names and host.family.table is not None:
        raise BadInput(f"encoding {encoding!r}: {kind_of_model} has a learned table already; take {MODEL!r} alone")
    narrow = getattr(host.config, "word_embed_proj_dim", host.config.hidden_size)
    if narrow != host.config.hidden_size and any(issubclass(CATALOG[name], OnEmbeddings) for name in names):
        raise BadInput(
            f"encoding {encoding!r} acts on embeddings, which are {narrow} wide in this model and"
            f" {host.config.hidden_size} in its layers"
        )


def _options(host: Host, new: str, options: Mapping[str, Any] | None, from_zero: set[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each part, completed by what a trained model needs."""
    rope = getattr(host.config, "rope_parameters", None) or {}
    use = "decoder" if host.causal else "encoder"
    completed = complete_options(new, options, has_cls=host.family.cls, use=use)
    for name, values in completed.items():
        if name == "sinusoidal":
            values.setdefault("embedding_scale", 1.0)  # sqrt(C) would rescale trained embeddings
        if issubclass(CATALOG[name], Rotary) and "rope_theta" in rope:
            values.setdefault("base", float(rope["rope_theta"]))
        if "from_zero" in options_of(CATALOG[name]):
            values.setdefault("from_zero", name in from_zero)
    return completed


@torch.no_grad()
def _start_at_zero(name: str, part: Encoding, encoding: str) -> None:
    parameters = part.zero_init_parameters()
    if not parameters and name != "none":
        raise BadInput(
            f"encoding {encoding!r}: {name!r} has no weights that make it 0, so the model would not begin as it is;"
            " pass start='drawn' to have it all the same (in a recipe model.encoding_start = \"drawn\")"
        )
    for parameter in parameters:
        nn.init.zeros_(parameter)


def _options_of_copy(host: Host, encoding: str, max_positions: int) -> tuple[int, dict[str, Any]]:
    """Return rows and options of an encoding that can hold the model's own table."""
    body, family, config = host.body, host.family, host.config
    if encoding == "t5" and family.t5_bias:
        buckets, furthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
        return max_positions or 512, {"scale": 1.0, "buckets": buckets, "max_distance": furthest}
    if encoding == "learned" and family.table is not None:
        rows = body.get_submodule(family.table).weight.shape[0] - host.table_offset
        if max_positions not in (0, rows):
            raise BadInput(f"max_positions must be {rows} to copy the model's table, got {max_positions}")
        return rows, {}
    raise BadInput(
        f"start='copy' takes the model's own table for 't5' in a T5, or for 'learned' in a model that has one; encoding"
        f" {encoding!r} of {type(body).__name__} has none to copy"
    )


@torch.no_grad()
def _copy_table(order: WordOrder, encoding: str) -> None:
    host, part = order.host, cast(Any, order.encoding.parts[encoding])
    if encoding == "t5":
        part.table.weight.copy_(host.attentions[0].relative_attention_bias.weight / part.scale)
    else:
        part.table.weight.copy_(host.body.get_submodule(host.family.table).weight[host.table_offset :])


def _check_own_kind(order: WordOrder) -> None:
    """Refuse an encoding that the plain model cannot compute."""
    host, config = order.host, order.host.config
    name = str(config.wordorder["encoding"])
    part, same = (order.encoding.parts[name] if name in order.encoding.parts else None), name == MODEL
    if name == "rope" and host.family.rotary is not None and part is not None:
        rope = dict(getattr(config, "rope_parameters", None) or {})
        whole = rope.get("partial_rotary_factor", 1.0) == 1.0 and rope.get("rope_type", "default") == "default"
        same = whole and rope.get("rope_theta") == cast(Rotary, part).base
    if name == "t5" and host.family.t5_bias and part is not None:
        buckets = cast(Any, part).table.weight.shape[0]
        furthest = config.relative_attention_max_distance
        same = (buckets, cast(Any, part).max_distance) == (config.relative_attention_num_buckets, furthest)
        same = same and cast(Any, part).bidirectional != host.causal
    if name == "learned" and host.family.table is not None and part is not None:
        _, _, table = order.removed[0]
        same = cast(Any, part).table.weight.shape[0] == cast(Any, table).weight.shape[0] - host.table_offset
    if not same:
        raise BadInput(
            f"the plain {type(host.body).__name__} does not compute encoding {name!r} as it is here, so the model would"
            " be another; keep it swapped, or load the plain one anew"
        )
