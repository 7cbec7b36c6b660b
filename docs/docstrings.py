"""Docstrings as the site shows them: examples and literal blocks of the source become fenced blocks of Markdown.

The source writes docstrings to be read in an editor: `::` before an indented equation, `>>>` before an example, tables
ruled with `=`. Markdown reads the first as a stray colon, the second as quotes in quotes, and the third as a heading.
mkdocstrings loads this file (`mkdocs.yml`); nothing else does.
"""

import re
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    """A docstring's text with its examples, equations and ruled tables fenced."""
    out: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith(">>> "):
            end = _end(lines, at, lambda later: bool(later.strip()))
            out += ["", "```pycon", *_dedented(lines[at:end]), "```"]
            at = end
        elif re.fullmatch(r"\s*=+(\s+=+)+", line):
            last = max(row for row in range(at, len(lines)) if re.fullmatch(r"\s*=+(\s+=+)+", lines[row]))
            out += ["", "```text", *_dedented(lines[at : last + 1]), "```"]
            at = last + 1
        elif line.rstrip().endswith("::"):
            out.append(line.rstrip()[:-1])
            indent = len(line) - len(line.lstrip())
            start = at + 1
            while start < len(lines) and not lines[start].strip():
                start += 1
            end = _end(lines, start, lambda later, own=indent: not later.strip() or _indent(later) > own)
            out += ["", "```text", *_dedented("\n".join(lines[start:end]).rstrip().split("\n")), "```", ""]
            at = end
        else:
            out.append(line)
            at += 1
    return "\n".join(out)


class DataclassOfTransformers(griffe.Extension):
    """Let griffe see that a configuration, a class with `@strict`, is a dataclass: transformers makes it one.

    Its fields are then the parameters of its signature, which the `Args:` of its docstring describe. They are given by
    keyword, as transformers' own fields stand before them.
    """

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by griffe for each class once its decorators are read."""
        if any(decorator.callable_path == "huggingface_hub.dataclasses.strict" for decorator in cls.decorators):
            as_dataclass = griffe.ExprCall(
                griffe.ExprName("dataclasses.dataclass"), [griffe.ExprKeyword("kw_only", "True")]
            )
            cls.decorators.append(griffe.Decorator(as_dataclass, lineno=cls.lineno, endlineno=cls.lineno))


class Fenced(griffe.Extension):
    """Apply `as_markdown` to every docstring that is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute once its source is read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def _end(lines: list[str], start: int, goes_on: Any) -> int:
    end = start
    while end < len(lines) and goes_on(lines[end]):
        end += 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedented(lines: list[str]) -> list[str]:
    own = min((_indent(line) for line in lines if line.strip()), default=0)
    return [line[own:] for line in lines]
