"""A checkpoint of Transformer-XL's or LaMemo's code: its settings, checked against its weights, and its parameters.

The codes are github.com/kimiyoung/transformer-xl (pytorch/mem_transformer.py) and, made from it,
github.com/thu-coai/LaMemo; transformers' former TransfoXL has the same names behind "transformer." but for "crit.".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.conversion.pickle_survey import printable
from wordorder.conversion.reference_file import Settings
from wordorder.errors import BadInput

EXAMPLE = '{"mem_len": 150, "tgt_len": 150}'
"""Example of what --config may hold, for messages."""

KINDS = {0: "Transformer-XL", 3: "LaMemo", 31: "LaMemo, signed", 32: "LaMemo, two vectors", 33: "LaMemo, full"}
"""``attn_type`` -> name of the attention."""

_OTHERS = {1: "learned tables of distances per layer", 2: "sines added to the embeddings"}
_SEGMENT = 128  # tokens; transformers' first TransfoXLConfig had this tgt_len, later ones have none


@dataclass(frozen=True, kw_only=True)
class XLSettings:
    """Sizes and style of a model."""

    kind: int
    """A key of `KINDS`."""
    vocabulary: int
    layers: int
    heads: int
    channels: int
    inner: int
    """Channels inside the feed-forward networks."""
    pre_norm: bool
    own_vectors: bool
    """Each layer has u and v of its own."""
    memory_length: int
    """Most slots; 0 = no memory."""
    segment_length: int
    same_length: bool
    """Every token sees equally many keys."""
    clamp: int | None
    """Distance from which on all count as one."""
    dropout: float
    """On embeddings, sublayers' and the last layer's output."""
    attention_dropout: float
    norm_eps: float
    eos: int | None
    notes: tuple[str, ...]
    """Remarks for the user on how these were found."""

    @property
    def looks_ahead(self) -> bool:
        """True for LaMemo's attention, False for Transformer-XL's."""
        return self.kind != 0


def read_settings(
    given: Mapping[object, object], shapes: Mapping[str, tuple[int, ...]], kinds: tuple[int, ...], *, folder: bool
) -> XLSettings:
    """Read what matters, and compare it with the weights; the reference's own defaults stand for what is left out.

    The config.json of a ``folder`` of transformers' TransfoXL has no segment length.
    """
    reader = Settings(given)
    if reader.given.get("cutoffs") or "crit.cluster_weight" in shapes:
        raise BadInput(
            "its words are in clusters (cutoffs, an adaptive softmax), which this package does not have; only models"
            " with one table of words are converted"
        )
    shown = sizes_of(shapes)
    words = "vocab_size" if "n_token" not in reader.given and "vocab_size" in reader.given else "n_token"
    names = {"vocabulary": words, "layers": "n_layer", "heads": "n_head", "channels": "d_model", "inner": "d_inner"}
    sizes = {size: reader.size(name, shown.get(size)) for size, name in names.items()}
    kind = _kind(reader, shapes, kinds)
    memory, segment, notes = _lengths(reader, folder)
    for name, wanted in (("enhance_recurrence", False), ("sample_softmax", -1), ("attn_norm_type", 0)):
        value = reader.given.get(name, wanted)
        if value != wanted and not (name == "sample_softmax" and type(value) is int and value <= 0):
            reader.fault(f"{name}={printable(value)} has no counterpart here; {name}={wanted} has")
    settings = XLSettings(
        kind=kind,
        **sizes,
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
    width = reader.number("d_embed", shown.get("width", settings.channels))
    faults = reader.faults or _beyond(settings, reader.number("d_head", shown.get("head_dim", 0)), width)
    if faults:
        raise BadInput(faults)
    return settings


def sizes_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes that the weights show, as far as they are there."""
    table = shapes.get("word_emb.emb_layers.0.weight", ())
    vectors = shapes.get("r_w_bias", shapes.get("layers.0.dec_attn.r_w_bias", ()))
    found: dict[str, int] = {"layers": len({m[1] for name in shapes if (m := re.match(r"layers\.(\d{1,4})\.", name))})}
    if len(table) == 2:
        found |= {"vocabulary": table[0], "width": table[1]}
    if len(vectors) == 2:
        found |= {"heads": vectors[0], "head_dim": vectors[1]}
    for name, size, axis in (("dec_attn.o_net", "channels", 0), ("pos_ff.CoreNet.0", "inner", 0)):
        if len(shape := shapes.get(f"layers.0.{name}.weight", ())) == 2:
            found[size] = shape[axis]
    return found


