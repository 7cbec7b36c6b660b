"""Log of texts passed over while reading: lines that cannot be read, copies, leaks; counted once, file by file."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from wordorder.errors import BadInput

UNREADABLE, COPIES, LEAKS = "unreadable", "copies", "leaks"
_MOST_DETAILS = 20

_WORDS = {
    UNREADABLE: "lines, records or files could not be read and were skipped (data.skip_unreadable)",
    COPIES: "training texts were left out, because validation or test has the same",
    LEAKS: "training texts stand in validation or test too, but for case, punctuation and white space",
}


class ReadingLog:
    """Counts of what was passed over, by kind and file.

    A text that is read a second time, in a later epoch or after a resumption, is not counted again: of each file it is
    known up to which line it was counted, and a file is read from its beginning to its end. A file that is held in
    memory is gone through twice, by its lines and then by the rows that these give; each is counted for itself.

    Args:
        skip: count what cannot be read; False makes it an error at once.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self._files: dict[str, dict[str, dict[str, int]]] = {}
        self._details: dict[str, list[str]] = {}

    def unreadable(self, file: str, line: int, fault: str, *, unit: Literal["line", "row"] = "line") -> None:
        """Count what cannot be read, or refuse it: a line or row from 1 on, or as line 0 the file as a whole."""
        if not self.skip:
            raise BadInput(f"{fault}; set data.skip_unreadable=true to pass over what cannot be read")
        self.count(UNREADABLE, file, line, fault, unit=unit)

    def count(self, kind: str, file: str, line: int, detail: str, *, unit: Literal["line", "row"] = "line") -> None:
        """Count one text, unless it was counted before; the first few details of each kind, sentences, are kept."""
        found = self._files.setdefault(kind, {}).setdefault(file, {"count": 0, "line": -1})
        if line <= found.get(unit, -1):
            return
        found["count"] += 1
        found[unit] = line
        details = self._details.setdefault(kind, [])
        if len(details) < _MOST_DETAILS:
            details.append(detail)

    def number(self, kind: str) -> int:
        """Return how many of a kind were counted."""
        return sum(found["count"] for found in self._files.get(kind, {}).values())

    def __bool__(self) -> bool:
        return any(self.number(kind) for kind in _WORDS)

    def summary(self) -> dict[str, Any]:
        """Return what a run writes into its folder: counts by kind, and by file, and the first few in words."""
        return {
            kind: {
                "count": self.number(kind),
                "files": {name: found["count"] for name, found in sorted(self._files[kind].items())},
                "first": self._details[kind],
            }
            for kind in _WORDS
            if self.number(kind)
        }

    def line(self, kind: str) -> str:
        """Return one sentence on a kind that was counted, with the first two of it."""
        number = self.number(kind)
        return f"{number:,} {_WORDS[kind]}: {'; '.join(self._details[kind][:2])}" + " ..." * (number > 2)

    def lines(self) -> list[str]:
        """Return one sentence for each kind that was counted."""
        return [self.line(kind) for kind in _WORDS if self.number(kind)]

    def clear(self) -> None:
        """Forget all counts."""
        self._files.clear()
        self._details.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and details as plain values."""
        return copy.deepcopy({"files": self._files, "details": self._details})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counts and details of a `state_dict`."""
        self._files, self._details = copy.deepcopy(state["files"]), copy.deepcopy(state["details"])

    def merged(self, states: Iterable[Mapping[str, Any]]) -> "ReadingLog":
        """Merge the logs of several processes into one.

        Each process sees every line that cannot be read in the files that it opens, but judges only its own texts: so
        of a file that several have read the largest count holds for the former, and the sum for the latter.
        """
        whole = ReadingLog(skip=self.skip)
        for state in states:
            for kind, files in state["files"].items():
                for name, found in files.items():
                    own = whole._files.setdefault(kind, {}).setdefault(name, {"count": 0, "line": -1})
                    count = int(found["count"])
                    own["count"] = max(own["count"], count) if kind == UNREADABLE else own["count"] + count
            for kind, details in state["details"].items():
                known = whole._details.setdefault(kind, [])
                known += [detail for detail in details if detail not in known]
                del known[_MOST_DETAILS:]
        return whole
