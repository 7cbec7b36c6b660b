"""Keep the messages of other libraries out of a run's output."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from wordorder.launch import process_count


@contextmanager
def quiet_libraries() -> Generator[None]:
    """Let transformers show errors only and no progress bars within the block, then restore its settings."""
    from transformers.utils import logging

    if process_count() > 1:
        # Nothing changes a model's logits in place, and its loss is no view.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
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
