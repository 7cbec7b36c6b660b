"""Tasks that ask for something written some way back: what a memory of earlier segments is for.

Read in lanes (task.packing), with segments shorter than a text, the answer stands in an earlier segment than the
question. The last three are in the manner of the synthetic tasks by which Allen-Zhu 2025,
https://arxiv.org/abs/2512.17351, tells architectures apart: each needs one ability, and what is learned by heart does
not help, since names mean something else in each text.
"""

import numpy as np

from wordorder.data.generated.task import GeneratedTask, Lengths, different, pick

_KEYS = tuple(f"k{number}" for number in range(16))
_VALUES = tuple(f"v{number}" for number in range(16))
_PAIRS = 4  # keys of a text
_FILLER, _ASK = "-", "?"
_FAR: Lengths = (1, 100)

_PLACES = ("first", "second", "third", "fourth")
_DIGITS = tuple("0123456789")
_OPEN = {"(": ")", "[": "]"}

_MANY_KEYS = tuple(f"k{number}" for number in range(32))
_LETTERS = tuple("abcdefghijklmnop")
_NAMES = tuple(f"n{number}" for number in range(16))
_BEFORE = 8
"""Most pairs before the one asked for, so that its place from the front does not tell it."""
_HOPS = 3
_AGAIN = "|"
_ALLEN_ZHU = "Allen-Zhu 2025, https://arxiv.org/abs/2512.17351"


def _draw_recall(rng: np.random.Generator, length: int) -> tuple[str, str]:
    keys = different(rng, _KEYS, _PAIRS)
    asked, *others = [f"{key} {value}" for key, value in zip(keys, pick(rng, _VALUES, _PAIRS), strict=True)]
    after = int(rng.integers(min(len(others), length // 2) + 1))
    # pairs stand side by side: a filler next to the pair asked for would tell which one it is
    words = [*others[after:], asked, *others[:after], *[_FILLER] * (length - 2 * after), _ASK, keys[0]]
    return " ".join(words), asked.split()[1]


def _draw_overwritten(rng: np.random.Generator, length: int) -> tuple[str, str]:
    asked, *others = different(rng, _KEYS, _PAIRS)
    *earlier, last = different(rng, _VALUES, int(rng.integers(2, 4)))
    pairs = [f"{key} {value}" for key, value in zip(others, pick(rng, _VALUES, len(others)), strict=True)]
    after = int(rng.integers(min(len(pairs), length // 2) + 1))
    before = [*pairs[after:], *(f"{asked} {value}" for value in earlier)]
    written = [*different(rng, tuple(before), len(before)), f"{asked} {last}", *pairs[:after]]
    return " ".join([*written, *[_FILLER] * (length - 2 * after), _ASK, asked]), last


def _draw_instruction(rng: np.random.Generator, length: int) -> tuple[str, str]:
    digits = rng.permutation(10)[: len(_PLACES)].tolist()
    named = {**dict(zip(_PLACES, digits, strict=True)), "largest": max(digits), "smallest": min(digits)}
    asked = tuple(named)[int(rng.integers(len(named)))]
    return " ".join([*map(str, digits), *[_FILLER] * length, asked]), str(named[asked])


def _balanced(rng: np.random.Generator, pairs: int) -> list[str]:
    """Draw a word of Dyck-2 with so many pairs of brackets, all shapes equally likely.

    Of every circle of n steps up and n + 1 down exactly one beginning stays at or above 0 until its last step (the
    cycle lemma, Dvoretzky and Motzkin 1947).
    """
    steps = rng.permutation([1] * pairs + [-1] * (pairs + 1))
    begin = int(np.argmin(np.cumsum(steps))) + 1
    found, due = list[str](), list[str]()
    for step in np.roll(steps, -begin)[:-1].tolist():
        if step == 1:
            found.append(tuple(_OPEN)[int(rng.integers(2))])
            due.append(_OPEN[found[-1]])
        else:
            found.append(due.pop())
    return found


def _draw_dyck(rng: np.random.Generator, length: int) -> tuple[str, str]:
    # one of each kind is open, so that their number does not tell which came last; up to seven pairs before each hide
    # their places
    first, last = different(rng, tuple(_OPEN), 2)
    before, between = (_balanced(rng, int(rng.integers(8))) for _ in range(2))
    return " ".join([*before, first, *between, last, *_balanced(rng, length)]), _OPEN[last]


def _draw_by_distance(rng: np.random.Generator, length: int) -> tuple[str, str]:
    before = int(rng.integers(_BEFORE + 1))
    count = before + 1 + length
    keys = different(rng, _MANY_KEYS, count)
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
        name="recall",
        question="Four keys with their values, then a key: which value has it?",
        paper="Ba et al. 2016, https://arxiv.org/abs/1610.06258, Sec. 4.1; Arora et al. 2023, "
        "https://arxiv.org/abs/2312.04927; ours has fillers before the question",
        length="the tokens between the pair asked for and the question mark",
        draw=_draw_recall,
        answers=_VALUES,
        train_lengths=_FAR,
        test_lengths=_FAR,
    ),
    GeneratedTask(
        name="overwritten-recall",
        question="As recall, but the key asked for is written two or three times: which value was its last?",
        paper="our own, after recall",
        length="the tokens between the last pair of the key asked for and the question mark",
        draw=_draw_overwritten,
        answers=_VALUES,
        train_lengths=_FAR,
        test_lengths=_FAR,
    ),
    GeneratedTask(
        name="late-instruction",
        question="Four different digits, and later the word that says which is asked for: first, second, third, "
        "fourth, largest or smallest?",
        paper="our own, after what look-ahead is for: Ji et al. 2022, https://arxiv.org/abs/2204.07341",
        length="the tokens between the digits and the instruction",
        draw=_draw_instruction,
        answers=_DIGITS,
        train_lengths=_FAR,
        test_lengths=_FAR,
    ),
    GeneratedTask(
        name="dyck-2",
        question="Two brackets are open, one of each kind: which one, ) or ], must close next?",
        paper="Suzgun et al. 2019, https://arxiv.org/abs/1911.03329; Hewitt et al. 2020, "
        "https://arxiv.org/abs/2010.07515; ours asks for the last bracket alone, and "
        "leaves one of each kind open",
        length="the pairs of brackets between the bracket and the one that closes it; tokens are twice as many, "
        "and up to 30 stand before",
        draw=_draw_dyck,
        answers=tuple(_OPEN.values()),
        train_lengths=(1, 20),
        test_lengths=(21, 100),
    ),
    GeneratedTask(
        name="recall-by-distance",
        question="Many different keys with their values, then a key: which value has it?",
        paper="Ba et al. 2016, https://arxiv.org/abs/1610.06258, Sec. 4.1; Arora et al. 2023, "
        "https://arxiv.org/abs/2312.04927; ours counts the pairs after the one asked for, with up to 8 before it",
        length="the pairs between the pair asked for and the question mark",
        draw=_draw_by_distance,
        answers=_VALUES,
        train_lengths=(1, 8),
        test_lengths=(1, 23),
        longest=len(_MANY_KEYS) - _BEFORE - 1,
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
