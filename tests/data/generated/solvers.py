"""The answers of the generated tasks, worked out from their texts alone: the slow reference that shares no code."""

from collections.abc import Callable
from itertools import pairwise


def binding(text: str) -> str:
    before, _, _ = text.partition("a")
    return "no" if "b" in before else "yes"


def even_place(text: str) -> str:
    return "yes" if text.split().index("a") % 2 else "no"


def previous(text: str) -> str:
    return text.rsplit(" ", 2)[-2]


def back(text: str) -> str:
    return list(reversed(text.split()))[4]


def first(text: str) -> str:
    return text.partition(" ")[0]


def even_pairs(text: str) -> str:
    return "odd" if sum(a != b for a, b in pairwise(text.split())) % 2 else "even"


def parity(text: str) -> str:
    return ("even", "odd")[text.count("b") % 2]


def cycle(text: str) -> str:
    place = 0
    for move in text.split():
        place = (place + {"stay": 0, "right": 1, "left": -1}[move]) % 5
    return str(place)


def reverse(text: str) -> str:
    return text[::-1]  # letters and spaces are one character each


def duplicate(text: str) -> str:
    return " ".join(text.split() * 2)


def missing(text: str) -> str:
    letters = text.split()
    half = len(letters) // 2
    first, second = letters[:half], letters[half:]
    return next(b if a == "_" else a for a, b in zip(first, second, strict=True) if a != b)


def buckets(text: str) -> str:
    return " ".join(sorted(text.split()))


def addition(text: str) -> str:
    first, second = (int(side.replace(" ", "")) for side in text.split("+"))
    return " ".join(str(first + second))


def recall(text: str) -> str:
    words = text.split()
    return words[words.index(words[-1]) + 1]


def overwritten(text: str) -> str:
    facts, _, key = text.partition(" ? ")
    return facts.rsplit(f"{key} ", 1)[1].split()[0]


def instruction(text: str) -> str:
    *data, asked = text.replace(" -", "").split()
    places = ("first", "second", "third", "fourth")
    return {"largest": max(data), "smallest": min(data)}.get(asked) or data[places.index(asked)]


def dyck(text: str) -> str:
    left = text.replace(" ", "")
    while (shorter := left.replace("()", "").replace("[]", "")) != left:
        left = shorter
    return ")" if left.endswith("(") else "]"


def recall_by_distance(text: str) -> str:
    facts, _, key = text.partition(" ? ")
    words = facts.split()
    return dict(zip(words[::2], words[1::2], strict=True))[key]


def copy(text: str) -> str:
    whole, _, again = text.partition(" | ")
    return whole.split()[len(again.split())]


def hops(text: str) -> str:
    facts, _, question = text.partition(" ? ")
    words, (number, name) = facts.split(), question.split()
    for _ in range(int(number)):
        name = words[2 * words[::2].index(name) + 1]
    return name


SOLVERS: dict[str, Callable[[str], str]] = {
    "order-binding": binding,
    "even-place": even_place,
    "previous-token": previous,
    "n-back": back,
    "first-token": first,
    "even-pairs": even_pairs,
    "parity": parity,
    "cycle-navigation": cycle,
    "reverse": reverse,
    "duplicate": duplicate,
    "missing-duplicate": missing,
    "bucket-sort": buckets,
    "addition": addition,
    "recall": recall,
    "overwritten-recall": overwritten,
    "late-instruction": instruction,
    "dyck-2": dyck,
    "recall-by-distance": recall_by_distance,
    "copy-in-context": copy,
    "multi-hop": hops,
}
"""Name of a task -> function from a text to its answer."""
