"""Interpreter of pickle opcodes as data: nothing that they name is imported or called."""

import dataclasses
import pickletools
from collections.abc import Callable
from typing import Any

MOST_OPCODES = 100_000
"""Maximum number of opcodes, each of some hundred bytes; statistics and state dicts have thousands."""

LONGEST_NAME = 200
"""Maximum length of a qualified name, since names of any length can be joined from memo entries."""

MOST_DIMENSIONS = 64
"""Maximum number of dimensions, that of NumPy."""

VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
"""Opcodes that push their argument."""

CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
"""Opcodes that push a constant."""


class NotAllowedError(Exception):
    """A pickle refers to a name that is not allowed; the message is the name."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Name:
    """Name of a class or function in a pickle."""

    origin: str


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Inert:
    """Placeholder of an object in a pickle: the arguments of its constructor, and its state."""

    origin: str
    made_of: tuple
    state: Any = None


class InertDict(dict):
    """Placeholder of an `OrderedDict`, whose attributes are dropped."""


def read_pickle(raw: bytes, allowed: Callable[[str], bool], *, persistent_ids: bool = False) -> Any:
    """Read a pickle of protocol 2 to 5 as built-in Python values, with placeholders for all other objects.

    Sets become lists, and persistent ids become `Inert("persistent id", (id,))`. Memory is bounded by a
    small multiple of `raw` and by `MOST_OPCODES`: lengths are checked against what is left of `raw`, and the
    memo is a dict, so that its indices may be any.

    **Arguments:** `raw`; `allowed`, which names may occur, as `module.name`; `persistent_ids`, whether
    persistent ids may.

    **Raises:** `NotAllowedError` for another name, `ValueError` for anything else that cannot be read.
    """
    machine = _Machine(allowed, persistent_ids)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
            if count >= MOST_OPCODES:
                raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
            machine.run(opcode.name, argument)
        return machine.pop(object)
    except LookupError:
        raise ValueError("its opcodes do not fit together") from None


class _Machine:
    """The stack of an unpickler, with one stack for each open mark, and the memo."""

    def __init__(self, allowed: Callable[[str], bool], persistent_ids: bool):
        self.allowed, self.persistent_ids = allowed, persistent_ids
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, opcode: str, argument: Any) -> None:
        """Apply one opcode."""
        push = self.stack.append
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _ if opcode in VALUES:
                push(argument)
            case _ if opcode in CONSTANTS:
                push(CONSTANTS[opcode])
            case "EMPTY_LIST" | "EMPTY_SET":
                push([])
            case "EMPTY_DICT":
                push({})
            case "MARK":
                self.outer.append(self.stack)
                self.stack = []
            case "POP":
                self.stack.pop() if self.stack else self.pop_mark()
            case "POP_MARK":
                self.pop_mark()
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                push(self.memo[argument])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(reversed([self.stack.pop() for _ in range(int(opcode[-1]))])))
            case "TUPLE":
                items = self.pop_mark()
                self.stack.append(tuple(items))
            case "FROZENSET":
                items = self.pop_mark()
                self.stack.append(items)
            case "APPEND":
                item = self.stack.pop()
                self.top(list).append(item)
            case "APPENDS" | "ADDITEMS":
                items = self.pop_mark()
                self.top(list).extend(items)
            case "SETITEM":
                self.set_items(reversed([self.stack.pop(), self.stack.pop()]))
            case "SETITEMS":
                self.set_items(self.pop_mark())
            case "GLOBAL" | "INST":
                push(self.name(argument.replace(" ", ".")))
                if opcode == "INST":
                    raise ValueError("it has an opcode INST, of protocols before 2")
            case "STACK_GLOBAL":
                name, module = self.pop(str), self.pop(str)
                push(self.name(f"{module[:LONGEST_NAME]}.{name[: LONGEST_NAME + 1]}"))
            case "REDUCE" | "NEWOBJ":
                made_of, name = self.pop(tuple), self.pop(Name)
                push(self.object(name.origin, made_of))
            case "NEWOBJ_EX":
                _, made_of, name = self.pop(dict), self.pop(tuple), self.pop(Name)
                push(self.object(name.origin, made_of))
            case "BUILD":
                state = self.stack.pop()
                made = self.top((Inert, InertDict))
                if isinstance(made, Inert):
                    made.state = state
            case "BINPERSID" if self.persistent_ids:
                push(Inert("persistent id", (self.stack.pop(),)))
            case _:
                raise ValueError(f"it has an opcode {opcode}, which is not expected")

    def pop(self, kind: type) -> Any:
        """Take the value on top, which must be of a type."""
        self.top(kind)
        return self.stack.pop()

    def top(self, kind: type | tuple[type, ...]) -> Any:
        """The value on top, which must be of a type."""
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"it does something to a {type(self.stack[-1]).__name__} that cannot be done")
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        """Everything above the last mark."""
        items, self.stack = self.stack, self.outer.pop()
        return items

    def set_items(self, items: Any) -> None:
        """Set alternating keys and values in the dict on top."""
        target, items = self.top(dict), list(items)
        for key, value in zip(items[::2], items[1::2], strict=True):
            # The hash of nested tuples can take any time.
            if type(key) not in (str, int):
                raise ValueError(f"it has a dict with a key of type {type(key).__name__}")
            target[key] = value

    def name(self, origin: str) -> Name:
        """A name, if it may occur."""
        if len(origin) > LONGEST_NAME or not self.allowed(origin):
            # Escaped, since a damaged name can hold line breaks and control characters.
            raise NotAllowedError(repr(origin[:LONGEST_NAME])[1:-1])
        return Name(origin)

    def object(self, origin: str, made_of: tuple) -> Inert | InertDict:
        """A stand-in."""
        if origin != "collections.OrderedDict":
            return Inert(origin, made_of)
        if made_of:
            raise ValueError("it has an OrderedDict that is not made empty")
        return InertDict()


def is_shape(value: Any) -> bool:
    """Whether a value from a pickle is a valid shape of an array."""
    return (
        type(value) is tuple
        and len(value) <= MOST_DIMENSIONS
        and all(type(length) is int and 0 <= length < 2**63 for length in value)
    )
