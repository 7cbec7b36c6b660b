"""Complete the pages as the site is built: `reference_pages.py`, `equations.py`.

Readers open the site from a folder, without a network. Links that a reader follows may lead anywhere; what a browser
loads by itself may not, and such a page is refused. mkdocs calls this file (`hooks:` in mkdocs.yml), and `--strict`
makes its warnings errors.
"""

import importlib
import logging
import re
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.plugins.wordorder")

WIDE = ("statistics.md", "classification.md", "comparisons.md")
"""Pages whose tables take the place of the list of headings beside them."""

LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)",
    flags=re.IGNORECASE,
)


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return the addresses of other hosts that a browser would load with this page."""
    return [script or link for script, link in LOADED.findall(html)]


def beside(name: str) -> Any:
    """Import a file of this folder where a page needs it: reference_pages.py loads torch."""
    here = str(Path(__file__).parent)
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


def outside(markdown: str, depth: int, repository: str) -> str:
    """Return a page whose links to files outside of docs/ lead to the repository, which the site does not hold.

    ``../CONTRIBUTING.md`` -> ``https://.../blob/main/CONTRIBUTING.md``
    """
    above = re.escape("../" * (depth + 1))
    return re.sub(rf"\]\({above}(?=[\w.])", f"]({repository}/blob/main/", markdown)


def version() -> str:
    """Return the version of the package whose documentation this is."""
    return importlib.import_module("wordorder").__version__


def on_config(config: Any) -> None:
    """Complete the settings: the version, the fence `math`; mkdocs calls this once."""
    mkdocs_log = logging.getLogger("mkdocs")
    if config.strict and mkdocs_log.level > logging.WARNING:  # --quiet drops the warnings before they are counted
        mkdocs_log.setLevel(logging.WARNING)
    config.repo_name = f"{config.repo_name} {version()}"
    fence = {"name": "math", "class": "math", "format": beside("equations").formatted}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Put in the names of the reference, lead links out of docs/, warn of faulty equations; mkdocs calls this."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    markdown = outside(markdown, page.file.src_uri.count("/"), config.repo_url)
    if "```math" in markdown:
        written = Path(page.file.abs_src_path).read_text(encoding="utf-8")  # markdown has no front matter
        for line, fault in beside("equations").faults(written):
            log.warning("%s, line %d: %s", page.file.src_uri, line, fault)
    return beside("reference_pages").filled(markdown) if "<!-- public: " in markdown else markdown


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Warn of what a page would load from elsewhere; mkdocs calls this with every finished page."""
    for address in loaded_from_elsewhere(output):
        log.warning("%s loads %s; keep a copy in docs/assets", page.file.src_uri, address)
    return output
