"""Follow a pickle before torch reads it: what it names, what it stores, and how much work it asks for.

`torch.load(weights_only=True)` imports nothing and calls a few functions of its own only. Yet a file of a few kilobytes
could keep it busy for ever, fill the memory or crash the interpreter: by nested tuples as keys, by functions that copy,
by tensors larger than their storage. The survey knows literals, containers and names, makes none of the file's objects,
and refuses what no checkpoint asks for.
"""

import io
import pickletools
import sys
import zipfile
from collections import Counter
from typing import Any, cast

from torch.serialization import get_unsafe_globals_in_checkpoint

MOST_OPCODES = 2_000_000
"""Most instructions of one pickle. That of BERT-Base with Adam's state has 16,000; with WikiText-103's vocabulary it
would have 1.6 million."""
MOST_NESTED = 10_000
"""Most values in a tuple, those of the tuples in it included: Python hashes and frees them recursively."""
MOST_WORK = 4_000_000
"""Most values that are hashed or copied, for the whole file."""

_BYTES = {
    1: "Bool Byte Char",
    2: "Half BFloat16 Short",
    4: "Float Int",
    8: "Double Long ComplexFloat",
    16: "ComplexDouble",
}
STORAGES = {f"torch.{name}Storage": size for size, names in _BYTES.items() for name in names.split()}
"""Global -> bytes an element."""
TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
ORDERED, ENCODE = "collections.OrderedDict", "_codecs.encode"
_KINDS = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool complex64 complex128"
_BUILTINS = {f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "complex")}
COPIES = {*_BUILTINS, "collections.Counter", "torch.Size", "torch.device"}
BUILT = {*STORAGES, *COPIES, TENSOR, PARAMETER, ORDERED, ENCODE, *(f"torch.{kind}" for kind in _KINDS.split())}
"""The closed list: what torch may make of its own. All else is a placeholder, or the file is refused."""

_VALUES: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = {*_VALUES, "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"}


class Placeholder:
    """Stands for a class or function that a file names, and for whatever the file makes with it; does nothing."""

    def __init__(self, name: str) -> None:  # pyright: ignore[reportInconsistentConstructor]
        self.name = name
        self.makes: Any = None
        """`list` or `dict` if the file fills what it makes: torch fills nothing else."""

    def __new__(cls, *_: Any) -> Any:
        """Make a placeholder; where a file makes an object of one, torch calls this on the placeholder itself."""
        return cls() if isinstance(cls, Placeholder) else super().__new__(cls)

    def __call__(self, *_: Any) -> Any:
        """Return what stands for the object that the file makes."""
        return self if self.makes is None else self.makes()

    def __setstate__(self, _: object) -> None:
        """Leave out the fields that the file has for it."""


class Namespace:
    """Stands for an `argparse.Namespace`."""

    fields: Any = None

    def __setstate__(self, state: object) -> None:
        """Keep the fields as they are: a copy could be asked for a million times by a small file."""
        self.fields = state


def printable(text: object, most: int = 120) -> str:
    """Return a name or plain value from a file on one line, without control characters, and short; else its type."""
    if isinstance(text, Placeholder):
        return f"<{text.name}>"
    if isinstance(text, str):
        shown = ascii(text[: most + 1])[1:-1]
    elif text is None or isinstance(text, bool | float) or (isinstance(text, int) and text.bit_length() < 256):
        shown = repr(text)
    else:
        shown = f"a value of type {type(text).__name__}"
    return shown if len(shown) <= most else f"{shown[:most]}..."


class Damaged(ValueError):
    """The bytes are no pickle of the kind that torch writes and reads."""


class _Global:
    def __init__(self, name: str, stand_in: Any) -> None:
        self.name, self.stand_in = name, stand_in


class _Made(list[Any]):
    """The result of a call, with what is filled into it."""

    def __init__(self, by: _Global) -> None:
        self.by = by


class _Tuple(tuple[Any, ...]):
    cost: int

    @classmethod
    def of(cls, items: list[Any]) -> "_Tuple":
        made = cls(items)
        made.cost = 1 + sum(map(_cost, items))
        if made.cost > MOST_NESTED:
            raise Damaged(f"a pickle has a tuple of more than {MOST_NESTED:,} values")
        return made


