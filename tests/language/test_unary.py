"""Functions of one tile against their definitions (activations.md has where the formulas come from)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, run

torch = pytest.importorskip("torch")

X = np.linspace(-3, 3, 96, dtype=f32).reshape(2, 48)
POSITIVE = np.abs(X) + f32(0.1)

T = torch.from_numpy(X.astype(np.float64))
SIGMOID = 1 / (1 + np.exp(-X.astype(np.float64)))
PHI = 0.5 * (1 + torch.erf(T / math.sqrt(2)).numpy())
S1702 = 1 / (1 + np.exp(-1.702 * X.astype(np.float64)))

CASES = {
    "abs": np.abs(X),
    "arctan": np.arctan(X),
    "copy": X,
    "erf": torch.erf(T).numpy(),
    "erf_dx": 2 / math.sqrt(math.pi) * np.exp(-(X.astype(np.float64) ** 2)),
    "exp": np.exp(X),
    "gelu": X * PHI,
    "gelu_apprx_sigmoid": X * S1702,
    "gelu_apprx_sigmoid_dx": S1702 * (1 + 1.702 * X * (1 - S1702)),
    "gelu_apprx_tanh": torch.nn.functional.gelu(T, approximate="tanh").numpy(),
    "gelu_dx": PHI + X * np.exp(-(X.astype(np.float64) ** 2) / 2) / math.sqrt(2 * math.pi),
    "mish": torch.nn.functional.mish(T).numpy(),
    "relu": np.maximum(X, 0),
    "sigmoid": SIGMOID,
    "sign": np.sign(X),
    "silu": X * SIGMOID,
    "silu_dx": SIGMOID * (1 + X * (1 - SIGMOID)),
    "softplus": np.log1p(np.exp(X.astype(np.float64))),
    "square": X * X,
    "tanh": np.tanh(X),
}


@pytest.mark.parametrize("name", CASES)
def test_activations(name):
    function = getattr(nl, name)
    np.testing.assert_allclose(run(function, X), CASES[name], rtol=2e-6, atol=2e-7)
    assert function.nki_token == name
    narrow = run(function, X.astype(bf16))
    assert narrow.dtype == bf16, "the result keeps the type of the input (rule 21)"
    assert run(lambda x: function(x, dtype=nl.bfloat16), X).dtype == bf16


@pytest.mark.parametrize("name", ["log", "sqrt", "reciprocal"])
def test_positive_arguments(name):
    np.testing.assert_allclose(run(getattr(nl, name), POSITIVE), getattr(np, name)(POSITIVE), rtol=1e-6)


def test_rsqrt_runs_on_gpsimd():
    """Rule 157: SBUF only."""
    np.testing.assert_allclose(run(nl.rsqrt, POSITIVE), 1 / np.sqrt(POSITIVE), rtol=1e-6)
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nl.rsqrt, POSITIVE, buffer=nl.psum)


def test_copy_is_bit_exact_and_moves_from_psum():
    """Rule 25."""
    x = np.array([[16777217, -16777219, 2147483647]], np.int32)
    np.testing.assert_array_equal(run(nl.copy, x), x)
    np.testing.assert_array_equal(run(nl.copy, X, buffer=nl.psum), X)


def test_negative():
    np.testing.assert_array_equal(run(nl.negative, X), -X)
    x = np.array([[2**24 + 1, -5]], np.int32)
    np.testing.assert_array_equal(run(nl.negative, x), -x)


def test_invert_and_logical_not():
    """Rule 20: exclusive or with all ones, and with 1."""
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.uint16):
        x = np.array([[0, 1, 7, 100]], dtype)
        np.testing.assert_array_equal(run(nl.invert, x), np.invert(x))
        np.testing.assert_array_equal(run(nl.logical_not, x), x ^ 1)
    x = np.array([[0.0, 1.0]], f32)
    np.testing.assert_array_equal(run(nl.logical_not, x), [[1.0, 0.0]])
    np.testing.assert_array_equal(run(nl.logical_not, x.astype(bool)), [[True, False]])


def test_only_tiles():
    with pytest.raises(errors.ArgumentError, match=r"nl\.exp: `x` must be a tensor"):
        run(lambda x: nl.exp(2.0), X)
    with pytest.raises(errors.MemoryError_):
        run(lambda x: nl.exp(nl.ndarray((4, 4), nl.float32, nl.hbm)), X)
