"""dma_copy with dynamic addresses: gathers, scatters, moved windows, and what happens out of bounds.

Every kernel runs planned, again, and eagerly; the expected values come from loops over rows.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import column, everywhere
from tests.isa.tiles import load, sbuf, store, whole_numbers

BF16 = ml_dtypes.bfloat16
SKIP, ERROR = nisa.oob_mode.skip, nisa.oob_mode.error
X4 = ["float4_e2m1fn_x4", "float8_e4m3fn_x4", "float8_e5m2_x4"]


@nki.jit
def gather(data, index, fill, mode):
    rows, width = index.shape[0], data.shape[1]
    tile = sbuf((rows, width), data.dtype)
    nisa.memset(dst=tile, value=fill)
    picked = data.ap(pattern=[[width, rows], [1, width]], vector_offset=load(index), indirect_dim=0)
    nisa.dma_copy(dst=tile, src=picked, oob_mode=mode)
    return store(tile)


@nki.jit
def scatter(data, index, values, mode):
    rows, width = values.shape
    tile, where = load(values), load(index)
    nisa.dma_copy(dst=data.ap([[1, rows], [1, width]], vector_offset=where), src=tile, oob_mode=mode)
    return data


def gathering(fill, mode):
    @nki.jit
    def kernel(data, index):
        return gather(data, index, fill, mode)

    return kernel


def scattering(mode):
    @nki.jit
    def kernel(data, index, values):
        return scatter(data, index, values, mode)

    return kernel


# ---- gather -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i4", "u1", "i2", BF16, ml_dtypes.float8_e4m3])
@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_gather(dtype, kind):
    data = whole_numbers((10, 3), 0, 100).astype(dtype)
    for rows in ([9, 0, 0, 4], [1, 2, 3, 9]):
        out = everywhere(
            gathering(0 if np.dtype(dtype).kind in "iu" else 0.0, ERROR), data, column(*rows, dtype=kind)
        )
        for p, row in enumerate(rows):
            assert out[p].tobytes() == data[row].tobytes()


def test_case_09_skip_keeps_integers():
    data = np.arange(16, dtype=np.int32).reshape(8, 2) + 16777216
    out = everywhere(gathering(7, SKIP), data, column(1, 99, 7, 0))
    assert out.tolist() == [data[1].tolist(), [7, 7], data[7].tolist(), data[0].tolist()]


def test_rule_95_minus_one_is_a_huge_index():
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    for kind in (np.int32, np.uint32):
        assert everywhere(gathering(5.0, SKIP), data, column(-1, 3, dtype=kind)).tolist() == [[5, 5], [6, 7]]
        with pytest.raises(errors.DynamicBoundsError, match="4294967295"):
            nki.simulate(gathering(0.0, ERROR))(data, column(-1, 3, dtype=kind))


@pytest.mark.parametrize("dtype", X4)
def test_rule_96_skip_with_packed_types(dtype):
    @nki.jit
    def kernel(data, index, old):
        tile = load(old.view(dtype))
        nisa.dma_copy(dst=tile, src=data.view(dtype).vector_select(0, load(index)), oob_mode=SKIP)
        out = nl.ndarray(old.shape, dtype=old.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out.view(dtype), src=tile)
        return out

    width = np.uint16 if dtype.startswith("float4") else np.uint32
    data = np.random.default_rng(0).integers(0, 2**16, (5, 4)).astype(width)
    old = np.full((3, 4), 0x7FC1, width)
    out = everywhere(kernel, data, column(4, 5, 0), old, target="trn3")
    assert out.tolist() == [data[4].tolist(), old[1].tolist(), data[0].tolist()]


def test_rule_17_skip_with_a_cast_keeps_the_old_bits():
    """The destination is wider than the source: rows that are not transferred must not pass through its type."""

    @nki.jit
    def kernel(data, index, old):
        tile = load(old)
        nisa.dma_copy(dst=tile, src=data.vector_select(0, load(index)), oob_mode=SKIP)
        return store(tile)

    data = whole_numbers((4, 3)).astype(BF16)
    old = np.array([[1.00001, np.nan, 3.3], [1e-30, 2.2, np.inf]], np.float32)
    out = everywhere(kernel, data, column(7, 2), old)
    assert out[0].tobytes() == old[0].tobytes() and out[1].tolist() == data[2].astype(np.float32).tolist()


def test_skip_straight_to_an_output_and_from_row_pairs():
    """HBM to HBM, with another shape on the other side: elements are paired in row-major order (rule 181)."""

    @nki.jit
    def kernel(data, index, out):
        nisa.dma_copy(dst=out, src=data.vector_select(0, load(index)), oob_mode=SKIP)
        return out

    data = np.arange(12, dtype=np.int32).reshape(3, 4)
    out = everywhere(kernel, data, column(2, 3, 0), np.full((2, 6), -1, np.int32))
    assert out.tolist() == [[8, 9, 10, 11, -1, -1], [-1, -1, 0, 1, 2, 3]]


def test_case_11_index_past_the_end():
    data = np.zeros((8, 2), np.float32)
    for eager in (False, True):
        with pytest.raises(errors.DynamicBoundsError) as caught:
            nki.simulate(gathering(0.0, ERROR), eager=eager)(data, column(3, 8))
        text = str(caught.value)
        for word in ("index 8", "partition 1", "0..7", "`data`", "test_dma_copy__dynamic.py"):
            assert word in text
        assert isinstance(caught.value, IndexError) and caught.value.remedy


def test_rule_40_the_stride_is_that_of_the_tensor_ap_is_called_on():
    """A [n, d] cache read in windows of s rows from row r: as a flat tensor the index counts elements, else rows."""

    @nki.jit
    def kernel(cache, index):
        n, d = cache.shape
        flat, rows = sbuf((4, 2, 3)), sbuf((4, 2, 3))
        pattern = [[1, 4], [d, 2], [1, 3]]
        nisa.dma_copy(dst=flat, src=cache.reshape((n * d,)).ap(pattern, vector_offset=load(index)))
        nisa.dma_copy(dst=rows, src=cache.ap(pattern, offset=1, vector_offset=load(index)))
        return store(flat), store(rows)

    cache = np.arange(40, dtype=np.float32).reshape(10, 4)
    index = [0, 7, 3, 8]
    flat, rows = everywhere(kernel, cache, column(*index))
    linear = cache.reshape(-1)
    for p, first in enumerate(index):
        for i in range(2):
            for j in range(3):
                assert flat[p, i, j] == linear[first + 4 * i + j]
                assert rows[p, i, j] == linear[1 + first * 4 + 4 * i + j]


def test_windows_that_leave_the_storage_are_out_of_bounds():
    """Row 9 of ten exists, but a window of two rows from there does not."""

    @nki.jit
    def kernel(cache, index):
        tile = sbuf((2, 8))
        nisa.dma_copy(dst=tile, src=cache.ap([[4, 2], [1, 8]], vector_offset=load(index)))
        return store(tile)

    cache = np.arange(40, dtype=np.float32).reshape(10, 4)
    assert everywhere(kernel, cache, column(8, 0))[0, 7] == 39
    with pytest.raises(errors.DynamicBoundsError, match=r"0\.\.8"):
        nki.simulate(kernel)(cache, column(9, 0))


# ---- scatter ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i4", BF16])
def test_scatter(dtype):
    values = whole_numbers((4, 3), 1, 90).astype(dtype)
    for rows in ([5, 0, 2, 1], [3, 3, 3, 0]):
        data, expected = np.zeros((6, 3), dtype), np.zeros((6, 3), dtype)
        for p, row in enumerate(rows):
            expected[row] = values[p]
        assert everywhere(scattering(ERROR), data, column(*rows), values).tobytes() == expected.tobytes()


def test_scatter_of_overlapping_windows_writes_in_order():
    @nki.jit
    def kernel(out, index, values):
        tile = load(values)
        nisa.dma_copy(dst=out.ap([[1, 3], [1, 4]], vector_offset=load(index)), src=tile)
        return out

    values = np.arange(12, dtype=np.int32).reshape(3, 4) + 1
    expected = np.zeros(9, np.int32)
    for p, first in enumerate([4, 2, 5]):
        expected[first : first + 4] = values[p]
    assert everywhere(kernel, np.zeros(9, np.int32), column(4, 2, 5), values).tolist() == expected.tolist()


def test_rule_94_scatter_skips_rows_outside():
    values = np.arange(8, dtype=np.int32).reshape(4, 2) + (1 << 24)
    out = everywhere(scattering(SKIP), np.full((3, 2), 9, np.int32), column(2, 3, 0xFFFFFFFF, 0), values)
    assert out.tolist() == [values[3].tolist(), [9, 9], values[0].tolist()]


def test_arguments_are_untouched_after_an_error():
    data, values = np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)
    for eager in (False, True):
        with pytest.raises(errors.DynamicBoundsError):
            nki.simulate(scattering(ERROR), eager=eager)(data, column(0, 3), values)
        assert not data.any()


def test_gather_and_scatter_in_one_transfer():
    @nki.jit
    def kernel(data, out, source, target):
        nisa.dma_copy(
            dst=out.vector_select(0, load(target)), src=data.vector_select(0, load(source)), oob_mode=SKIP
        )
        return out

    data = np.arange(10, dtype=np.int32).reshape(5, 2)
    out = everywhere(kernel, data, np.full((4, 2), -1, np.int32), column(4, 9, 2, 1), column(3, 3, 7, 0))
    assert out.tolist() == [data[1].tolist(), [-1, -1], [-1, -1], data[4].tolist()]


@given(
    rows=st.integers(1, 8),
    height=st.integers(1, 12),
    width=st.integers(1, 6),
    dtype=st.sampled_from(["f4", "i4", "u1", BF16]),
    seed=st.integers(0, 99),
)
def test_random_gathers_and_scatters(rows, height, width, dtype, seed):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 100, (height, width)).astype(np.float32).astype(dtype)
    values = rng.integers(0, 100, (rows, width)).astype(np.float32).astype(dtype)
    index = rng.integers(0, height + 3, rows)
    whole = np.dtype(dtype).kind in "iu"
    out = everywhere(gathering(3 if whole else 3.0, SKIP), data, column(*index))
    expected = data.copy()
    for p, row in enumerate(index):
        assert out[p].tobytes() == (data[row] if row < height else np.full(width, 3, dtype)).tobytes()
        if row < height:
            expected[row] = values[p]
    assert everywhere(scattering(SKIP), data, column(*index), values).tobytes() == expected.tobytes()
