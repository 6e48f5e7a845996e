"""softmax and rms_norm against torch."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from tests.language.run import bf16, f32, kernel_of, mnemonics, run

torch = pytest.importorskip("torch")

X = np.random.default_rng(2).standard_normal((8, 4, 6)).astype(f32) * 3


@pytest.mark.parametrize("axis", [-1, 2, [1, 2], (2,)], ids=str)
def test_softmax(axis):
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    rows = X.reshape(8, 24) if len(axes) == 2 else X
    expected = torch.softmax(torch.from_numpy(rows), -1).numpy().reshape(X.shape)
    np.testing.assert_allclose(run(lambda x: nl.softmax(x, axis), X), expected, rtol=1e-5, atol=1e-7)
    assert run(lambda x: nl.softmax(x, axis), X.astype(bf16)).dtype == bf16


def test_softmax_of_rows_is_four_instructions():
    x = X.reshape(8, 24)
    found = mnemonics(kernel_of(lambda t: nl.softmax(t, 1)).ir((x,)))
    assert found == ["tensor_reduce", "activation_reduce", "reciprocal", "tensor_scalar"]


def test_softmax_of_large_and_infinite_scores():
    x = np.array([[1000.0, 999.0, -np.inf], [-1e4, -1e4, -1e4]], f32)
    expected = torch.softmax(torch.from_numpy(x), -1).numpy()
    np.testing.assert_allclose(run(nl.softmax, x), expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 8])
def test_rms_norm(rows):
    x = X.reshape(8, 24)
    w = np.random.default_rng(3).standard_normal((rows, 24)).astype(f32)
    expected = torch.nn.functional.rms_norm(torch.from_numpy(x), (24,), eps=1e-3).numpy() * w
    result = run(lambda x, w: nl.rms_norm(x, w, 1, 24, epsilon=1e-3), x, w)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    narrow = run(lambda x, w: nl.rms_norm(x, w, 1, n=24, compute_dtype=nl.bfloat16, dtype=nl.float32), x, w)
    np.testing.assert_allclose(narrow, expected, rtol=3e-2, atol=3e-2)


def test_rms_norm_over_the_last_of_two_axes():
    w = np.ones((8, 1, 6), f32)
    expected = torch.nn.functional.rms_norm(torch.from_numpy(X), (6,), eps=1e-6).numpy()
    np.testing.assert_allclose(
        run(lambda x, w: nl.rms_norm(x, w, 2, 6), X, w), expected, rtol=1e-5, atol=1e-6
    )
