"""The words an instruction class is declared with: operands, attributes and the sets of what they accept.

An operand is a tensor (or, where allowed, a number). Its `dims` are two letters, partitions and free size ("P F"):
a letter that several operands of one instruction share must agree, "1" means exactly one, "*" anything. The single
letter form ("E") counts all elements and serves instructions that pair elements in row-major order (DMA).
An attribute is a compile-time value; its kind converts the user's value, prints it and reads it back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from nki import dtypes
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.errors import ArgumentError

SBUF = frozenset({MemoryRegion.sbuf})
PSUM = frozenset({MemoryRegion.psum})
ON_CHIP = SBUF | PSUM
HBM = frozenset({MemoryRegion.private_hbm, MemoryRegion.shared_hbm})
SHARED_HBM = frozenset({MemoryRegion.shared_hbm})
HBM_OR_SBUF = HBM | SBUF
EVERYWHERE = HBM | ON_CHIP

ANY_DTYPE = frozenset(dtypes.ALL)
INTEGERS = frozenset(d for d in dtypes.ALL if d.is_integer)
FLOATS = frozenset(d for d in dtypes.ALL if d.is_float)
FLOAT32 = frozenset({dtypes.float32})
UNPACKED = frozenset(d for d in dtypes.ALL if d.kind != "packed")

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "<required>"})()


@dataclass
class Operand:
    """One tensor operand. `direction` is "in", "out" or "inout"; `scalar` says that a number may stand in its place.

    `nullable` marks one that must be passed but may be `None`; `many` a list of one or more tensors. `indirect` says
    that it may be a view by tensor indirection (trn3), `rows` that an index tensor may choose its rows in HBM.
    """

    direction: str
    dims: tuple[str, ...]
    memories: frozenset[MemoryRegion]
    dtypes: frozenset[DType]
    scalar: bool = False
    default: Any = REQUIRED
    doc: str = ""
    name: str = ""
    nullable: bool = False
    many: bool = False
    indirect: bool = False
    rows: bool = False
    _members: list[Operand] = field(default_factory=list)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def members(self, count: int) -> list[Operand]:
        """With `many`: the declarations of the single tensors of a list, called `name[0]`, `name[1]`, ..."""
        for index in range(len(self._members), count):
            self._members.append(replace(self, name=f"{self.name}[{index}]", many=False, _members=[]))
        return self._members[:count]

    @property
    def is_output(self) -> bool:
        """Whether the instruction writes it."""
        return self.direction != "in"

    @property
    def optional(self) -> bool:
        """Whether it may be left out (default `None`)."""
        return self.default is not REQUIRED


def source(
    dims: str,
    memory: frozenset[MemoryRegion] = ON_CHIP,
    dtypes: frozenset[DType] = UNPACKED,
    *,
    scalar: bool = False,
    nullable: bool = False,
    many: bool = False,
    indirect: bool = False,
    rows: bool = False,
    default: Any = REQUIRED,
    doc: str = "",
) -> Any:
    """Declare an operand that is read; with `many` a list of tensors."""
    names = tuple(dims.split())
    operand = Operand("in", names, memory, dtypes, scalar, default, doc, nullable=nullable, many=many)
    return replace(operand, indirect=indirect, rows=rows)


def destination(
    dims: str,
    memory: frozenset[MemoryRegion] = ON_CHIP,
    dtypes: frozenset[DType] = UNPACKED,
    *,
    reads: bool = False,
    nullable: bool = False,
    many: bool = False,
    indirect: bool = False,
    rows: bool = False,
    default: Any = REQUIRED,
    doc: str = "",
) -> Any:
    """Declare an operand that is written; `reads=True` if its old content may matter too; with `many` a list."""
    direction = "inout" if reads else "out"
    names = tuple(dims.split())
    operand = Operand(direction, names, memory, dtypes, False, default, doc, nullable=nullable, many=many)
    return replace(operand, indirect=indirect, rows=rows)


@dataclass
class RegisterOperand:
    """One register operand. `direction` is "in" or "out"; `numbers` says that an integer may stand in its place."""

    direction: str
    numbers: bool = False
    default: Any = REQUIRED
    doc: str = ""
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def register(direction: str, *, numbers: bool = False, default: Any = REQUIRED, doc: str = "") -> Any:
    """Declare a register that is read ("in") or written ("out")."""
    return RegisterOperand(direction, numbers, default, doc)


@dataclass(frozen=True)
class Symbol:
    """A bare word in the IR text (an enumeration member, an operator)."""

    text: str


@dataclass(frozen=True)
class Kind:
    """How one sort of attribute is converted from what users write, shown in the IR text and read back."""

    describe: str
    convert: Callable[[Any], Any]
    show: Callable[[Any], str]
    read: Callable[[Any], Any]


@dataclass
class Attribute:
    """One compile-time parameter of an instruction."""

    kind: Kind
    default: Any = REQUIRED
    doc: str = ""
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def attribute(kind: Kind, default: Any = REQUIRED, doc: str = "") -> Any:
    """Declare a compile-time parameter."""
    return Attribute(kind, default, doc)


def _reject(describe: str, value: object) -> ArgumentError:
    return ArgumentError(
        f"expected {describe}, got {type(value).__name__}",
        found=repr(value),
        allowed=describe,
        remedy=f"pass {describe}",
    )


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise _reject("an integer", value)
    try:
        return operator.index(value)
    except TypeError:  # an array has the method too
        raise _reject("an integer", value) from None


def _boolean(value: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise _reject("True or False", value)


def plain(value: float | int | bool) -> float | int | bool:
    """The built-in number equal to one of a subclass (`np.float64`, an `IntEnum`), which would print differently."""
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _number(value: Any) -> float | int | bool:
    if isinstance(value, (bool, int, float)):
        return plain(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
        if isinstance(value, (bool, int, float)):
            return value
    if hasattr(value, "__float__") and not hasattr(value, "access"):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise _reject("a number", value) from None
    raise _reject("a number", value)


def _pattern(value: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((_integer(step), _integer(count)) for step, count in value)
    except (TypeError, ValueError):
        raise _reject("a list of [step, count] pairs", value) from None
    return pairs


def _ints(value: Any) -> tuple[int, ...]:
    if hasattr(value, "__index__"):
        return (_integer(value),)
    if not isinstance(value, Iterable):
        raise _reject("an integer or a tuple of integers", value)
    return tuple(_integer(item) for item in value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _reject("a string", value)
    return value


def optional(kind: Kind) -> Kind:
    """The same kind, but `None` is allowed too."""
    return Kind(
        f"{kind.describe} or None",
        lambda value: None if value is None else kind.convert(value),
        lambda value: "None" if value is None else kind.show(value),
        lambda value: None if value is None else kind.read(value),
    )


def _show_list(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_show_list(item) for item in value) + "]"
    return repr(value)


INTEGER = Kind("an integer", _integer, repr, _integer)
BOOLEAN = Kind("True or False", _boolean, repr, _boolean)
NUMBER = Kind("a number", _number, repr, _number)
PATTERN = Kind("a list of [step, count] pairs", _pattern, _show_list, _pattern)
INTEGERS_LIST = Kind("an integer or a tuple of integers", _ints, _show_list, _ints)
TEXT = Kind("a string", _text, repr, _text)


def one_of(enum: type[Enum], what: str) -> Kind:
    """Kind of a parameter that takes a member of `enum` (raw integers and strings are refused)."""

    def convert(value: Any) -> Enum:
        if isinstance(value, enum):
            return value
        word = isinstance(value, Symbol)
        members = ", ".join(f"{what}.{member.name}" for member in enum)
        raise ArgumentError(
            f"expected a member of {what}, got {value.text if word else type(value).__name__}",
            found=value.text if word else repr(value),
            allowed=members,
            remedy=f"pass a member of the enumeration, e.g. {what}.{next(iter(enum)).name}",
        )

    def read(value: Any) -> Enum:
        member = enum.__members__.get(value.text) if isinstance(value, Symbol) else None
        return convert(value) if member is None else member

    return Kind(f"a member of {what}", convert, lambda value: str(value.name), read)
