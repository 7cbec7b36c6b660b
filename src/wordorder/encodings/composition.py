"""Encodings by name, several of which may act together ("learned+t5"), or take turns over layers ("rope*3,none")."""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, cast, get_type_hints

import torch
from torch import Tensor, nn

from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.order import HybridOrder, Order, Term, order_of
from wordorder.encodings.places import (
    Encoding,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    ReplacesEmbedding,
)
from wordorder.errors import BadInput
from wordorder.hints import option_faults
from wordorder.ops import Positions, as_positions, check_positions_fit
from wordorder.ops.positions import device_of
from wordorder.ops.precision import no_autocast

# What a network tells an encoding about itself; every other argument of an encoding's constructor is an option.
_SIZES = ("width", "heads", "head_dim", "layers", "max_positions", "vocabulary", "padding_idx")


_MOST_IN_A_ROW = 999
"""Layers that "*" may ask for, so that a slip of the hand does not fill the memory with names."""


class Composition(nn.Module):
    """The encodings of one network, each acting at its own place; terms that act on scores add up.

    Args:
        parts: encodings by name; the name is part of the parameters' names. One that replaces the token embeddings is
            not registered here, but where the network puts it (`replacement`).
        head_dim: channels per head, D; sets the content scale where no part does.

    Raises:
        ValueError: two parts ask for different content scales, or both replace the token embeddings.
    """

    def __init__(self, parts: Mapping[str, Encoding], *, head_dim: int) -> None:
        super().__init__()
        replacing = {name: part for name, part in parts.items() if isinstance(part, ReplacesEmbedding)}
        if len(replacing) > 1:
            raise ValueError(f"only one encoding can replace the token embeddings, got {', '.join(replacing)}")
        self.parts = nn.ModuleDict({name: part for name, part in parts.items() if name not in replacing})
        self._replacing = replacing  # a plain dict, in which torch registers nothing
        self.scale = content_scale(parts, head_dim)
        """What q.k is multiplied by; of a `Hybrid`, in the first layer."""

    @property
    def replacement(self) -> ReplacesEmbedding | None:
        """What takes the place of the network's token embeddings; None = nothing does.

        The network registers it as its own ``embedding``, under which name its weights are saved.
        """
        return next(iter(self._replacing.values()), None)

    def drop_replacement(self) -> None:
        """Let go of `replacement`, for a network that reads the token embeddings of another."""
        self._replacing = {}

    def embed(self, x_BTC: Tensor, positions: Positions | Tensor, window: Positions | None = None) -> Tensor:
        """Embeddings with the parts that act on embeddings applied, in the order of the name.

        Args:
            x_BTC: token embeddings.
            positions: where the tokens stand in their text.
            window: where they stand in what attention sees, the oldest slot of a memory being 0; a table, which the
                text would outgrow, is read at these. None = the text is all there is.

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
        positions: Positions | Tensor | int,
        key_positions: Positions | Tensor | int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Order | HybridOrder:
        """Prepare what positions alone decide, once per forward: an `Order`, of a `Hybrid` one for each layer.

        Args:
            positions: of the queries; a number of tokens stands for 0 .. T - 1.
            key_positions: of the keys; the queries' where not given (self-attention).
            dtype: of the activations; angles are in at least float32.
            device: of the activations, such as q.device; default: that of the positions where they are tensors, else
                that of the encodings' parameters, else the CPU.

        Raises:
            BadInput: positions are not integers, have neither one nor two axes, or no token.
        """
        query, key = queries_and_keys(positions, key_positions)
        terms = self.terms(query, key, dtype=dtype, device=device)
        return order_of(self.scale, terms.values(), positions=(query, key), two_sided=self.two_sided)

    @property
    def two_sided(self) -> bool:
        """Whether a part has weights of its own for keys on the right."""
        return any(getattr(module, "bidirectional", False) for module in self.parts.modules())

    def terms(
        self,
        positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> dict[str, Term]:
        """What each part makes of positions, by its name; what acts on embeddings, or nowhere, has no term.

        Arguments as in `prepare`.
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
        """The parts that act in layer ``layer`` (from 0), or before the first one; here all of them."""
        del layer
        return tuple(self.parts.values())

    def cost_parts(self) -> dict[str, int]:
        """Parameters per part of each encoding; of one that replaces the embeddings, those beyond the words' table."""
        return {
            f"{name} {part}": count
            for name, encoding in {**dict(self.parts.items()), **self._replacing}.items()
            if isinstance(encoding, Encoding)
            for part, count in encoding.cost_parts().items()
        }


