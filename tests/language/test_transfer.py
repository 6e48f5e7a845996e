"""load, store and load_transpose2d (semantics rules 157, 159)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, run

X = np.arange(48, dtype=f32).reshape(6, 8)


def test_load_and_store():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 8), nl.bfloat16, buffer=nl.shared_hbm)
        tile = nl.load(x[::2], dtype=nl.int32)
        assert tile.buffer is nl.sbuf and tile.dtype == nl.int32
        nl.store(out, tile)
        return out

    result = nki.simulate(kernel)(X)
    assert result.dtype == bf16
    np.testing.assert_array_equal(result, X[::2])


@pytest.mark.parametrize("dtype", [f32, bf16, np.int32])
def test_load_transpose2d(dtype):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 6), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(X.astype(dtype)), X.T.astype(dtype))


def test_refusals():
    with pytest.raises(errors.MemoryError_, match=r"nl\.copy"):
        run(lambda x: nl.store(nl.ndarray(x.shape, x.dtype, nl.hbm), x), X, buffer=nl.psum)
    with pytest.raises(errors.ShapeError, match="one dimension"):
        run(lambda x: nl.load(nl.ndarray((7,), x.dtype, nl.hbm)), X)
    with pytest.raises(errors.PartitionLimitError, match="partition dimension 200 exceeds maximum 128"):
        run(lambda x: nl.load(nl.ndarray((200, 4), x.dtype, nl.hbm)), X)
    with pytest.raises(errors.ShapeError, match="3 dimensions"):
        run(lambda x: nl.load_transpose2d(nl.ndarray((2, 2, 2), x.dtype, nl.hbm)), X)
    with pytest.raises(errors.ArgumentError, match="must be a tensor"):
        run(lambda x: nl.load(X), X)


def test_assignment_copies():
    """`t[key] = value` is in the documented class; a tensor is copied, a number fills."""

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        tile[:, 4:8] = tile[:, 0:4]
        tile[:, 0] = 7.0
        tile[...] = nl.add(tile, 1.0)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        out[...] = tile
        return out

    expected = X.copy()
    expected[:, 4:8] = expected[:, 0:4]
    expected[:, 0] = 7
    np.testing.assert_array_equal(nki.simulate(kernel)(X), expected + 1)


@pytest.mark.parametrize(
    ("assign", "error", "words"),
    [
        (lambda t: t.__setitem__(..., "x"), errors.ArgumentError, "a tensor or a number"),
        (lambda t: t.__setitem__(..., nl.reciprocal), errors.ArgumentError, "tensor_copy"),
        (lambda t: t.__setitem__((0, 9), 1.0), errors.BoundsError, "index 9"),
        (lambda t: t.__setitem__(..., t[:, 0:3]), errors.OperandShapeError, "F"),
    ],
)
def test_refused_assignments(assign, error, words):
    with pytest.raises(error, match=words):
        run(lambda t: assign(t), X)


def test_augmented_assignment_is_an_operator():
    def add_to(t):
        t[:, 0:1] += 1.0
        return t

    with pytest.raises(errors.OperatorError, match=r"nl\.add"):
        run(add_to, X)
