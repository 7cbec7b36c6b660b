"""Report errors to the user: one line per fault on stderr, and an exit code with one meaning.

0 done; 1 failed while running; 2 bad input, nothing was started; 3 stopped by a signal after saving; 130 interrupted
with nothing to save. `--debug` adds the traceback.
"""

import difflib
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from wordorder.errors import BadInput, MissingExtra, RunFailed, Stopped, install_command
from wordorder.launch import first_to_fail

_MOST_LINES, _LINE_START, _LINE_END = 50, 1500, 500

DONE, FAILED, BAD_INPUT, STOPPED, INTERRUPTED = 0, 1, 2, 3, 130


class FaultReporter(TyperGroup):
    """A group of commands that turns every exception into one line per fault and an exit code."""

    # The signature is that of the library's method, whose keywords differ between its versions.
    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Parse and run; exit with a code unless `standalone_mode` is off, which lets exceptions through."""
        if not standalone_mode:
            return super().main(args, *rest, standalone_mode=False, **extra)
        given = sys.argv[1:] if args is None else list(args)
        # Taken out here, so that it may stand anywhere on the line.
        arguments = [argument for argument in given if argument != "--debug"]
        try:
            code = super().main(arguments, *rest, standalone_mode=False, **extra)
            sys.stdout.flush()
        except Exception as error:
            leave(error, debug=len(arguments) < len(given))
        if code == INTERRUPTED:
            print("wordorder: interrupted", file=sys.stderr)
        sys.exit(code if isinstance(code, int) else DONE)


def leave(error: Exception, *, debug: bool) -> NoReturn:
    """Report an exception on stderr and exit with its code."""
    if isinstance(error, BrokenPipeError):  # `wordorder list | head`: the reader went away
        sys.exit(FAILED)
    speaks, code = first_to_fail(exit_code(error))
    if debug and speaks:
        traceback.print_exception(error)
    for line in first_lines(fault_lines(error)) if speaks else ():
        print(f"wordorder: {shown(line)}", file=sys.stderr, flush=True)
    with suppress(OSError, RunFailed):  # what a command printed before it failed; one fault is enough
        sys.stdout.flush()
    sys.exit(code)


def shown(line: str) -> str:
    """Return a line as a terminal may show it: names out of a file could hold escape sequences for its cursor."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def fault_lines(error: Exception) -> tuple[str, ...]:
    """Return the lines to print for an exception: one per fault."""
    if isinstance(error, BadInput):
        return error.faults
    if is_usage_error(error):
        message = unknown_option(error) or str(error.format_message())  # type: ignore[attr-defined]
        return (" ".join(message.split()),)
    if is_missing_package(error):
        return (f"{error.name} is not installed; run: {install_command('train')}",)  # type: ignore[attr-defined]
    message = " ".join(str(error).split()) or "no message"
    if is_out_of_memory(error):
        return (f"memory ran out ({message}); make model and batch smaller, or lift the limit on memory (ulimit -v)",)
    if exit_code(error) == FAILED and type(error).__module__.split(".")[0] != "wordorder":
        return (f"{type(error).__name__}: {message} (--debug shows where)",)
    return (message,)


def unknown_option(error: object) -> str | None:
    """Return what to write instead of an option that there is not; None for every other error."""
    name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or context is None or not hasattr(error, "possibilities"):
        return None
    known = [option for parameter in context.command.get_params(context) for option in parameter.opts]
    near = difflib.get_close_matches(name, [option for option in known if option.startswith("--")], n=1, cutoff=0.75)
    meant = f"did you mean {near[0]}? " if near else ""
    if not near and "--set" in known and (key := _key_of_a_recipe(name.lstrip("-").replace("-", "_"))):
        meant = f"write --set {key}=VALUE; "
    return f"No such option: {name}; {meant}`{context.command_path} --help` lists the options"


def _key_of_a_recipe(name: str) -> str | None:
    """Return section.key of a recipe for the name of a key; None where there is no such key, or several."""
    from wordorder.data import DataSettings, TokenizerConfig
    from wordorder.tasks import TASKS
    from wordorder.training import CompareConfig, TrainingSettings

    keys = {"data": DataSettings.model_fields, "tokenizer": TokenizerConfig.model_fields}
    keys |= {"compare": CompareConfig.model_fields, "training": TrainingSettings.model_fields}
    keys |= {
        "model": {"encoding", "memory"},
        "task": {key for one in TASKS.values() for key in one.Options.model_fields},
    }
    found = [f"{section}.{name}" for section, names in keys.items() if name in names]
    return found[0] if len(found) == 1 else None


def first_lines(lines: Sequence[str]) -> list[str]:
    """Return the first lines and how many follow, a long line without its middle."""
    longest, left = _LINE_START + _LINE_END, len(lines) - _MOST_LINES
    cut = [
        line if len(line) <= longest else f"{line[:_LINE_START]} ... {line[-_LINE_END:]}"
        for line in lines[:_MOST_LINES]
    ]
    return [*cut, f"and {left:,} more faults"] if left > 0 else cut


def exit_code(error: Exception) -> int:
    """Map an exception to the process's exit code."""
    if isinstance(error, (BadInput, MissingExtra)) or is_usage_error(error) or is_missing_package(error):
        return BAD_INPUT
    return STOPPED if isinstance(error, Stopped) else FAILED


def is_missing_package(error: Exception) -> bool:
    """Tell whether a package that is not ours could not be found."""
    return isinstance(error, ModuleNotFoundError) and bool(error.name) and not str(error.name).startswith("wordorder")


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory could not be had, which Python, torch and the system say differently."""
    wordings = r"not enough memory|Cannot allocate memory|failed to map segment from shared object|start new thread"
    return isinstance(error, MemoryError) or bool(re.search(wordings, str(error)))


def is_usage_error(error: Exception) -> bool:
    """Tell whether the command line itself was wrong; typer may have a private copy of click, whose class this is."""
    return isinstance(error, typer.BadParameter.__mro__[1])
