"""Addresses that leave their tensor, static and computed on the device, and tails that are forgotten."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.public_cases.steps import down, exact, f32, fails, line_of, report, run, tile, up


def gather(mode, fill=None):
    """A kernel that fetches the rows of `d` that `i` names."""

    @nki.jit
    def kernel(d, i):
        rows = tile((i.shape[0], d.shape[1]), d.dtype)
        if fill is not None:
            nisa.memset(dst=rows, value=fill)
        width = d.shape[1]
        window = d.ap(pattern=[[width, i.shape[0]], [1, width]], vector_offset=up(i), indirect_dim=0)
        nisa.dma_copy(dst=rows, src=window, oob_mode=mode)
        return down(rows)

    return kernel


def test_pc_09_rows_out_of_bounds_are_skipped_bit_for_bit():
    d = np.arange(16, dtype=np.int32).reshape(8, 2) + 16777216
    found = run(gather(nisa.oob_mode.skip, 7), d, np.array([[1], [99], [7], [0]], np.uint32))
    assert found.dtype == np.int32 and (found == [d[1], [7, 7], d[7], d[0]]).all()


def test_pc_11_a_row_past_the_end_is_named():
    kernel = gather(nisa.oob_mode.error)
    error = fails(kernel, np.zeros((8, 2), f32), np.array([[3], [8]], np.uint32))
    assert isinstance(error, errors.DynamicBoundsError) and error.span.line == line_of(
        kernel, "nisa.dma_copy"
    )
    for piece in ("8", "partition 1", "0..7", "`d`"):
        assert piece in str(error).replace("'d'", "`d`"), str(error)


def test_pc_13_a_pattern_larger_than_its_storage():
    @nki.jit
    def kernel(x):
        t = tile((128, 65))
        nisa.dma_copy(dst=t, src=x.ap(pattern=[[64, 128], [1, 65]]))
        return down(t)

    error = fails(kernel, np.zeros((128, 64), f32))
    assert isinstance(error, errors.BoundsError) and error.span.line == line_of(kernel, "x.ap(")
    assert "8192" in str(error) and "8191" in str(error)


def tiled(rows_of):
    """A kernel that copies a tensor in tiles of 128 rows; `rows_of` says which tiles it makes."""

    @nki.jit
    def kernel(x):
        o = tile(x.shape, x.dtype, nl.shared_hbm)
        for first, last in rows_of(x.shape[0]):
            nisa.dma_copy(dst=o[first:last, :], src=up(x[first:last, :]))
        return o

    return kernel


def test_pc_15_a_forgotten_tail_is_an_unwritten_output():
    kernel = tiled(lambda rows: [(i * 128, (i + 1) * 128) for i in range(rows // 128)])
    found = report(kernel, np.ones((300, 4), f32))
    assert found.code == "unwritten-output" and found.line == line_of(kernel, "return o")
    assert "[256:300, 0:4]" in found.message
    error = fails(kernel, np.ones((300, 4), f32), sanitize=True)
    assert isinstance(error, errors.UnwrittenOutputError) and "[256:300, 0:4]" in str(error)


# --- neighbours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_a_tail_that_is_handled_is_exact(rows):
    kernel = tiled(lambda n: [(i, min(i + 128, n)) for i in range(0, n, 128)])
    x = np.arange(rows * 3, dtype=f32).reshape(rows, 3)
    exact(run(kernel, x), x)


def test_a_tail_that_overruns_is_refused():
    kernel = tiled(lambda n: [(i, i + 128) for i in range(0, n, 128)])
    error = fails(kernel, np.ones((300, 4), f32))
    assert isinstance(error, errors.BoundsError) and "300" in str(error) and "384" in str(error)


@pytest.mark.parametrize(
    ("view", "piece"),
    [
        (lambda x: x[0:9, :], "9"),
        (lambda x: x[8, :], "8"),
        (lambda x: x[-9, :], "-9"),
        (lambda x: x[:, 2:6], "6"),
        (lambda x: x[:, nl.ds(3, 2)], "5"),
        (lambda x: x.ap(pattern=[[4, 8], [1, 4]], offset=1), "32"),
        (lambda x: x.ap(pattern=[[4, 8], [1, 4]], offset=-1), "-1"),
        (lambda x: x.ap(pattern=[[-4, 2], [1, 4]]), "-4"),
    ],
)
def test_static_addresses_outside_are_refused(view, piece):
    @nki.jit
    def kernel(x):
        return down(up(view(x)))

    error = fails(kernel, np.zeros((8, 4), f32))
    assert isinstance(error, errors.BoundsError) and piece in str(error)


@pytest.mark.parametrize("index", [2**32 - 1, 2**31, 8])
def test_the_largest_unsigned_index_is_not_the_last_row(index):
    d = np.arange(16, dtype=f32).reshape(8, 2)
    i = np.array([[0], [index]], np.uint32)
    exact(run(gather(nisa.oob_mode.skip, 5), d, i), [d[0], [5, 5]])
    assert str(index) in str(fails(gather(nisa.oob_mode.error), d, i))


def test_minus_one_is_no_row():
    d = np.arange(16, dtype=f32).reshape(8, 2)
    exact(run(gather(nisa.oob_mode.skip, 5), d, np.array([[-1], [7]], np.int32)), [[5, 5], d[7]])


def test_a_scatter_out_of_bounds_writes_nothing_else():
    @nki.jit
    def kernel(d, s, i):
        out = tile(d.shape, d.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=up(d))
        rows = out.ap(pattern=[[2, 3], [1, 2]], vector_offset=up(i), indirect_dim=0)
        nisa.dma_copy(dst=rows, src=up(s), oob_mode=nisa.oob_mode.skip)
        return out

    d, s = np.zeros((4, 2), f32), np.ones((3, 2), f32)
    found = run(kernel, d, s, np.array([[3], [4], [0]], np.uint32))
    exact(found, [[1, 1], [0, 0], [0, 0], [1, 1]])


def test_a_register_that_leaves_the_tensor_is_reported():
    @nki.jit
    def kernel(x, n):
        r = nisa.register_alloc()
        nisa.register_load(r, up(n))
        t = tile((1, 4))
        nisa.dma_copy(dst=t, src=x.ap(pattern=[[4, 1], [1, 4]], scalar_offset=r))
        return down(t)

    x = np.arange(12, dtype=f32).reshape(3, 4)
    exact(run(kernel, x, np.array([[2]], np.int32)), x[2:3])
    error = fails(kernel, x, np.array([[3]], np.int32))
    assert isinstance(error, errors.DynamicBoundsError) and "3" in str(error)
