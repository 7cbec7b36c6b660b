"""Find the widths with which a network costs as much as another one, by counting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from wordorder.errors import BadInput

if TYPE_CHECKING:
    from wordorder.training import Recipe

Count = Callable[[Mapping[str, int]], float]
"""Function from changed names of [model] to the cost of the network; rises with each of them."""

SIZES = frozenset(
    "hidden_size num_hidden_layers decoder_layers intermediate_size filters recurrent_size pretrained".split()
)
"""Names of [model] that decide the size of a network. An arm that sets one of them keeps its size."""

INNER = {"bag-of-words": None, "convolution": "filters", "recurrent": "recurrent_size"}
"""Architecture of a classifier -> its width between embeddings and output; that of all others is the feed-forward's."""

MOST = 4
"""Largest factor by which a width may grow or shrink: beyond it would be a network of another kind."""

_TIDY = 8
"""Widths that are multiples of this suit the hardware; taken where one agrees well enough."""

_STEPS = (1, 2, 4, 8)
"""Multiples of the number of heads by which model widths are tried: rotations want pairs of channels in each head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The widths that were found."""

    changes: Mapping[str, int]
    """Name of [model] -> value; empty where nothing had to change."""
    value: float
    """Cost of the network with these widths."""


def inner_width(recipe: Recipe) -> str | None:
    """Return the name of [model] that widens a network inside its layers only; None if there is none."""
    architecture = recipe.model.get("architecture") if recipe.network == "classifier" else None
    return INNER.get(str(architecture), "intermediate_size")


def fit_widths(recipe: Recipe, count: Count, target: float, *, tolerance: float) -> Sized:
    """Find widths with which a network has the target cost.

    First the width inside the layers (of the feed-forward networks; a convolution's filters; the recurrent state),
    from a quarter to four times what it is; where that is not enough the width of the whole model, the other keeping
    its proportion, and then again the inner one. Nothing changes where the network agrees already within half the
    tolerance.

    Args:
        recipe: of the arm.
        count: of the arm's network; it is called some ten times.
        target: what the network should cost.
        tolerance: largest relative difference.

    Returns:
        The widths nearest to the target, which may be too far from it still: it is for the caller to judge.

    Raises:
        BadInput: a width that was tried is not one for this network.
    """
    count = _remembered(count)
    now = count({})
    if _off(now, target) <= tolerance / 2:
        return Sized(changes={}, value=now)
    inner, hidden = inner_width(recipe), int(recipe.model["hidden_size"])
    if inner is not None:
        found = _fit_inner(recipe, count, target, inner, hidden, tolerance)
        if _off(found.value, target) <= tolerance / 2:
            return found
    width = _fit_hidden(recipe, count, target, inner, hidden, larger=now < target)
    if inner is None:
        changes = {"hidden_size": width}
        return Sized(changes=changes, value=count(changes))
    return _fit_inner(recipe, count, target, inner, width, tolerance)


def _fit_inner(recipe: Recipe, count: Count, target: float, inner: str, hidden: int, tolerance: float) -> Sized:
    """Fit the inner width at a given width of the model."""
    usual = _inner_at(recipe, inner, hidden)
    outer = {} if hidden == recipe.model["hidden_size"] else {"hidden_size": hidden}

    def at(width: int) -> float:
        return count({**outer, inner: width})

    width = nearest(at, max(1, usual // MOST), MOST * usual, target, enough=tolerance / 10)
    tidy = max(_TIDY, round(width / _TIDY) * _TIDY)
    if _off(at(tidy), target) <= tolerance / 4:
        width = tidy
    return Sized(changes={**outer, inner: width}, value=at(width))


def _fit_hidden(recipe: Recipe, count: Count, target: float, inner: str | None, hidden: int, *, larger: bool) -> int:
    """Return the model width nearest to the target cost, with the inner width in proportion.

    Only widths that the encoding can take are tried.
    """

    def changes(width: int) -> dict[str, int]:
        return {"hidden_size": width} | ({} if inner is None else {inner: _inner_at(recipe, inner, width)})

    heads = int(recipe.model.get("num_attention_heads") or 1)
    step = _step(lambda width: count(changes(width)), hidden, heads, larger=larger)
    if larger:
        return hidden + step * nearest(
            lambda n: count(changes(hidden + step * n)), 0, (MOST - 1) * hidden // step, target
        )
    fewest = max(1, (hidden // MOST) // step)
    # counted from the remainder, so that the present width is one of those that are tried
    rest = hidden % step
    return rest + step * nearest(lambda n: count(changes(rest + step * n)), fewest, hidden // step, target)


def _step(count: Callable[[int], float], hidden: int, heads: int, *, larger: bool) -> int:
    """Return the number of channels by which the model's width can change."""
    fault = BadInput(f"model.hidden_size {hidden} cannot become smaller")
    for times in _STEPS:
        step = times * heads
        width = hidden + step if larger else hidden - step
        if width <= 0:
            break
        try:
            count(width)
        except BadInput as error:
            fault = error
        else:
            return step
    raise fault


def _inner_at(recipe: Recipe, inner: str, hidden: int) -> int:
    """Return the inner width in its proportion to the model's width."""
    before = int(recipe.model["hidden_size"])
    default = 4 * before if inner == "intermediate_size" else before
    return max(1, round(int(recipe.model.get(inner) or default) * hidden / before))


def nearest(at: Callable[[int], float], low: int, high: int, target: float, *, enough: float = 0.0) -> int:
    """Return the integer at which a rising function is nearest to a target.

    By false position, which hits at once where the function is a line, as counts nearly are, and by halves in turns
    with it, so that it ends soon where it is not.

    Args:
        at: the function.
        low: the smallest number.
        high: the largest.
        target: of the function.
        enough: relative difference with which a number is near enough, so that no nearer one is looked for.
    """
    at_low, at_high = at(low), at(high)
    if target <= at_low or high <= low:
        return low
    if target >= at_high:
        return high
    halve = False
    while high - low > 1:
        guess = (low + high) // 2 if halve else low + round((high - low) * (target - at_low) / (at_high - at_low))
        guess, halve = min(max(guess, low + 1), high - 1), not halve
        value = at(guess)
        if _off(value, target) <= enough:
            return guess
        if value <= target:
            low, at_low = guess, value
        else:
            high, at_high = guess, value
    return low if target - at_low <= at_high - target else high


def _off(value: float, target: float) -> float:
    return abs(value / target - 1)


def _remembered(count: Count) -> Count:
    """Return the function with a cache: building a network takes up to half a second."""

    @cache
    def counted(changes: tuple[tuple[str, int], ...]) -> float:
        return count(dict(changes))

    return lambda changes: counted(tuple(sorted(changes.items())))


def count_parameters(recipe: Recipe, config: Any) -> int:
    """Count a network's parameters, each once, without making weights."""
    import torch

    from wordorder.tasks import model_class

    with torch.device("meta"):
        model: Any = model_class(recipe.network, recipe.data.task)(config)
    return sum(parameter.numel() for parameter in model.parameters())
