"""Where an error is said to be: the innermost user line, and the calls that led there."""

from __future__ import annotations

import builtins
import functools
import inspect
import linecache
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.span import Frame, Span

X = np.ones((4, 8), np.float32)


def failed(kernel: Any, *args: Any) -> errors.NkiError:
    """The error of a run, which is the same planned, eager and in a check."""
    caught = []
    for eager in (False, True):
        with pytest.raises(errors.NkiError) as info:
            nki.simulate(kernel, eager=eager)(*(args or (X,)))
        caught.append(info.value)
    assert str(caught[0]) == str(caught[1])
    found = nki.jit(kernel).check(*(args or (X,)))[0]
    assert (found.file, found.line) == (caught[0].span.file, caught[0].span.line)
    return caught[0]


def chain(error: errors.NkiError) -> list[tuple[str, int]]:
    """(name, line) of the frames, innermost first, with lines counted from the `def` of this file's function."""
    assert error.span is not None
    assert {frame.file for frame in error.span.frames} == {__file__}
    return [(frame.function.split(".")[-1], frame.line) for frame in error.span.frames]


def line_of(function: Any, piece: str) -> int:
    """The line with `piece` in the source of a function."""
    lines, first = inspect.getsourcelines(getattr(function, "func", function))
    return first + next(number for number, line in enumerate(lines) if piece in line)


def inner(tile: Any) -> None:
    nisa.tensor_copy(dst=tile, src=tile[:, 0:3])


def outer(tile: Any) -> None:
    inner(tile)


def fresh() -> Any:
    tile = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    return tile


def calls_helpers(x):
    tile = fresh()
    for _ in range(2):
        outer(tile)
    return x


def test_helper_two_calls_deep() -> None:
    error = failed(calls_helpers)
    assert chain(error) == [
        ("inner", line_of(inner, "tensor_copy")),
        ("outer", line_of(outer, "inner(tile)")),
        ("calls_helpers", line_of(calls_helpers, "outer(tile)")),
    ]
    assert f"called from {__file__}:{line_of(outer, 'inner(tile)')}, in outer" in str(error)


def in_comprehension(x):
    tiles = [fresh() for _ in range(2)]
    [
        nisa.tensor_copy(dst=tile, src=tile[:, 0:3])
        for tile in tiles
    ]  # fmt: skip
    return x


def in_lambda(x):
    copy = lambda tile: nisa.tensor_copy(dst=tile, src=tile[:, 0:3])  # noqa: E731
    copy(fresh())
    return x


class Layer:
    def __init__(self, columns: int) -> None:
        self.columns = columns

    def forward(self, tile):
        nisa.tensor_copy(dst=tile, src=tile[:, 0 : self.columns])

    @nki.jit
    def kernel(self, x):
        self.forward(fresh())
        return x


def in_method(x):
    Layer(3).forward(fresh())
    return x


@nki.jit
def inner_kernel(tile):
    nisa.tensor_copy(dst=tile, src=tile[:, 0:3])


@nki.jit
def in_inner_kernel(x):
    inner_kernel(fresh())
    return x


def passing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@passing_on
def in_decorated(x):
    nisa.tensor_copy(dst=fresh(), src=fresh()[:, 0:3])
    return x


def in_generator(x):
    def tiles():
        for _ in range(2):
            tile = fresh()
            nisa.tensor_copy(dst=tile, src=tile[:, 0:3])
            yield tile

    list(tiles())
    return x


@pytest.mark.parametrize(
    "kernel",
    [in_comprehension, in_lambda, in_method, in_inner_kernel, in_decorated, in_generator],
    ids=lambda kernel: kernel.__name__,
)
def test_innermost_line(kernel: Any) -> None:
    error = failed(kernel)
    assert isinstance(error, errors.OperandShapeError)
    place = {in_method: Layer.forward, in_inner_kernel: inner_kernel}.get(kernel, inspect.unwrap(kernel))
    frames = chain(error)
    assert frames[0][1] == line_of(place, "nisa.tensor_copy(")
    assert kernel.__name__ in (name for name, _ in frames)