def _kind(reader: Settings, shapes: Mapping[str, tuple[int, ...]], kinds: tuple[int, ...]) -> int:
    fused = any(name.endswith("dec_attn.qkv_net.weight") for name in shapes)
    shown = 0 if fused else 32 if "r_w_bias_future" in shapes else None if "r_r_bias_future" in shapes else 31
    if shown is None and "attn_type" not in reader.given and len(kinds) > 1:
        reader.fault(
            "attn_type is missing, and the weights of 3 and 33 have the same names; give it with --config, a JSON file"
        )
    kind = reader.number("attn_type", 3 if shown is None else shown)
    if kind in kinds:
        return kind
    choice = " or ".join(str(known) for known in kinds)
    if kind in KINDS:
        reader.fault(f"attn_type={kind} is LaMemo's: use wordorder convert lamemo")
    else:
        reason = f" ({_OTHERS[kind]})" if kind in _OTHERS else ""
        reader.fault(f"attn_type={kind}{reason} has no counterpart here; attn_type={choice} has")
    return min(kinds)


def _lengths(reader: Settings, folder: bool) -> tuple[int, int, tuple[str, ...]]:
    notes: list[str] = []
    needed = ["mem_len"] if folder else ["mem_len", "tgt_len"]
    missing = [name for name in needed if name not in reader.given]
    if missing:
        reader.fault(
            f"{' and '.join(missing)} must be known, and weights do not show it; give it with --config, a JSON file"
            f" such as {EXAMPLE}"
        )
    memory, segment = reader.number("mem_len", 0, least=0), reader.number("tgt_len", _SEGMENT, least=1)
    if folder and "tgt_len" not in reader.given:
        notes.append(f"the configuration has no tgt_len: segment_length is {segment}; change it as you like")
    if reader.number("ext_len", 0, least=0) > 0:
        notes.append("ext_len has no counterpart here: memory holds what that extended context would repeat")
    return memory, segment, tuple(notes)


