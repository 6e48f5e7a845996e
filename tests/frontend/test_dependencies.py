"""What a staged program depends on is noticed when it changes, and only then."""

from __future__ import annotations

import enum
import functools
import math
import threading
import timeit
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nki.frontend import Dependencies, HostHooks, rewrite

VALUE: Any = 1
UNUSED = 1
OTHER = types.ModuleType("other")
OTHER.size = 3  # type: ignore[attr-defined]
OTHER.unread = threading.Lock()  # type: ignore[attr-defined]


@dataclass
class Config:
    n: int = 1
    names: list[str] = field(default_factory=list)


class Color(enum.Enum):
    red = 1
    blue = 2


def helper(x: int) -> int:
    return x


def reader() -> Any:
    return VALUE


def recorded(fn: Any) -> Dependencies:
    dependencies = Dependencies()
    dependencies.record(fn)
    return dependencies


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = dict(globals())
    yield
    globals().update(before)


def test_names_that_appear_and_disappear() -> None:
    def kernel() -> Any:
        return len([1]), late_global  # type: ignore[name-defined]  # noqa: F821

    dependencies = recorded(kernel)
    assert dependencies.unchanged()
    globals()["late_global"] = 1
    assert not dependencies.unchanged()
    del globals()["late_global"]
    assert dependencies.unchanged()
    globals()["len"] = 3
    assert not dependencies.unchanged()
    del globals()["len"]


def test_only_what_is_read_counts() -> None:
    global UNUSED
    dependencies = recorded(reader)
    UNUSED += 1
    assert dependencies.unchanged()


def test_closures_and_defaults() -> None:
    n = 1
    items = [1]

    def kernel(a: int = 1, *, b: tuple[Any, ...] = (1, items)) -> Any:
        def inner() -> int:
            return n

        return inner, a, b

    def set_n(value: int) -> None:
        nonlocal n
        n = value

    dependencies = recorded(kernel)
    assert dependencies.unchanged()
    set_n(2)
    assert not dependencies.unchanged()
    set_n(1)
    assert dependencies.unchanged()
    items.append(2)
    assert not dependencies.unchanged()
    items.pop()
    kernel.__defaults__ = (2,)
    assert not dependencies.unchanged()
    kernel.__defaults__ = (1,)
    assert kernel.__kwdefaults__ is not None
    kernel.__kwdefaults__["b"] = 0
    assert not dependencies.unchanged()


def test_empty_cells() -> None:
    def kernel() -> Any:
        return later

    dependencies = recorded(kernel)
    assert dependencies.unchanged()
    later = 1
    assert not dependencies.unchanged()


def test_code_by_identity() -> None:
    def make(text: str) -> Any:
        namespace: dict[str, Any] = {"helper": helper}
        exec(text, namespace)
        return namespace["f"]

    one, same = make("def f(): return helper(1)"), make("def f(): return helper(1)")
    dependencies = recorded(one)
    assert dependencies.unchanged()
    one.__code__ = same.__code__
    assert not dependencies.unchanged()


def test_functions_of_functions() -> None:
    """What a global function reads counts, however it is reached."""

    def through() -> Any:
        return list(map(VALUE["f"], [1]))

    def scaled(x: int) -> int:
        return x * UNUSED

    global VALUE, UNUSED
    VALUE = {"f": scaled}
    dependencies = recorded(through)
    assert dependencies.unchanged()
    UNUSED += 1
    assert not dependencies.unchanged()


def test_wrapped_functions() -> None:
    global VALUE, UNUSED

    @functools.lru_cache
    def cached() -> int:
        return UNUSED

    VALUE = cached
    dependencies = recorded(reader)
    assert dependencies.cacheable and dependencies.unchanged()
    UNUSED += 1
    assert not dependencies.unchanged()


def test_attributes_of_user_modules() -> None:
    def kernel() -> Any:
        return OTHER.size, math.pi

    dependencies = recorded(kernel)
    assert dependencies.cacheable and dependencies.unchanged()
    OTHER.size = 4  # type: ignore[attr-defined]
    assert not dependencies.unchanged()
    OTHER.size = 3  # type: ignore[attr-defined]
    assert dependencies.unchanged()


def test_classes() -> None:
    class Tiler:
        size = 4
        lock = threading.Lock()

        def __init__(self) -> None:
            self.n = self.size * UNUSED

        @staticmethod
        def make() -> Any:
            return Tiler()

        @property
        def double(self) -> int:
            return self.n * 2

    def kernel() -> int:
        return Tiler().n

    def locker() -> Any:
        return Tiler.lock

    global UNUSED
    dependencies = recorded(kernel)
    assert dependencies.cacheable and dependencies.unchanged()
    UNUSED += 1
    assert not dependencies.unchanged()
    UNUSED -= 1
    Tiler.size = 5
    assert not dependencies.unchanged()
    Tiler.size = 4
    before = Tiler.make
    Tiler.make = staticmethod(lambda: None)  # type: ignore[method-assign, assignment]
    assert not dependencies.unchanged()
    Tiler.make = staticmethod(before)  # type: ignore[method-assign, assignment]
    assert recorded(kernel).cacheable
    assert not recorded(locker).cacheable and "lock" in str(recorded(locker).reason)


def test_equal_functions_made_anew() -> None:
    global VALUE

    def factory(n: int) -> Any:
        def inner(x: int = 2) -> int:
            return x + n

        return inner

    VALUE = factory(1)
    dependencies = recorded(reader)
    VALUE = factory(1)
    assert dependencies.unchanged()
    VALUE = factory(2)
    assert not dependencies.unchanged()


def test_reached_functions_are_recorded_by_the_hooks() -> None:
    def local(x: int) -> int:
        return helper(x) + VALUE if x else 0

    def kernel(x: int, f: Any) -> int:
        tiles = [threading.Lock()]

        def body() -> int:
            return local(x) + len(tiles) + f(x)

        return body()

    global VALUE
    VALUE = 1
    dependencies = Dependencies()
    hooks = HostHooks(dependencies)
    dependencies.record(kernel)
    extra = 7
    assert rewrite(kernel, hooks)(1, lambda x: x + extra) == 11
    assert dependencies.cacheable, dependencies.reason
    assert [fn.__name__ for fn in dependencies.functions][:1] == ["kernel"]
    assert {"local", "helper", "<lambda>"} <= {fn.__name__ for fn in dependencies.functions}
    extra = 8
    assert not dependencies.unchanged()
    extra = 7
    assert dependencies.unchanged()
    VALUE = 2
    assert not dependencies.unchanged()


def test_checking_is_fast() -> None:
    """Measured: about 2 us for this kernel; the bound only catches accidents."""

    def kernel(a: Any, b: Any, n: int = 4) -> Any:
        x = helper(n) + reader() + UNUSED
        return [np.add(math.pi, x) for i in range(min(n, 3)) if isinstance(a, Config) or Color.red]

    dependencies = recorded(kernel)
    assert dependencies.unchanged()
    assert min(timeit.repeat(dependencies.unchanged, number=1000)) < 20e-3
