"""Small functions that together use most of Python, for the differential tests of the rewriting."""

# ruff: noqa: B023, C416, F821, F842, RUF021

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tests.frontend import sample_loops
from tests.frontend.sample_classes import Base, Config
from tests.frontend.sample_table import SAMPLES, TILE, sample, settings

__all__ = ["SAMPLES", "sample_loops"]


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    """An ordinary decorator."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs) * 2

    return wrapper


@sample((0, 0), (0, "b"), ("a", 0), ([], {}), (3, [1]))
def bool_values(a, b):
    return a and b, a or b, not a, not (a and not b), a and b or "neither", (a or b) and (b or a)


@sample((1,), (0,), (None,))
def conditional(x):
    y = "yes" if x else "no" if x is None else "zero"
    return y, [1 if i % 2 else 0 for i in range(3)], x if x and y else (y or x)


@sample((1, 2, 3), (3, 2, 1), (1, 1, 1))
def chained(a, b, c):
    return a < b < c, a <= b <= c, not a < b > c


@sample((5,), (0,))
def comprehensions(n):
    squares = [i * i for i in range(n) if i % 2 if i > 1]
    pairs = {(i, j) for i in range(n) for j in range(i) if i != j}
    table = {str(k): [v for v in range(k)] for k in range(n)}
    lazy = sum(x for x in squares if x)
    return squares, sorted(pairs), table, lazy, any(i > 3 for i in range(n))


@sample((3,))
def closures(n):
    fs = [lambda x, i=i: x + i + n for i in range(n)]
    late = [lambda: i for i in range(n)]
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    bump()
    bump(by=n)
    return [f(1) for f in fs], [f() for f in late], count, bump.__qualname__


@sample((3,), (None,))
def try_finally(x):
    log = []
    try:
        try:
            log.append(10 // x)
        except TypeError as error:
            log.append(str(error))
            raise ValueError("again") from error
        else:
            log.append("fine")
        finally:
            log.append("finally")
    except ValueError as error:
        log.append(type(error.__cause__).__name__)
    return log


@sample((1, 2), (1, 2, 3), ())
def stars(*args, **kwargs):
    first, *rest = (*args, 0, 0)
    merged = dict(**kwargs, n=len(args))
    return first, rest, merged, max(*rest, -1), "{}-{}".format(*rest[:2])


@sample((1,), (1, 5))
def defaults(a, b=TILE, /, c=[1, 2], *, d=3, e: int = 4):  # noqa: B006
    c.append(a)
    return a + b + d + e, len(c) > 2


@sample((6,), (1,))
def recursion(n):
    return 1 if n < 2 else n * recursion(n - 1)


@sample((5,))
def inner_recursion(n):
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)

    return fib(n), fib.__qualname__


@sample((3,))
@twice
@twice
def decorated(x):
    return x + TILE


@sample((2,))
def nested_decorator(x):
    @twice
    def inner(y: int) -> int:
        """Doc."""
        return y + x

    return inner(1), inner.__name__, inner.__doc__


def count_up(n) -> Iterator[int]:
    """A generator: left alone."""
    i = 0
    while i < n:
        sent = yield i
        i = i + 1 if not sent else n
    return


@sample((3,))
def generators(n):
    def inner():
        yield from count_up(n)
        x = yield "end"
        return x

    return list(count_up(n)), list(inner()), [*inner()], dict(enumerate(inner()))


@sample((3, "w"))
def f_strings(n, width):
    return f"{n!r:>{len(width) + 4}} {f'{n + 1}'} {max(n, 1):03d} {'y' if n else 'n'} {n=}"


@sample((3,), (0,))
def walrus(n):
    if (half := n // 2) and half > 0:
        return half, [last := i for i in range(n)], last
    return half


@sample((4,), (5,), (-1,))
def assertions(n):
    assert n > 0, f"n is {n}"
    assert n % 2 == 0
    return n


@sample((1,), ("x",), ([1, 2, 3],), ({"k": 5},), (Config(1),))
def matching(value):
    match value:
        case 1 | 2 if value > 0 and not value > 5:
            return "small"
        case str(text):
            return text
        case [first, *rest]:
            return first, rest
        case {"k": k}:
            return k
        case Config(n=n):
            return n
    return None


@sample((3,))
def context(n):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append(f"+{name}")
        try:
            yield name.upper()
        finally:
            log.append(f"-{name}")

    with scope("a") as a, scope("b"):
        log.append(a * n)
    with contextlib.suppress(ZeroDivisionError):
        n /= 0
    return log


@sample(([3, 1, 2],))
def higher_order(items):
    keyed = sorted(items, key=lambda x: -x if x else 0)
    half = functools.partial(Base.half, 8)
    return keyed, functools.reduce(lambda a, b: a * b, items), half(), list(map(recursion, items))


@sample((2,))
def deletions(n):
    d = {"a": 1, "b": 2}
    while n:
        x = n
        n -= 1
    del d["a"], x
    try:
        return x
    except UnboundLocalError as error:
        return d, type(error).__name__


@sample((2,), ("x",))
def failing(n):
    a = [1, 2, 3]
    b = a[0] if n else a[1]
    return recursion(a[n] + deep(n, b))


def deep(n, b):
    """Raises for n > 0, three calls down."""
    for i in range(3):
        while i < 2:
            i += 1
            if i == 2 and n:
                return [b / (i - j) for j in range(4)]
    return 0


@sample((1,))
def frames(n):
    local = n
    return sorted(k for k in locals() if not k.startswith("__nki")), eval("local + 1"), vars().get("n")


@sample((2,))
def globals_and_builtins(n):
    global counter
    counter = n
    while counter < settings["limit"] * TILE:
        counter += n
    return counter, min(n, TILE), str(n), print is not None


@sample((3,))
def shadowed(max):
    range = [max, 1]
    return [len(range) for _ in range], max


@sample((3,))
def unpacking(n):
    total = 0
    for i, (a, *b) in enumerate([(1, 2, 3), (n,)]):
        total += a * i + sum(b)
    for total.real in ():
        pass
    x = y = [0, 0]
    x[0], y[1] = n, total
    x[0] += recursion(n)
    return total, x


@sample(("a",))
def annotations(x):
    a: int = recursion(3)
    b: list[undefined_name]
    return a, x


@sample((1,))
def strings_in_column_0(x):
    text = """
zero
  two
"""
    return text if x else text.strip()


if True:  # an indented definition

    @sample((2,))
    def oddly_indented(x):
        while x < 4:
            x += 1
        return x
