"""Tasks that ask about the order of words, or about a word by its place alone.

Which words a text has hardly ever tells the answer: of the same words other orders, with other answers, are as likely
or nearly so. Texts of two or three words are the exception.
The complex-order paper says that a bag of words cannot know order unless its word vectors do (Wang et al. 2020,
https://arxiv.org/abs/1912.12333).
"""

import numpy as np

from wordorder.data.generated.task import Draw, GeneratedTask, pick

_FILLERS = tuple("cdefghij")
_LETTERS = tuple("abcdefgh")
_YES_NO = ("yes", "no")
_BACK = 4
_WANG = "Wang et al. 2020, https://arxiv.org/abs/1912.12333, whose thesis it tests; the task is our own"
_WORDS = "the words of the text"


def _draw_binding(rng: np.random.Generator, length: int) -> tuple[str, str]:
    words = pick(rng, _FILLERS, length)
    first, second = rng.choice(length, size=2, replace=False).tolist()
    words[first], words[second] = "a", "b"
    return " ".join(words), "yes" if first < second else "no"


def _draw_even_place(rng: np.random.Generator, length: int) -> tuple[str, str]:
    words = pick(rng, _FILLERS, length)
    even = bool(rng.integers(2))
    words[int(rng.integers(length // 2)) * 2 + even] = "a"
    return " ".join(words), "yes" if even else "no"


def _word_at(place: int) -> Draw:
    def draw(rng: np.random.Generator, length: int) -> tuple[str, str]:
        words = pick(rng, _LETTERS, length)
        return " ".join(words), words[place]

    return draw


_COPY = "our own: attention by position alone"

TASKS = (
    GeneratedTask(
        name="order-binding",
        question="Does a stand before b?",
        paper=_WANG,
        length=_WORDS,
        draw=_draw_binding,
        answers=_YES_NO,
        train_lengths=(4, 16),
        test_lengths=(4, 16),
        shortest=2,
    ),
    GeneratedTask(
        name="even-place",
        question="Is a the second, fourth, sixth ... word?",
        paper=_WANG,
        length="the words of the text, of an odd number the last is never a",
        draw=_draw_even_place,
        answers=_YES_NO,
        train_lengths=(4, 16),
        test_lengths=(4, 16),
        shortest=2,
    ),
    GeneratedTask(
        name="previous-token",
        question="What is the word before the last one?",
        paper=_COPY,
        length=_WORDS,
        draw=_word_at(-2),
        answers=_LETTERS,
        train_lengths=(2, 40),
        shortest=2,
    ),
    GeneratedTask(
        name="n-back",
        question=f"What is the word {_BACK} before the last one?",
        paper=_COPY,
        length=_WORDS,
        draw=_word_at(-1 - _BACK),
        answers=_LETTERS,
        train_lengths=(_BACK + 1, 40),
        shortest=_BACK + 1,
    ),
    GeneratedTask(
        name="first-token",
        question="What is the first word?",
        paper=_COPY,
        length=_WORDS,
        draw=_word_at(0),
        answers=_LETTERS,
    ),
)
