"""Reductions against NumPy: axes, kept dimensions, types (semantics rules 78 and 82)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, run

X = np.random.default_rng(1).standard_normal((4, 3, 2, 5)).astype(f32)
AXES = [3, -1, [3], (2, 3), [1, 2, 3], np.int64(3)]


def numpy_axis(axis):
    return tuple(axis) if isinstance(axis, (list, tuple)) else int(axis)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean"])
def test_values(name, axis, keepdims):
    expected = getattr(np, name)(X, axis=numpy_axis(axis), keepdims=keepdims)
    if expected.ndim < 2:
        expected = expected.reshape(4, 1)
    result = run(lambda x: getattr(nl, name)(x, axis, keepdims=keepdims), X)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [3, (2, 3), (1, 2, 3)], ids=str)
def test_variance_always_keeps_the_axes(axis):
    expected = np.var(X, axis=axis, keepdims=True)
    for keepdims in (False, True):
        result = run(lambda x, keepdims=keepdims: nl.var(x, axis, keepdims=keepdims), X)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_all():
    x = np.array([[1, 2, 3], [1, 0, 1], [0, 0, 0]], f32)
    assert run(lambda x: nl.all(x, 1), x).tolist() == [[1.0], [0.0], [0.0]]


def test_types():
    x = np.full((2, 64), 1.0, bf16)
    assert run(lambda x: nl.sum(x, 1), x).dtype == bf16
    assert run(lambda x: nl.mean(x, 1, dtype=nl.float32), x).dtype == f32
    ints = np.arange(8, dtype=np.int32).reshape(2, 4)
    assert run(lambda x: nl.max(x, axis=1), ints).tolist() == [[3], [7]]


def test_tokens():
    assert nl.max.nki_token == "maximum" and nl.min.nki_token == "minimum"


@pytest.mark.parametrize(
    ("axis", "words"),
    [(0, "partition axis"), ([0, 1], "partition axis"), (1, "not the last"), ([], "not the last")],
)
def test_refused_axes(axis, words):
    with pytest.raises(errors.ShapeError, match=words):
        run(lambda x: nl.sum(x, axis=axis), X)
