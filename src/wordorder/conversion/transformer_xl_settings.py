"""Read the settings of a checkpoint of Transformer-XL's or LaMemo's code, and check them against its weights."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from wordorder.conversion.torch_files.foreign import printable
from wordorder.errors import BadInput

EXAMPLE = '{"mem_len": 150, "tgt_len": 150}'
"""Example of what --config may hold, for messages."""

KINDS = {0: "Transformer-XL", 3: "LaMemo", 31: "LaMemo, signed", 32: "LaMemo, two vectors", 33: "LaMemo, full"}
"""``attn_type`` -> name of the attention."""

_OTHERS = {1: "learned tables of distances per layer", 2: "sines added to the embeddings"}
_TABLE = re.compile(r"word_emb\.emb_layers\.\d{1,4}\.weight")
_SEGMENT = 128  # tokens; transformers' first TransfoXLConfig had this tgt_len, later ones have none


@dataclass(frozen=True, kw_only=True)
class XLSettings:
    """Sizes and style of a model.

    Args:
        kind: a key of `KINDS`.
        inner: channels inside the feed-forward networks.
        width: of the first cluster's embeddings; channels where there are no clusters.
        cutoffs: first ids of the clusters of rarer words.
        divisor: how much narrower each cluster is than the one before.
        own_vectors: each layer has u and v of its own.
        memory_length: most slots; 0 = no memory.
        same_length: every token sees equally many keys.
        clamp: distance from which on all count as one.
        dropout: on embeddings, sublayers' and the last layer's output.
        eos: id of the end of a text.
        notes: what a user should know of how these were found.
    """

    kind: int
    vocabulary: int
    layers: int
    heads: int
    channels: int
    inner: int
    width: int
    cutoffs: tuple[int, ...]
    divisor: int
    pre_norm: bool
    own_vectors: bool
    memory_length: int
    segment_length: int
    same_length: bool
    clamp: int | None
    dropout: float
    attention_dropout: float
    norm_eps: float
    eos: int | None
    notes: tuple[str, ...]

    @property
    def looks_ahead(self) -> bool:
        """True for LaMemo's attention, False for Transformer-XL's."""
        return self.kind != 0

    @property
    def projected(self) -> bool:
        """True if embeddings have projections.

        Those of clusters of several widths have, and those of another width than the model's.
        """
        return self.divisor > 1 or self.width != self.channels


def read_settings(
    given: Mapping[object, object], shapes: Mapping[str, tuple[int, ...]], kinds: tuple[int, ...], *, folder: bool
) -> XLSettings:
    """Read what matters, and compare it with the weights; the reference's own defaults stand for what is left out.

    Args:
        given: the reference's ``model_config`` or arguments, or the config.json of transformers' TransfoXL.
        shapes: of the weights, by the reference's names.
        kinds: ``attn_type`` that this conversion takes.
        folder: a folder of transformers' TransfoXL, whose configuration has no segment length.

    Raises:
        BadInput: one line per fault.
    """
    reader = _Reader(given)
    shown = sizes_of(shapes)
    sizes = {name: reader.size(names, shown.get(name)) for name, names in _SIZES.items()}
    kind = _kind(reader, shapes, kinds)
    divisor, cutoffs = reader.number("div_val", 1, least=1), _cutoffs(reader, shapes, sizes["vocabulary"])
    memory, segment, notes = _lengths(reader, folder)
    for name, wanted in (("enhance_recurrence", False), ("sample_softmax", -1), ("attn_norm_type", 0)):
        reader.only(name, wanted)
    settings = XLSettings(
        kind=kind,
        **sizes,
        width=reader.size(("d_embed",), shown.get("width")),
        cutoffs=cutoffs,
        divisor=divisor,
        pre_norm=reader.switch("pre_lnorm", False),
        own_vectors="layers.0.dec_attn.r_w_bias" in shapes and "r_w_bias" not in shapes,
        memory_length=memory,
        segment_length=segment,
        same_length=reader.switch("same_length", False),
        clamp=clamp if (clamp := reader.number("clamp_len", -1)) > 0 else None,
        dropout=reader.rate("dropout", 0.1),
        attention_dropout=reader.rate("dropatt", 0.0),
        norm_eps=reader.positive("layer_norm_epsilon", 1e-5),
        eos=reader.number("eos_token_id", 0, least=0) if folder else None,
        notes=notes,
    )
    faults = reader.faults or _beyond(settings, reader.number("d_head", shown.get("head_dim", 0)))
    if faults:
        raise BadInput(faults)
    return settings


def sizes_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes that the weights show, as far as they are there."""
    tables = [shape for name, shape in shapes.items() if _TABLE.fullmatch(name)]
    vectors = shapes.get("r_w_bias", shapes.get("layers.0.dec_attn.r_w_bias", ()))
    found: dict[str, int] = {"layers": len({m[1] for name in shapes if (m := re.match(r"layers\.(\d{1,4})\.", name))})}
    if tables and all(len(shape) == 2 for shape in tables):
        found |= {"vocabulary": sum(shape[0] for shape in tables), "width": tables[0][1]}
    if len(vectors) == 2:
        found |= {"heads": vectors[0], "head_dim": vectors[1]}
    for name, size, axis in (("dec_attn.o_net", "channels", 0), ("pos_ff.CoreNet.0", "inner", 0)):
        if len(shape := shapes.get(f"layers.0.{name}.weight", ())) == 2:
            found[size] = shape[axis]
    return found


