"""Compositions of encodings: acting together ("learned+t5") or taking turns over the layers ("rope*3,none")."""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, cast, get_type_hints

import torch
from torch import Tensor, nn

from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.places import (
    GIVEN_BY_NETWORK,
    Encoding,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    ReplacesEmbedding,
)
from wordorder.encodings.position_terms import PositionTerms, PositionTermsByLayer, Term, combine_terms
from wordorder.errors import BadInput
from wordorder.hints import option_faults
from wordorder.ops import Positions, PositionsLike, as_positions, check_positions_fit
from wordorder.ops.positions import device_of
from wordorder.ops.precision import no_autocast

_MOST_IN_A_ROW = 999
"""The largest number after "*", so that a typing error does not fill the memory with names."""


class Composition(nn.Module):
    """The encodings of one network, each acting at its own place; their terms of the scores are added.

    Args:
        parts: encodings by name; the name is part of the parameters' names. One that replaces the token embeddings is
            not registered here, but where the network puts it (`replacement`).
        head_dim: channels per head, D; sets the content scale where no part does.

    Raises:
        ValueError: two parts need different content scales, or both replace the token embeddings.
    """

    def __init__(self, parts: Mapping[str, Encoding], *, head_dim: int) -> None:
        super().__init__()
        replacing = {name: part for name, part in parts.items() if isinstance(part, ReplacesEmbedding)}
        if len(replacing) > 1:
            raise ValueError(f"only one encoding can replace the token embeddings, got {', '.join(replacing)}")
        self.parts = nn.ModuleDict({name: part for name, part in parts.items() if name not in replacing})
        self._replacing = replacing  # a plain dict, in which torch registers nothing
        self.scale = content_scale(parts, head_dim)
        """The factor on q.k; in a `Hybrid` that of the first layer."""

    @property
    def replacement(self) -> ReplacesEmbedding | None:
        """Return the part that replaces the network's token embeddings; None if there is none.

        The network registers it as its own ``embedding``, under which name its weights are saved.
        """
        return next(iter(self._replacing.values()), None)

    def drop_replacement(self) -> None:
        """Remove `replacement`, for a network that reads the token embeddings of another."""
        self._replacing = {}

    def embed(self, x_BTC: Tensor, positions: PositionsLike, window: Positions | None = None) -> Tensor:
        """Apply the parts that act on embeddings, in the order of the name.

        Args:
            x_BTC: token embeddings.
            positions: positions of the tokens in their text.
            window: positions of the tokens in the window that attention sees, with the oldest slot of a memory at 0;
                learned tables, which are shorter than the text, are read at these. None = the window is the text.

        Raises:
            BadInput: positions are not integers, or not one for each token.
        """
        positions = as_positions(positions)
        check_positions_fit("positions", positions, x_BTC.shape[0], x_BTC.shape[-2])
        for part in self.parts.values():
            if isinstance(part, OnEmbeddings):
                x_BTC = part(x_BTC, window if part.bounded and window is not None else positions)
        return x_BTC

    def prepare(
        self,
        positions: PositionsLike | int,
        key_positions: PositionsLike | int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> PositionTerms | PositionTermsByLayer:
        """Compute what depends on positions alone, once per forward: a `PositionTerms`; for a `Hybrid` one per layer.

        Args:
            positions: positions of the queries; a number of tokens T means 0 .. T - 1.
            key_positions: positions of the keys; the queries' where not given (self-attention).
            dtype: dtype of the activations; angles are in at least float32.
            device: device of the activations, such as q.device; default: that of the positions where they are tensors,
                else that of the encodings' parameters, else the CPU.

        Raises:
            BadInput: positions are not integers, have neither one nor two axes, or no token.
        """
        query, key = queries_and_keys(positions, key_positions)
        return self._together(self.terms(query, key, dtype=dtype, device=device), (query, key))

    def _together(
        self, terms: dict[str, Term], positions: tuple[Positions, Positions]
    ) -> PositionTerms | PositionTermsByLayer:
        return combine_terms(self.scale, terms.values(), positions=positions, two_sided=self.two_sided)

    @property
    def two_sided(self) -> bool:
        """Tell whether a part has separate weights for keys on the right."""
        return any(getattr(module, "bidirectional", False) for module in self.parts.modules())

    def terms(
        self,
        positions: PositionsLike,
        key_positions: PositionsLike | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> dict[str, Term]:
        """Return the term of each part by its name; parts that act on embeddings, or nowhere, have none.

        Args:
            positions: positions of the queries.
            key_positions: positions of the keys; the queries' where not given.
            dtype: dtype of the activations.
            device: device of the activations; default: that of the positions, else of the parameters, else the CPU.
        """
        query, key = queries_and_keys(positions, key_positions)
        own = (parameter.device for parameter in self.parameters())
        device = device or device_of(query, key) or next(own, torch.device("cpu"))
        found: dict[str, Term] = {}
        for name, part in self.parts.items():
            if isinstance(part, OnQueriesAndKeys):
                found[name] = part.prepare(query, key, dtype=dtype, device=device)
            elif isinstance(part, OnScores):
                with no_autocast(device):  # a few rows of a table: 16 bits would cost exactness and save nothing
                    found[name] = part(query, key, device, dtype)
            elif isinstance(part, OnScoresByContent):
                found[name] = part.prepare(query, key, device=device)
        return found

    def parts_of(self, layer: int) -> tuple[nn.Module, ...]:
        """Return the parts that act in layer ``layer`` (from 0) or before the first layer; here all of them."""
        del layer
        return tuple(self.parts.values())

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters by part of each encoding, without the table of token embeddings itself."""
        return {
            f"{name} {part}": count
            for name, encoding in {**dict(self.parts.items()), **self._replacing}.items()
            if isinstance(encoding, Encoding)
            for part, count in encoding.cost_parts().items()
        }


def queries_and_keys(
    positions: PositionsLike | int, key_positions: PositionsLike | int | None
) -> tuple[Positions, Positions]:
    """Return typed positions of queries and of keys; the keys' default to the queries'.

    Raises:
        BadInput: positions are not integers, have neither one nor two axes, or no token.
    """
    query = as_positions(positions)
    return query, query if key_positions is None else as_positions(key_positions)


def content_scale(parts: Mapping[str, Encoding], head_dim: int) -> float:
    """Return the factor on q.k where these encodings act together: 1/sqrt(head_dim) unless one of them sets another.

    Raises:
        ValueError: two of them need different scales.
    """
    scales = {name: part.content_scale(head_dim) for name, part in parts.items()}
    wanted = {scale for scale in scales.values() if scale is not None}
    if len(wanted) > 1:
        raise ValueError(f"these encodings need different content scales and cannot act together: {scales}")
    return wanted.pop() if wanted else head_dim**-0.5


def pattern_of(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the catalogue names of each layer of a pattern: (("a",), ("b", "c")) for "a,b+c".

    "a*3,b" is short for "a,a,a,b".

    Raises:
        BadInput: a name is not in the catalogue (the known ones are listed), or occurs twice in a layer; or "*" is not
            followed by a number of layers.
    """
    pattern: list[tuple[str, ...]] = []
    for text in name.split(","):
        part, star, count = text.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count.strip()[:4]) <= _MOST_IN_A_ROW):
            most = f"1 .. {_MOST_IN_A_ROW}"
            raise BadInput(f"encoding {name!r}: after '*' comes how many layers in a row, {most}, got {count!r}")
        pattern += [_names_of_layer(part, name)] * (int(count) if star else 1)
    return tuple(pattern)


