"""Stack and notes of a pickle's instructions, with inert records in the place of everything that is called."""

from collections import Counter
from typing import Any, cast

from wordorder.checkpoints.inert_records import (
    STORAGES,
    UNDERSTOOD,
    Damaged,
    Known,
    Namespace,
    Placeholder,
    Storage,
    StoredTensor,
    is_nothing,
    plain_tensor,
    printable,
)


class InertStack:
    """Values on a stack; what lies there is whatever the file says: plain values, lists, dicts and inert records.

    Storages and placeholders are kept over several pickles of one file; stack and notes are of one pickle.
    """

    def __init__(self) -> None:
        self.placeholders: Counter[str] = Counter()
        self.storages: dict[str, Storage] = {}
        self.clear()

    def clear(self) -> None:
        """Forget stack and notes."""
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def mark(self) -> None:
        """Begin a group of stack items."""
        self._marked.append(self._stack)
        self._stack = []

    def pop_group(self) -> list[Any]:
        """End the group, and take its items."""
        group, self._stack = self._stack, self._marked.pop()
        return group

    def pop(self) -> Any:
        """Take the top of the stack, or a mark if that is on top."""
        return self._stack.pop() if self._stack else self.pop_group()

    def push(self, value: Any) -> None:
        """Put a value on top."""
        self._stack.append(value)

    def take(self, count: int) -> tuple[Any, ...]:
        """Take ``count`` values, in the order in which they were put there."""
        if count > len(self._stack):
            raise Damaged("a pickle takes what it has not made")
        taken = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        return taken

    def top(self) -> Any:
        """Return the top of the stack, and leave it there."""
        return self._stack[-1]

    def remember(self, place: Any) -> None:
        """Store the top under a number; the next one if None is given."""
        self._memo[len(self._memo) if place is None else place] = self._stack[-1]

    def recall(self, place: Any) -> None:
        """Push what was stored under a number."""
        self._stack.append(self._memo[place])

    def name(self, dotted: str) -> Known | Placeholder:
        """Return the record for a global's name: nothing is looked up but the closed list."""
        return Known(dotted) if dotted in UNDERSTOOD else self.foreign(dotted)

    def foreign(self, name: str) -> Placeholder:
        """Count a name outside the closed list, and return the placeholder that stands for it."""
        shown = printable(name)
        self.placeholders[shown] += 1
        return Placeholder(shown)

    def call(self, called: Any, arguments: Any) -> Any:
        """Return what stands for the result of a call: an empty dict, an inert record, or a placeholder."""
        if isinstance(called, Placeholder):
            return called
        if not isinstance(called, Known) or not isinstance(arguments, tuple):
            raise Damaged("a pickle calls what is no global")
        given = cast("tuple[Any, ...]", arguments)
        made: Any = None
        if called.name == "collections.OrderedDict" and not given:
            made = {}
        elif called.name == "argparse.Namespace" and not given:
            made = Namespace()
        elif called.name == "torch._utils._rebuild_tensor_v2":
            made = plain_tensor(given)
        elif called.name == "torch._utils._rebuild_parameter" and given and isinstance(given[0], StoredTensor):
            made = given[0] if is_nothing(given[2:]) else None
        # A known name in an unknown use is as foreign as an unknown name.
        return made if made is not None else self.foreign(f"{called.name} with unknown arguments")

    def build(self, target: Any, state: Any) -> None:
        """Give a record the state that the file has for it: fields of a namespace; for the others, nothing."""
        if isinstance(target, Namespace):
            if not isinstance(state, dict):
                raise Damaged("an argparse.Namespace has no fields")
            target.fields = state  # not a copy, which a small file could ask for a million times
        elif not isinstance(target, Placeholder | dict):  # a state dict has its version numbers as state
            raise Damaged("a pickle gives a state to what has none")

    def extend(self, target: Any, items: list[Any]) -> None:
        """Append to a list."""
        if isinstance(target, list):
            cast("list[Any]", target).extend(items)
        elif not isinstance(target, Placeholder):
            raise Damaged("a pickle appends to what is no list")

    def update(self, target: Any, pairs: list[Any]) -> None:
        """Set items of a dict."""
        if len(pairs) % 2:
            raise Damaged("a pickle sets a key without a value")
        if isinstance(target, dict):
            for at in range(0, len(pairs), 2):
                target[_key(pairs[at])] = pairs[at + 1]
        elif not isinstance(target, Placeholder):
            raise Damaged("a pickle sets an item of what is no dict")

    def persistent(self, identity: Any) -> Storage | Placeholder:
        """Return the storage that a persistent id means.

        The id is ("storage", type, key, where it was, elements[, None]).
        """
        fields = list(cast("tuple[Any, ...]", identity)) if isinstance(identity, tuple) else []
        if len(fields) not in (5, 6) or fields[0] != "storage" or not is_nothing(tuple(fields[5:])):
            return self.foreign("a persistent id that is no storage")
        _, kind, key, _, numel = fields[:5]
        if isinstance(kind, Placeholder):
            return kind
        known = STORAGES.get(kind.name) if isinstance(kind, Known) else None
        if known is None or type(key) is not str or type(numel) is not int or not 0 <= numel < 2**60:
            raise Damaged("a storage is described wrongly")
        storage = Storage(key, *known, numel)
        before = self.storages.setdefault(key, storage)
        if (before.kind, before.numel) != (storage.kind, storage.numel):
            raise Damaged(f"storage {printable(key)} is described in two ways")
        return before


def _key(key: Any) -> Any:
    """Return a dict's key: plain values as they are, others made opaque.

    Hashing a nested tuple can take for ever.
    """
    plain = key is None or isinstance(key, str | bytes | int | float)
    return key if plain else Placeholder(f"a key of type {type(key).__name__}")
