"""What `make docs` refuses beyond mkdocs' own checks: a page that would ask another host for anything.

Readers open the site from a folder, without a network. Links that a reader follows may lead anywhere; what a browser
loads by itself may not. mkdocs calls this file (`hooks:` in mkdocs.yml), and `--strict` makes its warnings errors.
"""

import logging
import re
from typing import Any

log = logging.getLogger("mkdocs.plugins.wordorder")

LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    flags=re.IGNORECASE,
)


def loaded_from_elsewhere(html: str) -> list[str]:
    """Addresses of other hosts that a browser would load with this page."""
    return [script or link for script, link in LOADED.findall(html)]


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with every finished page."""
    for address in loaded_from_elsewhere(output):
        log.warning("%s loads %s; keep a copy in docs/assets", page.file.src_uri, address)
    return output
