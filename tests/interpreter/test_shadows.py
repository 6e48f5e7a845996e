"""Widened copies of narrow tiles: made once for several readers, and never read when they are no longer true."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.plan import Plan
from nki.jit import Options

bf16 = ml_dtypes.bfloat16
X = np.arange(32).reshape(4, 8).astype(bf16)


def up(source: Any) -> Any:
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def down(tile: Any) -> Any:
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


def wide(shape: Any = (4, 8)) -> Any:
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def plan_of(function: Any) -> Plan:
    return nki.jit(function).compiled(Options(), (X,), {}).plan


def calls(function: Any) -> int:
    return len(plan_of(function).calls)


def readers(count: int) -> Any:
    def kernel(x):
        tile, result = up(x), wide()
        for _ in range(count):
            nisa.tensor_tensor(dst=result, data1=tile, data2=tile, op=nl.multiply)
        return down(result)

    return kernel


def test_readers_share_one_conversion() -> None:
    assert calls(readers(6)) - calls(readers(5)) == 1  # the product alone, no conversion
    np.testing.assert_array_equal(nki.simulate(readers(3))(X), X.astype(np.float32) ** 2)


def test_a_write_makes_a_new_version() -> None:
    def kernel(x):
        tile, results = up(x), [wide() for _ in range(4)]
        for index, result in enumerate(results):
            if index == 2:
                nisa.tensor_scalar(dst=tile[:, 0:2], data=tile[:, 0:2], op0=nl.add, operand0=64.0)
            nisa.tensor_tensor(dst=result, data1=tile, data2=tile, op=nl.add)
        return tuple(down(result) for result in results)

    before = X.astype(np.float32)
    after = before.copy()
    after[:, :2] += 64
    for found, expected in zip(nki.simulate(kernel)(X), (before, before, after, after)):
        np.testing.assert_array_equal(found, expected * 2)


def test_an_update_in_place_reads_the_old_and_leaves_the_new() -> None:
    def kernel(x):
        tile, first, second = up(x), wide(), wide()
        nisa.tensor_tensor(dst=first, data1=tile, data2=tile, op=nl.add)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        nisa.tensor_tensor(dst=second, data1=tile, data2=tile, op=nl.add)
        return down(first), down(second)

    first, second = nki.simulate(kernel)(X)
    np.testing.assert_array_equal(first, X.astype(np.float32) * 2)
    np.testing.assert_array_equal(second, X.astype(np.float32) * 4)


def test_another_window_or_another_type_is_another_copy() -> None:
    def kernel(x):
        tile, a, b, c = up(x), wide((4, 4)), wide((4, 4)), wide((4, 8))
        for _ in range(2):
            nisa.tensor_tensor(dst=a, data1=tile[:, 0:4], data2=tile[:, 4:8], op=nl.subtract)
            nisa.tensor_tensor(dst=b, data1=tile[:, 0:8:2], data2=tile[:, 1:8:2], op=nl.subtract)
            nisa.tensor_tensor(dst=c, data1=tile.view(nl.float16), data2=tile, op=nl.subtract)
        return down(a), down(b), down(c)

    a, b, c = nki.simulate(kernel)(X)
    assert (a == -4).all() and (b == -1).all()
    np.testing.assert_array_equal(c, X.view(np.float16).astype(np.float32) - X.astype(np.float32))


def test_memory_of_finished_copies_is_used_again() -> None:
    def kernel(x):
        results = []
        for _ in range(20):
            tile, result = up(x), wide()
            for _ in range(2):
                nisa.tensor_tensor(dst=result, data1=tile, data2=tile, op=nl.add)
            results.append(result)
        return tuple(down(result) for result in results)

    plan = plan_of(kernel)
    bases = {
        argument.__array_interface__["data"][0]
        for function, arguments in plan.calls
        if function is np.add
        for argument in arguments[:2]
    }
    assert len(bases) <= 2
    for found in nki.simulate(kernel)(X):
        np.testing.assert_array_equal(found, X.astype(np.float32) * 2)


def test_placed_tiles_that_overlap_are_left_alone() -> None:
    def kernel(x):
        lower = nl.ndarray((4, 8), dtype=nl.bfloat16, buffer=nl.sbuf, address=(0, 0))
        upper = nl.ndarray((4, 8), dtype=nl.bfloat16, buffer=nl.sbuf, address=(0, 8))
        first, second = wide(), wide()
        nisa.dma_copy(dst=lower, src=x)
        nisa.tensor_tensor(dst=first, data1=lower, data2=lower, op=nl.add)
        nisa.memset(dst=upper, value=0.0)
        nisa.tensor_tensor(dst=second, data1=lower, data2=lower, op=nl.add)
        return down(first), down(second)

    first, second = nki.simulate(kernel)(X)
    expected = X.astype(np.float32) * 2
    np.testing.assert_array_equal(first, expected)
    expected[:, 4:] = 0
    np.testing.assert_array_equal(second, expected)