_SIZES = {
    "vocabulary": ("n_token", "vocab_size"),
    "layers": ("n_layer",),
    "heads": ("n_head",),
    "channels": ("d_model",),
    "inner": ("d_inner",),
}


class _Reader:
    """Reads values of a configuration, and notes every fault."""

    def __init__(self, given: Mapping[Any, Any]) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        self.faults: list[str] = []

    def number(self, name: str, default: int, *, least: int | None = None) -> int:
        """Read an integer."""
        value = self.given.get(name, default)
        if type(value) is not int or (least is not None and value < least):
            above = "" if least is None else f" of at least {least}"
            self.faults.append(f"{name} must be an integer{above}, got {printable(value)}")
            return default
        return value

    def size(self, names: tuple[str, ...], shown: int | None) -> int:
        """Read a size that the weights show too, under any of these names."""
        name = next((name for name in names if name in self.given), names[0])
        if shown is None and name not in self.given:
            return 1  # a weight that shows it is missing, which is told apart
        value = self.number(name, shown or 1, least=1)
        if shown is not None and value != shown:
            self.faults.append(f"{name} is {value}, but the weights have {shown}")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """Read a flag, true or false."""
        value = self.given.get(name, default)
        if type(value) is not bool:
            self.faults.append(f"{name} must be true or false, got {printable(value)}")
            return default
        return value

    def rate(self, name: str, default: float) -> float:
        """Read a probability."""
        value = self.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.faults.append(f"{name} must be a number in [0, 1), got {printable(value)}")
            return default
        return float(value)

    def positive(self, name: str, default: float) -> float:
        """Read a positive number."""
        value = self.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self.faults.append(f"{name} must be a positive number, got {printable(value)}")
            return default
        return float(value)

    def only(self, name: str, wanted: Any) -> None:
        """Check a setting that has a counterpart here with this one value."""
        value = self.given.get(name, wanted)
        if value != wanted and not (name == "sample_softmax" and type(value) is int and value <= 0):
            self.faults.append(f"{name}={printable(value)} has no counterpart here; {name}={wanted} has")


