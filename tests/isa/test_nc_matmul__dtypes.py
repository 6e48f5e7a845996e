"""Dtypes and modes of nc_matmul, against explicit loops over small whole numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.test_nc_matmul import matmul, product
from tests.isa.tiles import load, psum, run, sbuf, store, whole_numbers

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3


# ---- dtypes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, np.float16, E4M3, ml_dtypes.float8_e5m2])
def test_rule_58_narrow_inputs_float32_sums(dtype):
    a, b = whole_numbers((128, 4)).astype(dtype), whole_numbers((128, 5), seed=1).astype(dtype)
    np.testing.assert_array_equal(run(matmul, a, b), product(a, b))


def test_rule_184_narrow_types_mix():
    a, b = whole_numbers((8, 4)).astype(BF16), whole_numbers((8, 5), seed=1).astype(E4M3)
    np.testing.assert_array_equal(run(matmul, a, b), product(a, b))


def test_rules_23_184_float32_wants_float32():
    a, b = np.ones((8, 4), np.float32), np.ones((8, 4), BF16)
    with pytest.raises(errors.OperandDtypeError) as caught:
        run(matmul, a, b)
    text = str(caught.value)
    assert "stationary float32, moving bfloat16" in text and "both of them float32/tfloat32" in text


def test_rule_184_no_integers():
    with pytest.raises(errors.OperandDtypeError, match="`stationary` cannot be int32"):
        run(matmul, np.ones((8, 4), np.int32), np.ones((8, 4), np.int32))


@nki.jit
def matmul_of_two_e4m3(a, b):
    p, s, m = psum((4, 4)), sbuf((8, 4), nl.float8_e4m3), sbuf((8, 4), nl.float8_e4m3fn)
    nisa.tensor_copy(dst=s, src=load(a))
    nisa.tensor_copy(dst=m, src=load(b))
    nisa.nc_matmul(dst=p, stationary=s, moving=m)
    return store(p)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_rule_7_two_flavours_of_e4m3(target):
    ones = np.ones((8, 4), BF16)
    with pytest.raises(errors.OperandDtypeError) as caught:
        run(matmul_of_two_e4m3, ones, ones, target=target)
    assert "stationary float8_e4m3, moving float8_e4m3fn" in str(caught.value)


def test_rule_7_e4m3fn_from_trn3():
    @nki.jit
    def kernel(a):
        p, s = psum((4, 4)), sbuf((8, 4), nl.float8_e4m3fn)
        nisa.tensor_copy(dst=s, src=load(a))
        nisa.nc_matmul(dst=p, stationary=s, moving=s)
        return store(p)

    a = whole_numbers((8, 4))
    np.testing.assert_array_equal(run(kernel, a, target="trn3"), product(a, a))
    with pytest.raises(errors.OperandDtypeError, match="float8_e4m3fn on trn2"):
        run(kernel, a)


@nki.jit
def matmul_to_bfloat16(a, b):
    p = psum((a.shape[1], b.shape[1]), nl.bfloat16)
    for _ in range(3):
        nisa.nc_matmul(dst=p, stationary=load(a), moving=load(b))
    return store(p)


def test_rule_59_bfloat16_sums_are_rounded_each_time():
    a, b = np.full((1, 1), 1.0, BF16), np.full((1, 1), 257.0, np.float32).astype(BF16)
    total = np.zeros((1, 1), BF16)
    for _ in range(3):
        total = (total.astype(np.float32) + np.float32(b[0, 0])).astype(BF16)
    np.testing.assert_array_equal(run(matmul_to_bfloat16, a, b, target="trn3"), total)


def test_rule_59_float32_destination_before_trn3():
    with pytest.raises(errors.OperandDtypeError) as caught:
        run(matmul_to_bfloat16, np.ones((8, 4), BF16), np.ones((8, 4), BF16))
    assert "`dst` cannot be bfloat16" in str(caught.value) and "on trn2" in str(caught.value)


# ---- modes ---------------------------------------------------------------------------------------------------------


@nki.jit
def double_row(a, b):
    p = psum((a.shape[2], b.shape[2]))
    nisa.nc_matmul(p, load(a), load(b), perf_mode=nisa.matmul_perf_mode.double_row)
    return store(p)


def test_rule_65_double_row_contracts_both():
    a, b = whole_numbers((16, 2, 3)).astype(E4M3), whole_numbers((16, 2, 5), seed=1).astype(E4M3)
    expected = product(a[:, 0], b[:, 0]) + product(a[:, 1], b[:, 1])
    np.testing.assert_array_equal(run(double_row, a, b), expected)


def test_rule_65_double_row_limits():
    fp8 = np.ones((8, 2, 4), E4M3)
    with pytest.raises(errors.TargetError, match="double_row on trn1"):
        run(double_row, fp8, fp8, target="trn1")
    with pytest.raises(errors.OperandDtypeError, match=r"found: +bfloat16"):
        run(double_row, fp8.astype(BF16), fp8.astype(BF16))
    with pytest.raises(errors.OperandShapeError, match=r"first free dimension of 2"):
        run(double_row, np.ones((8, 4, 4), E4M3), np.ones((8, 4, 4), E4M3))


@nki.jit
def transpose_mode(x, identity):
    p = psum((x.shape[1], x.shape[0]), x.dtype)
    nisa.nc_matmul(p, load(x), load(identity), is_moving_onezero=True, is_transpose=True)
    return store(p)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_rule_66_transpose_mode_moves_bits(dtype):
    x = whole_numbers((8, 4)).astype(dtype)
    x[0, 0], x[1, 2], x[2, 1] = np.nan, np.inf, -0.0
    y = run(transpose_mode, x, np.eye(8, dtype=dtype))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.view(f"u{x.itemsize}"), x.T.copy().view(f"u{x.itemsize}"))


def test_rule_66_transpose_mode_without_an_identity_multiplies():
    a, b = whole_numbers((4, 3)).astype(BF16), whole_numbers((4, 4), seed=1).astype(BF16)

    @nki.jit
    def kernel(a, b):
        p = psum((3, 4), nl.bfloat16)
        nisa.nc_matmul(p, load(a), load(b), is_transpose=True)
        return store(p)

    np.testing.assert_array_equal(run(kernel, a, b), product(a, b).astype(BF16))


def test_rule_66_trn1_has_no_transpose_mode():
    x = np.array([[np.nan, 1.0], [3.0, 2.0]], np.float32)
    y = run(transpose_mode, x, np.eye(2, dtype=np.float32), target="trn1")
    assert np.isnan(y[0]).all() and y[1].tolist() == [1.0, 2.0]
    with pytest.raises(errors.OperandDtypeError, match="bfloat16 on trn1"):
        run(transpose_mode, x.astype(BF16), np.eye(2, dtype=BF16), target="trn1")


def test_rule_68_hints_change_no_value():
    @nki.jit
    def kernel(a, b):
        p = psum((4, 4))
        nisa.nc_matmul(p, load(a), load(b), is_stationary_onezero=True, is_moving_onezero=True)
        return store(p)

    a, b = whole_numbers((8, 4)), whole_numbers((8, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, a, b), product(a, b))
