"""Rounding to integers and remainders, made of arithmetic and the conversion to int32, which rounds to nearest.

`floor` and its relatives subtract the fraction, found on a copy of x that is limited to what int32 holds: beyond
2**30 a float32 is an integer anyway, so that every x, infinities and NaN included, comes out right.
"""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.language.binary import combine, divide
from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, operand_pair, promoted, require_tile
from nki.language.unary import activate, copy
from nki.tensor import NkiTensor

_LIMIT = float(2**30)


def _distance(x: NkiTensor) -> NkiTensor:
    """x minus the nearest integer, in float32; 0 for large magnitudes."""
    bounded = fresh(x.shape, dtypes.float32, name="bounded")
    nearest = fresh(x.shape, dtypes.int32, name="nearest")
    distance = fresh(x.shape, dtypes.float32, name="distance")
    nisa.tensor_scalar(bounded, x, op0="maximum", operand0=-_LIMIT, op1="minimum", operand1=_LIMIT)
    nisa.tensor_copy(nearest, bounded)
    nisa.tensor_tensor(distance, bounded, nearest, op="subtract")
    return distance


def _below(x: NkiTensor) -> NkiTensor:
    """x - floor(x) in [0, 1)."""
    distance = _distance(x)
    fraction = fresh(x.shape, dtypes.float32, name="fraction")
    nisa.scalar_tensor_tensor(fraction, distance, op0="less", operand0=0.0, op1="add", operand1=distance)
    return fraction


def floor(x: Any, dtype: Any = None) -> NkiTensor:
    """The largest integer that is not above x."""
    tile = require_tile("floor", x)
    if tile.dtype.is_integer:
        return copy(tile, dtype)  # type: ignore[no-any-return]
    return combine("subtract", tile, _below(tile), as_kind(dtype, tile.dtype))


def ceil(x: Any, dtype: Any = None) -> NkiTensor:
    """The smallest integer that is not below x."""
    tile = require_tile("ceil", x)
    if tile.dtype.is_integer:
        return copy(tile, dtype)  # type: ignore[no-any-return]
    distance = _distance(tile)
    missing = fresh(tile.shape, dtypes.float32, name="missing")
    nisa.scalar_tensor_tensor(
        missing, distance, op0="greater", operand0=0.0, op1="subtract", operand1=distance
    )
    return combine("add", tile, missing, as_kind(dtype, tile.dtype))


def trunc(x: Any, dtype: Any = None) -> NkiTensor:
    """x without its fraction: the nearest integer towards 0."""
    tile = require_tile("trunc", x)
    if tile.dtype.is_integer:
        return copy(tile, dtype)  # type: ignore[no-any-return]
    fraction = _below(activate("abs", tile, dtypes.float32, name="magnitude"))
    signed = combine(
        "multiply", activate("sign", tile, dtypes.float32, name="sign"), fraction, dtypes.float32, "signed"
    )
    return combine("subtract", tile, signed, as_kind(dtype, tile.dtype))


def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The remainder with the sign of y, x - y * floor(x / y). Exact if x and the product fit 24 bits."""
    x, y = operand_pair("mod", x, y)
    side, divisor = _sign_and_magnitude(y)
    rest = _remainder(_do("multiply", x, side), divisor)
    return combine("multiply", rest, side, as_kind(dtype, promoted(x, y)))


def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """The remainder with the sign of x, x - y * trunc(x / y). Exact if x and the product fit 24 bits."""
    x, y = operand_pair("fmod", x, y)
    side, magnitude = _sign_and_magnitude(x)
    rest = _remainder(magnitude, _sign_and_magnitude(y)[1])
    return combine("multiply", rest, side, as_kind(dtype, promoted(x, y)))


def _sign_and_magnitude(x: Any) -> tuple[Any, Any]:
    """x = sign * magnitude, as numbers or as float32 tiles. The number 0 counts as positive."""
    if isinstance(x, NkiTensor):
        return activate("sign", x, dtypes.float32, name="sign"), activate(
            "abs", x, dtypes.float32, name="magnitude"
        )
    return (-1.0 if x < 0 else 1.0), abs(float(x))


def _do(op: str, x: Any, y: Any) -> NkiTensor:
    """An intermediate value in float32."""
    return combine(op, x, y, dtypes.float32, op)


def _remainder(x: Any, divisor: Any) -> NkiTensor:
    """x - divisor * floor(x / divisor) for a positive divisor. The quotient may be one off, which is put right."""
    rest = _do("subtract", x, _do("multiply", floor(divide(x, divisor, dtypes.float32)), divisor))
    rest = _do("add", rest, _do("multiply", _do("less", rest, 0.0), divisor))
    return _do("subtract", rest, _do("multiply", _do("greater_equal", rest, divisor), divisor))
