"""The values of the re-created probes, against NumPy; and that their figures read what they say."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.language as nl
from benchmarks.accuracy.cases import CASES
from benchmarks.accuracy.kernels import dma, probes


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def test_values() -> None:
    a = _random(128, 128)
    halves = a.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(nki.simulate(probes.pair)(a, nl.add), a + 1)
    np.testing.assert_array_equal(nki.simulate(probes.identity_chain)(a[:, :1]), a[:, :1])
    np.testing.assert_array_equal(nki.simulate(probes.transposed)(halves), halves.T)
    found = nki.simulate(probes.products)(a, 96, 2)
    np.testing.assert_allclose(found, np.tile(2 * a.sum(axis=0), (96, 1)), rtol=1e-4, atol=1e-4)
    exponentials = nki.simulate(dma.exponential)(halves).astype(np.float32)
    np.testing.assert_allclose(exponentials, np.exp(halves.astype(np.float32)), rtol=2**-7)
    raw = np.arange(128 * 64, dtype=np.uint8).reshape(128, 64)
    np.testing.assert_array_equal(nki.simulate(dma.two_sizes)(raw, 32), raw[:, :1])


@pytest.mark.parametrize(
    ("identifier", "target", "expected"),
    [
        ("act-1-ii", "trn1", 189),
        ("mlp3-mm", "trn2", 592),
        ("dge", "trn2", 600),
        ("throttle", "trn2", 3.0),
    ],
)
def test_figures(identifier: str, target: str, expected: float) -> None:
    case = CASES[identifier]()
    assert case.figure(case.timed(target)) == pytest.approx(expected, rel=0.1)
