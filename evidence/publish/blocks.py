"""Blocks of pages that scripts write: what stands between `<!-- NAME -->` and `<!-- /NAME -->`."""

import re
from collections.abc import Callable

BLOCK = re.compile(
    r"^<!-- (?P<name>(?P<word>[a-z-]+)(?:: [a-z0-9 -]+)?) -->\n.*?^<!-- /(?P=word) -->$", flags=re.DOTALL | re.MULTILINE
)
"""A block; its name may go on after a colon, as in ``<!-- facts: rope --> ... <!-- /facts -->``."""


def put(page: str, name: str, content: str) -> str:
    """Return a page with this content in the block of a name; a page without the block stays as it is."""
    return put_each(page, lambda block: content if block == name else None)


def put_each(page: str, content_of: Callable[[str], str | None]) -> str:
    """Return a page with new content in its blocks.

    Args:
        page: Markdown.
        content_of: name of a block -> what stands between its marks; None leaves it as it is.
    """

    def written(block: re.Match[str]) -> str:
        content = content_of(block["name"])
        return block[0] if content is None else f"<!-- {block['name']} -->\n\n{content}\n\n<!-- /{block['word']} -->"

    return BLOCK.sub(written, page)
