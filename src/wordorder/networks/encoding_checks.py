"""Check in seconds, on tiny networks, that an encoding fits training, packing, padding, caching and saving.

A wrong encoding breaks them without an error message: a decoder that sees the next token has a wonderful loss. Every
check yields one sentence per fault, with its remedy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from wordorder.encodings import (
    CATALOG,
    Composition,
    ContentTerm,
    Encoding,
    Move,
    OnEmbeddings,
    OnQueriesAndKeys,
    OnScores,
    OnScoresByContent,
    ReplacesEmbedding,
    Use,
    build_encoding,
    names_of,
    options_of,
)
from wordorder.encodings.composition import drawn_by_base, keeps_start_values
from wordorder.errors import BadInput
from wordorder.networks.cache import KeyValueCache
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder
from wordorder.networks.initialisation import initialise
from wordorder.ops import Bias, Contiguous, Mask, Packed, Positions

USES: tuple[Use, ...] = ("encoder", "decoder", "cross-attention")

SIZES = {"width": 24, "heads": 4, "layers": 2, "max_positions": 32, "vocabulary": 23}
"""Sizes of the test networks: small, and no two alike (six channels per head), so that none is mistaken for another."""

HEADS, HEAD_DIM = 4, 6
BATCH, QUERIES, KEYS = 3, 5, 7
"""Sizes of the tensors that one term is tried on."""

CLOSE = 1e-9
"""Largest difference of two float64 outputs that count as equal, relative to the largest output."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16)