def names_of(name: str) -> tuple[str, ...]:
    """Return the catalogue names in "a+b" or "a,b", each once.

    Raises:
        BadInput: a name is not in the catalogue, or occurs twice in a layer.
    """
    return tuple(dict.fromkeys(part for names in pattern_of(name) for part in names))


def _names_of_layer(text: str, whole: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split("+"))
    for part in names:
        if part not in CATALOG:
            written = part.lower().replace("_", "-")  # papers write RoPE and TUPE-R
            close = difflib.get_close_matches(written, CATALOG, n=1) or difflib.get_close_matches(part, CATALOG, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise BadInput(
                f"unknown encoding {part!r}; {hint}known: {', '.join(CATALOG)}; join several with '+', or with ',' to"
                " take turns over the layers; one of your own must be registered first, by wordorder.encodings"
                ".register_encoding(name, class), or for `wordorder compare` by --arm FILE.py:CLASS=name"
            )
    if len(set(names)) < len(names):
        raise BadInput(f"encoding {whole!r} names a part twice")
    return names


def options_of(encoding: type[Encoding]) -> dict[str, Any]:
    """Return the options of an encoding with their defaults: its constructor's arguments beyond the network's sizes."""
    parameters = inspect.signature(encoding).parameters
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of nn.Module's own constructor
    return {
        name: p.default for name, p in parameters.items() if name not in GIVEN_BY_NETWORK and p.kind not in anything
    }


def _annotations(encoding: type[Encoding]) -> dict[str, object]:
    """Return the type hints of the constructor's arguments; {} if they cannot be evaluated."""
    try:
        return get_type_hints(encoding.__init__)
    except Exception:  # names that are wrong, or imported for type checkers alone
        return {}


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
            errors.append(f"encoding_options.{part}: not a part of encoding {name!r}; parts: {', '.join(names)}")
        elif not isinstance(values, Mapping):
            errors.append(f"encoding_options.{part} must be a table of options, got {values!r}")
        else:
            annotations = _annotations(CATALOG[part])
            hints = {option: annotations.get(option, Any) for option in options_of(CATALOG[part])}
            errors += option_faults("encoding_options", part, cast("dict[str, Any]", values), hints)
    if errors:
        raise BadInput(errors)
    return {part: dict(given.get(part, {})) for part in names}