def _kind(reader: _Reader, shapes: Mapping[str, tuple[int, ...]], kinds: tuple[int, ...]) -> int:
    fused = any(name.endswith("dec_attn.qkv_net.weight") for name in shapes)
    shown = 0 if fused else 32 if "r_w_bias_future" in shapes else None if "r_r_bias_future" in shapes else 31
    if shown is None and "attn_type" not in reader.given and len(kinds) > 1:
        reader.faults.append(
            "attn_type is missing, and the weights of 3 and 33 have the same names; give it with --config, a JSON file"
        )
    kind = reader.number("attn_type", 3 if shown is None else shown)
    if kind in kinds:
        return kind
    choice = " or ".join(str(known) for known in kinds)
    if kind in KINDS:
        reader.faults.append(f"attn_type={kind} is LaMemo's: use wordorder convert lamemo")
    else:
        reason = f" ({_OTHERS[kind]})" if kind in _OTHERS else ""
        reader.faults.append(f"attn_type={kind}{reason} has no counterpart here; attn_type={choice} has")
    return min(kinds)


def _cutoffs(reader: _Reader, shapes: Mapping[str, tuple[int, ...]], vocabulary: int) -> tuple[int, ...]:
    tables = len([name for name in shapes if _TABLE.fullmatch(name)])
    ends: list[int] = []
    for index in range(tables - 1):
        rows = shapes.get(f"word_emb.emb_layers.{index}.weight", ())
        ends.append((ends[-1] if ends else 0) + sum(rows[:1]))
    if "cutoffs" not in reader.given:
        if tables == 1 and "crit.cluster_weight" in shapes:
            reader.faults.append('cutoffs are missing; give them with --config, such as {"cutoffs": [20000, 40000]}')
        return tuple(ends)
    given: Any = reader.given["cutoffs"]
    values: list[int] = []
    for value in cast("list[Any]", given) if isinstance(given, list | tuple) else [None]:
        if type(value) is not int or not (values[-1] if values else 0) < value < vocabulary:
            reader.faults.append(
                f"cutoffs must be a list of integers that grow and lie within 1 .. {vocabulary - 1}, got"
                f" {printable(value)} in it"
            )
            return tuple(ends)
        values.append(value)
    if ends and values != ends:
        reader.faults.append(f"cutoffs are {values}, but the tables of the weights end at {ends}")
    return tuple(values)


def _lengths(reader: _Reader, folder: bool) -> tuple[int, int, tuple[str, ...]]:
    """Read the lengths of memory and segments, with notes on them."""
    notes: list[str] = []
    needed = ["mem_len"] if folder else ["mem_len", "tgt_len"]
    missing = [name for name in needed if name not in reader.given]
    if missing:
        reader.faults.append(
            f"{' and '.join(missing)} must be known, and weights do not show it; give it with --config, a JSON file"
            f" such as {EXAMPLE}"
        )
    memory, segment = reader.number("mem_len", 0, least=0), reader.number("tgt_len", _SEGMENT, least=1)
    if folder and "tgt_len" not in reader.given:
        notes.append(f"the configuration has no tgt_len: segment_length is {segment}; change it as you like")
    if reader.number("ext_len", 0, least=0) > 0:
        notes.append("ext_len has no counterpart here: memory holds what that extended context would repeat")
    return memory, segment, tuple(notes)


def _beyond(settings: XLSettings, head_dim: int) -> list[str]:
    """List what this package has no form for, one line each."""
    faults: list[str] = []
    if settings.heads * head_dim != settings.channels:
        faults.append(
            f"n_head * d_head = {settings.heads * head_dim} is not d_model = {settings.channels}: heads here are"
            " d_model / n_head wide"
        )
    if settings.projected and not settings.cutoffs:
        faults.append(
            f"d_embed={settings.width} beside d_model={settings.channels}, div_val={settings.divisor}: projected"
            " embeddings are here those of clusters (cutoffs) only"
        )
    if settings.looks_ahead and settings.memory_length == 0:
        faults.append("mem_len=0: LaMemo's attention without memory is that of its attn_type 0, whose weights differ")
    if settings.looks_ahead and settings.same_length:
        faults.append("same_length=true has no counterpart for look-ahead memory, only for Transformer-XL's")
    if settings.kind == 31 and settings.clamp is not None:
        faults.append(
            f"clamp_len={settings.clamp} with attn_type=31: that code clamps distances to the left alone, here both"
        )
    return faults
