"""Read the pickles inside a torch file without unpickling them: no global is ever looked up, imported or called.

A pickle is a program for a stack machine, and two of its instructions name a global and call it: that is how a
checkpoint runs a command on the reader's machine. Three ways to read one were weighed:

* ``torch.load(weights_only=True)`` is safe, but refuses the whole file for one unknown global, and a reference
  checkpoint holds several: `argparse.Namespace`, the training code's meters. Allow-listing them means importing them.
* A subclass of `pickle.Unpickler` with ``find_class`` overridden keeps the C machine, which calls what it is given
  and runs ``__setstate__``, ``append`` and ``update`` of whatever objects it finds: safe only as long as every
  stand-in class is.
* This file: `pickletools.genops`, the standard library's parser, cuts the bytes into instructions, and the machine
  below carries them out on the records of `inert_records`. None of its instructions imports or calls: what is "called"
  is a name, and the result an empty dict, one of those records, or a `Placeholder`. What a file can do is therefore
  listed in these files, in full, and does not depend on torch's private reader.

Against memory bombs: the bytes and the instructions of one pickle are limited, no instruction copies a list or a dict
that another one made, lengths are compared with what the file holds before anything is reserved, and what the file
puts in place of a dict's key is never hashed unless it is a plain value.
"""

import io
import pickletools
import struct
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

from wordorder.checkpoints.inert_records import Damaged, printable
from wordorder.checkpoints.inert_stack import InertStack

MOST_BYTES = 64 * 2**20
"""Most bytes of one pickle. That of BERT-Base's size with Adam's state has 57 kB: the numbers lie outside of it."""
MOST_OPCODES = 1_000_000
"""Most instructions of one pickle, each of which makes one object at most. That same model's has 16,000
instructions."""


class Window:
    """The next bytes of a file, at most so many, for `pickletools`: asking for more is an error, not an allocation."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        here = file.tell()
        end = file.seek(0, io.SEEK_END)
        file.seek(here)
        self._file, self._left = file, min(most, end - here)

    def read(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        if not 0 <= count <= self._left:
            raise Damaged("a pickle ends too early, or is larger than any checkpoint's")
        data = self._file.read(count)
        self._left -= len(data)
        return data

    def readline(self) -> bytes:
        """Read the rest of a line."""
        line = self._file.readline(self._left)
        self._left -= len(line)
        return line


class Machine(InertStack):
    """Carries out pickles on inert records; several pickles of one file share one list of placeholders."""

    def run(self, file: BinaryIO, *, most_bytes: int = MOST_BYTES) -> Any:
        """Carry out one pickle, and leave the file at the byte behind it.

        Args:
            file: at the first byte of a pickle.
            most_bytes: that the pickle may have.

        Returns:
            The object that it describes, of plain values, lists, tuples, dicts and inert records; sets are lists.

        Raises:
            Damaged: it is cut short, too large, or not what torch writes.
        """
        self.clear()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # the parser's, on backslashes in damaged names
                return self._carry_out(Window(file, most_bytes))
        except Damaged:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AssertionError, OverflowError, struct.error) as error:
            raise Damaged(f"a pickle makes no sense ({printable(str(error))})") from None
        finally:
            self.clear()

    def _carry_out(self, stream: Any) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MOST_OPCODES:
                raise Damaged(f"a pickle has more than {MOST_OPCODES:,} instructions, more than any checkpoint's")
            if opcode.name == "STOP":
                return self.take(1)[0]
            if opcode.name in _LITERALS:
                self.push(argument)
            elif opcode.name in _ACTIONS:
                _ACTIONS[opcode.name](self, argument)
            else:
                raise Damaged(f"a pickle has the instruction {opcode.name}, which torch does not write")
        raise Damaged("a pickle has no end")


def _stack_global(machine: InertStack, _: Any) -> None:
    module, name = machine.take(2)
    if not isinstance(module, str) or not isinstance(name, str):
        raise Damaged("a pickle names a global without words")
    machine.push(machine.name(f"{module}.{name}"))


def _reduce(machine: InertStack, _: Any) -> None:
    machine.push(machine.call(*machine.take(2)))


def _new_with_keywords(machine: InertStack, _: Any) -> None:
    made, arguments, keywords = machine.take(3)
    machine.push(machine.call(made, arguments if keywords == {} else (arguments, keywords)))


def _instance(machine: InertStack, argument: Any) -> None:
    machine.push(machine.call(machine.name(_dotted(argument)), tuple(machine.pop_group())))


def _object(machine: InertStack, _: Any) -> None:
    made, *arguments = machine.pop_group()
    machine.push(machine.call(made, tuple(arguments)))


def _dict(machine: InertStack, _: Any) -> None:
    made: dict[Any, Any] = {}
    machine.update(made, machine.pop_group())
    machine.push(made)


def _append(machine: InertStack, _: Any) -> None:
    (item,) = machine.take(1)
    machine.extend(machine.top(), [item])


def _set_item(machine: InertStack, _: Any) -> None:
    pair = machine.take(2)
    machine.update(machine.top(), [*pair])


def _append_group(machine: InertStack, _: Any) -> None:
    group = machine.pop_group()
    machine.extend(machine.top(), group)


def _set_group(machine: InertStack, _: Any) -> None:
    group = machine.pop_group()
    machine.update(machine.top(), group)


def _build(machine: InertStack, _: Any) -> None:
    (state,) = machine.take(1)
    machine.build(machine.top(), state)


def _dotted(argument: Any) -> str:
    """Return "module.name" of a global, for which pickletools gives "module name"."""
    return str(argument).replace(" ", ".", 1)


# The parser turns these into values by itself.
_LITERALS = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES"
    " SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8".split()
)

# Everything else that a pickle may do. Sets are lists: their members are never hashed.
_ACTIONS: dict[str, Callable[[InertStack, Any], object]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.pop_group(),
    "DUP": lambda machine, _: machine.push(machine.top()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_SET": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "LIST": lambda machine, _: machine.push(machine.pop_group()),
    "FROZENSET": lambda machine, _: machine.push(machine.pop_group()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_group())),
    "TUPLE1": lambda machine, _: machine.push(machine.take(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.take(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.take(3)),
    "DICT": _dict,
    "APPEND": _append,
    "APPENDS": _append_group,
    "ADDITEMS": _append_group,
    "SETITEM": _set_item,
    "SETITEMS": _set_group,
    "PUT": lambda machine, place: machine.remember(place),
    "BINPUT": lambda machine, place: machine.remember(place),
    "LONG_BINPUT": lambda machine, place: machine.remember(place),
    "MEMOIZE": lambda machine, _: machine.remember(None),
    "GET": lambda machine, place: machine.recall(place),
    "BINGET": lambda machine, place: machine.recall(place),
    "LONG_BINGET": lambda machine, place: machine.recall(place),
    "GLOBAL": lambda machine, argument: machine.push(machine.name(_dotted(argument))),
    "STACK_GLOBAL": _stack_global,
    "EXT1": lambda machine, number: machine.push(machine.foreign(f"copyreg extension {number}")),
    "EXT2": lambda machine, number: machine.push(machine.foreign(f"copyreg extension {number}")),
    "EXT4": lambda machine, number: machine.push(machine.foreign(f"copyreg extension {number}")),
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_with_keywords,
    "INST": _instance,
    "OBJ": _object,
    "BUILD": _build,
    "BINPERSID": lambda machine, _: machine.push(machine.persistent(machine.pop())),
}
