"""Python's `for`, `while` and `if` over values of the device: one region, one pass of staging, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.control import Loop
from tests.language.both import add, both, f32, number, register_of, tile
from tests.language.run import down, up

X = np.zeros((1, 1), f32)
EAGER = pytest.mark.parametrize("eager", [False, True], ids=["planned", "eager"])


def line_of(text: str, nth: int = 0) -> int:
    """The number of the line of this file that contains `text` in a comment."""
    with open(__file__, encoding="utf-8") as file:
        found = [number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}")]
    return found[nth]


def test_while_over_a_register() -> None:
    @nki.jit
    def kernel(n, keep):
        left = up(n)
        passes = tile((1, 1), 0.0)
        reg = nisa.register_alloc(1)
        while reg:
            add(passes, 1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(reg, left)
        else:
            add(passes, 100.0)
        return down(passes)

    assert both(kernel, number(3), X) == 103
    program = kernel.ir(number(3), X, target="trn2")
    (loop,) = [node for node in program.cores[0] if isinstance(node, Loop)]
    assert loop.kind == "while" and loop.condition is not None and len(loop.body) == 3
    assert loop.span.line == kernel.func.__code__.co_firstlineno + 5


def test_a_while_that_is_not_entered() -> None:
    @nki.jit
    def kernel(n):
        t, reg = tile((1, 1), 5.0), register_of(n)
        while reg:
            add(t, 1.0)
            nisa.register_move(reg, 0)
        return down(t)

    assert both(kernel, number(0)) == 5 and both(kernel, number(-1)) == 6


def test_functions_reached_from_a_body_are_rewritten() -> None:
    def inner(t: Any, n: Any) -> None:
        for _ in nl.dynamic_range(register_of(n)):
            add(t, 1.0)

    def body_of(t: Any, n: Any) -> Callable[[Any], None]:
        def body(i: Any) -> None:
            inner(t, n)

        return body

    @nki.jit
    def kernel(n):
        t = tile((1, 1), 0.0)
        nl.fori_loop(0, 2, body_of(t, n))
        return down(t)

    assert both(kernel, number(3)) == 6


def test_host_loops_in_a_body_may_be_left() -> None:
    def first(values: tuple[int, ...]) -> int:
        for value in values:
            if value > 1:
                return value
        return 0

    @nki.jit
    def kernel(x):
        t = up(x)
        for _ in nl.dynamic_range(3):
            for j in range(10):
                if j == 1:
                    continue
                if j == 3:
                    break
                add(t, 1.0)
            while True:
                add(t, 10.0)
                break
            add(t, float(first((1, 2, 3))) * 100)
        return down(t)

    assert both(kernel, X) == 3 * (2 + 10 + 200)


def _breaks(x: Any) -> None:
    for _ in nl.dynamic_range(3):
        if x.shape[0] == 1:
            break  # left by break


def _continues(x: Any) -> None:
    reg = register_of(x)
    while reg:
        nisa.register_move(reg, 0)
        if x.shape[0] == 1:
            continue  # left by continue


def _returns(x: Any) -> Any:
    for _ in nl.dynamic_range(3):
        for _ in range(2):
            return x  # left by return
    return None


def _breaks_in_try(x: Any) -> None:
    for _ in nl.dynamic_range(3):
        try:
            break  # left in try
        finally:
            pass


@EAGER
@pytest.mark.parametrize(
    ("body", "how", "where"),
    [
        (_breaks, "break", "left by break"),
        (_continues, "continue", "left by continue"),
        (_returns, "return", "left by return"),
        (_breaks_in_try, "break", "left in try"),
    ],
)
def test_a_body_cannot_be_left(body: Any, how: str, where: str, eager: bool) -> None:
    @nki.jit
    def kernel(x):
        body(x)
        return down(up(x))

    with pytest.raises(errors.SubsetError, match=f"`{how}` cannot leave") as caught:
        nki.simulate(kernel, target="trn2", eager=eager)(number(1))
    assert caught.value.span is not None and caught.value.span.line == line_of(where)


@EAGER
def test_a_body_left_by_code_that_is_not_rewritten(eager: bool) -> None:
    scope: dict[str, Any] = {"nl": nl}
    exec("def leave():\n    for _ in nl.dynamic_range(3):\n        break\n", scope)

    @nki.jit
    def kernel(x):
        scope["leave"]()
        return down(up(x))

    with pytest.raises(errors.SubsetError, match="`break or return` cannot leave"):
        nki.simulate(kernel, target="trn2", eager=eager)(X)


def _if(r: Any) -> None:
    if r:
        pass


def _not(r: Any) -> Any:
    return not r


def _and(r: Any) -> Any:
    return r and 1


def _ifexp(r: Any) -> Any:
    return 1 if r else 2


def _assert(r: Any) -> None:
    assert r


def _while_and(r: Any) -> None:
    while r and True:
        pass


def _while_walrus(r: Any) -> None:
    while q := r:
        print(q)


@EAGER
@pytest.mark.parametrize("test", [_if, _not, _and, _ifexp, _assert, _while_and, _while_walrus])
def test_other_tests_of_a_register_are_refused(test: Any, eager: bool) -> None:
    @nki.jit
    def kernel(x):
        test(register_of(x))
        return down(up(x))

    with pytest.raises(errors.TruthValueError, match="register") as caught:
        nki.simulate(kernel, target="trn2", eager=eager)(number(1))
    assert isinstance(caught.value, TypeError) and caught.value.remedy
    span = caught.value.span
    assert span is not None and any(test.__name__ in frame.function for frame in span.frames)


@EAGER
def test_the_condition_must_stay_one_register(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        reg = register_of(x)
        while reg:
            nisa.register_move(reg, 0)
            reg = nisa.register_alloc(0)
        return down(up(x))

    with pytest.raises(errors.SubsetError, match="gives another object that name"):
        nki.simulate(kernel, target="trn2", eager=eager)(number(1))


@EAGER
def test_a_while_that_never_ends_is_refused(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        t, reg = tile((1, 1), 0.0), register_of(x)
        while reg:
            add(t, 1.0)
        return down(t)

    with pytest.raises(errors.KernelError, match="never ends"):
        nki.simulate(kernel, target="trn2", eager=eager)(number(1))


def test_a_body_that_changes_from_pass_to_pass_is_found_in_eager_mode() -> None:
    @nki.jit
    def kernel(x):
        t, amounts = up(x), [1.0, 2.0, 3.0]
        for _ in nl.dynamic_range(2):
            add(t, amounts.pop())
        return down(t)

    assert nki.simulate(kernel, target="trn2", eager=False)(X) == 6  # the device runs what was staged once
    with pytest.raises(errors.SubsetError, match="other instructions in a later pass"):
        nki.simulate(kernel, target="trn2", eager=True)(X)


def test_host_whiles_are_what_they_were() -> None:
    @nki.jit
    def kernel(x):
        t, n = up(x), 3
        while n:
            add(t, 1.0)
            n -= 1
        left = [1, 2]
        while left and left[-1] > 1:
            left.pop()
        return down(t)

    assert both(kernel, X) == 3
    assert kernel.ir(X, target="trn2").is_flat
