"""Tasks on strings of letters and digits, on which models are tested at lengths that training never had.

Deletang et al. 2023, "Neural Networks and the Chomsky Hierarchy", https://arxiv.org/abs/2207.02098; and
addition, Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466.
"""

import numpy as np

from wordorder.data.generated.task import GeneratedTask, pick

DELETANG = "Deletang et al. 2023, https://arxiv.org/abs/2207.02098"

_AB = ("a", "b")
_DIGITS = tuple("0123456789")
_MOVES = ("stay", "right", "left")
_BUCKETS = tuple("12345")
_GAP = "_"
_SUM = "+"


def _draw_even_pairs(rng: np.random.Generator, length: int) -> tuple[str, str]:
    letters = pick(rng, _AB, length)
    return " ".join(letters), "even" if letters[0] == letters[-1] else "odd"


def _draw_parity(rng: np.random.Generator, length: int) -> tuple[str, str]:
    bits = rng.integers(2, size=length)
    return " ".join("ab"[bit] for bit in bits.tolist()), "odd" if bits.sum() % 2 else "even"


def _draw_cycle(rng: np.random.Generator, length: int) -> tuple[str, str]:
    moves = pick(rng, _MOVES, length)
    return " ".join(moves), str((moves.count("right") - moves.count("left")) % 5)


def _draw_reverse(rng: np.random.Generator, length: int) -> tuple[str, str]:
    letters = np.array(pick(rng, _AB, length))
    return " ".join(letters), " ".join(letters[::-1])


def _draw_duplicate(rng: np.random.Generator, length: int) -> tuple[str, str]:
    text = " ".join(pick(rng, _AB, length))
    return text, f"{text} {text}"


def _draw_missing(rng: np.random.Generator, length: int) -> tuple[str, str]:
    letters = pick(rng, _AB, length) * 2
    place = int(rng.integers(2 * length))
    answer, letters[place] = letters[place], _GAP
    return " ".join(letters), answer


def _draw_buckets(rng: np.random.Generator, length: int) -> tuple[str, str]:
    numbers = pick(rng, _BUCKETS, length)
    return " ".join(numbers), " ".join(number for number in _BUCKETS for _ in range(numbers.count(number)))


def _number(rng: np.random.Generator, length: int) -> list[int]:
    digits = rng.integers(10, size=length).tolist()
    return digits if length == 1 else [int(rng.integers(1, 10)), *digits[1:]]


def _draw_addition(rng: np.random.Generator, length: int) -> tuple[str, str]:
    first, second = _number(rng, length), _number(rng, length)
    carry, digits = 0, list[int]()
    for a, b in zip(reversed(first), reversed(second), strict=True):
        carry, digit = divmod(a + b + carry, 10)
        digits.append(digit)
    answer = [*([carry] if carry else []), *reversed(digits)]
    return " ".join(map(str, [*first, _SUM, *second])), " ".join(map(str, answer))


_LETTERS = "the letters of the text"

TASKS = (
    GeneratedTask(
        name="even-pairs",
        question="Is the number of places where a and b stand side by side even or odd?",
        paper=DELETANG,
        length=_LETTERS,
        draw=_draw_even_pairs,
        answers=("even", "odd"),
    ),
    GeneratedTask(
        name="parity",
        question="Is the number of b even or odd?",
        paper=DELETANG,
        length=_LETTERS,
        draw=_draw_parity,
        answers=("even", "odd"),
    ),
    GeneratedTask(
        name="cycle-navigation",
        question="Which of five places on a circle do the moves stay, right and left lead to, from place 0?",
        paper=DELETANG,
        length="the moves",
        draw=_draw_cycle,
        answers=tuple("01234"),
    ),
    GeneratedTask(
        name="reverse",
        question="What is the string of a and b, read backwards?",
        paper=DELETANG,
        length=_LETTERS,
        draw=_draw_reverse,
    ),
    GeneratedTask(
        name="duplicate",
        question="What is the string of a and b, written twice?",
        paper=DELETANG,
        length=_LETTERS,
        draw=_draw_duplicate,
    ),
    GeneratedTask(
        name="missing-duplicate",
        question="A string of a and b stands there twice, one letter of the two copies is missing: which one is it?",
        paper=DELETANG,
        length="the letters of one copy; the text has twice as many",
        draw=_draw_missing,
        answers=_AB,
        train_lengths=(1, 20),
        test_lengths=(21, 100),
    ),
    GeneratedTask(
        name="bucket-sort",
        question="What are the digits 1 to 5 of the text, sorted?",
        paper=DELETANG,
        length="the digits of the text",
        draw=_draw_buckets,
    ),
    GeneratedTask(
        name="addition",
        question="What is the sum of the two decimal numbers, highest digit first?",
        paper="Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466; both numbers have the same number of digits",
        length="the digits of each number; the text has twice as many and the sign",
        draw=_draw_addition,
        train_lengths=(1, 20),
        test_lengths=(21, 100),
    ),
)