def queries_and_keys(
    positions: Positions | Tensor | int, key_positions: Positions | Tensor | int | None
) -> tuple[Positions, Positions]:
    """Typed positions of queries and of keys, which are the queries' where none are given.

    Raises:
        BadInput: as in `as_positions`.
    """
    query = as_positions(positions)
    return query, query if key_positions is None else as_positions(key_positions)


def content_scale(parts: Mapping[str, Encoding], head_dim: int) -> float:
    """What q.k is multiplied by where these encodings act together: 1/sqrt(head_dim) unless one decides otherwise.

    Raises:
        ValueError: two of them ask for different scales.
    """
    scales = {name: part.content_scale(head_dim) for name, part in parts.items()}
    wanted = {scale for scale in scales.values() if scale is not None}
    if len(wanted) > 1:
        raise ValueError(f"these encodings ask for different content scales and cannot act together: {scales}")
    return wanted.pop() if wanted else head_dim**-0.5


def pattern_of(name: str) -> tuple[tuple[str, ...], ...]:
    """The catalogue names of each layer in the pattern that "a,b+c" repeats over the layers: (("a",), ("b", "c")).

    "a*3,b" is short for "a,a,a,b".

    Raises:
        BadInput: a name is not in the catalogue (the known ones are listed), or occurs twice in a layer; or a number of
            layers is none.
    """
    pattern: list[tuple[str, ...]] = []
    for text in name.split(","):
        part, star, count = text.partition("*")
        if star and not (count.strip().isdecimal() and 0 < int(count.strip()[:4]) <= _MOST_IN_A_ROW):
            most = f"1 .. {_MOST_IN_A_ROW}"
            raise BadInput(f"encoding {name!r}: after '*' stands how many layers in a row, {most}, got {count!r}")
        pattern += [_names_of_layer(part, name)] * (int(count) if star else 1)
    return tuple(pattern)


def names_of(name: str) -> tuple[str, ...]:
    """The catalogue names that "a+b", or "a,b", is made of, each once.

    Raises:
        BadInput: as in `pattern_of`.
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
    """Options of an encoding with their defaults: what its constructor takes beyond the network's sizes."""
    parameters = inspect.signature(encoding).parameters
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # of nn.Module's own constructor
    return {name: p.default for name, p in parameters.items() if name not in _SIZES and p.kind not in anything}


def _annotations(encoding: type[Encoding]) -> dict[str, Any]:
    """Type hints of the constructor's arguments; none where somebody's file writes what cannot be read."""
    try:
        return get_type_hints(encoding.__init__)
    except Exception:  # names that are imported for type checkers alone, or are wrong
        return {}


def split_options(name: str, options: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Options per part: ``{"tupe-a": {...}}``; a single encoding may have them flat.

    Raises:
        BadInput: one line per option that no part knows, with the known ones.
    """
    names, given = names_of(name), dict(options or {})
    if len(names) == 1 and names[0] not in given:
        given = {names[0]: given}
    faults: list[str] = []
    values: Any
    for part, values in given.items():
        if part not in names:
            faults.append(f"encoding_options.{part}: not a part of encoding {name!r}; parts: {', '.join(names)}")
        elif not isinstance(values, Mapping):
            faults.append(f"encoding_options.{part} must be a table of options, got {values!r}")
        else:
            annotations = _annotations(CATALOG[part])
            hints = {option: annotations.get(option, Any) for option in options_of(CATALOG[part])}
            faults += option_faults("encoding_options", part, cast("dict[str, Any]", values), hints)
    if faults:
        raise BadInput(faults)
    return {part: dict(given.get(part, {})) for part in names}
