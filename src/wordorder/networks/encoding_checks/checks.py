"""The invariants that training, packing, padding, caching and saving rely on, each tried out on a tiny network.

A wrong encoding breaks them without an error message: a decoder that sees the next token has a wonderful loss. Every
check yields one sentence per fault, with its remedy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from wordorder.encodings import ReplacesEmbedding, Use, build_encoding
from wordorder.networks.cache import KeyValueCache
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder
from wordorder.networks.encoding_checks.terms import term_faults
from wordorder.networks.initialisation import initialise
from wordorder.ops import Contiguous, Packed, Positions

SIZES = {"width": 24, "heads": 4, "layers": 2, "max_positions": 32, "vocabulary": 23}
"""Sizes of the test networks: small, and no two alike (six channels per head), so that none is mistaken for another."""
LENGTHS = (1, 2, 9)
CLOSE = 1e-9
"""Largest difference of two float64 outputs that count as equal, relative to the largest output."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An encoding to check: its name, the network that uses it, and its options."""

    name: str
    use: Use
    options: Mapping[str, Any] | None

    def network(
        self, dtype: torch.dtype = torch.float64, *, seed: int = 5, layers: int | None = None
    ) -> Encoder | Decoder:
        """Build a tiny network with the encoding, its weights far from 0 so that nothing is hidden by small numbers."""
        kind, sizes = Decoder if self.use == "decoder" else Encoder, {**SIZES, "layers": layers or SIZES["layers"]}
        vocabulary = sizes.pop("vocabulary")
        style = {"encoding": self.name, "encoding_options": self.options, "dropout": 0.0, "attention_dropout": 0.0}
        network = kind(vocabulary, **sizes, **style).eval()  # pyright: ignore[reportArgumentType]
        initialise(network, seed=seed, std=0.3)
        with torch.no_grad():
            for index, parameter in enumerate(network.parameters()):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * seed + index))
                parameter += 0.05 * noise
        return network.to(dtype)

    def run(
        self,
        network: Encoder | Decoder,
        ids_BT: Tensor,
        positions: Positions | None = None,
        valid_BT: Tensor | None = None,
    ) -> Tensor:
        """Return the network's output, (B, T, C)."""
        mask = None if valid_BT is None else ~valid_BT
        return network(ids_BT, positions, key_padding_mask=mask).hidden


Check = Callable[[Subject], Iterator[str]]


def _shapes(subject: Subject) -> Iterator[str]:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        network = subject.network(dtype)
        for length in LENGTHS:
            hidden = subject.run(network, _ids(3, length))
            if hidden.shape != (3, length, SIZES["width"]) or hidden.dtype != dtype:
                yield (
                    f"a network in {dtype} gives {hidden.dtype} {tuple(hidden.shape)} for {length} tokens; return what"
                    " you change in the shape and dtype that it came in"
                )
            elif not hidden.isfinite().all():
                yield (
                    f"a network in {dtype} gives NaN or infinity for {length} tokens; look at distance 0 and at"
                    " position 0 (a logarithm, a root or a division there), and compute in at least float32"
                )


def _saving(subject: Subject) -> Iterator[str]:
    first, second, ids = subject.network(), subject.network(seed=6), _ids(2, 9)
    second.load_state_dict(first.state_dict())
    if not torch.equal(subject.run(first, ids), subject.run(second, ids)):
        yield (
            "a network with the same weights, saved and loaded, gives another output; what the encoding depends on must"
            " be a parameter or follow from its constructor's arguments"
        )
    elif not torch.equal(subject.run(first, ids), subject.run(first, ids)):
        yield "the same input gives another output the second time; keep nothing between calls, and draw nothing"


def _gradients(subject: Subject) -> Iterator[str]:
    """Compare autograd with central differences, along one random direction per parameter."""
    network, ids, step = subject.network(), _ids(2, 9), 1e-6
    watched = {f"encoding.{name}": p for name, p in network.encoding.named_parameters()}
    watched |= {f"embedding.{name}": p for name, p in network.embedding.named_parameters()}
    upstream = torch.randn(2, 9, SIZES["width"], dtype=torch.float64)
    loss = (subject.run(network, ids) * upstream).sum()
    found = torch.autograd.grad(loss, list(watched.values()), allow_unused=True)
    gradients = cast("Sequence[Tensor | None]", found)  # as allow_unused has it
    for (name, parameter), gradient in zip(watched.items(), gradients, strict=True):
        direction, slopes = torch.randn_like(parameter), list[float]()
        with torch.no_grad():
            start = parameter.clone()
            for sign in (1, -1):
                parameter.copy_(start + sign * step * direction)
                slopes.append((subject.run(network, ids) * upstream).sum().item())
            parameter.copy_(start)
        numeric = (slopes[0] - slopes[1]) / (2 * step)
        exact = 0.0 if gradient is None else (gradient * direction).sum().item()
        if not abs(exact - numeric) <= 1e-4 * max(1.0, abs(numeric)):  # so that NaN is a fault
            yield (
                f"the gradient of {name} is {exact:.6g} along a direction in which the output changes by"
                f" {numeric:.6g}; do not detach, round or change tensors in place on the way"
            )


