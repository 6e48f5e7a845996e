"""The Tensor engine: groups, roles of the operands, dimensions that get lost, types that may not meet."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.public_cases.steps import bank, bf16, down, exact, f32, fails, line_of, read_out, run, tile, up


def test_pc_21_sums_over_tiles_start_afresh_in_every_launch():
    @nki.jit
    def kernel(a, b):
        p = bank((128, 8))
        for first in range(0, a.shape[0], 128):
            rows = slice(first, first + 128)
            nisa.nc_matmul(dst=p, stationary=up(a[rows, :]), moving=up(b[rows, :]))
        return read_out(p)

    a, b = np.ones((512, 128), bf16), np.ones((512, 8), bf16)
    for _ in range(2):
        exact(run(kernel, a, b), np.full((128, 8), 512.0))


def product(shape):
    """A kernel that multiplies into a tile of this shape."""

    @nki.jit
    def kernel(a, b):
        p = bank(shape)
        nisa.nc_matmul(dst=p, stationary=up(a), moving=up(b))
        return read_out(p)

    return kernel


def test_pc_23_the_stationary_side_is_transposed():
    a, b = np.arange(6, dtype=f32).reshape(2, 3), np.arange(10, dtype=f32).reshape(2, 5)
    exact(run(product((3, 5)), a, b), a.T @ b)
    error = fails(product((5, 3)), a, b)
    assert isinstance(error, errors.NkiValidationError)
    assert "stationary" in str(error) and "(3, 5)" in str(error).replace("[3, 5]", "(3, 5)")


def test_pc_25_free_dimensions_are_flattened():
    b = np.arange(128 * 6, dtype=f32).reshape(128, 2, 3)
    exact(run(product((4, 2, 3)), np.ones((128, 4), f32), b), np.tile(b.sum(0), (4, 1, 1)))


def mixed(a, b):
    """Multiply tiles of two flavours of fp8, made inside the kernel."""
    p = bank((4, 4))
    s, m = tile((128, 4), nl.float8_e4m3), tile((128, 4), nl.float8_e4m3fn)
    nisa.tensor_copy(dst=s, src=up(a))
    nisa.tensor_copy(dst=m, src=up(b))
    nisa.nc_matmul(dst=p, stationary=s, moving=m)
    return read_out(p)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_pc_65_the_two_flavours_of_e4m3_do_not_meet(target):
    error = fails(nki.jit(mixed), np.ones((128, 4), bf16), np.ones((128, 4), bf16), target=target)
    text = str(error)
    assert error.span.line == line_of(mixed, "nisa.nc_matmul")
    assert "moving" in text and "float8_e4m3fn" in text
    if target == "trn3":
        assert "stationary" in text and "float8_e4m3 " in text.replace(",", " ").replace("`", " ")


def test_pc_63_the_scale_of_a_block_is_the_doubled_one():
    @nki.jit
    def kernel(x):
        q, s = tile((32, 1), nl.float8_e4m3fn_x4), tile((32, 1), nl.uint8)
        nisa.memset(dst=s, value=0)
        nisa.quantize_mx(dst=q, src=up(x), dst_scale=s)
        codes = q.view(nl.float8_e4m3fn)
        wide = tile(codes.shape)
        nisa.tensor_copy(dst=wide, src=codes)
        return down(s), down(wide)

    x = np.zeros((32, 4), bf16)
    x[0, 0] = 956.0
    scales, values = run(kernel, x, target="trn3")
    assert scales[0, 0] == 129 and values[0, 0] == 240 and values.sum() == 240
    assert values[0, 0] * 2.0 ** (129 - 127) == 960


# --- neighbours ---------------------------------------------------------------------------------------------


def test_the_second_group_in_a_new_tile_starts_at_zero():
    @nki.jit
    def kernel(a, b):
        s, m = up(a), up(b)
        outputs = []
        for _ in range(2):
            p = bank((4, 4))
            for _ in range(3):
                nisa.nc_matmul(dst=p, stationary=s, moving=m)
            outputs.append(read_out(p))
        return tuple(outputs)

    for found in run(kernel, np.ones((8, 4), f32), np.ones((8, 4), f32)):
        exact(found, np.full((4, 4), 24.0))


def test_accumulate_false_forgets_the_group():
    @nki.jit
    def kernel(a, b):
        s, m, p = up(a), up(b), bank((4, 4))
        for k in range(3):
            nisa.nc_matmul(dst=p, stationary=s, moving=m, accumulate=k > 1)
        return read_out(p)

    exact(run(kernel, np.ones((8, 4), f32), np.ones((8, 4), f32)), np.full((4, 4), 16.0))


def test_zeros_in_psum_then_products():
    @nki.jit
    def kernel(a, b):
        p = nl.zeros((4, 4), dtype=nl.float32, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=p, stationary=up(a), moving=up(b))
        return read_out(p)

    exact(run(kernel, np.ones((8, 4), f32), np.ones((8, 4), f32)), np.full((4, 4), 16.0))


def test_operands_in_columns_of_a_larger_tile():
    @nki.jit
    def kernel(a, b):
        p = bank((3, 4))
        s, m = up(a), up(b)
        nisa.nc_matmul(dst=p, stationary=s[:, 2:8:2], moving=m[:, 1, :])
        return read_out(p)

    a, b = np.arange(40, dtype=f32).reshape(4, 10), np.arange(48, dtype=f32).reshape(4, 3, 4)
    exact(run(kernel, a, b), a[:, 2:8:2].T @ b[:, 1])


@pytest.mark.parametrize(
    ("a", "b", "shape", "piece"),
    [
        ((128, 4), (64, 4), (4, 4), "128"),
        ((128, 129), (128, 4), (128, 4), "129"),
        ((128, 4), (128, 513), (4, 513), "513"),
    ],
)
def test_sizes_the_array_does_not_have(a, b, shape, piece):
    error = fails(product(shape), np.ones(a, bf16), np.ones(b, bf16))
    assert isinstance(error, errors.NkiValidationError) and piece in str(error)


def test_float32_does_not_mix_with_bfloat16():
    error = fails(product((4, 4)), np.ones((8, 4), f32), np.ones((8, 4), bf16))
    assert "float32" in str(error) and "bfloat16" in str(error)


def test_integers_are_no_operands():
    error = fails(product((4, 4)), np.ones((8, 4), np.int8), np.ones((8, 4), np.int8))
    assert isinstance(error, errors.DtypeError) and "int8" in str(error)


@pytest.mark.parametrize("top", [0.0, 1.0, 255.0, 448.0, 449.0, 60000.0])
def test_the_top_of_a_block_is_never_clamped(top):
    """scale = 2^(floor(log2 top) - 7): the quotient stays under 256, far below the largest code."""

    @nki.jit
    def kernel(x):
        q, s = tile((32, 1), nl.float8_e4m3fn_x4), tile((32, 1), nl.uint8)
        nisa.memset(dst=s, value=0)
        nisa.quantize_mx(dst=q, src=up(x), dst_scale=s)
        return down(s), down(q.view(nl.uint8))

    x = np.zeros((32, 4), bf16)
    x[9, 2] = top
    scales, codes = run(kernel, x, target="trn3")
    exponent = np.floor(np.log2(float(x[9, 2]))) - 7 if top else -127
    assert scales[1, 0] == exponent + 127
    quotient = np.array([float(x[9, 2]) / 2.0**exponent], f32).astype(ml_dtypes.float8_e4m3fn)
    assert codes[9, 2] == quotient.view(np.uint8)[0]
