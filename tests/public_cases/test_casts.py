"""Casts, rounding, integers: conversions that NumPy makes otherwise, or that pass through a type too small."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.public_cases.steps import bf16, down, exact, f32, run, tile, up


def converted(values, source, via):
    """What numbers become when they are copied into a tile of another type, and back to float32."""

    @nki.jit
    def kernel(x):
        narrow = tile(x.shape, via)
        nisa.tensor_copy(dst=narrow, src=up(x))
        wide = tile(x.shape)
        nisa.tensor_copy(dst=wide, src=narrow)
        return down(narrow), down(wide)

    return run(kernel, np.array([values], source), target="trn3")


def test_pc_01_ties_go_to_the_even_integer():
    @nki.jit
    def kernel(x):
        rounded = tile(x.shape, nl.int32)
        nisa.tensor_copy(dst=rounded, src=up(x))
        return down(rounded)

    found = run(kernel, np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3.5]], f32))
    assert found.dtype == np.int32
    exact(found, [[0, 2, 2, 0, -2, 4]])


def test_pc_03_float8_e5m2_ties_go_to_even():
    exact(converted([9.0, 1.125, 1.0625, 10.0], f32, nl.float8_e5m2)[1], [[8, 1, 1, 10]])


def test_pc_05_a_copy_of_integers_keeps_them():
    @nki.jit
    def kernel(x):
        return down(nl.copy(up(x)))

    x = np.array([[16777217, -16777219, 2147483647]], np.int32)
    found = run(kernel, x)
    assert found.dtype == x.dtype and (found == x).all()


def test_pc_07_bfloat16_is_computed_by_value():
    @nki.jit
    def kernel(x, y):
        a, b = up(x), up(y)
        total, smaller = tile(x.shape, nl.bfloat16), tile(x.shape)
        nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)
        nisa.tensor_tensor(dst=smaller, data1=a, data2=b, op=nl.less)
        return down(total), down(smaller)

    total, smaller = run(kernel, np.array([[2.5, -5.0]], bf16), np.array([[2.0, -2.0]], bf16))
    assert total.dtype == bf16
    exact(total, [[4.5, -7.0]])
    exact(smaller, [[0, 1]])


# --- neighbours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("via", "low", "high"),
    [(nl.int8, -128, 127), (nl.uint8, 0, 255), (nl.int16, -32768, 32767), (nl.uint16, 0, 65535)],
)
def test_integers_saturate_instead_of_wrapping(via, low, high):
    found, _ = converted([1e9, -1e9, np.inf, -np.inf, high + 0.5, low - 0.5, np.nan], f32, via)
    exact(found, [[high, low, high, low, high, low, 0]])


def test_rounding_happens_once_not_by_way_of_float16():
    """1 + 2^-3 + 2^-13 is above the tie of e5m2's neighbour in float32, but float16 would make it a tie."""
    just_above = 1.125 + 2.0**-13
    exact(converted([just_above, -just_above], f32, nl.float8_e5m2)[1], [[1.25, -1.25]])


def test_unsigned_values_above_the_signed_range_stay():
    exact(converted([2**31, 2**32 - 256, 255], f32, nl.uint32)[0], [[2**31, 2**32 - 256, 255]])


def test_float16_overflows_to_infinity_and_keeps_subnormals():
    exact(converted([65519, 65520, 2.0**-24, 2.0**-25], f32, nl.float16)[1], [[65504, np.inf, 2.0**-24, 0]])


def test_a_dma_converts_like_an_engine():
    @nki.jit
    def kernel(x):
        rounded = tile(x.shape, nl.int8)
        nisa.dma_copy(dst=rounded, src=x)
        return down(rounded)

    exact(run(kernel, np.array([[2.5, -3.5, 300.0, np.nan]], f32)), [[2, -4, 127, 0]])


def test_integer_sums_beyond_float32_are_exact():
    @nki.jit
    def kernel(x):
        t = up(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.add)
        return down(t)

    exact(run(kernel, np.array([[16777217, -16777219]], np.int32)), [[33554434, -33554438]])


def test_a_comparison_into_integers_gives_one_and_zero():
    @nki.jit
    def kernel(x):
        larger = tile(x.shape, nl.uint8)
        nisa.tensor_scalar(dst=larger, data=up(x), op0=nl.greater, operand0=1.0)
        return down(larger)

    exact(run(kernel, np.array([[0, 1, 2, np.nan]], f32)), [[0, 0, 1, 0]])


def test_narrow_floats_are_stored_as_themselves():
    found, _ = converted([1.0, -2.0], f32, nl.float8_e4m3fn)
    assert found.dtype == ml_dtypes.float8_e4m3fn
