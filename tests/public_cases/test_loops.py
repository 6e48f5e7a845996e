"""Loops and registers of the device, and a scatter that names one row twice."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.public_cases.steps import down, events_of, exact, f32, fails, line_of, run, tile, up


def register(n):
    """A register that holds the only element of an HBM tensor."""
    r = nisa.register_alloc()
    nisa.register_load(r, up(n))
    return r


def number(n):
    """What a kernel loads a loop bound from."""
    return np.array([[n]], np.int32)


@nki.jit
def counting(n):
    acc = tile((1, 1))
    nisa.memset(dst=acc, value=10.0)

    def body(i):
        nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

    nl.fori_loop(0, register(n), body)
    return down(acc)


def test_pc_41_a_body_goes_on_from_what_was_before_the_loop():
    exact(run(counting, number(5)), [[15]])
    profile = nki.profile(counting, target="trn2")(number(5))
    work = events_of(profile, "memset", "tensor_scalar")
    assert len(work) == 6
    for earlier, later in zip(work, [*work[1:], events_of(profile, "dma_copy")[-1]]):
        assert earlier.end_ps <= later.start_ps


def test_pc_43_a_scatter_that_names_a_row_twice():
    @nki.jit
    def kernel(d, s, i):
        rows = d.ap(pattern=[[2, 2], [1, 2]], vector_offset=up(i), indirect_dim=0)
        nisa.dma_compute(dst=rows, srcs=[rows, up(s)], reduce_op=nl.add)
        return d

    d, s = np.zeros((4, 2), f32), np.ones((2, 2), f32)
    error = fails(kernel, d.copy(), s, np.array([[1], [1]], np.uint32), sanitize=True)
    assert error.span.line == line_of(kernel, "nisa.dma_compute")
    assert "1" in str(error) and "twice" in str(error)
    found = run(kernel, d.copy(), s, np.array([[3], [1]], np.uint32), sanitize=True)
    exact(found, [[0, 0], [1, 1], [0, 0], [1, 1]])


def test_pc_55_no_pass_at_all():
    @nki.jit
    def kernel(n):
        acc = tile((1, 1))
        nisa.memset(dst=acc, value=3.0)
        nl.fori_loop(0, register(n), lambda i: nisa.memset(dst=acc, value=-1.0) and None)
        return down(acc)

    exact(run(kernel, number(0)), [[3]])
    exact(run(kernel, number(4)), [[-1]])


def test_pc_57_a_loop_inside_a_loop():
    @nki.jit
    def kernel(n):
        acc = tile((1, 1))
        nisa.memset(dst=acc, value=0.0)

        def inner(j):
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        def outer(i):
            nl.fori_loop(0, 3, inner)

        nl.fori_loop(0, register(n), outer)
        return down(acc)

    exact(run(kernel, number(4)), [[12]])


def test_pc_59_a_counter_is_no_number():
    def body_of(t):
        def body(i):
            if i == 0:
                nisa.memset(dst=t, value=0.0)

        return body

    @nki.jit
    def kernel(x):
        t = up(x)
        nl.fori_loop(0, 4, body_of(t))
        return down(t)

    error = fails(kernel, np.ones((1, 1), f32))
    assert isinstance(error, TypeError) and error.span.line == line_of(body_of, "if i == 0")
    assert "scalar_offset" in str(error)


# --- neighbours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [-3, 0, 1, 7])
def test_bounds_below_the_start_run_nothing(n):
    exact(run(counting, number(n)), [[10 + max(n, 0)]])


def test_a_condition_is_tested_before_each_pass():
    @nki.jit
    def kernel(n):
        left, count = up(n), tile((1, 1))
        nisa.memset(dst=count, value=0.0)

        def body(r):
            nisa.tensor_scalar(dst=count, data=count, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.add, operand0=-1)
            following = nisa.register_alloc()
            nisa.register_load(following, left)
            return following

        r = nisa.register_alloc()
        nisa.register_load(r, left)
        nl.while_loop(r, body)
        return down(count)

    for n in (0, 1, 5):
        exact(run(kernel, number(n)), [[n]])


def test_the_counter_addresses_rows():
    @nki.jit
    def kernel(x, n):
        out = tile(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=up(x))

        def body(i):
            row = tile((1, 4))
            nisa.dma_copy(dst=row, src=x.ap(pattern=[[4, 1], [1, 4]], scalar_offset=i))
            nisa.tensor_scalar(dst=row, data=row, op0=nl.multiply, operand0=10.0)
            nisa.dma_copy(dst=out.ap(pattern=[[4, 1], [1, 4]], scalar_offset=i), src=row)

        nl.fori_loop(0, register(n), body, step=2)
        return out

    x = np.arange(20, dtype=f32).reshape(5, 4)
    expected = x.copy()
    expected[0:4:2] *= 10
    exact(run(kernel, x, number(4)), expected)


@pytest.mark.parametrize("use", [int, bool, range, lambda i: i + 1, lambda i: i < 3, lambda i: [0, 1][i]])
def test_python_does_not_learn_the_counter(use):
    @nki.jit
    def kernel(x):
        t = up(x)
        nl.fori_loop(0, 1, lambda i: use(i) and None)
        return down(t)

    assert isinstance(fails(kernel, np.ones((1, 1), f32)), TypeError)


def test_a_row_by_a_register_after_the_loop_is_the_value_before():
    """Writing the counter changes nothing: it is a value, not the course of the loop."""

    @nki.jit
    def kernel(n):
        acc = tile((1, 1))
        nisa.memset(dst=acc, value=0.0)

        def body(i):
            nisa.register_move(i, 100)
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, register(n), body)
        return down(acc)

    exact(run(kernel, number(3)), [[3]])


@pytest.mark.parametrize("step", [0, -1, 1.5])
def test_steps_are_positive_integers(step):
    @nki.jit
    def kernel(x):
        nl.fori_loop(0, 4, lambda i: None, step=step)
        return x

    assert isinstance(fails(kernel, np.ones((1, 1), f32)), (AssertionError, TypeError))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_variable_of_dynamic_range_is_frozen():
    @nki.jit
    def kernel(x):
        for i in nl.dynamic_range(3):
            nisa.register_move(i, 0)
        return x

    error = fails(kernel, np.ones((1, 1), f32))
    assert isinstance(error, AssertionError) and error.span.line == line_of(kernel, "register_move")
