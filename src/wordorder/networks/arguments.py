"""Check the arguments of constructors."""

from typing import Any, get_args


def check_positive(**sizes: int) -> None:
    """Raise ValueError for the first size that is not positive."""
    for name, value in sizes.items():
        if value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise ValueError where a value is none of the strings of a Literal."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