class _Storage:
    def __init__(self, key: str, numel: int) -> None:
        self.key, self.numel = key, numel


class Survey:
    """Follows the pickles of one file."""

    def __init__(self) -> None:
        self.placeholders: Counter[str] = Counter()
        """Names outside the closed list, with how often the file has them."""
        self.stand_ins: dict[str, Any] = {}
        """The name as torch looks it up -> what it is to find."""
        self.storages: dict[str, int] = {}
        """Key -> bytes."""
        self._globals: dict[str, _Global] = {}
        self._work = 0

    def follow(self, file: Any) -> Any:
        """Follow one pickle, leave the file behind it, and return its object: a literal, or what stands for it.

        Args:
            file: with read, readline and tell; it gives no more bytes than there are.
        """
        stack: list[Any] = []
        marks: list[int] = []
        memo: dict[Any, Any] = {}
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count >= MOST_OPCODES:
                raise Damaged(f"a pickle has more than {MOST_OPCODES:,} instructions, more than any checkpoint's")
            name, before = opcode.name, opcode.stack_before
            marked = pickletools.markobject in before
            first = marks.pop() - before.index(pickletools.markobject) if marked else len(stack) - len(before)
            if first < 0:
                raise Damaged("a pickle takes what it has not made")
            taken = stack[first:]
            del stack[first:]
            match name:
                case "PROTO":
                    if argument is not None and argument > 3:
                        raise Damaged(f"its pickle has protocol {argument}; save it again with plain torch.save")
                case "STOP":
                    return taken[0]
                case "MARK":
                    marks.append(len(stack))
                case "BINPUT" | "LONG_BINPUT":
                    memo[argument] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(memo[argument])
                case "GLOBAL":
                    stack.append(self._global(str(argument)))
                case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_SET":
                    stack.append([])
                case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                    stack.append(_Tuple.of(taken))
                case "APPEND" | "SETITEM" | "APPENDS" | "SETITEMS":
                    stack.append(self._fill(taken[0], taken[1:], keys=name.startswith("SET")))
                case "REDUCE" | "NEWOBJ":
                    stack.append(self._call(*taken))
                case "BUILD":
                    stack.append(self._give(*taken))
                case "BINPERSID":
                    stack.append(self._storage(taken[0]))
                case _ if name in _LITERALS:
                    stack.append(_VALUES.get(name, argument))
                case _:
                    raise Damaged(f"its pickle has the instruction {name}: save it again with plain torch.save")
        raise Damaged("a pickle has no end")

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MOST_WORK:
            raise Damaged("a pickle asks for more work than any checkpoint's")

    def _global(self, spaced: str) -> _Global:
        """Return a global, which is in the closed list or gets a stand-in."""
        module, _, name = spaced.partition(" ")
        if spaced not in self._globals:
            self._spend(1000)  # as much as torch's answer takes
            dotted, foreign = f"{module}.{name}", _name_outside_of_torch(module, name)
            stand_in = None
            if foreign == "argparse.Namespace":
                stand_in = Namespace
            elif foreign is not None:
                if foreign.partition(".")[0] in ("os", "posix", "nt", "sys"):
                    raise Damaged(
                        f"its pickle asks for {printable(foreign)}, which runs commands; do not load it anywhere"
                    )
                stand_in = Placeholder(printable(foreign))
            elif dotted not in BUILT:
                raise Damaged(f"its pickle asks for {printable(dotted)}, which dense tensors of usual types never need")
            if foreign is not None:
                stand_in = self.stand_ins.setdefault(foreign, stand_in)
            self._globals[spaced] = _Global(dotted, stand_in)
        found = self._globals[spaced]
        if isinstance(found.stand_in, Placeholder):
            self.placeholders[found.stand_in.name] += 1
        return found

    def _fill(self, target: object, items: list[object], *, keys: bool) -> object:
        if not isinstance(target, list) or (keys and len(items) % 2):
            raise Damaged("a pickle fills what is no list or dict")
        if keys:
            self._spend(sum(map(_cost, items[::2])))
        if isinstance(target, _Made) and isinstance(target.by.stand_in, Placeholder):
            target.by.stand_in.makes = dict if keys else list
        filled = cast("list[Any]", target)
        filled.extend(items)
        return filled

    def _give(self, target: object, state: object) -> _Made:
        """Give a state to an object: a state dict's version numbers, which torch copies, or a stand-in's fields."""
        self._spend(len(self._globals))
        if not isinstance(target, _Made) or (target.by.stand_in is None and target.by.name != ORDERED):
            raise Damaged("a pickle gives a state to what has none")
        if target.by.stand_in is None:
            if not isinstance(state, list) or (isinstance(state, _Made) and state.by.name != ORDERED):
                raise Damaged("a pickle gives a state dict fields that are no dict")
            self._spend(len(cast("list[Any]", state)))
        return target

    def _call(self, called: object, arguments: object) -> object:
        called = called.by if isinstance(called, _Made) else called  # calling a placeholder gives that placeholder
        if not isinstance(called, _Global) or not isinstance(arguments, _Tuple):
            raise Damaged("a pickle calls what is no global")
        self._spend(len(self._globals))  # torch makes a table of them at each call
        if called.stand_in is None:
            plain = not any(isinstance(each, _Made | _Global | _Storage) for each in arguments)
            if called.name == TENSOR:
                _check_tensor(arguments)
            elif called.name in COPIES and plain:
                for part in cast("tuple[Any, ...]", arguments):
                    self._spend(sum(map(_cost, cast("list[Any]", part))) if isinstance(part, list | tuple | str) else 1)
            elif not (
                called.name == PARAMETER
                or (called.name == ORDERED and not arguments)
                or (called.name == ENCODE and plain and arguments[1:] == ("latin1",))
            ):
                raise Damaged(f"its pickle calls {called.name} with unknown arguments")
        return _Made(called)

    def _storage(self, identity: object) -> _Storage:
        """Return the storage of a persistent id: ("storage", type, key, where it was, elements[, None])."""
        if not isinstance(identity, _Tuple) or len(identity) not in (5, 6) or any(identity[5:]):
            raise Damaged("a storage is described wrongly")
        word, kind, key, _, numel = identity[:5]
        size = STORAGES.get(kind.name) if isinstance(kind, _Global) else None
        if word != "storage" or type(key) is not str or type(numel) is not int or not 0 <= numel < 2**60:
            raise Damaged("a storage is described wrongly")
        if size is None:
            raise Damaged(f"storage {printable(key)} has no known type")
        if self.storages.setdefault(key, size * numel) != size * numel:
            raise Damaged(f"storage {printable(key)} is described in two ways")
        return _Storage(key, numel)


