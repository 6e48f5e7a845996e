"""Widened copies of narrow tiles around and inside loops on the device, against explicit loops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def two_loops(x: Any, passes: Any, change: str) -> Any:
    """total += tile, pass after pass of two loops; `change` says where the tile is doubled."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    counts = nl.ndarray(passes.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=counts, src=passes)
    nisa.memset(dst=total, value=0.0)
    bounds = [nisa.register_alloc() for _ in range(2)]
    for i in range(2):
        nisa.register_load(bounds[i], counts[0:1, i : i + 1])

    def double() -> None:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)

    def add(_: Any) -> None:
        if change == "before":
            double()
        for _ in range(2):  # two readers of one window
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        if change == "after":
            double()
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)

    def inner_loop(_: Any) -> None:
        if change == "around":
            double()
        nl.fori_loop(0, bounds[1], add)

    nl.fori_loop(0, bounds[0], add)
    if change == "between":
        double()
    nl.fori_loop(0, bounds[1], inner_loop if change == "around" else add)
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def expected(x: np.ndarray, passes: tuple[int, int], change: str) -> np.ndarray:
    """The same in NumPy; doubling is exact in bfloat16."""
    tile, total = x.astype(np.float32), np.zeros(x.shape, np.float32)

    def add() -> None:
        nonlocal tile, total
        tile = tile * 2 if change == "before" else tile
        total = total + tile + tile
        if change == "after":
            tile = tile * 2
            total = total + tile

    for _ in range(passes[0]):
        add()
    tile = tile * 2 if change == "between" else tile
    for _ in range(passes[1]):
        if change == "around":
            tile = tile * 2
            for _ in range(passes[1]):
                add()
        else:
            add()
    return total


@pytest.mark.parametrize("change", ["never", "before", "after", "between", "around"])
@pytest.mark.parametrize("passes", [(0, 0), (1, 0), (0, 2), (3, 2)])
def test_a_copy_is_true_whenever_it_is_read(passes: tuple[int, int], change: str) -> None:
    x = np.arange(-64, 64, dtype=np.float32).reshape(16, 8).astype(ml_dtypes.bfloat16)
    arguments = x, np.array([passes], np.int32), change
    for eager in (False, True):
        for _ in range(2):  # a second run starts with the copies of the first
            assert np.array_equal(
                nki.simulate(two_loops, eager=eager)(*arguments), expected(x, passes, change)
            )
