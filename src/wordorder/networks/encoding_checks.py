"""Check in seconds, on tiny networks, that an encoding fits training, packing, padding, caching and saving.

A wrong encoding breaks them without an error message: a decoder that sees the next token has a wonderful loss. Every
check yields one sentence per fault, with its remedy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from wordorder.encodings import (
    CATALOG,
    Composition,
    Encoding,
    Use,
    build_encoding,
    names_of,
    options_of,
)
from wordorder.encodings.composition import drawn_by_base, keeps_start_values
from wordorder.encodings.places import check_choice
from wordorder.errors import BadInput
from wordorder.networks.cache import KeyValueCache
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder
from wordorder.networks.initialisation import initialise
from wordorder.ops import Bias, Contiguous, Mask, Packed, Positions

USES: tuple[Use, ...] = get_args(Use)

SIZES: dict[str, Any] = {"width": 24, "heads": 4, "layers": 2, "max_positions": 32}
"""Sizes of the test networks: small, and no two alike (six channels per head), so that none is mistaken for another."""

VOCABULARY, HEAD_DIM = 23, 6
BATCH, QUERIES, KEYS = 3, 5, 7
"""Sizes of the tensors that one term is tried on."""

CLOSE = 1e-9
"""Largest difference of two float64 outputs that count as equal, relative to the largest entry."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16)

_UNDER_TEST = "encoding-under-test"
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
    check_choice("use", use, Use)
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
        return build_encoding(self.name, use=self.use, options=self.options, vocabulary=VOCABULARY, **SIZES)

    def network(self, dtype: torch.dtype = torch.float64, *, layers: int = 2) -> Encoder | Decoder:
        """Build a tiny network with the encoding."""
        kind = Decoder if self.use == "decoder" else Encoder
        return tiny(kind, encoding=self.name, encoding_options=self.options, layers=layers).to(dtype)


Network = TypeVar("Network", bound=Encoder | Decoder)


