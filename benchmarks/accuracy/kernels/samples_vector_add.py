"""Vector addition of the exercise of CS 149: one number a partition, or one tile for everything."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.samples_steps import PARTITIONS, load, new, pair

LENGTH = 25_600


@nki.jit
def vector_add_tiled(a: Any, b: Any, chunk: int, with_column: bool) -> Any:
    """cs149-1- and cs149-2-vector_add_tiled-*: `chunk` numbers at a time, each on a partition of its own.

    Dimensions: a, b [n] -> [n]. Two loads of 4-byte rows, one addition and one store an iteration. On trn2 the
    addition takes the second tile as the column of a tensor_scalar (`with_column`), on trn1 it is a tensor_tensor.
    """
    count = a.shape[0]
    out = nl.ndarray((count, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = a.reshape((count, 1)), b.reshape((count, 1))
    for start in range(0, count, chunk):
        rows = slice(start, start + chunk)
        x, y = load(left[rows, :]), load(right[rows, :])
        if with_column:
            total = new(x.shape, x.dtype)
            nisa.tensor_scalar(dst=total, data=x, op0=nl.add, operand0=y)
        else:
            total = pair(x, nl.add, y)
        nisa.dma_copy(dst=out[rows, :], src=total)
    return out


@nki.jit
def vector_add_stream(a: Any, b: Any) -> Any:
    """cs149-1- and cs149-2-vector_add_stream-FREE_DIM-200: everything in one tile of 128 partitions.

    Dimensions: a, b [n] -> [128, n / 128].
    """
    shape = (PARTITIONS, a.shape[0] // PARTITIONS)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = load(a.reshape(shape)), load(b.reshape(shape))
    nisa.dma_copy(dst=out, src=pair(x, nl.add, y))
    return out


def tiled(chunk: int, with_column: bool) -> Case:
    """The first kernel on 25600 numbers."""
    numbers = np.zeros(LENGTH, np.float32)
    return Case(vector_add_tiled, (numbers, numbers, chunk, with_column), host_us)


def stream() -> Case:
    """The second kernel on 25600 numbers."""
    numbers = np.zeros(LENGTH, np.float32)
    return Case(vector_add_stream, (numbers, numbers), host_us)


for year, has_column in (("1", False), ("2", True)):
    for size in (1, PARTITIONS):
        row(
            f"cs149-{year}-vector_add_tiled-ROW_CHUNK-{size}",
            lambda size=size, has_column=has_column: tiled(size, has_column),
        )
    row(f"cs149-{year}-vector_add_stream-FREE_DIM-200", stream)
