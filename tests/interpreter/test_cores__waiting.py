"""The machine with two cores: how they wait for each other, and the ways to run (semantics rules 132 to 135)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.two_cores import FAR, X, both, exchange, own, refused, run, swapped, tile

# --- waiting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["known", "register", "while"])
def test_loops_around_exchanges(kind: str) -> None:
    """Three passes on each core: swap, then add 1."""

    def kernel(x):
        mine = own(x)
        left = nisa.register_alloc(3)
        count = tile((1, 1), nl.int32)
        nisa.memset(count, 3)

        def swap_and_add(_):
            exchange(mine, mine)
            nisa.tensor_scalar(dst=mine, data=mine, op0=nl.add, operand0=1.0)

        def until_none_is_left(register):
            swap_and_add(register)
            nisa.tensor_scalar(dst=count, data=count, op0=nl.subtract, operand0=1)
            nisa.register_load(register, count)
            return register

        if kind == "while":
            nl.while_loop(left, until_none_is_left)
        else:
            nl.fori_loop(0, 3 if kind == "known" else left, swap_and_add)
        return both(mine)

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR + 3, X + 3]))


def test_different_numbers_of_passes_are_a_deadlock() -> None:
    def kernel(x):
        mine = own(x)
        nl.fori_loop(0, nisa.register_alloc(2 + nl.program_id(0)), lambda i: exchange(mine, mine))
        return both(mine)

    error = refused(kernel, errors.DeadlockError, "wait for each other for ever")
    assert error.notes[0] == "core 0: has come to its end"


def test_a_deadlock_names_the_lines_of_both_cores() -> None:
    def kernel(x):
        mine = own(x)
        if nl.program_id(0) == 0:
            nisa.sendrecv(mine, mine, 1, 1, pipe_id=0)
        else:
            nisa.core_barrier(x, (0, 1))
        return both(mine)

    error = refused(kernel, errors.DeadlockError, "wait for each other for ever")
    first = kernel.__code__.co_firstlineno
    assert error.notes == (
        f"core 0: waits in sendrecv at {__file__}:{first + 3}",
        f"core 1: waits in core_barrier at {__file__}:{first + 5}",
    )
    assert isinstance(error, errors.NkiValidationError) and error.code == "deadlock"
    assert error.span is not None and error.span.line == first + 3


def test_a_run_after_a_deadlock_is_clean() -> None:
    def kernel(x, wait):
        if wait and nl.program_id(0):
            nisa.core_barrier(x, (0, 1))
        return both(swapped(x))

    simulated = nki.simulate(nki.jit(kernel)[2], target="trn2")
    for wait in (False, True, False):
        if wait:
            with pytest.raises(errors.DeadlockError):
                simulated(X, wait)
        else:
            np.testing.assert_array_equal(simulated(X, wait), np.stack([X + FAR, X]))


def test_a_barrier_does_not_wait_for_an_exchange() -> None:
    """An exchange waits for its data only: the barrier behind it is reached by both (semantics rule 134)."""

    def kernel(x):
        mine, got = own(x), tile(x.shape)
        if nl.program_id(0) == 0:
            exchange(mine, got)
            nisa.core_barrier(x, (0, 1))
        else:
            nisa.core_barrier(x, (0, 1))
            exchange(mine, got)
        return both(got)

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR, X]))


# --- ways to run --------------------------------------------------------------------------------------------


def test_runs_repeat_bit_for_bit() -> None:
    kernel = nki.jit(lambda x: both(swapped(x)))
    simulated = nki.simulate(kernel[2], target="trn2")
    for seed in (0, 1):
        x = np.random.default_rng(seed).standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
        first = simulated(x)
        assert first.tobytes() == simulated(x).tobytes()
        assert first[1].tobytes() == x.tobytes()


def test_program_text(tmp_path: Path) -> None:
    """Both cores' lists are in the text, which runs to the same bits."""
    kernel = nki.jit(lambda x: both(swapped(x)))[2]
    program = kernel.ir(X, target="trn2")
    assert [len(core) for core in program.cores] == [4, 4]
    path = tmp_path / "swap.nkir"
    path.write_text(str(program))
    np.testing.assert_array_equal(nki.load_ir(str(path))(X), nki.simulate(kernel, target="trn2")(X))


def test_both_cores_are_timed() -> None:
    profile = nki.profile(nki.jit(lambda x: both(swapped(x)))[2], target="trn2")(X)
    assert profile.latency_us > 0


def test_breakpoints_are_for_one_core() -> None:
    def kernel(x):
        breakpoint()
        return x

    for options in ({}, {"eager": True}):
        error = refused(
            kernel, errors.KernelError, r"breakpoint\(\) stops a kernel on one core only", **options
        )
        assert error.span is not None and error.span.file == __file__


def test_inner_kernels_run_on_both_cores() -> None:
    inner = nki.jit(lambda x: swapped(x))

    def kernel(x: Any):
        return both(inner(x))

    np.testing.assert_array_equal(run(kernel), np.stack([X + FAR, X]))
