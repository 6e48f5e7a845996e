"""where, broadcast_to and expand_dims against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, kernel_of, mnemonics, run

C = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]], f32)


@pytest.mark.parametrize("dtype", [f32, bf16, np.int32, np.int8, np.uint16])
def test_where(dtype):
    x, y = np.arange(6).reshape(2, 3).astype(dtype), (np.arange(6).reshape(2, 3) + 50).astype(dtype)
    result = run(nl.where, C, x, y)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, np.where(C != 0, x, y))
    np.testing.assert_array_equal(run(nl.where, C, x[:, :1], y), np.where(C != 0, x[:, :1], y))


def test_where_chooses_bits():
    x, y = np.full((2, 3), np.inf, f32), np.full((2, 3), np.nan, f32)
    np.testing.assert_array_equal(run(nl.where, C, x, y), np.where(C != 0, x, y))
    np.testing.assert_array_equal(
        run(lambda c, x: nl.where(c, x, -np.inf), C, C), np.where(C != 0, C, -np.inf)
    )
    np.testing.assert_array_equal(run(lambda c: nl.where(c, 10.0, 0.0), C), np.where(C != 0, 10.0, 0.0))
    np.testing.assert_array_equal(run(nl.where, C, C, C + 1, buffer=nl.psum), np.where(C != 0, C, C + 1))
    mixed = run(nl.where, C, C.astype(bf16), C)
    assert mixed.dtype == f32
    assert run(lambda c: nl.where(c, c, 0.0, dtype=nl.bfloat16), C).dtype == bf16


@pytest.mark.parametrize("dtype", [f32, bf16, np.float16, np.int32, np.uint32, np.int8, np.uint8, bool])
def test_broadcast_to_partitions(dtype):
    """Rule 191: partitions do not read each other; a matmul by ones or HBM carries the row. Values are exact."""
    row = np.random.default_rng(4).integers(0, 100, (1, 1200)).astype(dtype)
    if dtype in (np.int32, np.uint32):
        row += dtype(2**30 + 1)
    result = run(lambda x: nl.broadcast_to(x, (128, 1200)), row)
    assert result.dtype == row.dtype
    np.testing.assert_array_equal(result, np.broadcast_to(row, (128, 1200)))


def test_broadcast_to_free_dimensions():
    x = np.arange(12, dtype=f32).reshape(4, 3, 1)
    np.testing.assert_array_equal(
        run(lambda x: nl.broadcast_to(x, (4, 3, 5)), x), np.broadcast_to(x, (4, 3, 5))
    )
    y = x.reshape(1, 12, 1)
    np.testing.assert_array_equal(
        run(lambda x: nl.broadcast_to(x, [7, 12, 2]), y), np.broadcast_to(y, (7, 12, 2))
    )
    narrow = run(lambda x: nl.broadcast_to(x, (4, 3, 5), dtype=nl.bfloat16), x)
    assert narrow.dtype == bf16
    cast = run(lambda x: nl.broadcast_to(x, (4, 3, 1), dtype=nl.int32), x)
    assert cast.dtype == np.int32
    np.testing.assert_array_equal(
        run(lambda x: nl.broadcast_to(x, (7, 12, 2)), y, buffer=nl.psum), np.broadcast_to(y, (7, 12, 2))
    )
    both = run(lambda x: nl.broadcast_to(x, (7, 12, 2), dtype=nl.bfloat16), y)
    assert both.dtype == bf16 and (both == np.broadcast_to(y, (7, 12, 2)).astype(bf16)).all()


def test_broadcast_to_the_same_shape_is_free():
    assert mnemonics(kernel_of(lambda x: nl.broadcast_to(x, x.shape)).ir((C,))) == []


@pytest.mark.parametrize("shape", [(2, 4), (4, 3), (2, 3, 1), (2,)])
def test_broadcast_to_refuses(shape):
    with pytest.raises(errors.ShapeError):
        run(lambda x: nl.broadcast_to(x, shape), C)


def test_expand_dims():
    for axis in (1, 2, -1):
        result = run(lambda x, axis=axis: nl.expand_dims(x, axis), C)
        np.testing.assert_array_equal(result, np.expand_dims(C, axis))
