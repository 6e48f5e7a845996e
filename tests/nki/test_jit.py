"""Calls that fail leave nothing behind, and threads do not disturb each other."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.builder import current
from tests.nki.kernels import down, f32, programs, scale, up

X = np.arange(8, dtype=f32).reshape(2, 4)


def test_nothing_is_left_behind_by_a_failure() -> None:
    fail = True

    @nki.jit
    def kernel(x):
        tile = up(x)
        if fail:
            nisa.tensor_copy(dst=tile, src=tile[:, 0:2])
        return down(tile)

    for _ in range(2):
        with pytest.raises(errors.OperandShapeError):
            kernel(X)
        assert current() is None
    fail = False
    np.testing.assert_array_equal(kernel(X), X)


def test_a_kernel_called_while_another_is_staged_by_another_thread() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @nki.jit
    def waiting(x):
        tile = up(x)
        inside.set()
        assert go_on.wait(10)
        return down(tile)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(waiting(X)))
    thread.start()
    assert inside.wait(10)
    np.testing.assert_array_equal(scale(X, 3.0), X * 3)
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(results[0], X)


def test_threads_call_one_kernel_at_once() -> None:
    @nki.jit
    def kernel(x, factor):
        tile = up(x)
        for _ in range(20):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=factor)
        return down(tile)

    wrong: list[Any] = []

    def work(index: int) -> None:
        for turn in range(15):
            x, factor = np.full((8, 16), index * 100 + turn, f32), float(turn % 3)
            if not (kernel(x, factor) == x + 20 * factor).all():
                wrong.append((index, turn))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert programs(kernel) == 3
