"""A catalogue that forgets what a page or an example adds to it."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def catalogue_of_before() -> Iterator[None]:
    """Forget the encodings that were registered, and the module of their class."""
    from wordorder.encodings import CATALOG

    before = dict(CATALOG)
    yield
    for name in set(CATALOG) - set(before):
        del CATALOG[name]
    sys.modules.pop("neighbours", None)
