"""Functions of one operand, element by element: one instruction each, on the Scalar engine unless noted.

Those of the Scalar engine's tables are at the same time the tokens of `nisa.activation`. The result has the type of
the input unless `dtype=` is given (semantics rule 21).
"""

from __future__ import annotations

from typing import Any

from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, named, require_tile
from nki.tensor import NkiTensor


def activate(function: str, x: NkiTensor, dtype: Any = None, name: str = "") -> NkiTensor:
    """A function of the Scalar engine applied to a tile, as a new tile in SBUF."""
    out = fresh(x.shape, as_kind(dtype, x.dtype), name=name)
    nisa.activation(out, op=function, data=x)
    return out


def _activation(name: str, doc: str) -> Any:
    def function(x: Any, dtype: Any = None) -> NkiTensor:
        return activate(name, require_tile(name, x), dtype)

    return named(function, name, f"{doc}, element by element.", name)


abs = _activation("abs", "The magnitude of x")
arctan = _activation("arctan", "The angle whose tangent is x")
erf = _activation("erf", "The error function")
erf_dx = _activation("erf_dx", "The derivative of the error function, 2/sqrt(pi) exp(-x^2)")
exp = _activation("exp", "e to the power x")
gelu = _activation("gelu", "GELU, x times the normal distribution function of x")
gelu_apprx_sigmoid = _activation("gelu_apprx_sigmoid", "GELU approximated by x sigmoid(1.702 x)")
gelu_apprx_sigmoid_dx = _activation("gelu_apprx_sigmoid_dx", "The derivative of gelu_apprx_sigmoid")
gelu_apprx_tanh = _activation("gelu_apprx_tanh", "GELU approximated with a hyperbolic tangent")
gelu_dx = _activation("gelu_dx", "The derivative of GELU")
log = _activation("log", "The natural logarithm")
mish = _activation("mish", "Mish, x tanh(softplus(x))")
relu = _activation("relu", "The larger of x and 0")
sigmoid = _activation("sigmoid", "1 / (1 + exp(-x))")
sign = _activation("sign", "-1, 0 or 1, by the sign of x")
silu = _activation("silu", "SiLU, x sigmoid(x)")
silu_dx = _activation("silu_dx", "The derivative of SiLU")
softplus = _activation("softplus", "log(1 + exp(x))")
sqrt = _activation("sqrt", "The square root")
square = _activation("square", "x * x")
tanh = _activation("tanh", "The hyperbolic tangent")


def _reciprocal(x: Any, dtype: Any = None) -> NkiTensor:
    tile = require_tile("reciprocal", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    nisa.reciprocal(out, tile)
    return out


def _rsqrt(x: Any, dtype: Any = None) -> NkiTensor:
    tile = require_tile("rsqrt", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    nisa.tensor_scalar(out, tile, op0="rsqrt", operand0=0.0, engine=nisa.engine.gpsimd)
    return out


def _copy(x: Any, dtype: Any = None) -> NkiTensor:
    tile = require_tile("copy", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    nisa.tensor_copy(out, tile)
    return out


def _invert(x: Any, dtype: Any = None) -> NkiTensor:
    tile = require_tile("invert", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    ones = -1 if tile.dtype.kind == "int" else (1 << 8 * tile.dtype.itemsize) - 1
    nisa.tensor_scalar(out, tile, op0="bitwise_xor", operand0=ones)
    return out


reciprocal = named(_reciprocal, "reciprocal", "1 / x, on the Vector engine.", "reciprocal")
rsqrt = named(_rsqrt, "rsqrt", "1 / sqrt(x), on the GpSimd engine: SBUF only.", "rsqrt")
copy = named(_copy, "copy", "A copy in SBUF; bit by bit if the dtypes are equal.", "copy")
invert = named(_invert, "invert", "Every bit of an integer flipped (exclusive or with all ones).", "invert")


def negative(x: Any, dtype: Any = None) -> NkiTensor:
    """-x, element by element."""
    tile = require_tile("negative", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    nisa.tensor_scalar(out, tile, op0="multiply", operand0=-1.0 if tile.dtype.is_float else -1)
    return out


def logical_not(x: Any, dtype: Any = None) -> NkiTensor:
    """x exclusive-or 1: the negation of 0 and 1. For other values write nl.equal(x, 0)."""
    tile = require_tile("logical_not", x)
    out = fresh(tile.shape, as_kind(dtype, tile.dtype))
    integers = tile.dtype.is_integer and out.dtype.is_integer
    nisa.tensor_scalar(
        out, tile, op0="bitwise_xor" if integers else "logical_xor", operand0=1 if integers else 1.0
    )
    return out
