"""Eager execution: the same bits as a plan, values to look at, and breakpoints that stop with values."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.interpreter.chain_kernel import kernel_of
from tests.interpreter.chains import Chain, inputs
from tests.nki.kernels import down, f32, up

X = np.arange(8, dtype=f32).reshape(2, 4)


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@example(1338)
@example(4947)
@given(st.integers(0, 1 << 32))
def test_same_bits_as_the_plan(seed: int) -> None:
    kernel = kernel_of(Chain.of(seed))
    kept: list[tuple[Any, bytes]] = []
    for data in (1, 2):
        given, again = inputs(data), inputs(data)
        planned = kernel(*given)
        for position, (one, other) in enumerate(zip(planned, nki.simulate(kernel, eager=True)(*again))):
            assert bits(one) == bits(other), f"seed {seed}, data {data}, result {position}"
        assert [bits(x) for x in given] == [bits(x) for x in again]
        kept += [(array, bits(array)) for array in planned]
    assert all(bits(array) == before for array, before in kept)  # later calls write into arrays of their own
    assert len(kernel._cache) == 1


@nki.jit
def uninitialised(x):
    floats = nl.ndarray((2, 4), dtype=nl.bfloat16, buffer=nl.sbuf)
    integers = nl.ndarray((2, 4), dtype=nl.int16, buffer=nl.sbuf)
    lower = nl.ndarray((2, 4), dtype=nl.int32, buffer=nl.sbuf, address=(0, 0))
    upper = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.sbuf, address=(1, 8))
    apart = nl.ndarray((2, 4), dtype=nl.uint8, buffer=nl.sbuf, address=(0, 64))
    for tile in (floats, integers, lower):
        nisa.memset(dst=tile[:, 0:1], value=0)
    partly = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=partly[:, 1:2], src=x[:, 0:1])
    return (*(down(tile) for tile in (floats, integers, lower, upper, apart)), partly)


@pytest.mark.parametrize("run", [0, 1])
def test_unwritten_memory_is_poisoned_alike(run: int) -> None:  # semantics rule 47
    planned = nki.simulate(uninitialised, sanitize=False)(X)
    if run:
        planned = nki.simulate(uninitialised, sanitize=False)(X)
    eager = nki.simulate(uninitialised, sanitize=False, eager=True)(X)
    assert [bits(one) for one in planned] == [bits(other) for other in eager]
    floats, integers, lower, upper, apart, partly = planned
    assert np.isnan(floats[:, 1:].astype(f32)).all() and not floats[:, 0].any()
    assert (integers[:, 1:] == 4).all() and (lower[:, 1:] == 4).all() and (apart == 4).all()
    assert upper[0, :2].view(np.int32).tolist() == [4, 4]  # bytes of `lower`, which was declared first
    assert np.isnan(upper[1]).all() and np.isnan(upper[0, 2:]).all()
    assert np.isnan(partly[:, [0, 2, 3]]).all()


def test_values_are_there_while_staging(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def kernel(x):
        tile = up(x, address=(0, 64))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        print(tile)
        seen.append(tile[:, 1:3].numpy())
        return down(tile)

    nki.simulate(kernel, eager=True)(X)
    np.testing.assert_array_equal(seen[0], X[:, 1:3] + 1)
    assert "5. 6. 7. 8." in capsys.readouterr().out
    with pytest.raises(errors.TruthValueError, match="eager=True"):
        nki.simulate(kernel)(X)


def test_values_are_copies() -> None:
    seen: list[Any] = []

    def kernel(x):
        tile = up(x)
        seen.append(tile.numpy())
        nisa.memset(dst=tile, value=9.0)
        seen[0][...] = -1
        return down(tile)

    assert (nki.simulate(kernel, eager=True)(X) == 9).all()


def test_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    @nki.jit
    def kernel(x):
        tile = up(x)
        seen.append(tile.numpy())
        return down(tile)

    monkeypatch.setenv("NKI_EAGER", "1")
    np.testing.assert_array_equal(kernel(X), X)
    monkeypatch.setenv("NKI_EAGER", "0")
    with pytest.raises(errors.TruthValueError):
        kernel(X)
    assert len(seen) == 1


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `tile` was at each breakpoint, in the frame that called it."""
    seen: list[Any] = []

    def hook(*args: Any, **kwargs: Any) -> None:
        seen.append(sys._getframe(1).f_locals["tile"].numpy())

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return seen


def stopping(x):
    tile = up(x)
    breakpoint()
    nisa.memset(dst=tile, value=0.0)
    return down(tile)


def helper(tile):
    breakpoint()
    return down(tile)


def stopping_in_a_helper(x):
    return helper(up(x))


def stopping_inside(x):
    def inner(tile):
        breakpoint()
        return down(tile)

    return inner(up(x))


@pytest.mark.parametrize("function", [stopping, stopping_in_a_helper, stopping_inside])
def test_breakpoints_stop_with_values(function: Any, stops: list[Any]) -> None:
    kernel = nki.jit(function)
    for _ in range(2):
        stops.clear()
        kernel(X)
        assert [stop.tolist() for stop in stops] == [X.tolist()]
    stops.clear()
    assert {found.severity for found in kernel.check(X)} <= {"note"}
    program = kernel.ir(X)
    assert len(list(program.instructions())) >= 2
    assert stops == []  # there is nothing to look at
    kernel(X)
    assert len(stops) == 1


def test_capacity_is_checked_at_the_end() -> None:
    def kernel(x):
        tiles = [nl.zeros((128, 30000), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3)]
        for tile in tiles[1:]:
            nisa.tensor_copy(dst=tiles[0], src=tile)
        return x

    with pytest.raises(errors.CapacityError):
        nki.simulate(kernel, eager=True)(X)


def test_sanitize_raises_what_is_only_likely() -> None:
    def kernel(x):
        result = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=result[:, 0:3], src=x[:, 0:3])
        return result

    for eager in (False, True):
        with pytest.raises(errors.UnwrittenOutputError):
            nki.simulate(kernel, eager=eager, sanitize=True)(X)
        found = nki.simulate(kernel, eager=eager)(X)
        np.testing.assert_array_equal(found[:, :3], X[:, :3])
        assert np.isnan(found[:, 3]).all()
