"""The activation functions: one row each, with formula, valid input and the table the Scalar engine loads for it.

The hardware evaluates piecewise polynomials; here each function is its mathematical definition on the whole line,
except `sin`, whose behaviour outside its range is documented. Inputs and outputs are float32. Formulas go through
float64 and are rounded once, to within one unit in the last place (within 1e-14 where `gelu_dx` crosses 0); `exp`
keeps that bound in float32 (`exponential_function.py`). Floating-point warnings are the caller's to silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nki.isa.alu import Array, operator_error, relu, rsqrt, token_name
from nki.isa.exponential_function import exp

Wide = NDArray[np.float64]
Function = Callable[..., object]


@dataclass(frozen=True, eq=False)
class ActivationFunction:
    """One function of the Scalar engine.

    `function(x, out)` on float32 arrays of at least one dimension; `out` may be `x`. `valid` is the closed interval
    of inputs for which the hardware's result is defined, of magnitudes where `by_magnitude`; `None` is everything.
    `table` names the set of functions that the engine holds at one time: switching sets costs time.
    """

    name: str
    function: Function
    table: str
    doc: str
    valid: tuple[float, float] | None = None
    by_magnitude: bool = False

    def is_valid(self, x: Array) -> Array:
        """Elementwise: is this input inside the valid range? NaN is not, unless everything is."""
        if self.valid is None:
            return np.ones(x.shape, np.bool_)
        low, high = self.valid
        value = np.abs(x) if self.by_magnitude else x
        return np.asarray((low <= value) & (value <= high))

    def __str__(self) -> str:
        return self.name


def _in_float64(formula: Callable[[Wide], Any]) -> Function:
    """The float32 function of a formula on float64, a block of rows at a time so that scratch stays in the cache.

    The formula gets an array of its own, which it may overwrite.
    """

    def function(x: Array, out: Array) -> None:
        rows = max(1, _BLOCK // max(1, math.prod(x.shape[1:])))
        for start in range(0, len(x), rows):
            out[start : start + rows] = formula(x[start : start + rows].astype(np.float64))

    function.__doc__ = formula.__doc__
    return function


_BLOCK: Final = 1 << 13  # elements
_NO_SLOPE: Final = np.float32(0)
_ONE: Final = np.ones((), np.float32)


def _copy(x: Array, out: Array) -> None:
    np.multiply(x, _ONE, out)  # an assignment can be far slower, see `nki.dtypes`


def _prelu(x: Array, out: Array, relu_param: Any = _NO_SLOPE) -> None:
    """`x` where `x >= 0`, else `relu_param * x`; only `activate2` has a parameter to pass."""
    out[...] = np.where(x >= 0, x, relu_param * x)


def _log(x: Array, out: Array) -> None:
    np.log(x, out=out, dtype=np.float64, casting="same_kind")


def _sin(x: Array, out: Array) -> None:
    """Sine on [-pi, pi], outside of it a cubic.

    There is no range reduction. Documented is that a cubic takes over and that sin(9.0) is about 27.65; the third
    order expansion of the sine about +-pi, (|x| - pi)^3 / 6 - (|x| - pi), joins smoothly and gives 27.652.
    """
    outside = np.abs(x) > np.float32(math.pi)
    far = x[outside].astype(np.float64) if outside.any() else None
    np.sin(x, out=out, dtype=np.float64, casting="same_kind")
    if far is not None:
        beyond = np.abs(far) - math.pi
        out[outside] = np.sign(far) * (beyond * beyond * beyond / 6 - beyond)


def _logistic(x: Wide) -> Wide:
    """`1 / (1 + exp(-x))`, in place."""
    np.negative(x, x)
    np.exp(x, x)
    np.add(x, 1.0, x)
    np.reciprocal(x, x)
    return x


def _swish(slope: float) -> Function:
    """`x * sigmoid(slope * x)`, as `x / (1 + exp(-slope * x))`."""

    def formula(x: Wide) -> Wide:
        power: Wide = np.multiply(x, -slope)
        np.exp(power, power)
        np.add(power, 1.0, power)
        return np.divide(x, power, x)

    return _in_float64(formula)


def _swish_dx(slope: float) -> Function:
    """The derivative of `x * sigmoid(slope * x)`: `s * (1 + slope * x * (1 - s))`."""

    def formula(x: Wide) -> Wide:
        inner = slope * x
        return _logistic(inner.copy()) * (1 + inner * _logistic(-inner))

    return _in_float64(formula)


def _gelu_tanh(x: Wide) -> Wide:
    """`0.5 x (1 + tanh(u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`, as `x * sigmoid(2 u)`."""
    return x * _logistic(math.sqrt(8 / math.pi) * (x + 0.044715 * (x * x * x)))


def _mish(x: Wide) -> Wide:
    """`x * tanh(ln(1 + e^x))`, as `x * n / (n + 2)` with `n = e^x (e^x + 2)`."""
    power: Wide = np.exp(np.minimum(x, 30.0))  # the quotient is 1 from there on
    numerator = power * (power + 2)
    return x * (numerator / (numerator + 2))


def _softplus(x: Wide) -> Wide:
    """`ln(1 + e^x)`."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


# erfc(z) = exp(-z^2) * P(z) / Q(z) for z >= 0, coefficients from the constant term up. A least-squares fit on 160
# Chebyshev nodes of [0, 12], reweighted towards equal relative error: 2.4e-14 at most.
_P: Final = (
    *(0.999999999999978253, 1.80067529266998075, 1.6005543229400739, 0.878771510498532384),
    *(0.31820134450121408, 0.0758176263104421468, 0.0110657283827597333, 0.000775103381362802155),
)
_Q: Final = (
    *(1.0, 2.92905445976080809, 3.9056383547856021, 3.10901078034247702, 1.62409535468549514),
    *(0.573803324549094353, 0.135070191663574253, 0.0196134919704861542, 0.00137383498573538577),
)