def tiny(kind: type[Network], **options: Any) -> Network:
    """Build a tiny float64 network, its weights far from 0 so that nothing is hidden by small numbers."""
    network = kind(VOCABULARY, **{**SIZES, **options}, dropout=0.0, attention_dropout=0.0).eval()
    initialise(network, std=0.3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return network.double()


Check = Callable[[Subject], Iterable[str]]


def _findings(subject: Subject) -> list[Finding]:
    kinds = [CATALOG[part] for part in names_of(subject.name)]
    refused = [kind.refused_in[subject.use] for kind in kinds if subject.use in kind.refused_in]
    if refused:
        return [Finding("refused", "definition", "; ".join(refused))]
    findings = [Finding("fault", "construction", text) for text in tried(partial(_construction, subject))]
    if findings:
        return findings
    advice = "; it must take any typed positions, of any length, in any floating dtype"
    for name, check in list(CHECKS.items())[: RUN[subject.use]]:
        findings += [Finding("fault", name, text) for text in tried(partial(check, subject), advice)]
    if not findings and subject.use != "cross-attention":
        for name, tell in (("word order", _word_order), ("start values", _start_values)):
            findings += [Finding("information", name, text) for text in tried(partial(tell, subject))]
    return findings


def tried(check: Callable[[], Iterable[str]], advice: str = "") -> list[str]:
    """Return the faults that a check finds, with random numbers of its own; an error that it raises is a fault too."""
    with cast("Any", torch.random).fork_rng(devices=[]):  # torch leaves the type open
        torch.default_generator.manual_seed(0)  # torch.manual_seed would start those of GPUs anew too
        try:
            return list(dict.fromkeys(check()))  # what is wrong at two sizes or in two layers is told once
        except Exception as error:  # whatever somebody's code raises
            return [f"it raised {type(error).__name__}: {error}{advice}"]


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
    for part in built.all_parts().values():
        for name, parameter in part.named_parameters():
            if parameter.is_complex():
                yield f"parameter {name} is complex, which optimisers and NCCL refuse; hold real and imaginary part"
        for name, _ in part.named_buffers():
            yield (
                f"it holds a buffer, {name.rpartition('.')[2]}, which is not initialised where a saved model is loaded;"
                " compute it in forward, or make it a parameter"
            )


def _terms(subject: Subject) -> Iterator[str]:
    """Check what the encoding gives the network at each place: types, shapes, dtypes, finite numbers."""
    built, heads, two_texts = subject.build(), SIZES["heads"], _packed(3, 2, rows=BATCH)
    for dtype in DTYPES:
        x_BTC = torch.randn(BATCH, QUERIES, SIZES["width"], dtype=dtype)
        built.to(dtype)
        for positions in (Contiguous(QUERIES), two_texts):
            where = f"embeddings at {type(positions).__name__} positions"
            yield from _like(built.embed(x_BTC, positions), x_BTC.shape, dtype, where)
        if built.replacement is not None:
            embedding, tokens_BT = built.replacement.to(dtype), torch.randint(VOCABULARY, (BATCH, QUERIES))
            yield from _like(embedding(tokens_BT, Contiguous(QUERIES)), x_BTC.shape, dtype, "embeddings")
        for query, key in ((Contiguous(QUERIES, 2), Contiguous(KEYS)), (two_texts,) * 2, (Contiguous(1),) * 2):
            q_BHTD, k_BHSD = (torch.randn(BATCH, heads, x.length, HEAD_DIM, dtype=dtype) for x in (query, key))
            all_terms = built.prepare(query, key, dtype=dtype)
            for terms in map(all_terms.layer, range(SIZES["layers"])):
                width = HEAD_DIM * terms.widening
                x_BTC = torch.randn(BATCH, query.length, SIZES["width"], dtype=dtype)
                yield from _like(terms.change_input(x_BTC, x_BTC), x_BTC.shape, dtype, "inputs of attention")
                yield from _like(terms.move_queries(q_BHTD), (*q_BHTD.shape[:3], width), dtype, "queries")
                yield from _like(terms.move_keys(k_BHSD), (*k_BHSD.shape[:3], width), dtype, "keys")
                for bias in () if terms.bias is None else terms.bias.parts():
                    yield from _bias_faults(bias, query, key, dtype)
                features = terms.features(torch.randn(BATCH, key.length, SIZES["width"], dtype=dtype), query.length)
                for term in terms.content:
                    term = term.with_features(features, terms.positions)
                    scores_BHTS = term.scores(q_BHTD, k_BHSD, terms.scale, Mask(query, key))
                    yield from _like(scores_BHTS, (BATCH, heads, query.length, key.length), None, "scores")


def _bias_faults(bias: Bias, query: Positions, key: Positions, dtype: torch.dtype) -> Iterator[str]:
    dense, kind, expected = bias.dense(), f"{type(query).__name__} positions", (1, 4, query.length, key.length)
    if dense.dim() != 4 or dense.shape[1] not in (1, SIZES["heads"]) or dense.shape[2:] != expected[2:]:
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


def _packed(*lengths: int, rows: int = 1) -> Packed:
    """Return the positions of texts of these lengths, one after the other in each row."""
    position_T = torch.cat([torch.arange(length) for length in lengths])
    sequence_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return Packed(position_T.expand(rows, -1), sequence_T.expand(rows, -1))


def _shapes(subject: Subject) -> Iterator[str]:
    for dtype in DTYPES:
        network = subject.network(dtype)
        for length in (1, 2, 9):
            hidden, shape = network(random_ids(3, length)).hidden, (3, length, SIZES["width"])
            yield from _like(hidden, shape, dtype, f"states of {length} tokens, in a network of {dtype},")


def _saving(subject: Subject) -> Iterator[str]:
    first, second, ids = subject.network(), subject.network(), random_ids(2, 9)
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
    network, ids, step = subject.network(), random_ids(2, 9), 1e-6
    upstream = torch.randn(2, 9, SIZES["width"], dtype=torch.float64)
    parameters = {name: p for name, p in network.named_parameters() if name.startswith(("encoding.", "embedding."))}
    loss = (network(ids).hidden * upstream).sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        direction, losses = torch.randn_like(parameter), list[float]()
        with torch.no_grad():
            for steps in (1, -2, 1):  # from the start to one side, to the other, and back
                parameter += steps * step * direction
                losses.append((network(ids).hidden * upstream).sum().item())
        numeric, exact = (losses[0] - losses[1]) / (2 * step), (gradient * direction).sum().item()
        if not abs(exact - numeric) <= 1e-4 * max(1.0, abs(numeric)):  # so that NaN is a fault
            yield (
                f"the gradient of {name} is {exact:.6g} along a direction in which the output changes by"
                f" {numeric:.6g}; do not detach, round or change tensors in place on the way"
            )


def _padding(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [random_ids(1, length)[0] for length in (9, 4, 1)]
    for side in ("right", "left"):
        ids = pad_sequence(texts, batch_first=True, padding_side=side)
        padding = ids == 0
        positions = Contiguous(9, -padding.sum(1) if side == "left" else 0)
        yield from _same(
            network(ids, positions, key_padding_mask=padding).hidden[~padding],
            _each_alone(network, texts),
            f"a text padded on the {side} is read otherwise than alone; take positions from those that are given, which"
            " differ by example, and nothing from other tokens or from the length",
        )


def _packing(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [random_ids(1, length)[0] for length in (5, 1, 7)]
    yield from _same(
        network(torch.cat(texts)[None], _packed(5, 1, 7)).hidden[0],
        _each_alone(network, texts),
        "texts packed into one row are read otherwise than alone; take positions from positions.index_BT(), which begin"
        " anew with every text, not from the place in the row",
    )


def _causality(subject: Subject) -> Iterator[str]:
    network, ids = subject.network(), random_ids(1, 9)
    for later in (1, 4, 8):
        changed = ids.clone()
        changed[0, later] = (changed[0, later] + 1) % VOCABULARY
        fault = (
            f"a decoder's tokens see what comes after them: another token {later} changed those before it; compute what"
            " you add to a token from it and its position alone (no roll, mean or norm over the tokens), and let the"
            " mask hide keys: never undo an -inf"
        )
        if faults := [*_same(network(changed).hidden[:, :later], network(ids).hidden[:, :later], fault)]:
            yield faults[0]
            return


def _cache(subject: Subject) -> Iterator[str]:
    network, ids, cache = subject.network(), random_ids(2, 9), KeyValueCache()
    yield from _same(
        torch.cat([network(chunk, cache=cache).hidden for chunk in torch.split(ids, [4, 1, 1, 3], 1)], 1),
        network(ids).hidden,
        "a text written token by token with a cache is read otherwise than at once; there are more keys than queries"
        " then, so use the queries' and the keys' own positions",
    )


def _word_order(subject: Subject) -> Iterator[str]:
    """Tell whether word order is visible; it is no fault if it is not, since `none` is an arm too."""
    # in a second layer a causal mask alone tells the order; the last token of a first layer sees a bag of words
    network, ids = subject.network(layers=1 if "," not in subject.name else 2), torch.arange(1, 10)[None]
    other = ids[:, [0, 1, 7, 3, 4, 5, 6, 2, 8]]
    if difference(network(other).hidden[:, 8], network(ids).hidden[:, 8]) > CLOSE:
        yield "word order is visible: others see that two tokens have changed places"
        return
    besides = ", but for what the causal mask tells" if subject.use == "decoder" else ""
    yield f"word order is not visible: that two tokens have changed places makes no difference to others{besides}"


def _start_values(subject: Subject) -> Iterator[str]:
    """Tell with what a class of one's own starts, if nobody draws its parameters."""
    ranges: list[str] = []
    for part in subject.build().all_parts().values():
        if isinstance(part, Encoding) and (message := drawn_by_base(part)):
            yield message
        for prefix, module in cast("Iterator[tuple[str, nn.Module]]", part.named_modules()):
            if keeps_start_values(module):
                parameters = module.named_parameters(prefix, recurse=False)
                ranges += [f"{name} {tuple(p.shape)} from {p.min():.3g} to {p.max():.3g}" for name, p in parameters]
    if ranges:
        yield (
            f"training starts with what the constructor sets: {', '.join(ranges)}; draw_parameters(std, generator_for)"
            " would draw them from the seed"
        )


def random_ids(batch: int, length: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (batch, length))


def _each_alone(network: Encoder | Decoder, texts: Sequence[Tensor]) -> Tensor:
    """Return the states of the tokens of all texts, each of which is read by itself."""
    return torch.cat([network(text[None]).hidden[0] for text in texts])


def _same(output: Tensor, expected: Tensor, fault: str) -> Iterator[str]:
    """Yield the fault where two outputs differ by more than `CLOSE` of the largest entry, or are not finite."""
    relative = difference(output, expected)
    if not relative <= CLOSE:
        yield f"{fault} (difference: {relative:.1e} of the largest output)"


def difference(output: Tensor, expected: Tensor) -> float:
    """Return the largest difference of two outputs as a share of the largest entry."""
    relative = (output - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
    return relative.item()


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
"""The checks by name, in the order in which they run."""

RUN = {"cross-attention": 1, "encoder": 6, "decoder": 8}
"""Number of checks, the first ones, for each use."""