def _cost(value: object) -> int:
    """Return how much work it is to hash a value; large integers can be chosen to have the same hash."""
    if isinstance(value, int) and abs(value) >= sys.hash_info.modulus:
        return 1000
    return value.cost if isinstance(value, _Tuple) else 1


def _check_tensor(arguments: tuple[Any, ...]) -> None:
    """Check (storage, offset, size, stride, requires_grad, hooks[, metadata]): torch would enlarge the storage."""
    if len(arguments) not in (6, 7) or not isinstance(arguments[0], _Storage) or any(arguments[5:]):
        raise Damaged("there is a tensor that is not plain")
    storage, offset, size, stride = arguments[:4]
    shaped = isinstance(size, _Tuple) and isinstance(stride, _Tuple) and len(size) == len(stride)
    if not shaped or any(type(number) is not int or not 0 <= number < 2**60 for number in (offset, *size, *stride)):
        raise Damaged("there is a tensor without a shape")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.numel:
        raise Damaged(f"a tensor reaches beyond its storage {printable(storage.key)}")


def _name_outside_of_torch(module: str, name: str) -> str | None:
    """Return the name as torch looks it up, None if it has a function or class of its own for it."""
    file = io.BytesIO()  # torch answers for archives alone: the smallest one that names it
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x/data.pkl", f"\x80\x02c{module}\n{name}\n.".encode("latin1"))
        archive.writestr("x/version", "3\n")
    file.seek(0)
    return next(iter(get_unsafe_globals_in_checkpoint(file)), None)
