r"""Turn the LaTeX of `math` fences into MathML as the site is built, so that no script has to run in the browser.

latex2mathml passes over what it does not know: `\foo` becomes an identifier of that name, `\frac{a}` a fraction without
a denominator. `mathml` refuses such LaTeX. mkdocs reads this file through `site_hooks.py`, which warns of it.
"""

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.commands import MATRICES
from latex2mathml.converter import convert

MATH = "{http://www.w3.org/1998/Math/MathML}"
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "mroot": 2, "msubsup": 3, "munderover": 3}
"""Elements of MathML that have so many children, no fewer and no more."""
FENCE = re.compile(r"^( *)```math *\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)


def mathml(latex: str) -> str:
    """Return LaTeX, as a displayed equation, in MathML.

    Raises:
        ValueError: it is no LaTeX, or has a command or an environment that latex2mathml does not know.
    """
    text = latex.strip().replace("{aligned}", "{split}")  # latex2mathml knows the second name only
    for environment in re.findall(r"\\begin\{(.*?)\}", text):
        if f"\\{environment}" not in MATRICES:
            raise ValueError(f"unknown environment {environment!r}")
    bare = re.sub(r"\\[{}%&\\]", "", text)
    if bare.count("{") != bare.count("}"):
        raise ValueError(f"{bare.count('{')} opening and {bare.count('}')} closing braces")
    if "%" in bare:
        raise ValueError("a % begins a comment; write \\%")
    try:
        tree = ElementTree.fromstring(convert(text, display="block"))
    except ElementTree.ParseError:  # the converter leaves such a & as it is
        raise ValueError("a & outside of an environment") from None
    except Exception as error:
        reason = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error")).lower()
        raise ValueError(f"latex2mathml: {reason} {error}".strip()) from None
    for element in tree.iter():
        _check(element)
        _join_letters(element)
        letter = element.tag == f"{MATH}mi" and re.fullmatch(r"[A-Za-z\u03b1-\u03f5]", element.text or "")
        if letter and element.get("mathvariant") is None:
            element.set("class", "letter")  # site.css slants it: few fonts have the slanted letters of mathematics
    ElementTree.register_namespace("", MATH[1:-1])
    return ElementTree.tostring(tree, encoding="unicode")


def faults(markdown: str) -> list[tuple[int, str]]:
    """Return the line, from 1, and the fault of each `math` fence that is no LaTeX."""
    found: list[tuple[int, str]] = []
    for fence in FENCE.finditer(markdown):
        try:
            mathml(fence[2])
        except ValueError as error:
            found.append((markdown.count("\n", 0, fence.start()) + 1, str(error)))
    return found


def formatted(source: str, *_: Any, **__: Any) -> str:
    """Return the HTML of a `math` fence; pymdownx.superfences calls this."""
    try:
        return f'<div class="math" tabindex="0">{mathml(source)}</div>'
    except ValueError:  # `faults` has named it, with its line
        return f"<pre>{html.escape(source)}</pre>"


def _check(element: ElementTree.Element) -> None:
    name, text = element.tag.removeprefix(MATH), element.text or ""
    if len(element) != CHILDREN.get(name, len(element)):
        raise ValueError(f"an argument is missing: {''.join(element.itertext())!r} alone makes no {name}")
    if name != "mtext" and text.startswith("\\"):
        raise ValueError(f"unknown command {text}")
    if name == "mspace" and element.get("linebreak"):
        raise ValueError("a line break outside of an environment; use \\begin{aligned}")


def _join_letters(element: ElementTree.Element) -> None:
    r"""Make one identifier of the letters of \mathrm{...}, which screen readers then read as a word."""
    upright = [child for child in element if child.get("mathvariant") == "normal"]
    if len(upright) > 1 and len(upright) == len(element):
        word = "".join(child.text or "" for child in element)
        for child in list(element):
            element.remove(child)
        ElementTree.SubElement(element, f"{MATH}mi").text = word