_UNDER_TEST = "encoding-under-test"
_PREFIX = "parts.encoding_under_test."
_NOT_FINITE = "NaN or infinity; look at distance 0 and position 0 (a logarithm, a root, a division)"
_SIZES_HINT = (
    "its constructor may take width, heads, head_dim, layers, max_positions, vocabulary, padding_idx and"
    " bidirectional, which the network gives it; every other argument is an option and needs a type and a default"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about an encoding: a fault, a refusal or a piece of information.

    Args:
        kind: "fault", what must be mended; "refused", the encoding itself says that it is not for this use, and why;
            "information".
        check: what was tried, in two or three words.
        message: what came out, and what to do about it.
    """

    kind: Literal["fault", "refused", "information"]
    check: str
    message: str


def check_encoding(
    encoding: str | type[Encoding], *, use: Use = "encoder", options: Mapping[str, object] | None = None
) -> list[Finding]:
    """Try an encoding out in tiny networks.

    Args:
        encoding: a name of the catalogue (or several joined), or a class that need not be in it.
        use: where: in an "encoder", a "decoder", or for "cross-attention", where the term alone is tried on texts of
            two lengths.
        options: of the encoding; None = its defaults.

    Returns:
        Faults, each with its remedy; where it is refused, that and nothing else; and what is worth knowing. An encoding
        without a fault may be trained.

    Raises:
        BadInput: no encoding has that name.
        ValueError: it is neither a name nor a class of encodings, or there is no such use.
    """
    if use not in USES:
        raise ValueError(f"use must be one of {', '.join(USES)}, got {use!r}")
    if isinstance(encoding, str):
        return _findings(Subject(encoding, use, options))
    if not (isinstance(encoding, type) and issubclass(encoding, Encoding)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"encoding must be a name or a class of wordorder.encodings.Encoding, got {encoding!r}")
    CATALOG[_UNDER_TEST] = encoding
    try:
        return _findings(Subject(_UNDER_TEST, use, options))
    finally:
        del CATALOG[_UNDER_TEST]


@dataclass(frozen=True, slots=True)
class Subject:
    """An encoding to check: its name, the network that uses it, and its options."""

    name: str
    use: Use
    options: Mapping[str, object] | None

    def build(self) -> Composition:
        """Build the encoding alone."""
        return build_encoding(self.name, use=self.use, options=self.options, **SIZES)  # pyright: ignore[reportArgumentType]

    def network(self, dtype: torch.dtype = torch.float64, *, seed: int = 5, layers: int = 2) -> Encoder | Decoder:
        """Build a tiny network with the encoding, its weights far from 0 so that nothing is hidden by small numbers."""
        kind, sizes = Decoder if self.use == "decoder" else Encoder, {**SIZES, "layers": layers}
        vocabulary = sizes.pop("vocabulary")
        style = {"encoding": self.name, "encoding_options": self.options, "dropout": 0.0, "attention_dropout": 0.0}
        network = kind(vocabulary, **sizes, **style).eval()  # pyright: ignore[reportArgumentType]
        initialise(network, seed=seed, std=0.3)
        with torch.no_grad():
            for index, parameter in enumerate(network.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * seed + index))
                parameter += 0.05 * noise
        return network.to(dtype)


Check = Callable[[Subject], Iterator[str]]


def _findings(subject: Subject) -> list[Finding]:
    # torch leaves the types of these open
    with cast("Any", torch.random).fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would start those of GPUs anew too
        kinds = [CATALOG[part] for part in names_of(subject.name)]
        refused = [kind.refused_in[subject.use] for kind in kinds if subject.use in kind.refused_in]
        if refused:
            return [Finding("refused", "definition", "; ".join(refused))]
        findings = [Finding("fault", "construction", text) for text in _construction(subject)]
        if findings:
            return findings
        for name, check in CHECKS.items():
            if subject.use == "decoder" or name == "terms" or (subject.use == "encoder" and name not in OF_DECODERS):
                findings += [Finding("fault", name, text) for text in _said(check, subject)]
        if not findings and subject.use != "cross-attention":
            findings.append(Finding("information", "word order", _word_order(subject)))
            findings += [Finding("information", "start values", text) for text in _start_values(subject)]
    return findings


def _said(check: Check, subject: Subject) -> list[str]:
    """Return the faults that a check finds; an error that it raises is a fault too."""
    try:
        return list(check(subject))
    except Exception as error:  # whatever somebody's code raises
        kind = type(error).__name__
        return [f"it raised {kind}: {error}; it must take any typed positions, of any length, in any floating dtype"]


def _construction(subject: Subject) -> Iterator[str]:
    kind = CATALOG.get(subject.name)
    needed = [name for name, default in options_of(kind).items() if default is Parameter.empty] if kind else []
    if needed:
        yield f"{', '.join(needed)}: an argument without a default that no network gives; {_SIZES_HINT}"
        return
    try:
        with torch.device("meta"):  # as configurations are checked and costs are counted
            built = subject.build()
    except BadInput as error:
        yield f"it cannot be built: {' '.join(error.faults)}"
        return
    except Exception as error:
        yield (
            f"it cannot be built on torch's meta device, where models are checked and counted: {type(error).__name__}:"
            f" {error}; {_SIZES_HINT}, and it must not look at what its tensors contain"
        )
        return
    for module in (built,) if built.replacement is None else (built, built.replacement):
        for name, parameter in module.named_parameters():
            if parameter.is_complex():
                yield f"parameter {name} is complex, which optimisers and NCCL refuse; hold real and imaginary part"
        for name, _ in module.named_buffers():
            yield (
                f"it holds a buffer, {name.rpartition('.')[2]}, which is not initialised where a saved model is loaded;"
                " compute it in forward, or make it a parameter"
            )


def _terms(subject: Subject) -> Iterator[str]:
    """Check what each encoding returns at the place where it acts: types, shapes, dtypes, finite numbers."""
    built = subject.build()
    parts: dict[str, nn.Module] = dict(built.parts.items())
    if isinstance(built.replacement, ReplacesEmbedding):
        parts["embedding"] = built.replacement
    for name, part in parts.items():
        for dtype in DTYPES:
            for fault in _term_faults(part.to(dtype), dtype):
                yield fault if len(parts) == 1 else f"{name}: {fault}"


def _term_faults(part: nn.Module, dtype: torch.dtype) -> Iterator[str]:
    query, key, shape = Contiguous(QUERIES, 2), Contiguous(KEYS), (BATCH, QUERIES, SIZES["width"])
    if isinstance(part, OnEmbeddings):
        x_BTC = torch.randn(shape, dtype=dtype)
        for positions in (Contiguous(QUERIES), _packed()):
            yield from _like(
                part(x_BTC, positions), shape, dtype, f"embeddings at {type(positions).__name__} positions"
            )
    elif isinstance(part, ReplacesEmbedding):
        tokens = torch.randint(SIZES["vocabulary"], (BATCH, QUERIES))
        yield from _like(part(tokens, Contiguous(QUERIES)), shape, dtype, "embeddings")
    elif isinstance(part, OnQueriesAndKeys):
        moves = part(query, key, dtype=dtype)
        if len(moves) != 2 or not all(isinstance(move, Move) for move in moves):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"forward must return two Moves, of the queries and of the keys, got {moves!r}"
            return
        for move, tokens in zip(moves, (QUERIES, KEYS), strict=True):
            x_BHTD = torch.randn(BATCH, HEADS, tokens, HEAD_DIM, dtype=dtype)
            yield from _like(move.apply(x_BHTD), x_BHTD.shape, dtype, "queries or keys")
    elif isinstance(part, OnScores):
        for pair in ((query, key), (_packed(), _packed()), (Contiguous(1), Contiguous(1))):
            yield from _bias_faults(part, *pair, dtype)
    elif isinstance(part, OnScoresByContent):
        term = part(query, key, dtype=dtype)
        if not isinstance(term, ContentTerm):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"forward must return a ContentTerm, got {type(term).__name__}"
            return
        q_BHTD = torch.randn(BATCH, HEADS, QUERIES, HEAD_DIM, dtype=dtype)
        k_BHSD = torch.randn(BATCH, HEADS, KEYS, HEAD_DIM, dtype=dtype)
        scores = term.layer(1).scores(q_BHTD, k_BHSD, HEAD_DIM**-0.5, Mask(query, key))
        yield from _like(scores, (BATCH, HEADS, QUERIES, KEYS), None, "scores")


def _bias_faults(part: OnScores, query: Positions, key: Positions, dtype: torch.dtype) -> Iterator[str]:
    bias = part(query, key, dtype=dtype)
    if not isinstance(bias, Bias):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"forward must return a Bias (DenseBias, ToeplitzBias, LowRankBias), got {type(bias).__name__}"
        return
    dense, kind = bias.dense(), f"{type(query).__name__} positions"
    if dense.dim() != 4 or dense.shape[1] not in (1, HEADS) or dense.shape[2:] != (query.length, key.length):
        expected = (1, HEADS, query.length, key.length)
        yield f"at {kind} the bias is {tuple(dense.shape)}, and must be (B or 1, H or 1, T, S) = {expected}"
    elif torch.promote_types(dense.dtype, dtype) != dense.dtype:
        yield f"in a network of {dtype} the bias is {dense.dtype}; compute it in at least that, or in float32"
    elif dense.isnan().any() or (dense == torch.inf).any() or not (bias.may_hide or dense.isfinite().all()):
        yield f"at {kind} the bias holds {_NOT_FINITE}; padding stands at negative positions"


def _like(output: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None, what: str) -> Iterator[str]:
    """Yield the faults of a tensor of known shape and dtype; a dtype of None stands for any of floating point."""
    if output.shape != shape:
        yield f"{what} are {tuple(output.shape)}, and must be {tuple(shape)}; return x in the shape that it came in"
    elif (dtype is not None and output.dtype != dtype) or not output.is_floating_point():
        yield f"{what} come back as {output.dtype} where they were {dtype}; end with .type_as(x)"
    elif not output.isfinite().all():
        yield f"{what} hold {_NOT_FINITE}; large positions do not fit 16 bits, so compute in at least float32"


def _packed() -> Packed:
    """Return positions of two texts in a row."""
    position = torch.tensor([[0, 1, 2, 0, 1]]).expand(BATCH, -1)
    return Packed(position, torch.tensor([[0, 0, 0, 1, 1]]).expand(BATCH, -1))


def _shapes(subject: Subject) -> Iterator[str]:
    for dtype in DTYPES:
        network = subject.network(dtype)
        for length in (1, 2, 9):
            hidden, shape = network(_ids(3, length)).hidden, (3, length, SIZES["width"])
            yield from _like(hidden, shape, dtype, f"states of {length} tokens, in a network of {dtype},")


def _saving(subject: Subject) -> Iterator[str]:
    first, second, ids = subject.network(), subject.network(seed=6), _ids(2, 9)
    second.load_state_dict(first.state_dict())
    if not torch.equal(first(ids).hidden, second(ids).hidden):
        yield (
            "a network with the same weights, saved and loaded, gives another output; what the encoding depends on must"
            " be a parameter or follow from its constructor's arguments"
        )
    elif not torch.equal(first(ids).hidden, first(ids).hidden):
        yield "the same input gives another output the second time; keep nothing between calls, and draw nothing"


def _gradients(subject: Subject) -> Iterator[str]:
    """Compare autograd with central differences, along one random direction per parameter."""
    network, ids, step = subject.network(), _ids(2, 9), 1e-6
    watched = {f"encoding.{name}": p for name, p in network.encoding.named_parameters()}
    watched |= {f"embedding.{name}": p for name, p in network.embedding.named_parameters()}
    upstream = torch.randn(2, 9, SIZES["width"], dtype=torch.float64)
    loss = (network(ids).hidden * upstream).sum()
    gradients = torch.autograd.grad(loss, list(watched.values()), allow_unused=True, materialize_grads=True)
    for (name, parameter), gradient in zip(watched.items(), gradients, strict=True):
        direction, slopes = torch.randn_like(parameter), list[float]()
        with torch.no_grad():
            start = parameter.clone()
            for sign in (1, -1):
                parameter.copy_(start + sign * step * direction)
                slopes.append((network(ids).hidden * upstream).sum().item())
            parameter.copy_(start)
        numeric, exact = (slopes[0] - slopes[1]) / (2 * step), (gradient * direction).sum().item()
        if not abs(exact - numeric) <= 1e-4 * max(1.0, abs(numeric)):  # so that NaN is a fault
            yield (
                f"the gradient of {name} is {exact:.6g} along a direction in which the output changes by"
                f" {numeric:.6g}; do not detach, round or change tensors in place on the way"
            )


def _padding(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [_ids(1, length)[0] for length in (9, 4, 1)]
    alone = _each_alone(network, texts)
    for side in ("right", "left"):
        ids = torch.zeros(3, 9, dtype=torch.long)
        valid = torch.zeros(3, 9, dtype=torch.bool)
        for row, text in enumerate(texts):
            where = slice(0, len(text)) if side == "right" else slice(9 - len(text), 9)
            ids[row, where], valid[row, where] = text, True
        positions = Contiguous(9) if side == "right" else Contiguous(9, -valid.int().argmax(1))
        yield from _same(
            network(ids, positions, key_padding_mask=~valid).hidden[valid],
            alone,
            f"a text padded on the {side} is read otherwise than alone; take positions from those that are given, which"
            " differ by example, and nothing from other tokens or from the length",
        )


def _packing(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [_ids(1, length)[0] for length in (5, 1, 7)]
    position = torch.cat([torch.arange(len(text)) for text in texts])[None]
    sequence = torch.cat([torch.full((len(text),), index) for index, text in enumerate(texts)])[None]
    yield from _same(
        network(torch.cat(texts)[None], Packed(position, sequence)).hidden[0],
        _each_alone(network, texts),
        "texts packed into one row are read otherwise than alone; take positions from positions.index_BT(), which begin"
        " anew with every text, not from the place in the row",
    )


def _causality(subject: Subject) -> Iterator[str]:
    network, ids = subject.network(), _ids(1, 9)
    before = network(ids).hidden
    for place in (1, 4, 8):
        changed = ids.clone()
        changed[0, place] = (changed[0, place] + 1) % SIZES["vocabulary"]
        fault = (
            f"a decoder's tokens see what comes after them: another token {place} changed those before it; compute what"
            " you add to a token from it and its position alone (no roll, mean or norm over the tokens), and let the"
            " mask hide keys: never undo an -inf"
        )
        if faults := [*_same(network(changed).hidden[:, :place], before[:, :place], fault)]:
            yield faults[0]
            return


def _cache(subject: Subject) -> Iterator[str]:
    network, ids, cache = subject.network(), _ids(2, 9), KeyValueCache()
    chunks = (ids[:, :4], ids[:, 4:5], ids[:, 5:6], ids[:, 6:])
    yield from _same(
        torch.cat([network(chunk, cache=cache).hidden for chunk in chunks], 1),
        network(ids).hidden,
        "a text written token by token with a cache is read otherwise than at once; there are more keys than queries"
        " then, so use the queries' and the keys' own positions",
    )


def _word_order(subject: Subject) -> str:
    """Say whether word order is visible; it is no fault if it is not, since `none` is an arm too."""
    # in a second layer a causal mask alone tells the order; the last token of a first layer sees a bag of words
    network, ids = subject.network(layers=1 if "," not in subject.name else 2), torch.arange(1, 10)[None]
    other = ids[:, [0, 1, 7, 3, 4, 5, 6, 2, 8]]
    if any(_same(network(other).hidden[:, 8], network(ids).hidden[:, 8], "visible")):
        return "word order is visible: others see that two tokens have changed places"
    besides = ", but for what the causal mask tells" if subject.use == "decoder" else ""
    return f"word order is not visible: that two tokens have changed places makes no difference to others{besides}"


def _start_values(subject: Subject) -> Iterator[str]:
    """Tell with what a class of one's own starts, if nobody draws its parameters."""
    built = subject.build()
    modules = built if built.replacement is None else built.replacement
    starts: dict[str, Tensor] = {}
    for prefix, module in cast("Iterator[tuple[str, nn.Module]]", modules.named_modules()):
        if keeps_start_values(module):
            starts |= {name.removeprefix(_PREFIX): p for name, p in module.named_parameters(prefix, recurse=False)}
    for part in [*built.parts.values(), built.replacement]:
        if isinstance(part, Encoding) and (message := drawn_by_base(part)):
            yield message
    ranges = [f"{name} {tuple(p.shape)} from {p.min():.3g} to {p.max():.3g}" for name, p in starts.items()]
    if ranges:
        yield (
            f"training starts with what the constructor sets: {', '.join(ranges)}; draw_parameters(std, generator_for)"
            " would draw them from the seed"
        )


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(1, SIZES["vocabulary"], (batch, length))


def _each_alone(network: Encoder | Decoder, texts: Sequence[Tensor]) -> Tensor:
    """Return the states of the tokens of all texts, each of which is read by itself."""
    return torch.cat([network(text[None]).hidden[0] for text in texts])


def _same(output: Tensor, expected: Tensor, fault: str) -> Iterator[str]:
    """Yield the fault where two outputs differ by more than `CLOSE` of the largest entry, or are not finite."""
    difference = ((output - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()
    if not difference <= CLOSE:
        yield f"{fault} (difference: {difference:.1e} of the largest output)"


CHECKS: dict[str, Check] = {
    "terms": _terms,
    "shapes and dtypes": _shapes,
    "saving and repeating": _saving,
    "gradients": _gradients,
    "padding": _padding,
    "packing": _packing,
    "causality": _causality,
    "cache": _cache,
}
"""The checks by name, in the order in which they run; those of `OF_DECODERS` in decoders only."""

OF_DECODERS = ("causality", "cache")
