"""Initial frequencies of complex-order embeddings, by name."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

FrequencyInit = Literal["geometric", "log-uniform", "normal", "reference-tc", "reference-tf", "reference-lm"]

Shape = tuple[int, ...]
"""The shape of a table: (V, D), (1, D) or (V, 1)."""

SLOWEST = 1e-4
"""Radians per token; 2 pi / 1e-4 is a wavelength of about 63,000 tokens, longer than a text."""


def check_frequency_init(name: str, shape: Shape, width: int) -> None:
    """Refuse an initialisation that is unknown, or that does not fit the shape of the table.

    Raises:
        ValueError: names the initialisation, the table and the remedy.
    """
    if name not in get_args(FrequencyInit):
        raise ValueError(f"frequency_init must be one of {', '.join(get_args(FrequencyInit))}, got {name!r}")
    by_channel = name in ("geometric", "reference-tc", "reference-tf")
    if by_channel and shape[1] == 1 < width:
        raise ValueError(
            f"frequency_init={name!r} gives every channel a frequency of its own, but frequency='dimension-sharing' has"
            " one per word; take 'log-uniform' (the default there) or 'normal'"
        )
    if name == "reference-tf" and shape[0] == 1:
        raise ValueError("frequency_init='reference-tf' depends on the word; frequency='word-sharing' has no words")


def initial_frequencies(name: FrequencyInit, shape: Shape, generator: torch.Generator | None) -> Tensor:
    """Return frequencies in radians per token, float64, for a table (V, D), (1, D) or (V, 1).

    ``geometric``: ``10000 ** (-d / D)`` for channel d = 0 .. D - 1. Wavelengths from 2 pi to nearly 2 pi 10,000 tokens,
    evenly spread on a logarithmic scale, so that near and far positions are both distinguished; equal for all words at
    first, as in Vaswani et al. 2017. ``log-uniform``: the same range drawn at random per entry, for tables in which
    words, not channels, must cover it. Larger frequencies would only repeat: positions are whole numbers, so w and
    w + 2 pi are the same wave.

    From the reference code: ``reference-tc`` (text classification; translation, which froze it): ``10000 ** (-2
    floor(d / 2) / D)``, and row 0 zero. ``reference-tf``: the word's index times ``10000 ** (-2 d / D)``: up to V
    radians per token, arbitrary in the index. ``reference-lm``: N(0, 0.02), which overwrote its table. ``normal``:
    N(0, 1), the listing in the paper's appendix C.

    Args:
        name: one of the initialisations above.
        shape: shape of the table.
        generator: random generator; None = torch's global one.
    """
    return _STARTS[name](shape, generator)


def _channels(shape: Shape, step: Callable[[Tensor], Tensor]) -> Tensor:
    d = torch.arange(shape[1], dtype=torch.float64, device="cpu")
    return (SLOWEST ** (step(d) / shape[1])).expand(shape)


def _geometric(shape: Shape, _generator: torch.Generator | None) -> Tensor:
    return _channels(shape, lambda d: d)


def _log_uniform(shape: Shape, generator: torch.Generator | None) -> Tensor:
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
    return torch.exp(math.log(SLOWEST) * drawn)


def _reference_tc(shape: Shape, _generator: torch.Generator | None) -> Tensor:
    frequencies = _channels(shape, lambda d: 2 * (d / 2).floor()).clone()
    if shape[0] > 1:
        frequencies[0] = 0
    return frequencies


def _reference_tf(shape: Shape, _generator: torch.Generator | None) -> Tensor:
    return torch.arange(shape[0], dtype=torch.float64, device="cpu")[:, None] * _channels(shape, lambda d: 2 * d)


def _normal(std: float) -> Callable[[Shape, torch.Generator | None], Tensor]:
    return lambda shape, generator: torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").mul_(std)


_STARTS: dict[FrequencyInit, Callable[[Shape, torch.Generator | None], Tensor]] = {
    "geometric": _geometric,
    "log-uniform": _log_uniform,
    "normal": _normal(1.0),
    "reference-tc": _reference_tc,
    "reference-tf": _reference_tf,
    "reference-lm": _normal(0.02),
}
