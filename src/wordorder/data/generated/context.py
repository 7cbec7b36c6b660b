"""Tasks whose answer stands in the text itself: to be found again far away, by its place in a copy, or over hops.

In the manner of the synthetic tasks by which Allen-Zhu 2025, https://arxiv.org/abs/2512.17351, tells architectures
apart: each needs one ability, and what is learned by heart does not help, since names mean something else in each text.
"""

import numpy as np

from wordorder.data.generated.task import GeneratedTask, different, pick

_KEYS = tuple(f"k{number}" for number in range(32))
_VALUES = tuple(f"v{number}" for number in range(16))
_LETTERS = tuple("abcdefghijklmnop")
_NAMES = tuple(f"n{number}" for number in range(16))
_BEFORE = 8
"""Most pairs before the one asked for, so that its place from the front does not tell it."""
_HOPS = 3
_ASK, _AGAIN = "?", "|"
_ALLEN_ZHU = "Allen-Zhu 2025, https://arxiv.org/abs/2512.17351"


def _draw_recall(rng: np.random.Generator, length: int) -> tuple[str, str]:
    before = int(rng.integers(_BEFORE + 1))
    count = before + 1 + length
    keys = different(rng, _KEYS, count)
    values = pick(rng, _VALUES, count)
    pairs = [f"{key} {value}" for key, value in zip(keys, values, strict=True)]
    return " ".join([*pairs, _ASK, keys[before]]), values[before]


def _draw_copy(rng: np.random.Generator, length: int) -> tuple[str, str]:
    letters = pick(rng, _LETTERS, length)
    again = int(rng.integers(1, length))
    return " ".join([*letters, _AGAIN, *letters[:again]]), letters[again]


def _draw_hops(rng: np.random.Generator, length: int) -> tuple[str, str]:
    circle = different(rng, _NAMES, length)
    pairs = [f"{name} {circle[(place + 1) % length]}" for place, name in enumerate(circle)]
    start, hops = int(rng.integers(length)), int(rng.integers(1, _HOPS + 1))
    return " ".join([*different(rng, tuple(pairs), length), _ASK, str(hops), circle[start]]), circle[
        (start + hops) % length
    ]


TASKS = (
    GeneratedTask(
        name="recall-by-distance",
        question="Many different keys with their values, then a key: which value has it?",
        paper="Ba et al. 2016, https://arxiv.org/abs/1610.06258, Sec. 4.1; Arora et al. 2023, "
        "https://arxiv.org/abs/2312.04927; ours counts the pairs after the one asked for, with up to 8 before it",
        length="the pairs between the pair asked for and the question mark",
        draw=_draw_recall,
        answers=_VALUES,
        train_lengths=(1, 8),
        test_lengths=(1, 23),
        longest=len(_KEYS) - _BEFORE - 1,
    ),
    GeneratedTask(
        name="copy-in-context",
        question="A string of letters, and the beginning of the same string again: which letter comes next?",
        paper=f"after the copying of {_ALLEN_ZHU}; ours asks for one letter",
        length="the letters of the string",
        draw=_draw_copy,
        answers=_LETTERS,
        train_lengths=(2, 40),
        shortest=2,
    ),
    GeneratedTask(
        name="multi-hop",
        question="Pairs in any order say who follows whom on a circle; who comes one, two or three places after the "
        "one asked for?",
        paper=f"Depo of {_ALLEN_ZHU}; ours has one question, of at most three hops",
        length="the pairs, which are the names on the circle",
        draw=_draw_hops,
        answers=_NAMES,
        train_lengths=(4, 16),
        test_lengths=(4, 16),
        shortest=4,
        longest=len(_NAMES),
    ),
)
