"""Objects that stand for what a stranger's file names, and its words written for a terminal."""

from typing import Any


class Placeholder:
    """Stands for a class or function that a file names, and for whatever the file makes with it; does nothing.

    Args:
        name: module and name, printable.
    """

    def __init__(self, name: str) -> None:  # pyright: ignore[reportInconsistentConstructor]
        self.name = name
        self.makes: Any = None
        """`list` or `dict` if the file fills what it makes: torch fills nothing else."""

    def __new__(cls, *_: Any) -> Any:
        """Make a placeholder; where a file makes an object of one, torch calls this on the placeholder itself."""
        return cls() if isinstance(cls, Placeholder) else super().__new__(cls)

    def __call__(self, *_: Any) -> Any:
        """Return what stands for the object that the file makes."""
        return self if self.makes is None else self.makes()

    def __setstate__(self, _: object) -> None:
        """Leave out the fields that the file has for it."""


class Namespace:
    """Stands for an `argparse.Namespace`."""

    fields: Any = None

    def __setstate__(self, state: object) -> None:
        """Keep the fields as they are: a copy could be asked for a million times by a small file."""
        self.fields = state


def printable(text: object, most: int = 120) -> str:
    """Return a name or value from the file on one line, without control characters, and short.

    Args:
        text: a plain value, or anything else, of which the type alone is shown.
        most: characters.
    """
    if isinstance(text, Placeholder):
        return f"<{text.name}>"
    if isinstance(text, str):
        shown = ascii(text[: most + 1])[1:-1]
    elif text is None or isinstance(text, bool | float) or (isinstance(text, int) and text.bit_length() < 256):
        shown = repr(text)
    else:
        shown = f"a value of type {type(text).__name__}"
    return shown if len(shown) <= most else f"{shown[:most]}..."
