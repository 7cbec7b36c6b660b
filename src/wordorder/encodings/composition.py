"""Encodings by name, several of which may act together: "tupe-r", "learned+t5", "rope+tupe-a"."""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from wordorder.encodings.catalog import CATALOG
from wordorder.encodings.order import Order
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
from wordorder.ops import Bias, Positions
from wordorder.ops.precision import no_autocast

Use = Literal["encoder", "decoder", "cross-attention"]
WithMemory = Literal["none", "segment-recurrence", "look-ahead"]

# What a network tells an encoding about itself; every other argument of an encoding's constructor is an option.
_SIZES = ("width", "heads", "head_dim", "layers", "max_positions", "vocabulary", "padding_idx")


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
        scales = {name: part.content_scale(head_dim) for name, part in parts.items()}
        wanted = {scale for scale in scales.values() if scale is not None}
        if len(wanted) > 1:
            raise ValueError(f"these encodings ask for different content scales and cannot act together: {scales}")
        self.scale: float = wanted.pop() if wanted else head_dim**-0.5

    @property
    def replacement(self) -> ReplacesEmbedding | None:
        """What takes the place of the network's token embeddings; None = nothing does.

        The network registers it as its own ``embedding``, under which name its weights are saved.
        """
        return next(iter(self._replacing.values()), None)

    def drop_replacement(self) -> None:
        """Let go of `replacement`, for a network that reads the token embeddings of another."""
        self._replacing = {}

    def embed(self, x_BTC: Tensor, positions: Positions, window: Positions | None = None) -> Tensor:
        """Embeddings with the parts that act on embeddings applied, in the order of the name.

        Args:
            x_BTC: token embeddings.
            positions: where the tokens stand in their text.
            window: where they stand in what attention sees, the oldest slot of a memory being 0; a table, which the
                text would outgrow, is read at these. None = the text is all there is.
        """
        for part in self.parts.values():
            if isinstance(part, OnEmbeddings):
                x_BTC = part(x_BTC, window if part.bounded and window is not None else positions)
        return x_BTC

    def prepare(
        self,
        positions: Positions,
        key_positions: Positions | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Order:
        """Everything that positions alone decide, once per forward.

        Args:
            positions: of the queries.
            key_positions: of the keys; the queries' where not given (self-attention).
            dtype: of the activations; angles are in at least float32.
            device: of the activations; default: the CPU.
        """
        key = positions if key_positions is None else key_positions
        device = device or torch.device("cpu")
        turning = [part for part in self.parts.values() if isinstance(part, OnQueriesAndKeys)]
        turns = [part.prepare(positions, key, dtype=dtype, device=device) for part in turning]
        bias: Bias | None = None
        for part in self.parts.values():
            if isinstance(part, OnScores):
                with no_autocast(device):  # a few rows of a table: 16 bits would cost exactness and save nothing
                    term: Bias = part(positions, key, device, dtype)
                bias = term if bias is None else bias + term
        by_content = [part for part in self.parts.values() if isinstance(part, OnScoresByContent)]
        content = tuple(part.prepare(positions, key, device=device) for part in by_content)
        return Order(self.scale, bias, tuple(q for q, _ in turns), tuple(k for _, k in turns), content)

    def cost_parts(self) -> dict[str, int]:
        """Parameters per part of each encoding; of one that replaces the embeddings, those beyond the words' table."""
        return {
            f"{name} {part}": count
            for name, encoding in {**dict(self.parts.items()), **self._replacing}.items()
            if isinstance(encoding, Encoding)
            for part, count in encoding.cost_parts().items()
        }


def names_of(name: str) -> tuple[str, ...]:
    """The catalogue names that "a+b" is made of.

    Raises:
        BadInput: a name is not in the catalogue (the known ones are listed), or occurs twice.
    """
    names = tuple(part.strip() for part in name.split("+"))
    for part in names:
        if part not in CATALOG:
            close = difflib.get_close_matches(part, CATALOG, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise BadInput(f"unknown encoding {part!r}; {hint}known: {', '.join(CATALOG)}; join several with '+'")
    if len(set(names)) < len(names):
        raise BadInput(f"encoding {name!r} names a part twice")
    return names


def options_of(encoding: type[Encoding]) -> dict[str, Any]:
    """Options of an encoding with their defaults: what its constructor takes beyond the network's sizes."""
    parameters = inspect.signature(encoding).parameters
    return {name: p.default for name, p in parameters.items() if name not in _SIZES}


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
            annotations = inspect.signature(CATALOG[part]).parameters
            hints = {option: annotations[option].annotation for option in options_of(CATALOG[part])}
            faults += option_faults("encoding_options", part, cast("dict[str, Any]", values), hints)
    if faults:
        raise BadInput(faults)
    return {part: dict(given.get(part, {})) for part in names}


def build_encoding(
    name: str,
    *,
    width: int,
    heads: int,
    layers: int,
    max_positions: int,
    use: Use = "encoder",
    options: Mapping[str, Any] | None = None,
    vocabulary: int | None = None,
    padding_idx: int | None = None,
    complex_valued: bool = False,
    with_memory: WithMemory = "none",
) -> Composition:
    """Build the encodings that ``name`` lists, sized for a network.

    Args:
        name: a name of the catalogue, or several joined by "+".
        width: model channels, C.
        heads: attention heads, H.
        layers: layers of the network.
        max_positions: longest text in tokens; limits learned tables only.
        use: where it is used; decides the defaults of ``bidirectional`` (False in decoders) and ``cls``
            ("position-0" in encoders, "none" elsewhere).
        options: further arguments of the encodings; flat for one, ``{"name": {...}}`` for several.
        vocabulary: number of token ids, for encodings that replace the token embeddings.
        padding_idx: token id that those keep at 0.
        complex_valued: the network's channels are [real | imag]: such encodings then give both (``as_real="pair"``)
            instead of mapping them to real numbers.
        with_memory: the network's memory. With "look-ahead" queries meet keys to their right in decoders too, so that
            ``bidirectional`` defaults to True; with any memory ``cls`` defaults to "none", because position 0 of what
            attention sees is the oldest slot and no longer [CLS].

    Raises:
        BadInput: unknown name or option, an encoding that is not defined for this use (with the reason), or
            ``cls="position-0"`` with a memory.
        ValueError: an option is out of range.
    """
    sizes = {
        "width": width,
        "heads": heads,
        "head_dim": width // heads,
        "layers": layers,
        "max_positions": max_positions,
        "vocabulary": vocabulary,
        "padding_idx": padding_idx,
    }
    by_use = {
        "bidirectional": use != "decoder" or with_memory == "look-ahead",
        "cls": "position-0" if use == "encoder" and with_memory == "none" else "none",
        "as_real": "pair" if complex_valued else "concat",
    }
    parts: dict[str, Encoding] = {}
    for part, chosen in split_options(name, options).items():
        encoding = CATALOG[part]
        if use in encoding.refused_in:
            raise BadInput(f"encoding {part!r} is not defined for {use}: {encoding.refused_in[use]}")
        if issubclass(encoding, ReplacesEmbedding) and vocabulary is None:
            raise BadInput(f"encoding {part!r} replaces the token embeddings: pass vocabulary, the number of token ids")
        if with_memory != "none" and chosen.get("cls", "none") != "none":
            raise BadInput(
                f"encoding_options: {part}.cls={chosen['cls']!r} has no meaning with memory={with_memory!r}, where "
                "position 0 is the oldest slot and not [CLS]; leave cls out, or set it to 'none'"
            )
        takes = inspect.signature(encoding).parameters
        arguments = {key: value for key, value in {**sizes, **by_use}.items() if key in takes}
        # Named after the file, not the variant: arms such as tupe-a and tupe-r then share what they have in common.
        family = encoding.__module__.rsplit(".", 1)[-1]
        if family in parts:
            raise BadInput(f"encoding {name!r} has two variants of {family}; take one of them")
        parts[family] = encoding(**{**arguments, **chosen})
    return Composition(parts, head_dim=width // heads)
