"""sin, cos and tan over many turns, and the token of sin, which the hardware does not reduce (semantics rule 86)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from tests.language.run import f32, run

X = np.concatenate([np.linspace(-10, 10, 1001), np.linspace(-5000, 5000, 999), [np.pi, -np.pi, 0.0]]).astype(
    f32
)[None]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine(name):
    expected = getattr(np, name)(X.astype(np.float64))
    np.testing.assert_allclose(run(getattr(nl, name), X), expected, atol=2e-6)


def test_tangent():
    x = X[:, np.abs(np.cos(X[0].astype(np.float64))) > 0.1]
    np.testing.assert_allclose(run(nl.tan, x), np.tan(x.astype(np.float64)), atol=1e-4, rtol=1e-4)


def test_documented_examples():
    zero = np.zeros((4, 8), f32)
    assert (run(nl.sin, zero) == 0).all() and (run(nl.tan, zero) == 0).all()
    np.testing.assert_allclose(run(nl.cos, zero), 1.0, atol=1e-6)
    assert nl.sin.nki_token == "sin"
