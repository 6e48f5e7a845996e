"""nc_transpose against indexing with explicit loops, on stored bits."""

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
from nki.target import get_target
from tests.isa.tiles import load, psum, run, sbuf, staged, store

BF16 = ml_dtypes.bfloat16
DTYPES = [np.float32, BF16, np.float16, np.int32, np.uint8, np.int16, ml_dtypes.float8_e5m2, np.bool_]


def random_bits(shape, dtype, seed=0):
    """Every bit pattern may occur, NaN of any payload included."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    return np.frombuffer(
        np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize), dtype
    ).reshape(shape)


def transposed(x):
    """The transposed stored bits, element by element."""
    bits = x.view(f"u{x.itemsize}").reshape(x.shape[0], -1)
    out = np.empty((bits.shape[1], bits.shape[0]), bits.dtype)
    for p in range(bits.shape[0]):
        for f in range(bits.shape[1]):
            out[f, p] = bits[p, f]
    return out


@nki.jit
def on_tensor(x):
    p = psum((x.shape[1], x.shape[0]), x.dtype)
    nisa.nc_transpose(dst=p, data=load(x))
    return store(p)


@nki.jit
def on_vector(x):
    t = sbuf((x.shape[1], x.shape[0]), x.dtype)
    nisa.nc_transpose(dst=t, data=load(x), engine=nisa.engine.vector)
    return store(t)


@pytest.mark.parametrize("kernel", [on_tensor, on_vector], ids=["tensor", "vector"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_rule_67_moves_bits_of_any_dtype(kernel, dtype):
    x = random_bits((7, 5), dtype)
    y = run(kernel, x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.view(f"u{y.itemsize}"), transposed(x))


@given(p=st.integers(1, 128), f=st.integers(1, 128), dtype=st.sampled_from([np.float32, BF16]))
def test_any_size_of_the_tensor_engine(p, f, dtype):
    x = random_bits((p, f), dtype, seed=p * 128 + f)
    np.testing.assert_array_equal(run(on_tensor, x).view(f"u{x.itemsize}"), transposed(x))


def test_free_dimensions_are_flattened():
    @nki.jit
    def kernel(x):
        p = psum((12, 2, 2), x.dtype)
        nisa.nc_transpose(dst=p, data=load(x))
        return store(p)

    x = random_bits((4, 3, 4), np.float32)
    np.testing.assert_array_equal(run(kernel, x).view("u4").reshape(12, 4), transposed(x))


def test_in_place_on_vector():
    @nki.jit
    def kernel(x):
        t = load(x)
        nisa.nc_transpose(dst=t, data=t)
        return store(t)

    x = random_bits((16, 16), np.int32)
    np.testing.assert_array_equal(run(kernel, x).view("u4"), transposed(x))


def test_rule_67_destination_decides_the_engine():
    x = np.ones((16, 16), np.float32)

    @nki.jit
    def into_sbuf(x):
        t = sbuf((16, 16))
        nisa.nc_transpose(dst=t, data=load(x))
        return store(t)

    assert staged(on_tensor, "nc_transpose", x)[0].engine is nisa.engine.tensor
    assert staged(into_sbuf, "nc_transpose", x)[0].engine is nisa.engine.vector
    assert staged(on_vector, "nc_transpose", x)[0].engine is nisa.engine.vector


def test_rule_67_vector_reads_and_writes_psum():
    @nki.jit
    def kernel(x):
        a, b = psum((8, 4)), psum((4, 8))
        nisa.tensor_copy(dst=a, src=load(x))
        nisa.nc_transpose(dst=b, data=a, engine=nisa.engine.vector)
        return store(b)

    x = random_bits((8, 4), np.float32)
    np.testing.assert_array_equal(run(kernel, x).view("u4"), transposed(x))


def test_rule_67_sizes():
    @nki.jit
    def large_into_sbuf(x):
        nisa.nc_transpose(dst=sbuf((64, 64)), data=load(x))

    @nki.jit
    def too_wide(x):
        nisa.nc_transpose(dst=psum((129, 8)), data=load(x))

    with pytest.raises(errors.EngineError) as caught:
        run(large_into_sbuf, np.ones((64, 64), np.float32))
    text = str(caught.value)
    assert "PSUM only" in text and "at most 32x32, `data` is 64x64" in text
    with pytest.raises(errors.NkiValidationError, match=r"129 .* 128"):
        run(too_wide, np.ones((8, 129), np.float32))
    with pytest.raises(
        errors.EngineError, match="vector engine cannot run this: it transposes at most 32x32"
    ):
        run(on_vector, np.ones((33, 8), np.float32))


def test_rule_67_dtype_of_the_destination():
    @nki.jit
    def kernel(x):
        nisa.nc_transpose(dst=psum((8, 8), nl.float32), data=load(x))

    with pytest.raises(errors.OperandDtypeError, match="bfloat16 to float32"):
        run(kernel, np.ones((8, 8), BF16))


def test_shapes_are_exchanged():
    @nki.jit
    def kernel(x):
        nisa.nc_transpose(dst=psum((8, 4)), data=load(x))

    with pytest.raises(
        errors.OperandShapeError, match=r"dst\[F, P\] = data\[P, F\]\.T: `dst` must have shape \[4, 8\]"
    ):
        run(kernel, np.ones((8, 4), np.float32))


def test_cost():
    target = get_target("trn2")
    (wide,) = staged(on_tensor, "nc_transpose", np.ones((128, 64), np.float32))
    (narrow,) = staged(on_tensor, "nc_transpose", np.ones((128, 64), BF16))
    (vector,) = staged(on_vector, "nc_transpose", np.ones((32, 32), BF16))
    assert [p.kind for p in narrow.cost(target)] == ["load_stationary", "transpose"]
    assert narrow.cost(target)[1].interval == 128  # the identity has a column a partition
    assert wide.cost(target)[1].interval == 256
    assert [p.interval for p in vector.cost(target)] == [64]
