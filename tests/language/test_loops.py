"""Loops on the device as kernels write them: semantics rules 125 to 130, public cases 41, 55, 57 and 59."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.language.both import add, both, f32, number, register_of, tile
from tests.language.run import down, up


@pytest.mark.parametrize("count", [0, 1, 5])
def test_fori_loop_counts_what_a_register_says(count: int) -> None:
    @nki.jit
    def kernel(n):
        r = register_of(n)
        acc = tile((1, 1), 10.0)

        def body(i):
            add(acc, 1.0)

        nl.fori_loop(0, r, body)
        return down(acc)

    assert both(kernel, number(count)) == 10 + count


def test_zero_trips_leave_everything() -> None:
    @nki.jit
    def kernel(n):
        r = register_of(n)
        acc = tile((1, 1), 3.0)

        def body(i):
            nisa.memset(dst=acc, value=-1.0)

        nl.fori_loop(0, r, body)
        return down(acc)

    assert both(kernel, number(0)) == 3 and both(kernel, number(4)) == -1
    assert both(kernel, number(-2)) == 3


@pytest.mark.parametrize(
    ("bounds", "seen"),
    [((5,), [0, 1, 2, 3, 4]), ((2, 9, 3), [2, 5, 8]), ((4, 4), []), ((-3, 1, 2), [-3, -1])],
)
def test_bounds_that_are_numbers_make_a_loop_too(bounds: tuple[int, ...], seen: list[int]) -> None:
    @nki.jit
    def kernel(x):
        last = nisa.register_alloc(99)
        total, column = tile((1, 1), 0, nl.int32), nl.ndarray((1, 1), nl.int32)
        for i in nl.dynamic_range(*bounds):
            nisa.register_move(last, i)
            nisa.register_store(column, i)
            nisa.tensor_tensor(dst=total, data1=total, data2=column, op=nl.add)
        nisa.register_store(column, last) if seen == [] else None
        end = nl.ndarray((1, 1), nl.int32)
        nisa.register_store(end, last)
        return down(total), down(end)

    x = np.zeros((1, 1), f32)
    total, last = both(kernel, x)
    assert total == sum(seen) and last == (seen[-1] if seen else 99)
    program = kernel.ir(x, target="trn2")
    assert not program.is_flat and len(program.cores[0]) < 12


def test_a_nested_loop_runs_in_every_pass() -> None:
    @nki.jit
    def kernel(n):
        r = register_of(n)
        acc = tile((1, 1), 0.0)

        def inner(j):
            add(acc, 1.0)

        def outer(i):
            nl.fori_loop(0, 3, inner)

        nl.fori_loop(0, r, outer)
        return down(acc)

    assert both(kernel, number(4)) == 12


def test_the_counter_of_the_outer_loop_bounds_the_inner() -> None:
    @nki.jit
    def kernel(n):
        acc = tile((1, 1), 0.0)
        for i in nl.dynamic_range(register_of(n)):
            for _ in nl.dynamic_range(i):
                add(acc, 1.0)
        return down(acc)

    assert both(kernel, number(5)) == 0 + 1 + 2 + 3 + 4


def test_the_counter_is_an_offset() -> None:
    @nki.jit
    def kernel(n, x):
        out = nl.ndarray((6, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile((6, 4), 0.0))

        def body(i):
            row = nl.ndarray((1, 4), nl.float32)
            nisa.dma_copy(dst=row, src=x.ap([[4, 1], [1, 4]], scalar_offset=i, indirect_dim=0))
            add(row, 1.0)
            nisa.dma_copy(dst=out.ap([[4, 1], [1, 4]], scalar_offset=i, indirect_dim=0), src=row)

        nl.fori_loop(1, register_of(n), body, 2)
        return out

    x = np.arange(24, dtype=f32).reshape(6, 4)
    expected = np.zeros_like(x)
    expected[1:6:2] = x[1:6:2] + 1
    np.testing.assert_array_equal(both(kernel, number(6), x), expected)


def test_fori_loop_passes_its_counter_by_value() -> None:
    @nki.jit
    def kernel(x):
        acc = tile((1, 1), 0.0)

        def body(i):
            add(acc, 1.0)
            nisa.register_move(i, 100)

        nl.fori_loop(0, 4, body)
        return down(acc)

    assert both(kernel, np.zeros((1, 1), f32)) == 4


def test_while_loop_ends_when_the_data_say_so() -> None:
    @nki.jit
    def kernel(n, step):
        count, by = up(n), up(step)
        acc = tile((1, 1), 0.0)
        start = nisa.register_alloc()
        nisa.register_load(start, count)

        def body(r):
            add(acc, 1.0)
            nisa.tensor_tensor(dst=count, data1=count, data2=by, op=nl.subtract)
            nisa.register_load(r, count)
            return r

        nl.while_loop(start, body)
        seen = nl.ndarray((1, 1), nl.int32)
        nisa.register_store(seen, start)
        return down(acc), down(seen)

    assert both(kernel, number(12), number(3)) == (4, 12)
    assert both(kernel, number(0), number(3)) == (0, 0)


def test_while_loop_tests_what_the_body_returns() -> None:
    @nki.jit
    def kernel(n):
        left = up(n)
        acc = tile((1, 1), 0.0)
        other = nisa.register_alloc(0)

        def body(r):
            nisa.register_move(r, 7)  # not what is returned
            add(acc, 1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(other, left)
            return other

        nl.while_loop(nisa.register_alloc(1), body)
        return down(acc)

    assert both(kernel, number(3)) == 3


def test_lambdas_and_kernels_are_bodies() -> None:
    total: list[Any] = []

    @nki.jit
    def bump(i):
        add(total[-1], 2.0)

    @nki.jit
    def kernel(x):
        total.append(tile((1, 1), 0.0))
        nl.fori_loop(
            0, 3, lambda i: nisa.tensor_scalar(dst=total[-1], data=total[-1], op0=nl.add, operand0=1.0)
        )
        nl.fori_loop(0, 2, bump)
        return down(total[-1])

    assert both(kernel, np.zeros((1, 1), f32)) == 7


def refused(body: Callable[[Any], Any], error: type[Exception], match: str, eager: bool = False) -> None:
    @nki.jit
    def kernel(x):
        body(x)
        return down(up(x))

    with pytest.raises(error, match=match) as caught:
        nki.simulate(kernel, target="trn2", eager=eager)(np.zeros((1, 1), f32))
    assert __file__ in str(caught.value)


def _write_counter(x: Any) -> None:
    for i in nl.dynamic_range(3):
        nisa.register_move(i, 1)


def _compare_counter(x: Any) -> None:
    def body(i):
        if i == 0:
            nisa.memset(dst=up(x), value=0.0)

    nl.fori_loop(0, 4, body)


def _return_tile(x: Any) -> None:
    nl.fori_loop(0, 4, lambda i: nl.ndarray((1, 1), nl.float32))


def _return_nothing(x: Any) -> None:
    nl.while_loop(nisa.register_alloc(1), lambda r: None)


def _endless(x: Any) -> None:
    acc = tile((1, 1), 0.0)

    def body(r):
        add(acc, 1.0)
        return r

    nl.while_loop(nisa.register_alloc(1), body)


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: nl.dynamic_range(0, 4, nisa.register_alloc(1)), AssertionError, "step must be a positive"),
    (lambda x: nl.dynamic_range(0, 4, 0), errors.LoopStepError, "step must be a positive"),
    (lambda x: nl.dynamic_range(0, 4, np.True_), errors.LoopStepError, "step must be a positive"),
    (lambda x: nl.fori_loop(0, 4, print, -1), AssertionError, "step must be a positive"),
    (lambda x: nl.dynamic_range(2.5), errors.ArgumentError, "integer or a register, got float"),
    (lambda x: nl.dynamic_range(up(x)), errors.ArgumentError, "load it into a register"),
    (lambda x: nl.dynamic_range(1 << 40), errors.ArgumentError, "32-bit"),
    (lambda x: nl.fori_loop(0, 4, 5), errors.ArgumentError, "must be a function, got int"),
    (lambda x: nl.while_loop(3, print), errors.ArgumentError, "`?init`? must be a register, got int"),
    (_write_counter, AssertionError, "counter of a loop and cannot be written"),
    (_compare_counter, TypeError, "scalar_offset"),
    (_return_tile, errors.ArgumentError, "returns a value"),
    (_return_nothing, errors.ArgumentError, "must be a register, got NoneType"),
    (_endless, errors.KernelError, "never ends"),
]


@pytest.mark.parametrize("eager", [False, True], ids=["planned", "eager"])
@pytest.mark.parametrize(("body", "error", "match"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(body: Any, error: Any, match: str, eager: bool) -> None:
    refused(body, error, match, eager)


def test_dynamic_range_is_deprecated() -> None:
    @nki.jit
    def kernel(x):
        t = up(x)
        for _ in nl.dynamic_range(2):
            add(t, 1.0)
        return down(t)

    found = [d for d in kernel.check(np.zeros((1, 1), f32), target="trn2") if d.code == "deprecated"]
    assert len(found) == 1 and "fori_loop" in found[0].message and found[0].severity == "note"


def test_outside_a_kernel() -> None:
    with pytest.raises(errors.OutsideKernelError, match="dynamic_range"):
        nl.dynamic_range(3)
    with pytest.raises(errors.OutsideKernelError, match="fori_loop"):
        nl.fori_loop(0, 3, print)
