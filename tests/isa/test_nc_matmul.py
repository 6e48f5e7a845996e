"""nc_matmul against explicit loops over small whole numbers, whose sums are exact in any order, and against torch.

Dtypes and modes are in test_nc_matmul__dtypes.py, limits and cost in test_nc_matmul__limits.py.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
from nki import errors
from tests.isa.tiles import load, psum, run, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a.T @ b, one element at a time."""
    a, b = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
    out = np.zeros((a.shape[1], b.shape[1]), np.float32)
    for m in range(a.shape[1]):
        for n in range(b.shape[1]):
            out[m, n] = sum(float(a[k, m]) * float(b[k, n]) for k in range(a.shape[0]))
    return out


@nki.jit
def matmul(a, b):
    p = psum((a.shape[1], b.shape[1]))
    nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b))
    return store(p)


# ---- the product ---------------------------------------------------------------------------------------------------


def test_rule_58_product():
    a, b = whole_numbers((2, 3)), whole_numbers((2, 5), seed=1)
    np.testing.assert_array_equal(run(matmul, a, b), product(a, b))


@given(
    k=st.integers(1, 128),
    m=st.integers(1, 128),
    n=st.integers(1, 160),
    dtype=st.sampled_from([np.float32, BF16]),
)
def test_any_legal_size_agrees_with_torch(k, m, n, dtype):
    torch = pytest.importorskip("torch")
    a, b = whole_numbers((k, m)).astype(dtype), whole_numbers((k, n), seed=1).astype(dtype)
    expected = torch.from_numpy(a.astype(np.float32)).T @ torch.from_numpy(b.astype(np.float32))
    np.testing.assert_array_equal(run(matmul, a, b), expected.numpy())


def test_rule_58_free_dimensions_are_flattened():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 2, 3))
        nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b))
        return store(p)

    a, b = whole_numbers((16, 2, 2)), whole_numbers((16, 2, 3), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), product(a, b).reshape(4, 2, 3))


def test_operands_with_gaps():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 16))
        nisa.nc_matmul(dst=p[:, 1:16:3], stationary=load(a)[:, ::2], moving=load(b)[:, 3:8])
        out = sbuf((4, 5))
        nisa.tensor_copy(dst=out, src=p[:, 1:16:3])
        return store(out)

    a, b = whole_numbers((16, 8)), whole_numbers((16, 9), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), product(a[:, ::2], b[:, 3:8]))


# ---- accumulation --------------------------------------------------------------------------------------------------


@nki.jit
def matmul_tiled(a, b):
    p = psum((a.shape[1], b.shape[1]))
    for i in range(a.shape[0] // 32):
        rows = slice(i * 32, (i + 1) * 32)
        nisa.nc_matmul(dst=p, stationary=load(a[rows, :]), moving=load(b[rows, :]))
    return store(p)


def test_rule_60_first_product_overwrites_later_ones_add():
    a, b = whole_numbers((96, 4)), whole_numbers((96, 6), seed=1)
    for _ in range(2):  # nothing is left over from the first run
        np.testing.assert_array_equal(run(matmul_tiled, a, b), product(a, b))
    assert [i.accumulate for i in staged(matmul_tiled, "nc_matmul", a, b)] == [False, True, True]


def test_rule_61_overlapping_windows():
    @nki.jit
    def kernel(a, b):
        p, s, m = psum((4, 6)), load(a), load(b)
        nisa.nc_matmul(dst=p[:, 0:4], stationary=s, moving=m)
        nisa.nc_matmul(dst=p[:, 2:6], stationary=s, moving=m)
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    expected = np.zeros((4, 6), np.float32)
    expected[:, 0:4] += product(a, b)
    expected[:, 2:6] += product(a, b)
    np.testing.assert_array_equal(run(kernel, a, b), expected)
    assert [i.accumulate for i in staged(kernel, "nc_matmul", a, b)] == [False, None]


def test_rule_60_false_overwrites():
    @nki.jit
    def kernel(a, b):
        p, s, m = psum((4, 4)), load(a), load(b)
        for _ in range(3):
            nisa.nc_matmul(dst=p, stationary=s, moving=m, accumulate=False)
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), product(a, b))


def test_rule_62_zeros_then_product():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 4))
        nisa.memset(dst=p, value=0.0)
        nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b))
        nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b))
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), 2 * product(a, b))


def test_rule_62_write_of_another_engine_ends_the_group():
    @nki.jit
    def kernel(a, b):
        p, s, m = psum((4, 4)), load(a), load(b)
        nisa.nc_matmul(dst=p, stationary=s, moving=m)
        nisa.memset(dst=p, value=9.0)
        nisa.nc_matmul(dst=p, stationary=s, moving=m)
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), product(a, b))


def test_rule_63_reading_does_not_end_the_group():
    @nki.jit
    def kernel(a, b):
        p, s, m = psum((4, 4)), load(a), load(b)
        nisa.nc_matmul(dst=p, stationary=s, moving=m)
        first = store(p)
        nisa.nc_matmul(dst=p, stationary=s, moving=m)
        return first, store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    first, second = run(kernel, a, b)
    np.testing.assert_array_equal(first, product(a, b))
    np.testing.assert_array_equal(second, 2 * product(a, b))


@nki.jit
def accumulate_unwritten(a, b):
    p = psum((4, 4))
    nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b), accumulate=True)
    return store(p)


def test_rule_60_true_on_unwritten_psum_is_reported():
    ones = np.ones((8, 4), np.float32)
    found = accumulate_unwritten.check(ones, ones, target="trn2")
    codes = {d.code: d for d in found}
    warning = codes["accumulate-unwritten"]
    assert warning.severity == "warning" and "accumulate=False" in warning.message
    assert codes["uninitialized-read"].severity == "error"
    with pytest.raises(errors.UninitializedReadError):
        run(accumulate_unwritten, ones, ones)


def test_rule_60_true_after_memset_adds_and_warns():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 4))
        nisa.memset(dst=p, value=2.0)
        nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b), accumulate=True)
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b, target="trn3"), 2 + product(a, b))
    assert [d.code for d in kernel.check(a, b, target="trn2")] == ["accumulate-unwritten"]
