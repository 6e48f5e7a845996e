"""What rewritten functions call: the protocol, and the hooks that leave everything as Python has it.

`HostHooks` follows calls: each user function reached is recorded and rewritten on demand. The staging driver derives
from it and gives tests and loops over device values their meaning; values of the host pass through unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol

from nki.frontend.codes import CodeTable
from nki.frontend.compiled import rewritten
from nki.frontend.recorded import Dependencies
from nki.frontend.rewrite import rewrite
from nki.frontend.usercode import is_user_code, on_adopt


class Hooks(Protocol):
    """The object that a rewritten function knows as `__nki__`."""

    def call(self, function: Any) -> Any:
        """The callable to call in place of `function`."""

    def test(self, value: Any, kind: str, line: int) -> Any:
        """A value with the truth of `value`. `and` and `or` return what this returns, so a host value must come back
        unchanged. `kind` is `if`, `while`, `assert`, `not`, `and`, `or`, `case`, `comprehension` or `conditional
        expression`.
        """

    def iterate(self, iterable: Any, line: int) -> Iterable[Any]:
        """What a `for` loop runs over in place of `iterable`."""

    def while_loop(self, test: Callable[[], Any], line: int) -> Iterable[object]:
        """Something with one (ignored) item for each pass of `while test():`."""

    def leave(self, kind: str, lines: tuple[int, ...]) -> None:
        """The statement `kind` (`break`, `continue` or `return`) is about to leave the bodies of the loops that begin
        on these lines of its function."""


_library: CodeTable[bool] = CodeTable()
_plain_types: set[type] = {type, BuiltinFunctionType}
on_adopt += [_library.clear, _plain_types.clear]


class HostHooks:
    """Python's own meaning of everything, with user functions followed. One object per staging.

    `dependencies` collects what the reached functions read; `reached` lists them in order.
    """

    def __init__(self, dependencies: Dependencies | None = None) -> None:
        self.dependencies = dependencies
        self.reached: list[FunctionType] = []
        self._known: dict[int, tuple[FunctionType, FunctionType]] = {}

    def call(self, function: Any) -> Any:
        """The rewritten form of a user function, method or callable object; anything else unchanged."""
        kind = type(function)
        if kind is FunctionType:
            code = function.__code__
            if id(code) in _library.values:
                return function
            known = self._known.get(id(function))
            return known[1] if known is not None else self._enter(function)
        if kind is MethodType:
            plain = function.__func__
            known = self._known.get(id(plain))
            inner = known[1] if known is not None else self.call(plain)
            return function if inner is plain else MethodType(inner, function.__self__)
        if kind in _plain_types:
            return function
        return self._call_object(kind, function)

    def test(self, value: Any, kind: str, line: int) -> Any:
        """`value` itself."""
        return value

    def iterate(self, iterable: Any, line: int) -> Iterable[Any]:
        """`iterable` itself."""
        return iterable  # type: ignore[no-any-return]

    def leave(self, kind: str, lines: tuple[int, ...]) -> None:
        """Nothing: loops of the host may be left."""

    def while_loop(self, test: Callable[[], Any], line: int) -> Iterable[object]:
        """One item for each time the test holds."""
        while self.test(test(), "while", line):
            yield None

    def _enter(self, function: FunctionType) -> FunctionType:
        """A function met for the first time in this staging."""
        code = function.__code__
        place = rewritten.get(code)
        if place is not None:  # made while staging, or left over from an earlier one: needs no record
            cells = function.__closure__
            if place < 0 or (cells is not None and cells[place].cell_contents is self):
                return function
            return rewrite(function, self)
        if not is_user_code(code):
            _library.put(code, True)
            return function
        if self.dependencies is not None:
            self.dependencies.record(function)
        self.reached.append(function)
        changed = rewrite(function, self)
        self._known[id(function)] = (function, changed)
        return changed

    def _call_object(self, kind: type, function: Any) -> Any:
        if kind is functools.partial:
            inner = self.call(function.func)
            if inner is function.func:
                return function
            return functools.partial(inner, *function.args, **function.keywords)
        method = None if issubclass(kind, type) else _class_attribute(kind, "__call__")
        if not isinstance(method, FunctionType) or not is_user_code(method.__code__):
            _plain_types.add(kind)
            return function
        return MethodType(self.call(method), function)


def _class_attribute(kind: type, name: str) -> object:
    """What instances of `kind` find under `name` in their class, unbound."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)
