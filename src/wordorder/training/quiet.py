"""Keeping other libraries' chatter out of a run's output."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_libraries() -> Generator[None]:
    """Within it transformers shows errors only and no progress bars; afterwards it is as it was."""
    from transformers.utils import logging

    library: Any = logging
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
