"""Log of what was passed over while reading: files, lines that cannot be read, and leaks; counted file by file."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

UNREADABLE, LEAKS, LEFT_OUT = "unreadable", "leaks", "left_out"
_MOST_DETAILS = 20

_WORDS = {
    LEFT_OUT: "of the source's files and folders are left out",
    UNREADABLE: "lines, records or files could not be read and were skipped (data.skip_unreadable)",
    LEAKS: "training texts stand in validation or test too, but for case, punctuation and white space",
}


class ReadingLog:
    """Counts of what was passed over, by kind and file.

    Args:
        skip: count what cannot be read; False makes it an error at once.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self._files: dict[str, Counter[str]] = {}
        self._details: dict[str, list[str]] = {}
        self.notes: list[str] = []
        """Other sentences that a user should read before the scores."""
        self.passing = False
        """True where the system could not read a file, which it perhaps can the next time."""

    def count(self, kind: str, file: str, *details: str, number: int = 1) -> None:
        """Count texts, or a file by its ending; the first few details of each kind, sentences, are kept."""
        if number:
            self._files.setdefault(kind, Counter())[file] += number
            self._details[kind] = [*self._details.get(kind, []), *details][:_MOST_DETAILS]

    def add(self, summary: Mapping[str, Any], notes: Iterable[str]) -> None:
        """Add what another log counted, by its summary."""
        for kind, counted in summary.items():
            self._files.setdefault(kind, Counter()).update(counted["files"])
            self._details[kind] = [*self._details.get(kind, []), *counted["first"]][:_MOST_DETAILS]
        self.notes += notes

    def number(self, kind: str) -> int:
        return self._files.get(kind, Counter()).total()

    def __bool__(self) -> bool:
        return any(self.number(kind) for kind in _WORDS)

    def summary(self) -> dict[str, Any]:
        """Return what a run writes into its folder: counts by kind, and by file, and the first few in words."""
        return {
            kind: {
                "count": self.number(kind),
                "files": dict(sorted(self._files[kind].items())),
                "first": self._details[kind],
            }
            for kind in _WORDS
            if self.number(kind)
        }

    def line(self, kind: str) -> str:
        """Return one sentence on a kind that was counted, with the first two of it."""
        number = self.number(kind)
        if kind == LEFT_OUT:
            by_ending = ", ".join(f"{name} {count:,}" for name, count in self._files[kind].most_common())
            return f"{number:,} {_WORDS[kind]}: {by_ending}"
        return f"{number:,} {_WORDS[kind]}: {'; '.join(self._details[kind][:2])}" + " ..." * (number > 2)

    def lines(self, *, but: Collection[str] = ()) -> list[str]:
        """Return one sentence for each kind that was counted, `but` for some, and the notes."""
        return [*(self.line(kind) for kind in _WORDS if self.number(kind) and kind not in but), *self.notes]
