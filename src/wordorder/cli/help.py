"""Help texts in plain words: usage, description, arguments and options, and commands by what they are for."""

import textwrap
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperCommand

WIDTH = 100
"""Largest width of printed help, in characters."""

_WIDEST_NAME = 32


class Command(TyperCommand):
    """A command whose help names values as its documentation does, without the types of Python."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; the objects are those of the parser, whose classes typer keeps under private names."""
        write_help(self, ctx, formatter)


def write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the usage, the description, and a table of the arguments, the options and the commands, if any."""
    parameters = [parameter for parameter in command.get_params(context) if not parameter.hidden]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    written = " ".join(_argument(argument) for argument in arguments)
    commands = "COMMAND [ARGUMENTS]..." if hasattr(command, "commands") else ""
    formatter.write_usage(context.command_path, f"[OPTIONS] {written or commands}".rstrip())
    for paragraph in command.help.replace("**", "").split("\n\n"):
        formatter.write("\n" + _wrapped(" ".join(paragraph.split()), formatter.width))
    tables = {"Arguments": [(_argument(one).strip("[]."), _meaning(one)) for one in arguments]}
    tables |= dict(_commands(command, context))
    tables["Options"] = [(_option(one), _meaning(one)) for one in options]
    for title, rows in tables.items():
        if rows:
            formatter.write(f"\n{typer.style(title, bold=True)}:\n")
            first = min(max(len(name) for name, _ in rows), _WIDEST_NAME) + 4
            for name, meaning in rows:
                begin = f"  {name}".ljust(first) if len(name) <= _WIDEST_NAME else f"  {name}\n{' ' * first}"
                text = _wrapped(meaning, formatter.width - first).rstrip("\n")
                formatter.write(begin + text.replace("\n", "\n" + " " * first) + "\n")


def _wrapped(text: str, width: int) -> str:
    """Return a text in lines, options such as --top-p whole."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) + "\n"


def _commands(group: Any, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the commands of a group by their panels, each with the first sentence of its help."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(context) if hasattr(group, "list_commands") else ():
        command = group.get_command(context, name)
        summary = " ".join(command.help.partition("\n\n")[0].split()).removesuffix(".")
        panels.setdefault(command.rich_help_panel or "Commands", []).append((name, summary))
    yield from panels.items()


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    names = "/".join((", ".join(sorted(option.opts, key=len)), *option.secondary_opts))
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _meaning(parameter: Any) -> str:
    """Return the help of a parameter with its default, if that is a number or a word."""
    default = parameter.default
    said = parameter.show_default and isinstance(default, int | float | str) and not isinstance(default, bool)
    return f"{parameter.help or ''} [default: {default}]" if said else parameter.help or ""
