"""Write the reference of every command into docs/command-line.md from what typer is told about it.

    python evidence/publish/publish_commands.py

The prose of the page stays; what stands between `<!-- commands -->` and `<!-- /commands -->` is made anew from the
signatures and docstrings that `wordorder COMMAND --help` shows too. A test holds the page to them. Only public names of
typer are read: its parsed commands change with every version.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from blocks import put
from typer.models import ArgumentInfo, OptionInfo

from wordorder.cli.app import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
SHARED = {
    "RECIPE": "A recipe's file, or one of `wordorder list recipes`, such as demo.",
    "MODEL_DIR": "A folder with a model and its tokenizer.",
    "--dry-run": "Check the recipe, print it resolved, and stop.",
    "--json": "Print the result as JSON on stdout, and nothing else there.",
    "--set SECTION.KEY=VALUE": "Override one value of the recipe; may be repeated.",
}
"""Arguments and options that several commands have, shown once."""
GUIDES = {
    "compare": "[Fair comparisons](fair.md), [More seeds and encodings](#more-seeds-and-encodings)",
    "convert": "[Convert checkpoints](convert.md)",
    "data": "[Data](data.md)",
    "evaluate": "[Language models with memory](language-models.md)",
    "generate": "[Generation](generation.md)",
    "inspect": "[Inspect a model](inspect.md)",
    "train": "[Recipes](recipes.md), [Stop and resume](resume.md)",
}
"""Pages that say more about a command."""


def reference() -> str:
    """All commands in the order of `wordorder --help`, and the options that they share."""
    assert app.registered_callback is not None
    assert app.registered_callback.callback is not None
    commands = [(str(command.name), command.callback) for command in app.registered_commands if command.callback]
    shared = [f"- `{name}`: {meaning}" for name, meaning in SHARED.items()]
    options = "\n".join([listed(rows_of(app.registered_callback.callback)), *shared])
    return "\n\n".join(
        [f"### Shared arguments and options\n\n{options}", *(command_of(*command) for command in commands)]
    )


def command_of(name: str, function: Callable[..., object]) -> str:
    """One command: usage, what it does, its example, and its arguments and options."""
    about, example, rest = described(function)
    arguments = [
        (row["name"] if row["default"] == "required" else f"[{row['name']}]") + "..." * row["many"]
        for row in rows_of(function)
        if row["positional"]
    ]
    usage = " ".join(["wordorder", name, *arguments])
    rows = [row for row in rows_of(function) if row["name"] not in SHARED]
    options = listed(rows) if rows else ""
    guide = f"See {GUIDES[name]}." if name in GUIDES else ""
    parts = [f"### {name}", f"`{usage}`: {about}", f"```bash\n{example}\n```", *rest, options, guide]
    return "\n\n".join(part for part in parts if part)


def described(function: Callable[..., object]) -> tuple[str, str, list[str]]:
    """What a command does, its first example, and the other paragraphs of its help.

    Raises:
        ValueError: the help has no paragraph "Example: `wordorder ...`".
    """
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n")]
    examples = [part for part in paragraphs if part.startswith("Example: `")]
    if not examples:
        raise ValueError(f"the help of {function.__name__} has no example; add a paragraph 'Example: `wordorder ...`'")
    rest = [part for part in paragraphs[1:] if part != examples[0]]
    return paragraphs[0], examples[0].removeprefix("Example: ").strip("`"), rest


def rows_of(function: Callable[..., object]) -> list[dict[str, Any]]:
    """Name, type, default and meaning of every argument and option of a function that typer calls."""
    hints = get_type_hints(function, include_extras=True)
    rows: list[dict[str, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if get_origin(hints[name]) is not Annotated:  # typer's context
            continue
        kind, info = get_args(hints[name])[:2]
        if info.hidden:
            continue
        positional = isinstance(info, ArgumentInfo)
        rows.append(
            {
                "name": info.metavar or name.upper() if positional else declared(name, kind, info),
                "positional": positional,
                "many": positional and list in map(get_origin, (kind, *get_args(kind))),
                "type": type_of(kind, info),
                "default": default_of(parameter.default, positional),
                "help": info.help or "",
            }
        )
    return rows


def declared(name: str, kind: object, info: OptionInfo) -> str:
    """An option as it is written, with the name of its value."""
    own = "--" + name.replace("_", "-")
    flag = kind is bool
    # Inside Annotated typer takes the first name of an option for its default.
    names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    written = ", ".join(names or ([f"{own}/--no-{own[2:]}"] if flag else [own]))
    return written if flag or not info.metavar else f"{written} {info.metavar}"


def type_of(kind: Any, info: ArgumentInfo | OptionInfo) -> str:
    """The limits or choices of a type; nothing for a flag, text or path without them."""
    inner = [part for part in get_args(kind) if part is not type(None)]
    if get_origin(kind) in (Union, UnionType) and len(inner) == 1:
        return type_of(inner[0], info)
    if get_origin(kind) is list:
        return type_of(inner[0], info)
    if kind is bool:
        return ""
    if get_origin(kind) is Literal and "|" in (info.metavar or ""):
        return ""  # the name of the value lists them
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    limits = (f"≥ {info.min:g}" if info.min is not None else "", f"≤ {info.max:g}" if info.max is not None else "")
    return ", ".join(limit for limit in limits if limit)


def default_of(default: object, positional: bool) -> str:
    """A default as it would be written; nothing for flags that are off, and for options that are left out."""
    if default is inspect.Parameter.empty:
        return "required" if positional else "must be given"
    if default is None or default is False:
        return ""
    return "on by default" if default is True else f"default `{default}`"


def listed(rows: list[dict[str, Any]]) -> str:
    """A markdown list of arguments, then options: the meaning, and in brackets limits, choices and default."""
    lines: list[str] = []
    for row in rows:
        default = "" if row["default"] == "required" else row["default"]
        facts = "; ".join(part for part in (row["type"], default) if part)
        lines.append(f"- `{row['name']}`: {row['help']}{f' ({facts})' if facts else ''}")
    return "\n".join(lines)


def page_of(text: str) -> str:
    """The page with the reference of every command."""
    return put(text, "commands", reference())


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
