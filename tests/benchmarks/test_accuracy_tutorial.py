"""The values of the re-created tutorial kernels and of the RMSNorm at small sizes, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
from benchmarks.accuracy.kernels import rmsnorm_quant, tutorial_mamba, tutorial_matmul


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("kernel", "m", "k", "n", "more"),
    [
        (tutorial_matmul.loads_inside, 256, 256, 1024, ()),
        (tutorial_matmul.loads_hoisted, 256, 256, 1024, ()),
        (tutorial_matmul.blocked_everywhere, 2048, 1024, 1024, (3,)),
    ],
)
def test_matmul(kernel: nki.Kernel, m: int, k: int, n: int, more: tuple) -> None:
    a, b = _random(k, m), _random(k, n)
    found, expected = nki.simulate(kernel)(a, b, *more), a.astype(np.float64).T @ b
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("kernel", "more"),
    [(tutorial_mamba.mamba_v1, ()), (tutorial_mamba.mamba_v2, ()), (tutorial_mamba.mamba_v3, (16,))],
)
def test_mamba(kernel: nki.Kernel, more: tuple) -> None:
    delta, u, b, c = (np.abs(_random(rows, 32)) for rows in (256, 256, 3, 3))
    a = -np.abs(_random(256, 3))
    state, expected = np.zeros((256, 3)), np.zeros((256, 32))
    for i in range(32):
        state = state * np.exp(delta[:, i : i + 1] * a) + (delta * u)[:, i : i + 1] * b[:, i]
        expected[:, i] = state @ c[:, i]
    np.testing.assert_allclose(nki.simulate(kernel)(delta, u, a, b, c, *more), expected, rtol=1e-5)


def test_rmsnorm_quant() -> None:
    x, gamma = (_random(rows, 768).astype(ml_dtypes.bfloat16) for rows in (130, 1))
    found = nki.simulate(rmsnorm_quant.rmsnorm_quant)(x, gamma)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + 1e-6) * gamma.astype(np.float64)
    scale = np.ascontiguousarray(found[:, 768:]).view(np.float32)
    np.testing.assert_allclose(scale, np.abs(expected).max(axis=1, keepdims=True) / 240, rtol=2**-7)
    np.testing.assert_allclose(found[:, :768].astype(np.float32) * scale, expected, rtol=0.08, atol=2e-4)
