"""Descriptors of dma_copy, counted by walking over the elements of both windows."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.target import get_target
from tests.isa.tiles import sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
DGE = nisa.dge_mode


def addresses(access):
    """Byte addresses of a window in row-major order; a partition is far away from the next."""
    far = 1 << 20
    found = []
    for index in np.ndindex(*access.shape):
        element = access.offset + sum(i * s for i, s in zip(index, access.strides))
        if access.memory.on_chip:
            partition, column = divmod(element, access.row)
            found.append(partition * far + column * access.dtype.itemsize)
        else:
            found.append(element * access.dtype.itemsize)
    return found


def runs(instruction):
    """Number of maximal runs that are contiguous on both sides, found by walking over all elements."""
    dst, src = addresses(instruction.dst), addresses(instruction.src)
    wide, narrow = instruction.dst.dtype.itemsize, instruction.src.dtype.itemsize
    steps = zip(pairwise(dst), pairwise(src))
    return 1 + sum(d1 - d0 != wide or s1 - s0 != narrow for (d0, d1), (s0, s1) in steps)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((8, 16), (slice(None), slice(None))),
        ((8, 16), (slice(None), slice(0, 8))),
        ((8, 16), (slice(None), slice(0, 16, 2))),
        ((4, 4, 6), (slice(None), slice(None), slice(0, 3))),
        ((1, 64), (slice(None), slice(None))),
    ],
)
def test_descriptors_are_the_contiguous_runs(shape, window):
    @nki.jit
    def kernel(x):
        seen = x[window]
        t = sbuf(seen.shape, x.dtype)
        nisa.dma_copy(dst=t, src=seen)
        return store(t)

    for instruction in staged(kernel, "dma_copy", whole_numbers(shape).astype(BF16)):
        transfer = instruction.cost(get_target("trn2"))[0].transfer
        assert transfer.descriptors == runs(instruction)
        assert transfer.total_bytes == 2 * instruction.dst.size
        assert transfer.efficiency == 1.0


def test_cost_of_runs_that_do_not_nest():
    @nki.jit
    def kernel(x):
        t = sbuf((2, 6))
        nisa.dma_copy(dst=t, src=x[:, 0:4])
        return store(t)

    transfer = staged(kernel, "dma_copy", whole_numbers((3, 5)))[0].cost(get_target("trn2"))[0].transfer
    assert (transfer.descriptors, transfer.descriptor_bytes) == (6, 8)


def test_cost_counts_the_wider_side():
    @nki.jit
    def kernel(x):
        t = sbuf(x.shape, nl.bfloat16)
        nisa.dma_copy(dst=t, src=x)
        return store(t)

    transfer = staged(kernel, "dma_copy", whole_numbers((8, 16)))[0].cost(get_target("trn2"))[0].transfer
    assert (transfer.descriptors, transfer.descriptor_bytes) == (8, 64)


def test_cost_within_hbm_is_shared_by_all_engines():
    @nki.jit
    def kernel(x):
        o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=o, src=x)
        return o

    target = get_target("trn2")
    large = staged(kernel, "dma_copy", np.ones((64, 4096), np.float32))[0].cost(target)[0].transfer
    small = staged(kernel, "dma_copy", np.ones((4, 4), np.float32))[0].cost(target)[0].transfer
    assert (large.descriptors, large.total_bytes) == (16, 64 * 4096 * 4)
    assert (small.descriptors, small.total_bytes) == (1, 64)
