"""What a staged program depends on besides its arguments, and whether that is still the same.

While a kernel is staged, each user function reached is recorded: its code, defaults, closure and the globals it reads,
and through them the functions, classes and modules of the user they lead to. A cached program is used again only if
`unchanged()`. What cannot be compared makes the program uncacheable (`cacheable` False, with a `reason`), never stale.

Checking is fast because most things are compared by identity first: a *slot* (a name in a module, a closure cell)
that still holds the very object it held is fine, and only objects that can change in place are compared by content.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from nki.frontend.globals_read import NamesRead, names_read
from nki.frontend.snapshot import Freezer, Token, Unfreezable, is_user_class
from nki.frontend.source import plain_function
from nki.frontend.usercode import is_user_code, is_user_module

_MISSING = object()
_OPAQUE = object()
"""The token of a slot that is compared by identity only."""


class Dependencies:
    """The record of one staging. `record` before a function runs; `unchanged` before its program is used again."""

    def __init__(self) -> None:
        self.functions: list[FunctionType] = []
        self._reason: str | None = None
        self._doubtful: dict[str, str] = {}
        self._names: set[str] = set()
        self._codes: list[tuple[FunctionType, CodeType, object]] = []
        self._slots: list[tuple[Mapping[str, Any], str, object, Token]] = []
        self._cells: list[tuple[CellType, object, Token]] = []
        self._contents: list[tuple[object, Token]] = []
        self._keep: list[object] = []
        self._seen: set[object] = set()
        self._waiting: list[Any] = []

    @property
    def reason(self) -> str | None:
        """Why the program cannot be cached; None if it can."""
        if self._reason is None:
            for name in self._doubtful.keys() & self._names:
                return self._doubtful[name]
        return self._reason

    @property
    def cacheable(self) -> bool:
        """False if something was read that cannot be compared later."""
        return self.reason is None

    def record(self, fn: object) -> None:
        """Note what `fn` (a function or method) reads, now, before it runs; of a class of the user, what its functions
        and attributes are. Recording twice is free."""
        item = fn if isinstance(fn, type) and is_user_class(fn) else plain_function(fn)
        if item is None:
            return
        self._waiting.append(item)
        while self._waiting:
            item = self._waiting.pop()
            if id(item) in self._seen:
                continue
            self._seen.add(id(item))
            self._keep.append(item)
            if isinstance(item, FunctionType):
                self._function(item)
            else:
                self._class(item)

    def refuse(self, reason: str) -> None:
        """Make the program uncacheable."""
        self._reason = self._reason or reason

    def unchanged(self) -> bool:
        """True if everything recorded is as it was."""
        if self._reason is not None:
            return False
        for function, code, defaults in self._codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
        for scope, name, kept, token in self._slots:
            value = scope.get(name, _MISSING)
            if value is not kept and not _same(value, token):
                return False
        for cell, kept, token in self._cells:
            value = _cell_value(cell)
            if value is not kept and not _same(value, token):
                return False
        for content, token in self._contents:
            if not _same(content, token):
                return False
        return not self._doubtful or self.cacheable

    def _function(self, fn: FunctionType) -> None:
        read = names_read(fn.__code__)
        self.functions.append(fn)
        self._codes.append((fn, fn.__code__, fn.__defaults__))
        self._names |= read.names
        where = f"of {fn.__qualname__}"
        self._content(fn.__defaults__, f"a default {where}")
        self._content(fn.__kwdefaults__, f"a default {where}")
        if fn.__dict__.keys() - {"__wrapped__"}:
            self._content(fn.__dict__, f"an attribute {where}")
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            value = _cell_value(cell)
            self._cells.append((cell, value, self._watch(value, f"the variable `{name}` {where}")))
        for name in read.globals:
            self._slot(fn.__globals__, name, f"the global `{name}` read by {fn.__qualname__}")
            self._module(fn.__globals__.get(name), read)

    def _slot(self, scope: Mapping[str, Any], name: str, what: str) -> None:
        if (id(scope), name) not in self._seen:
            self._seen.add((id(scope), name))
            value = scope.get(name, _MISSING)
            self._slots.append((scope, name, value, self._watch(value, what)))

    def _module(self, module: object, read: NamesRead, path: tuple[int, ...] = ()) -> None:
        """The attributes a function may read from a module of the user. Modules of libraries do not change."""
        if not isinstance(module, ModuleType) or id(module) in path or not is_user_module(module.__name__):
            return
        scope = vars(module)
        for name in read.names & scope.keys():
            self._slot(scope, name, f"`{module.__name__}.{name}`")
            self._module(scope[name], read, (*path, id(module)))

    def _class(self, kind: type) -> None:
        """The methods and the constants of a user class. What cannot be compared counts only if its name is read."""
        for base in kind.__mro__:
            if not is_user_class(base):
                continue
            scope = base.__dict__
            for name, value in list(scope.items()):
                functions = _functions_of(value)
                if functions or hasattr(type(value), "__get__"):
                    self._waiting += [function for function in functions if _has_file(function)]
                    self._slots.append((scope, name, value, _OPAQUE))
                elif not name.startswith(("__", "_abc_")) and not issubclass(base, enum.Enum):
                    self._constant(scope, name, base)

    def _constant(self, scope: Mapping[str, Any], name: str, owner: type) -> None:
        before, self._reason = self._reason, None
        self._slot(scope, name, f"`{owner.__qualname__}.{name}`")
        if self._reason is not None:
            self._doubtful[name] = self._reason
        self._reason = before

    def _watch(self, value: Any, what: str) -> Token:
        """The token of `value`. Its functions and classes are recorded, and its content if it can change in place."""
        if value is _MISSING:
            return _OPAQUE
        freezer = Freezer(self._keep, self._meet)
        try:
            token = freezer.freeze(value)
        except Unfreezable as error:
            self._reason = self._reason or f"{what} is {error}"
            return _OPAQUE
        if freezer.mutable and not isinstance(value, FunctionType):
            self._contents.append((value, token))
        return token

    def _content(self, value: Any, what: str) -> None:
        if value:
            self._watch(value, what)

    def _meet(self, value: Any) -> None:
        """Called for each function, class and wrapper found inside a value."""
        if isinstance(value, type):
            if is_user_class(value):
                self._waiting.append(value)
            return
        function = value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", None)
        if isinstance(function, FunctionType) and is_user_code(function.__code__):
            self._waiting.append(function)


def _same(value: object, token: Token) -> bool:
    if token is _OPAQUE or value is _MISSING:
        return False
    try:
        return bool(Freezer().freeze(value) == token)
    except Unfreezable:
        return False


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return _MISSING


def _functions_of(value: object) -> list[FunctionType]:
    """The functions behind an attribute of a class."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    parts: tuple[object, ...] = (value,)
    if isinstance(value, property):
        parts = (value.fget, value.fset)
    elif isinstance(value, functools.cached_property):
        parts = (value.func,)
    return [part for part in parts if isinstance(part, FunctionType) and is_user_code(part.__code__)]


def _has_file(function: FunctionType) -> bool:
    """False for what `dataclass` and its like generate: the class stands for it."""
    return not function.__code__.co_filename.startswith("<string>")