def _beyond(settings: XLSettings, head_dim: int, width: int) -> list[str]:
    """List what this package has no form for, one line each."""
    faults: list[str] = []
    if settings.heads * head_dim != settings.channels:
        faults.append(
            f"n_head * d_head = {settings.heads * head_dim} is not d_model = {settings.channels}: heads here are"
            " d_model / n_head wide"
        )
    if width != settings.channels:
        faults.append(
            f"d_embed={width} is not d_model={settings.channels}: projected embeddings have no counterpart here"
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


_IGNORED = re.compile(r"pos_emb\.inv_freq|layers\.\d+\.dec_attn\.(train|eval)_logits_constant")
"""Buffers: the sines' frequencies, which the encoding computes, and zeros that LaMemo's code never reads."""
_SHARED = re.compile(r"layers\.\d+\.dec_attn\.r_[rw]_bias")
"""Names of each layer's u and v, which transformers' layers have also where u and v are of all layers."""

_XL = "model.decoder.encoding.parts.transformer_xl."


@dataclass(frozen=True)
class Parameter:
    """One of our parameters, and what it is made of."""

    ours: str
    theirs: tuple[str, ...]
    """Names in the checkpoint, in this order."""
    shape: tuple[tuple[int, ...], ...]
    """Shape of each of them."""
    join: Callable[[list[Tensor]], Tensor] = lambda parts: parts[0]
    """Makes one tensor of theirs."""
    shares: str | None = None
    """Their name of the tensor that this one may be, and then may be missing."""

    @classmethod
    def of(cls, ours: str, theirs: str, *shape: int, shares: str | None = None) -> "Parameter":
        """Return a parameter that is one of theirs, as it is."""
        return cls(ours, (theirs,), (shape,), shares=shares)


def parameters_of(settings: XLSettings) -> list[Parameter]:
    """Return all parameters that a checkpoint of these settings holds."""
    return [*_embeddings(settings), *_vectors(settings), *_layers(settings)]


def _embeddings(settings: XLSettings) -> Iterator[Parameter]:
    table, vocabulary, channels = "word_emb.emb_layers.0.weight", settings.vocabulary, settings.channels
    yield Parameter.of("model.decoder.embedding.weight", table, vocabulary, channels)
    yield Parameter.of("lm_head.weight", "crit.out_layers.0.weight", vocabulary, channels, shares=table)
    yield Parameter.of("lm_head.bias", "crit.out_layers.0.bias", vocabulary)


def _vectors(settings: XLSettings) -> Iterator[Parameter]:
    shape = settings.heads, settings.channels // settings.heads
    names = {"content_bias": "r_w_bias", "position_bias": "r_r_bias"}
    if settings.kind in (3, 32, 33):
        names["position_bias_right"] = "r_r_bias_future"
    if settings.kind == 32:
        names["content_bias_right"] = "r_w_bias_future"
    for ours, theirs in names.items():
        if settings.own_vectors:
            each = tuple(f"layers.{layer}.dec_attn.{theirs}" for layer in range(settings.layers))
            yield Parameter(f"{_XL}{ours}", each, (shape,) * settings.layers, torch.stack)
        else:
            yield Parameter.of(f"{_XL}{ours}", theirs, *shape)


def _layers(settings: XLSettings) -> Iterator[Parameter]:
    C, F = settings.channels, settings.inner
    for index in range(settings.layers):
        theirs, ours = f"layers.{index}.", f"model.decoder.layers.{index}."
        queries = (f"{theirs}dec_attn.q_net.weight", f"{theirs}dec_attn.kv_net.weight")
        if settings.looks_ahead:
            yield Parameter(f"{ours}attention.qkv.weight", queries, ((C, C), (2 * C, C)), torch.cat)
        else:
            yield Parameter.of(f"{ours}attention.qkv.weight", f"{theirs}dec_attn.qkv_net.weight", 3 * C, C)
        for our_end, their_end, shape in (
            ("attention.out.weight", "dec_attn.o_net.weight", (C, C)),
            ("attention_norm.weight", "dec_attn.layer_norm.weight", (C,)),
            ("attention_norm.bias", "dec_attn.layer_norm.bias", (C,)),
            ("feedforward.up.weight", "pos_ff.CoreNet.0.weight", (F, C)),
            ("feedforward.up.bias", "pos_ff.CoreNet.0.bias", (F,)),
            ("feedforward.down.weight", "pos_ff.CoreNet.3.weight", (C, F)),
            ("feedforward.down.bias", "pos_ff.CoreNet.3.bias", (C,)),
            ("feedforward_norm.weight", "pos_ff.layer_norm.weight", (C,)),
            ("feedforward_norm.bias", "pos_ff.layer_norm.bias", (C,)),
        ):
            yield Parameter.of(f"{ours}{our_end}", f"{theirs}{their_end}", *shape)
        yield Parameter.of(f"{_XL}projections.{index}.weight", f"{theirs}dec_attn.r_net.weight", C, C)


def biases_of(settings: XLSettings) -> dict[str, int]:
    """Return the biases of ours that the reference does not have, and their sizes: they are 0."""
    sizes = {"attention.qkv.bias": 3 * settings.channels, "attention.out.bias": settings.channels}
    return {f"model.decoder.layers.{i}.{name}": size for i in range(settings.layers) for name, size in sizes.items()}


def ignored_names(shapes: Mapping[str, object], settings: XLSettings) -> tuple[str, ...]:
    """Return the names in a checkpoint that hold nothing to convert."""
    shared = not settings.own_vectors
    return tuple(name for name in shapes if _IGNORED.fullmatch(name) or (shared and _SHARED.fullmatch(name)))
