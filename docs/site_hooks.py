"""Put what the catalogue says into the site (`encoding_pages.py`), and refuse pages that would ask another host.

Readers open the site from a folder, without a network. Links that a reader follows may lead anywhere; what a browser
loads by itself may not. mkdocs calls this file (`hooks:` in mkdocs.yml), and `--strict` makes its warnings errors.
"""

import importlib
import logging
import re
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.plugins.wordorder")

LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    flags=re.IGNORECASE,
)


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return the addresses of other hosts that a browser would load with this page."""
    return [script or link for script, link in LOADED.findall(html)]


def encoding_pages() -> Any:
    """Import encoding_pages.py, which loads torch, where a page needs it."""
    here = str(Path(__file__).parent)
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module("encoding_pages")


def on_config(config: Any) -> None:
    """Put the pages of the mechanisms into the nav; mkdocs calls this once, with its settings."""
    if "mechanisms/*.md" in str(config.nav):
        config.nav = encoding_pages().navigation(config.nav)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put tables in place of their markers; mkdocs calls this with every page as it was written."""
    return encoding_pages().filled(markdown, page.file.src_uri) if "<!-- " in markdown else markdown


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Warn of what a page would load from elsewhere; mkdocs calls this with every finished page."""
    for address in loaded_from_elsewhere(output):
        log.warning("%s loads %s; keep a copy in docs/assets", page.file.src_uri, address)
    return output
