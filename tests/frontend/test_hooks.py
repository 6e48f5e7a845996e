"""What rewritten functions ask of their hooks, and which calls are followed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import timeit
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nki.frontend import Dependencies, HostHooks, rewrite
from nki.frontend.compiled import rewritten
from tests.frontend import sample_classes, samples
from tests.frontend.sample_classes import Base, Derived


class Recorder(HostHooks):
    """Hooks that write down what they are asked."""

    def __init__(self) -> None:
        super().__init__(Dependencies())
        self.log: list[tuple[Any, ...]] = []

    def test(self, value: Any, kind: str, line: int) -> Any:
        self.log.append((kind, line))
        return value

    def iterate(self, iterable: Any, line: int) -> Any:
        self.log.append(("iterate", line))
        return iterable


def run(fn: Callable[..., Any], *arguments: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """Result of the rewritten `fn`, and what its hooks were asked, with lines counted from `def`."""
    hooks = Recorder()
    result = rewrite(fn, hooks)(*arguments)
    first = fn.__code__.co_firstlineno
    return result, [(kind, line - first) for kind, line in hooks.log]


def test_which_tests_are_hooked() -> None:
    def kernel(a: Any, b: Any) -> Any:
        if a and not b:
            a = 2
        x = a or b
        y = 1 if x else 2
        if a is None or b in (1, 2) or 3:  # noqa: SIM222
            pass
        assert a, "message"
        while b < 2:
            b += 1
        return x, y, [i for i in range(3) if i]

    result, log = run(kernel, 1, 0)
    assert result == (2, 1, [1, 2])
    assert log == [
        ("and", 1),
        ("not", 1),
        ("or", 3),
        ("conditional expression", 4),
        ("assert", 7),
        ("while", 8),
        ("while", 8),
        ("while", 8),
        ("iterate", 10),
        ("comprehension", 10),
        ("comprehension", 10),
        ("comprehension", 10),
    ]


def test_a_device_loop_sees_its_body_once() -> None:
    class Register:
        def __bool__(self) -> bool:
            raise TypeError("a register has no value while staging")

    class Device(HostHooks):
        def while_loop(self, test: Callable[[], Any], line: int) -> Any:
            assert isinstance(test(), Register)
            yield None

    def kernel(reg: Any) -> list[str]:
        log = []
        while reg:
            log.append("body")
        else:
            log.append("after")
        return log

    assert rewrite(kernel, Device())(Register()) == ["body", "after"]
    with pytest.raises(TypeError, match="a register"):
        rewrite(kernel, HostHooks())(Register())


def test_recursive_closure_and_late_cell() -> None:
    def outer(n: int) -> Any:
        return later(n) if n else "done"

    def later(n: int) -> Any:
        return outer(n - 1)

    hooks = HostHooks()
    assert rewrite(outer, hooks)(3) == "done"
    assert [fn.__name__ for fn in hooks.reached] == ["later", "outer"]


def test_reached_functions_are_rewritten_and_listed() -> None:
    hooks = HostHooks(Dependencies())
    rewrite(sample_classes.classes, hooks)(3)
    names = [fn.__qualname__ for fn in hooks.reached]
    assert names == [
        "Base.make",
        "Derived.value",
        "Base.value",
        "Base.__secret",
        "Base.half",
        "Base.__call__",
    ]
    changed = [fn.__qualname__ for fn in hooks.reached if hooks.call(fn).__code__ in rewritten]
    assert changed == [
        "Base.make",
        "Derived.value",
        "Base.value",
        "Base.half",
    ]  # the others have nothing to hook


def test_idempotent_and_rebound() -> None:
    first, second = HostHooks(), HostHooks()
    new = rewrite(samples.recursion, first)
    assert rewrite(new, first) is new
    assert first.call(new) is new
    other = rewrite(new, second)
    assert other is not new and other.__code__ is new.__code__
    assert rewrite(samples.recursion, second).__code__ is new.__code__
    assert first.call(samples.deep) is first.call(samples.deep)


def test_closures_that_outlive_their_staging() -> None:
    def make() -> Any:
        def inner(x: int) -> int:
            return samples.recursion(x)

        return inner

    inner = rewrite(make, HostHooks())()
    later = HostHooks()
    assert later.call(inner)(4) == 24
    assert [fn.__name__ for fn in later.reached] == ["recursion"]


def test_what_is_left_alone() -> None:
    hooks = HostHooks()

    async def wait() -> None:
        await asyncio.sleep(0)

    namespace: dict[str, Any] = {}
    exec("def typed(x):\n    while x > 3: x -= 1\n    return x", namespace)
    left: list[Any] = [len, np.sum, np.float32, np.add, int, Base, inspect.getsource, functools.wraps]
    left += [samples.count_up, wait, namespace["typed"], lambda x: x, [].append, "".join, object(), np.dtype]
    left += [asyncio.run, traceback.extract_tb, np.testing.assert_allclose, type("T", (), {})(), None, 3]
    for thing in left:
        assert hooks.call(thing) is thing
        assert (
            rewrite(thing, hooks) is thing
            or thing in (inspect.getsource, functools.wraps)
            or (thing in (asyncio.run, traceback.extract_tb, np.testing.assert_allclose))
        )
    assert namespace["typed"] in hooks.reached  # recorded all the same


def test_methods_partials_and_callable_objects() -> None:
    hooks = HostHooks()
    derived = Derived(2)
    assert hooks.call(derived.value)() == Derived(2).value()
    assert hooks.call(derived.value).__self__ is derived
    assert hooks.call(derived)(3) == 5
    assert hooks.call(functools.partial(samples.recursion, 3))() == 6
    assert hooks.call(Base.make)(2).secret == 4
    assert hooks.call(functools.partial(int, "7"))() == 7


def test_overhead_of_calls() -> None:
    """A guard against something slow on the path; the measured times are a tenth of the bounds."""
    hooks = HostHooks()

    def helper() -> None:
        pass

    hooks.call(helper), hooks.call(np.sum), hooks.call(inspect.getsource)
    for target in (helper, len, np.sum, inspect.getsource, hooks.call(helper)):
        assert min(timeit.repeat(lambda: hooks.call(target), number=1000)) < 2e-3, target  # noqa: B023
