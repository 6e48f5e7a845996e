"""matmul and transpose; both results live in PSUM (semantics rules 69, 159)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, kernel_of, mnemonics, run

A = np.random.default_rng(5).standard_normal((32, 48)).astype(f32)
B = np.random.default_rng(6).standard_normal((48, 200)).astype(f32)


def test_matmul():
    np.testing.assert_allclose(run(nl.matmul, A, B), A @ B, rtol=1e-5, atol=1e-5)
    result = run(lambda x, y: nl.matmul(x, y, transpose_x=True), np.ascontiguousarray(A.T), B)
    np.testing.assert_allclose(result, A @ B, rtol=1e-5, atol=1e-5)
    narrow = run(nl.matmul, A.astype(bf16), B.astype(bf16))
    assert narrow.dtype == f32
    np.testing.assert_allclose(
        narrow, A.astype(bf16).astype(f32) @ B.astype(bf16).astype(f32), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(run(nl.matmul, A, B, buffer=nl.psum), A @ B, rtol=1e-5, atol=1e-5)


def test_matmul_of_transposed_x_is_one_instruction():
    found = mnemonics(kernel_of(lambda x, y: nl.matmul(x, y, transpose_x=True)).ir((A.T.copy(), B)))
    assert found == ["nc_matmul", "tensor_copy"]  # the copy is the test's own


def test_matmul_refuses_unequal_contractions():
    with pytest.raises(errors.OperandShapeError, match="K"):
        run(nl.matmul, A, B[:40])


@pytest.mark.parametrize("dtype", [f32, bf16, np.int32])
def test_transpose(dtype):
    x = (A * 100).astype(dtype)
    result = run(nl.transpose, x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, x.T)
    assert run(lambda x: nl.transpose(x, dtype=nl.float32), x).dtype == f32
    np.testing.assert_array_equal(run(nl.transpose, x, buffer=nl.psum), x.T)


def test_results_live_in_psum():
    def check(x, y):
        assert nl.matmul(x, y).buffer is nl.psum and nl.transpose(x).buffer is nl.psum
        return x

    run(check, A, B)
