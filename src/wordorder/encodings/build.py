"""Encodings of a network, built from a pattern of names and from options; and your own, by a name."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast, get_type_hints

from wordorder import registry
from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.composition import Composition
from wordorder.encodings.pattern import LayerKind, known_spelling, names_of, pattern_of
from wordorder.encodings.places import (
    GIVEN_BY_NETWORK,
    Encoding,
    OnEmbeddings,
    OnLayerInput,
    OnQueriesAndKeys,
    OnScoresByInput,
    ReplacesEmbedding,
    check_choice,
    check_positive,
)
from wordorder.errors import BadInput
from wordorder.registry import Registered, without_label

Use = Literal["encoder", "decoder", "cross-attention"]

WORDS = {"memory": "memory", "right": "look-ahead memory", "moved": "layers with another encoding of queries and keys"}
"""More keys of `Encoding.refused_in`, in words."""


def build_encoding(
    name: str,
    *,
    width: int,
    heads: int,
    layers: int,
    max_positions: int,
    head_dim: int | None = None,
    use: Use = "encoder",
    options: Mapping[str, object] | None = None,
    vocabulary: int | None = None,
    padding_idx: int | None = None,
    complex_valued: bool = False,
    with_memory: bool = False,
    looks_right: bool = False,
) -> Composition:
    """Build the encodings that ``name`` lists, sized for a network.

    Args:
        name: a name of the catalogue, in any letter case; several joined by "+" act together; such names separated by
            "," take turns over the layers, the pattern being repeated ("rope,rope,rope,none", or "rope*3,none"), with
            a window after "@" ("rope@512*3,none"); see `pattern_of`.
        width: model channels, C.
        heads: attention heads, H.
        layers: layers of the network; at least as many as the pattern.
        max_positions: longest text in tokens; limits learned tables only.
        head_dim: channels per head, D; None = width / heads.
        use: the kind of network; sets the default of ``bidirectional`` (False in decoders).
        options: further arguments of the encodings; flat for one, ``{"name": {...}}`` for several.
        vocabulary: number of token ids, for encodings that replace the token embeddings.
        padding_idx: token id that those keep at 0.
        complex_valued: the network's channels are [real | imag]: such encodings then give both (``as_real="pair"``)
            instead of mapping them to real numbers.
        with_memory: the network has a memory: ``cls="position-0"`` is refused, because position 0 of the window is the
            oldest slot and no longer [CLS].
        looks_right: the memory's queries attend to keys to their right, in decoders too (look-ahead), so that
            ``bidirectional`` defaults to True.

    Raises:
        BadInput: unknown name or option, an encoding that is not defined for this use or memory or beside another (with
            the reason), an option that has no meaning there (cls, bidirectional), a pattern longer than the network or
            with an encoding on embeddings in some layers alone, a window of 1 with look-ahead memory, or width no
            multiple of heads.
        ValueError: an option or a size is out of range, or use is none of those.
    """
    check_choice("use", use, Use)
    for name_of_switch, switch in (("with_memory", with_memory), ("looks_right", looks_right)):
        if type(switch) is not bool:
            raise ValueError(f"{name_of_switch} must be True or False, got {switch!r}")
    check_positive(width=width, heads=heads, layers=layers, max_positions=max_positions)
    if head_dim is None and width % heads:
        raise BadInput(f"width must be a multiple of heads, got {width} and {heads}")
    head_dim = head_dim or width // heads
    pattern = pattern_of(name)
    if len(pattern) > layers:
        raise BadInput(
            f"encoding {name!r} is a pattern of {len(pattern)} layers, and the network has {layers}; shorten the"
            " pattern, or add layers"
        )
    by_layer = [pattern[layer % len(pattern)] for layer in range(layers)]
    names_by_layer = [kind.names for kind in by_layer]
    if looks_right and any(kind.window == 1 for kind in by_layer):
        raise BadInput(f"encoding {name!r}: a window of 1 token lets memory slots see nothing; make it longer")
    options_by_part = split_options(name, options)
    uses = (use, *(["memory"] if with_memory else []), *(["right"] if looks_right else []))
    for part, options_of_part in options_by_part.items():
        beside = {other for names in names_by_layer if part in names for other in names} - {part}
        moved = any(issubclass(CATALOG[other], OnQueriesAndKeys) for other in beside)
        _check_part(part, options_of_part, (*uses, *(["moved"] if moved else [])), vocabulary=vocabulary)
    sizes = {
        "width": width,
        "heads": heads,
        "head_dim": head_dim,
        "max_positions": max_positions,
        "vocabulary": vocabulary,
        "padding_idx": padding_idx,
        "bidirectional": use != "decoder" or looks_right,
        "as_real": "pair" if complex_valued else "concat",
    }
    keys, parts = _keys(name, names_by_layer), dict[str, Encoding]()
    for part, options_of_part in options_by_part.items():
        takes = inspect.signature(CATALOG[part]).parameters
        told = {**sizes, "layers": sum(part in names for names in names_by_layer)}
        if not issubclass(CATALOG[part], OnEmbeddings | ReplacesEmbedding | OnLayerInput | OnScoresByInput):
            told["width"] = heads * head_dim  # that of queries, which some models have wider or narrower than x
        if issubclass(CATALOG[part], OnLayerInput):
            # a memory that looks ahead lets its slots attend to the right; no row of the input may read there
            told["bidirectional"] = use != "decoder"
        arguments = {key: value for key, value in told.items() if key in takes}
        parts[keys[part]] = CATALOG[part](**{**arguments, **options_of_part})
    _check_embeddings(name, names_by_layer)
    return Composition(
        parts,
        [LayerKind(tuple(keys[part] for part in kind.names), kind.window) for kind in by_layer],
        head_dim=head_dim,
    )


def _check_part(part: str, options: Mapping[str, object], uses: Sequence[str], *, vocabulary: int | None) -> None:
    """Refuse an encoding where it is not defined, or whose options do not fit."""
    encoding = CATALOG[part]
    for use in uses:
        if use in encoding.refused_in:
            raise BadInput(f"encoding {part!r} is not defined for {WORDS.get(use, use)}: {encoding.refused_in[use]}")
    if issubclass(encoding, ReplacesEmbedding) and vocabulary is None:
        raise BadInput(f"encoding {part!r} replaces the token embeddings: pass vocabulary, the number of token ids")
    if issubclass(encoding, OnLayerInput) and "decoder" in uses and options.get("bidirectional"):
        raise BadInput(f"encoding_options: {part}.bidirectional=True shows a decoder what comes next; leave it out")
    if "memory" in uses and options.get("cls", "none") != "none":
        raise BadInput(
            f"encoding_options: {part}.cls={options['cls']!r} has no meaning with a memory, where "
            "position 0 is the oldest slot and not [CLS]; leave cls out, or set it to 'none'"
        )


def _check_embeddings(name: str, by_layer: Sequence[Collection[str]]) -> None:
    """Refuse patterns in which only some layers name an encoding that acts before the first layer."""
    for part in dict.fromkeys(part for names in by_layer for part in names):
        acts_before = issubclass(CATALOG[part], OnEmbeddings | ReplacesEmbedding)
        if acts_before and not all(part in names for names in by_layer):
            raise BadInput(
                f"encoding {name!r}: {part!r} acts on {CATALOG[part].place}, before the first layer, so that no layer"
                f" can be without it; name it in every part ('{part}+rope,{part}'), or leave it out"
            )


def _keys(name: str, by_layer: Sequence[Collection[str]]) -> dict[str, str]:
    """Return the key of each encoding, which is part of its parameters' names.

    The key is the file's name, not the variant's: arms such as tupe-a and tupe-r then share the parameters that both
    have; a label stands behind it. Of variants that take turns one has the file's name (the one of that name, kerple in
    "kerple-power,kerple", else the first), and the others have their own names.
    """
    keys: dict[str, str] = {}
    everywhere = {part for names in by_layer for part in names}
    for names in by_layer:
        modules = [CATALOG[part].__module__ for part in names]
        # your own encoding has the key that it would have in the catalogue, in a file of its name
        files = [
            module.rsplit(".", 1)[-1]
            if module.startswith("wordorder.encodings.")
            else without_label(part).replace("-", "_")
            for part, module in zip(names, modules, strict=True)
        ]
        twice = next((file for file in files if files.count(file) > 1), None)
        if twice:
            raise BadInput(f"encoding {name!r} has two variants of {twice}; take one of them")
        for part, file in zip(names, files, strict=True):
            label = part.partition(":")[2]
            if label:
                keys[part] = f"{file}_{label}"
            elif part not in keys:
                keys[part] = part if file in keys.values() or file in everywhere else file
    return keys


def options_of(encoding: type[Encoding]) -> dict[str, Any]:
    """Return the options of an encoding with their defaults: its constructor's arguments beyond the network's sizes."""
    return registry.options_of(encoding, GIVEN_BY_NETWORK)


def split_options(name: str, options: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the options of each part, ``{"tupe-a": {...}}``; a single encoding may have them flat.

    Raises:
        BadInput: one line per unknown option, with the known ones.
    """
    names, given = names_of(name), dict(options or {})
    if len(names) == 1 and names[0] not in given:
        given = {names[0]: given}
    errors: list[str] = []
    values: Any
    for part, values in given.items():
        if part not in names:
            parts = ", ".join(f'"{known}": {{...}}' for known in names)
            errors.append(f"encoding_options.{part}: not a part of encoding {name!r}; options go by part: {{{parts}}}")
        elif not isinstance(values, Mapping):
            errors.append(f"encoding_options.{part} must be a table of options, got {values!r}")
        elif values:
            from wordorder.hints import option_faults  # most networks have no options

            try:
                annotations = get_type_hints(CATALOG[part].__init__)
            except Exception:  # names that are wrong, or imported for type checkers alone
                annotations = {}
            hints = {option: annotations.get(option, Any) for option in options_of(CATALOG[part])}
            errors += option_faults("encoding_options", part, cast("dict[str, Any]", values), hints)
    if errors:
        raise BadInput(errors)
    return {part: dict(given.get(part, {})) for part in names}


def register_encoding(name: str, encoding: type[Encoding]) -> None:
    """Register a class by a name, which networks, configurations and recipes then accept like those of the catalogue.

    Only the form is checked; `wordorder.networks.check_encoding` tests what training, packing, padding, caching and
    saving rely on. A class of the same name from the same module replaces the one that was registered before, so that a
    cell of a notebook can be run again.

    Args:
        name: letters, digits, "-" and "_"; "+", ",", "@" and "*" are signs of patterns.
        encoding: not abstract, and every argument of its constructor that is not a size of the network has a default.

    Raises:
        ValueError: the name is taken, in any letter case, or of another form, or the class is no encoding, is abstract
            or needs an argument that no network gives.
    """
    if name not in CATALOG and (known := known_spelling(str(name))) in CATALOG:
        raise ValueError(f"name {name!r} would be read as {known!r}, which is in the catalogue; choose another")
    CATALOG.register(name, encoding, base=Encoding, sizes=GIVEN_BY_NETWORK)


def registered_encodings() -> dict[str, Registered]:
    """Return class and file of the encodings that this process has registered, by name."""
    return CATALOG.registered
