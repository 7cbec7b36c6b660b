"""Rows of named columns, which readers return, and documents, which the rest of the package gets."""

from dataclasses import dataclass

Row = dict[str, object]
"""One document as its format has it: column name -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one file, or of one split of a named corpus."""

    origin: str
    """The file or corpus, as error messages name it."""
    rows: list[Row]
    split: str | None = None
    """train, validation or test, where the source itself says so."""
    by_rule: bool = False
    """The translations are made from the texts by a rule, so that many texts have the same one: a text of the test may
    share its translation with one of training, and only the pair must not be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text of the corpus."""

    text: str
    label: str | None = None
    """The class, for classification; else None."""
    pair: str | None = None
    """The second text, for classification of pairs, or the translation; else None."""
    split: str | None = None
    """Split that the source names, as in `Part.split`."""
    length: int | None = None
    """Length of a generated text, as its task counts it; None for texts that are read."""
    group: str | None = None
    """Documents of one group are never on two sides of a split that is made here; None: those of the same text are
    not. Only translations that people made have groups."""

    @property
    def together(self) -> str:
        """Name that documents share where they must not be divided: the group, or the text but for white space."""
        return same_text(self.text) if self.group is None else self.group


def same_text(text: str) -> str:
    """Return a text with each run of white space as one space: a copy is often kept with other white space."""
    return " ".join(text.split())


def is_unicode(text: str) -> bool:
    """Return False for a text with half of a surrogate pair, which JSON can spell: "\\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_fault(column: str, value: object) -> str:
    if value is None or (isinstance(value, str) and is_unicode(value)):
        return ""
    held = "half of a surrogate pair" if isinstance(value, str) else type(value).__name__
    return f"column {column!r} holds {held}, not text"