def _padding(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [_ids(1, length)[0] for length in (9, 4, 1)]
    alone = torch.cat([subject.run(network, text[None])[0] for text in texts])
    for side in ("right", "left"):
        ids = torch.zeros(3, 9, dtype=torch.long)
        valid = torch.zeros(3, 9, dtype=torch.bool)
        for row, text in enumerate(texts):
            where = slice(0, len(text)) if side == "right" else slice(9 - len(text), 9)
            ids[row, where], valid[row, where] = text, True
        positions = Contiguous(9) if side == "right" else Contiguous(9, -valid.int().argmax(1))
        difference = _difference(subject.run(network, ids, positions, valid)[valid], alone)
        if not difference <= CLOSE:
            yield (
                f"a text padded on the {side} is read otherwise than alone (by {difference:.1e} of the largest output);"
                " take positions from the positions that are given, which differ by example, and nothing from other"
                " tokens or from the length"
            )


def _packing(subject: Subject) -> Iterator[str]:
    network, texts = subject.network(), [_ids(1, length)[0] for length in (5, 1, 7)]
    position = torch.cat([torch.arange(len(text)) for text in texts])[None]
    sequence = torch.cat([torch.full((len(text),), index) for index, text in enumerate(texts)])[None]
    packed = subject.run(network, torch.cat(texts)[None], Packed(position, sequence))[0]
    difference = _difference(packed, torch.cat([subject.run(network, text[None])[0] for text in texts]))
    if not difference <= CLOSE:
        yield (
            f"texts packed into one row are read otherwise than alone (by {difference:.1e} of the largest output); take"
            " positions from positions.index_BT(), which begin anew with every text, not from the place in the row"
        )


def _causality(subject: Subject) -> Iterator[str]:
    network, ids = subject.network(), _ids(1, 9)
    before = subject.run(network, ids)
    for place in (1, 4, 8):
        changed = ids.clone()
        changed[0, place] = (changed[0, place] + 1) % SIZES["vocabulary"]
        difference = _difference(subject.run(network, changed)[:, :place], before[:, :place])
        if not difference <= CLOSE:
            yield (
                f"a decoder's tokens see what comes after them: another token {place} changed the tokens before it (by"
                f" {difference:.1e} of the largest output); compute what you add to a token from it and its position"
                " alone (no roll, mean or norm over the tokens), and let the mask hide keys: never undo an -inf"
            )
            return


def _cache(subject: Subject) -> Iterator[str]:
    network, ids = subject.network(), _ids(2, 9)
    assert isinstance(network, Decoder)
    cache, chunks = KeyValueCache(), (ids[:, :4], ids[:, 4:5], ids[:, 5:6], ids[:, 6:])
    parts = [network(chunk, cache=cache).hidden for chunk in chunks]
    difference = _difference(torch.cat(parts, 1), subject.run(network, ids))
    if not difference <= CLOSE:
        yield (
            f"a text written token by token with a cache is read otherwise than at once (by {difference:.1e} of the"
            " largest output); with a cache there are more keys than queries, so use the queries' and the keys' own"
            " positions"
        )


def word_order(subject: Subject) -> Iterator[str]:
    """Report whether word order is visible; it is no fault if it is not, since `none` is an arm too."""
    # in a second layer a causal mask alone tells the order; the last token of a first layer sees a bag of words
    layers = 1 if "," not in subject.name else None
    network, ids = subject.network(layers=layers), torch.arange(1, 10)[None]
    other = ids[:, [0, 1, 7, 3, 4, 5, 6, 2, 8]]
    seen = _difference(subject.run(network, other)[:, 8], subject.run(network, ids)[:, 8]) > CLOSE
    besides = ", but for what the causal mask tells" if subject.use == "decoder" else ""
    if seen:
        yield "word order is visible: others see that two tokens have changed places"
    else:
        yield f"word order is not visible: that two tokens have changed places makes no difference to others{besides}"


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(1, SIZES["vocabulary"], (batch, length))


def _difference(ours: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; 1 where it is NaN or infinite."""
    found = (ours - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
    return found.item() if found.isfinite() else 1.0


def _terms(subject: Subject) -> Iterator[str]:
    built = build_encoding(subject.name, use=subject.use, options=subject.options, **SIZES)  # pyright: ignore[reportArgumentType]
    parts: dict[str, nn.Module] = dict(built.parts.items())
    if isinstance(built.replacement, ReplacesEmbedding):
        parts["embedding"] = built.replacement
    for name, part in parts.items():
        for fault in term_faults(part, width=SIZES["width"], heads=SIZES["heads"], vocabulary=SIZES["vocabulary"]):
            yield fault if len(parts) == 1 else f"{name}: {fault}"


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
