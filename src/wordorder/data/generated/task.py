"""A generated task: how an example is drawn with its answer."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Lengths = tuple[int, int]
"""The shortest and the longest length, both included."""
Draw = Callable[[np.random.Generator, int], tuple[str, str]]

TO_40: Lengths = (1, 40)
TO_200: Lengths = (41, 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTask:
    """A task of `data.source = "task:NAME"`. Texts and answers are words set apart by one space each."""

    name: str
    """Name after "task:"."""
    question: str
    """The task in one sentence."""
    paper: str
    """Source of the definition: authors, year, address, and how ours differs if it does."""
    length: str
    """Unit of the length of an example, in words."""
    draw: Draw
    """Function from a generator and a length to a text and its answer."""
    answers: tuple[str, ...] = ()
    """All possible answers where each is one word of a small set; empty where answers are longer."""
    train_lengths: Lengths = TO_40
    """Lengths of training and validation where the recipe gives none."""
    test_lengths: Lengths = TO_200
    """Lengths of the test where the recipe gives none."""
    shortest: int = 1
    """Smallest length for which there are examples."""
    longest: int | None = None
    """Largest length for which there are examples; None: there is none."""


def pick(rng: np.random.Generator, words: tuple[str, ...], count: int) -> list[str]:
    """Draw words, each independent of the others and all equally likely."""
    return [words[number] for number in rng.integers(len(words), size=count).tolist()]


def different(rng: np.random.Generator, words: tuple[str, ...], count: int) -> list[str]:
    """Draw words that are all different."""
    return [words[number] for number in rng.permutation(len(words))[:count].tolist()]
