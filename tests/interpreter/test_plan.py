"""Plans: tensors from outside are pointed to anew at each run, memory of dead tiles is used again, runs are alike."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.execute import execute
from interpreter.plan import Plan
from nki.jit import Options

f32 = np.float32
X = np.arange(32, dtype=f32).reshape(4, 8)


def up(source: Any, dtype: Any = None) -> Any:
    tile = nl.ndarray(source.shape, dtype=dtype or source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def down(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def plan_of(function: Any, *arrays: Any) -> Plan:
    return nki.jit(function).compiled(Options(), arrays, {}).plan


def windows(x, y):
    """Windows of several shapes on arguments, casts on the way in and out, and results written in parts."""
    tile = up(x[1:3, 2:6])
    narrow = up(x, nl.bfloat16)
    out = nl.ndarray((4, 8), dtype=nl.float16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[0:2, 0:4], src=tile)
    nisa.dma_copy(dst=out[2:4], src=narrow[0:2])
    nisa.dma_copy(dst=out[0:2, 4:8], src=x.reshape((32,))[10:18].reshape((2, 4)))
    nisa.dma_copy(dst=y.reshape((8, 4)), src=x)
    return out, y


def test_every_run_uses_its_own_arrays() -> None:
    kernel = nki.jit(windows)
    results = []
    for turn in range(4):
        x, y = X + turn, np.zeros((4, 8), np.int32)
        out, same = kernel(x, y)
        assert same is y
        np.testing.assert_array_equal(y, x.astype(np.int32))
        expected = np.zeros((4, 8), f32)
        expected[:2, :4] = x[1:3, 2:6]
        expected[2:4] = x[0:2]
        expected[:2, 4:] = x.reshape(-1)[10:18].reshape(2, 4)
        np.testing.assert_array_equal(out.astype(f32), expected)
        results.append((out, out.copy()))
    assert all((out == kept).all() for out, kept in results)
    assert len(kernel._cache) == 1


def test_a_plan_is_made_once_and_runs_on_any_arrays() -> None:
    plan = plan_of(lambda x: down(up(x)), X)
    for turn in range(3):
        arrays = {"x": X + turn, plan.program.results[0].name: np.empty((4, 8), f32)}
        execute(plan, arrays)
        np.testing.assert_array_equal(arrays[plan.program.results[0].name], X + turn)


def accumulated(x):
    """Leaves a sum in the accumulator registers from instruction to instruction."""
    tile, total = up(x), nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(3):
        nisa.activation(
            dst=tile,
            op=nl.copy,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reduce,
        )
    return down(total)


@pytest.mark.parametrize("eager", [False, True])
def test_engine_registers_start_each_run_at_zero(eager: bool) -> None:
    run = nki.simulate(nki.jit(accumulated), eager=eager)
    for _ in range(2):
        np.testing.assert_array_equal(run(X)[:, 0], 3 * X.sum(axis=1))


def summed(x):
    product = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
    tile = up(x)
    for _ in range(3):
        nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
    result = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    return down(result)


@pytest.mark.parametrize("eager", [False, True])
def test_accumulation_starts_fresh_in_every_run(eager: bool) -> None:  # PC-21
    run = nki.simulate(nki.jit(summed), eager=eager)
    for _ in range(2):
        np.testing.assert_array_equal(run(X), 3 * X.T @ X)


def test_memory_of_dead_tiles_is_used_again() -> None:
    def chain(x):
        tile = up(x)
        for _ in range(50):
            other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=other, data=tile, op0=nl.add, operand0=1.0)
            tile = other
        return down(tile)

    plan = plan_of(chain, X)
    bases = {
        argument.__array_interface__["data"][0]
        for function, arguments in plan.calls
        if function is np.add
        for argument in arguments
        if isinstance(argument, np.ndarray) and argument.shape == X.shape
    }
    assert 2 <= len(bases) <= 3
    np.testing.assert_array_equal(nki.simulate(chain)(X), X + 50)


def test_constants_survive() -> None:
    def kernel(x):
        first = up(x)
        identity = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=identity, pattern=[[1, 4]], offset=0, channel_multiplier=4)
        for _ in range(3):
            nisa.tensor_tensor(dst=first[:, 0:4], data1=first[:, 0:4], data2=identity, op=nl.add)
        return down(first)

    run = nki.simulate(nki.jit(kernel))
    expected = X.copy()
    expected[:, :4] += 3 * np.arange(16).reshape(4, 4)
    for _ in range(2):
        np.testing.assert_array_equal(run(X), expected)


def test_one_thread_runs_a_plan_at_a_time() -> None:
    plan = plan_of(lambda x: down(up(x)), X)
    name = plan.program.results[0].name
    wrong: list[int] = []

    def work(index: int) -> None:
        for turn in range(50):
            arrays = {"x": np.full((4, 8), 100 * index + turn, f32), name: np.empty((4, 8), f32)}
            execute(plan, arrays)
            if not (arrays[name] == 100 * index + turn).all():
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_warnings_of_numpy_are_silent() -> None:
    def kernel(x):
        tile = up(x)
        nisa.reciprocal(dst=tile, data=tile)
        return down(tile)

    with np.errstate(all="raise"):
        assert np.isinf(nki.simulate(kernel)(X)[0, 0])
        assert np.isinf(nki.simulate(kernel, eager=True)(X)[0, 0])
