"""The re-created streams and batched products compute what their originals compute, at reduced shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
from benchmarks.accuracy.kernels import bmm, streams


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_silu() -> None:
    x = _random(128, 2, 64)
    expected = x / (1 + np.exp(-x))
    for kernel in (streams.silu, streams.silu_in_place):
        np.testing.assert_allclose(nki.simulate(kernel)(x, 64), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "widths"), [(streams.adamw_by_rows, ()), (streams.adamw_by_columns, (48,))]
)
def test_adamw(kernel: Any, widths: tuple[int, ...]) -> None:
    theta, gradient, first = (_random(192, 64) * scale for scale in np.float32([1, 2, 3]))
    second = np.abs(_random(192, 64)) + 1
    moment = 0.9 * first + 0.1 * gradient
    variance = (0.999 * second + 0.001 * gradient**2) / (1 - 0.999)
    expected = theta - 1e-5 * theta - 0.01 * moment / (np.sqrt(variance) + 1e-8)
    actual = nki.simulate(kernel)(theta, gradient, first, second, *widths)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_rope() -> None:
    x, cosine, sine = _random(128, 64), _random(64, 64), _random(64, 65)[:, 1:]
    upper, lower = x[:64], x[64:]
    expected = np.concatenate([upper * cosine - lower * sine, lower * cosine + upper * sine])
    for kernel, options in (
        (streams.rope_in_halves, ()),
        (streams.rope_packed, (False,)),
        (streams.rope_packed, (True,)),
    ):
        np.testing.assert_allclose(nki.simulate(kernel)(x, cosine, sine, 32, *options), expected, atol=1e-5)


def test_products() -> None:
    lhs, rhs = _random(2, 256, 64), _random(2, 64, 1024)
    for kernel, options in ((bmm.bmm_by_tiles, (2,)), (bmm.bmm_two_phases, (2, 128))):
        np.testing.assert_allclose(nki.simulate(kernel)(lhs, rhs, *options), lhs @ rhs, atol=1e-4)


@pytest.mark.parametrize("variant", ["v1", "v3b", "copy_vector", "norm_scalar", "copyelim"])
def test_products_under_a_softmax(variant: str) -> None:
    lhs, rhs = _random(1, 256, 64), _random(1, 64, 1024) / 8
    weights = np.exp(lhs @ rhs)
    expected = weights / weights.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(nki.simulate(bmm.bmm_softmax)(lhs, rhs, 256, variant), expected, atol=1e-5)
