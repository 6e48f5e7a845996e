"""A table keyed by code object, by identity.

Code objects compare by value and ignore their file name, and hashing one walks its constants. The front end looks
them up on every call of a kernel, so its tables are keyed by `id(code)`; an entry goes away with its code object.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Generic, TypeVar

V = TypeVar("V")


class CodeTable(Generic[V]):
    """`code -> value` by identity. `values` may be read directly where every nanosecond counts."""

    def __init__(self) -> None:
        self.values: dict[int, V] = {}
        self._watch: dict[int, weakref.ref[CodeType]] = {}

    def get(self, code: CodeType) -> V | None:
        """The value kept for `code`, or None."""
        return self.values.get(id(code))

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self.values

    def put(self, code: CodeType, value: V) -> V:
        """Keep `value` for as long as `code` lives, and return it."""
        key = id(code)

        def forget(_: object, key: int = key) -> None:
            self.values.pop(key, None)
            self._watch.pop(key, None)

        self._watch[key] = weakref.ref(code, forget)
        self.values[key] = value
        return value

    def clear(self) -> None:
        """Forget everything."""
        self.values.clear()
        self._watch.clear()


def nested_codes(code: CodeType) -> list[CodeType]:
    """`code` and every code object inside it: nested functions, lambdas, comprehensions, class bodies."""
    found = [code]
    for item in found:
        found.extend(const for const in item.co_consts if isinstance(const, CodeType))
    return found