def _polynomial(x: Wide, coefficients: tuple[float, ...]) -> Wide:
    """Horner's scheme; the first coefficient is the constant term."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        np.multiply(value, x, value)
        np.add(value, coefficient, value)
    return value


def _erfc(z: Wide) -> Wide:
    """The complementary error function of `z >= 0`, accurate relative to its value."""
    z = np.minimum(z, 39.0)  # the exponential is 0 from there on
    return np.exp(-z * z) * (_polynomial(z, _P) / _polynomial(z, _Q))


def _erf(x: Wide) -> Wide:
    """`2/sqrt(pi)` times the integral of `exp(-t^2)` from 0 to x."""
    square = x * x
    series = np.abs(x) * (2 / math.sqrt(math.pi)) * (1 - square / 3 + square * square / 10)
    return np.copysign(np.where(square < 1e-4, series, 1 - _erfc(np.abs(x))), x)


def _erf_dx(x: Wide) -> Wide:
    """`2/sqrt(pi) * exp(-x^2)`."""
    return np.exp(-x * x) * (2 / math.sqrt(math.pi))


def _normal_cdf(x: Wide) -> Wide:
    """Phi, the distribution function of the normal distribution."""
    tail = 0.5 * _erfc(np.abs(x) * math.sqrt(0.5))
    return np.where(x < 0, tail, 1 - tail)


def _gelu(x: Wide) -> Wide:
    """`x * Phi(x)`."""
    return x * _normal_cdf(x)


def _gelu_dx(x: Wide) -> Wide:
    """`Phi(x) + x * phi(x)`, phi the normal density."""
    return _normal_cdf(x) + x * (np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


_SIGMOID_SLOPE: Final = 1.702  # of the sigmoid approximation of gelu

# The tables are an ESTIMATE: one set for each family of functions. What needs no table, "any" set has.
_ROWS: Final = (
    ActivationFunction("copy", _copy, "any", "x"),
    ActivationFunction("square", np.square, "any", "x * x"),
    ActivationFunction("relu", relu, "any", "max(x, 0)"),
    ActivationFunction("prelu", _prelu, "any", "x if x >= 0 else relu_param * x"),
    ActivationFunction("sign", np.sign, "any", "-1, 0 or 1"),
    ActivationFunction("abs", np.absolute, "any", "x without its sign"),
    ActivationFunction("exp", exp, "exp", "e^x"),
    ActivationFunction("log", _log, "log", "ln x", (2.0**-64, 2.0**64)),
    ActivationFunction("sigmoid", _in_float64(_logistic), "sigmoid", "1 / (1 + e^-x)"),
    ActivationFunction("silu", _swish(1.0), "sigmoid", "x * sigmoid(x)"),
    ActivationFunction("silu_dx", _swish_dx(1.0), "sigmoid", "the derivative of silu"),
    ActivationFunction("gelu_apprx_sigmoid", _swish(_SIGMOID_SLOPE), "sigmoid", "x * sigmoid(1.702 x)"),
    ActivationFunction("gelu_apprx_sigmoid_dx", _swish_dx(_SIGMOID_SLOPE), "sigmoid", "its derivative"),
    ActivationFunction("tanh", _in_float64(np.tanh), "tanh", "tanh x"),
    ActivationFunction(
        "gelu_apprx_tanh", _in_float64(_gelu_tanh), "tanh", "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))"
    ),
    ActivationFunction("softplus", _in_float64(_softplus), "tanh", "ln(1 + e^x)"),
    ActivationFunction("mish", _in_float64(_mish), "tanh", "x * tanh(softplus(x))"),
    ActivationFunction("erf", _in_float64(_erf), "erf", "the error function"),
    ActivationFunction("erf_dx", _in_float64(_erf_dx), "erf", "2/sqrt(pi) * e^(-x^2)"),
    ActivationFunction("gelu", _in_float64(_gelu), "erf", "x * Phi(x) = 0.5 x (1 + erf(x / sqrt 2))"),
    ActivationFunction("gelu_dx", _in_float64(_gelu_dx), "erf", "the derivative of gelu"),
    ActivationFunction("sin", _sin, "trig", "sin x; a cubic outside the valid range", (-math.pi, math.pi)),
    ActivationFunction("arctan", np.arctan, "trig", "arctan x", (-math.pi / 2, math.pi / 2)),
    ActivationFunction("sqrt", np.sqrt, "root", "the square root", (2.0**-116, 2.0**118)),
    ActivationFunction("rsqrt", rsqrt, "root", "1 / sqrt(x)", (2.0**-87, 2.0**97)),
    ActivationFunction("reciprocal", np.reciprocal, "root", "1 / x", (2.0**-42, 2.0**42), by_magnitude=True),
)

ACTIVATIONS: Final[dict[str, ActivationFunction]] = {row.name: row for row in _ROWS}


def as_activation(token: object) -> ActivationFunction:
    """The function that a token stands for: as `as_alu_op`, with `np.exp`, `np.tanh`, ... among NumPy's."""
    if isinstance(token, ActivationFunction):
        return token
    name = token_name(token)
    if name is None or name not in ACTIVATIONS:
        raise operator_error(token, "an activation function", ACTIVATIONS)
    return ACTIVATIONS[name]