def test_kernel_that_is_a_method() -> None:
    with pytest.raises(errors.OperandShapeError) as info:
        Layer(3).kernel(X)
    assert [name for name, _ in chain(info.value)] == ["forward", "kernel"]
    assert Layer(8).kernel(X) is X


class Odd(Exception):
    """An exception that is made of two things."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__(f"{first} is odd")
        self.second = second


MADE = {
    "UnicodeDecodeError": UnicodeDecodeError("utf8", b"x", 0, 1, "reason"),
    "UnicodeEncodeError": UnicodeEncodeError("utf8", "x", 0, 1, "reason"),
    "UnicodeTranslateError": UnicodeTranslateError("x", 0, 1, "reason"),
    "Odd": Odd(1, [2]),
}
PLAIN = [
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and name not in MADE and "Group" not in name
]


@pytest.mark.parametrize("name", sorted([*PLAIN, *MADE]))
def test_exceptions_of_the_user_stay_what_they_are(name: str) -> None:
    raised = MADE.get(name) or getattr(builtins, name)("message")

    def kernel(x):
        fresh()
        raise raised

    with pytest.raises(errors.NkiError) as info:
        nki.simulate(kernel)(X)
    error = info.value
    assert isinstance(error, type(raised))
    assert error.__cause__ is raised
    assert error.span.line == line_of(kernel, "raise raised")
    assert str(raised) in str(error)


def test_attributes_of_the_users_exception_are_there() -> None:
    def kernel(x):
        raise Odd(1, [2])

    with pytest.raises(Odd) as info:
        nki.simulate(kernel)(X)
    assert info.value.second == [2]


def test_assertion_message_is_unchanged() -> None:
    def kernel(x):
        assert x.shape[0] > 100, "too few rows"
        return x

    error = failed(kernel)
    assert isinstance(error, AssertionError)
    assert error.args == ("too few rows",)
    assert str(error).startswith("too few rows\n")


def test_interrupts_and_exits_pass_through() -> None:
    for kind in (KeyboardInterrupt, SystemExit):

        def kernel(x, kind=kind):
            raise kind

        with pytest.raises(kind):
            nki.simulate(kernel)(X)
        with pytest.raises(errors.OutsideKernelError):  # no builder is left behind
            nisa.memset(dst=None, value=0.0)


def test_deep_recursion_is_told_in_few_lines() -> None:
    def down(n):
        return down(n + 1)

    def kernel(x):
        return down(0)

    with pytest.raises(RecursionError) as info:
        nki.simulate(kernel)(X)
    assert isinstance(info.value, errors.NkiError)
    lines = str(info.value).splitlines()
    assert len(lines) < 20
    assert any("times)" in line for line in lines)


def excerpt(text: str, column: int | None, end: int | None) -> list[str]:
    linecache.cache["<excerpt>"] = (len(text), None, [text + "\n"], "<excerpt>")
    return Span((Frame("<excerpt>", 1, "f", column, end),)).excerpt()


def test_caret_counts_characters_not_bytes() -> None:
    text = 'α = "ü"; wrong(β)'
    start = len(text.split("wrong")[0].encode())
    lines = excerpt(text, start, len(text.encode()))
    assert lines[2].index("^") == lines[1].index("wrong")
    assert lines[2].count("^") == len("wrong(β)")


def test_caret_under_a_line_with_tabs() -> None:
    lines = excerpt("\twrong()", 1, 8)
    assert lines[1:] == ["    1 | \twrong()", "      | \t^^^^^^^"]


def test_without_columns_all_of_the_line_is_meant() -> None:
    lines = excerpt("    wrong()", None, None)
    assert lines[2] == "      |     ^^^^^^^"


def test_long_chains_keep_both_ends() -> None:
    frames = tuple(Frame("file.py", n, f"f{n}") for n in range(40))
    lines = Span(frames).excerpt()
    assert "f1" in lines[1] and "f39" in lines[-1]
    assert any("more calls" in line for line in lines)
    assert len(lines) < 20


def returns_early(x):
    def helper(value):
        return value

    if x.shape[0] > 2:
        return helper(fresh())
    return x


def test_a_wrong_result_is_at_the_return_of_the_kernel() -> None:
    error = failed(returns_early)
    assert isinstance(error, errors.ReturnError)
    assert error.span.line == line_of(returns_early, "    return x\n")
