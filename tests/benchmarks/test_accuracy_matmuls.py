"""The values of the re-created matmul kernels at small sizes, against NumPy in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import nki
from benchmarks.accuracy.kernels import matmul_dense, matmul_gemm, matmul_rmsnorm

SPLIT = 1e-5
"""Largest relative error of limbs whose low products are left out."""


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def _check(found: np.ndarray, expected: np.ndarray, most: float) -> None:
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= most * np.linalg.norm(expected)


def test_gemm() -> None:
    a, b = (_random(128, n).astype(ml_dtypes.bfloat16) for n in (512, 1024))
    found = nki.simulate(matmul_gemm.gemm)(a, b, 4, 2, 4, 2, True).astype(np.float64)
    _check(found, a.astype(np.float64).T @ b.astype(np.float64), 4e-3)


def test_lora_in_limbs() -> None:
    x, w, a, b = _random(256, 256), _random(256, 512), _random(256, 128), _random(128, 512)
    tiles = (x.reshape(1, 2, 128, 2, 128), w.reshape(2, 128, 512), a.reshape(2, 128, 128), b)
    x = x.astype(np.float64)
    _check(nki.simulate(matmul_dense.lora_in_limbs)(*tiles), x @ w + (x @ a) @ b, SPLIT)


def test_matmul_add_rmsnorm() -> None:
    x, w, z, g, eps = _random(128, 256), _random(256, 1024), _random(128, 1024), _random(1024), 0.5
    found = nki.simulate(matmul_rmsnorm.matmul_add_rmsnorm)(x, w, eps, z, g, "pairs")
    rows = x.astype(np.float64) @ w + z
    _check(found, rows / np.sqrt(np.mean(rows**2, axis=1, keepdims=True) + eps) * g, SPLIT)
