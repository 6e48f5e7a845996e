"""Steps that apply ALU operators: bit patterns, immediates, operand order, and exact 32-bit integers.

What an operator computes is in `alu.py`. Here it is put on the arrays that an instruction's `semantics` was given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nki import dtypes
from nki.dtypes import DType, cast_into, round_tf32
from nki.isa.alu import AluOp

Array = NDArray[Any]
Step = tuple[Any, tuple[Any, ...]]

INT32_TYPES = (dtypes.int32, dtypes.uint32)
"""The types that integer arithmetic is exact on."""

INT32_LINEAR = ("add", "subtract", "multiply")
"""The operators that the last release with a list of them named as having an integer form."""


def apply(operator: AluOp, x: Array, y: Array | None, out: Array, reverse: bool = False) -> Step:
    """The call for `out = x op y`, or `y op x` if reversed; `y` is not looked at by a unary operator."""
    if operator.arity == 1:
        return operator.function, (x, out)
    return operator.function, ((y, x, out) if reverse else (x, y, out))


def fold(operator: AluOp, array: Array, axes: tuple[int, ...], out: Array) -> Step:
    """The call that reduces `axes` of `array` into `out`, which has these axes with size 1 or not at all."""
    if operator.reduce_function is None:
        raise TypeError(f"{operator.name} reduces nothing; the instruction must refuse it")
    return operator.reduce_function, (array, axes, out)


def bits(array: Array) -> Array:
    """The array as unsigned integers of its width: what bit operators work on."""
    return array if array.dtype.kind == "u" else array.view(f"u{array.itemsize}")


def float_operand(value: Any) -> Any:
    """A number as a float32 constant; arrays and `None` stay as they are."""
    if value is None or isinstance(value, np.ndarray):
        return value
    with np.errstate(over="ignore"):
        return np.array(value, np.float64).astype(np.float32)


def integer_operand(value: Any, like: Array) -> Any:
    """A Python integer as a constant of the type of `like`, its upper bits cut off; arrays stay as they are."""
    if value is None or isinstance(value, np.ndarray):
        return value
    width = 8 * like.itemsize
    return np.array(int(value) % (1 << width), f"u{like.itemsize}").view(like.dtype)


def bit_operand(value: Any, like: Array) -> Any:
    """The operand of a bit operator: a pattern as wide as `like` for a number, the bits of an array."""
    return bits(value) if isinstance(value, np.ndarray) else integer_operand(value, like)


def apply_exact(operator: AluOp, x: Array, y: Array, out: Array, reverse: bool = False) -> Step:
    """The call for a 32-bit integer operator; what leaves the 32 bits wraps around (two's complement).

    Of mixed signedness the operands are taken by value and the low 32 bits of the result are kept.
    """
    if x.dtype == y.dtype == out.dtype or (operator.compare and x.dtype == y.dtype):
        return apply(operator, x, y, out, reverse)
    return _apply_mixed, ((operator, y, x, out) if reverse else (operator, x, y, out))


def _apply_mixed(operator: AluOp, x: Array, y: Array, out: Array) -> None:
    wide = np.empty(np.broadcast_shapes(x.shape, y.shape), np.int64)
    operator.function(x.astype(np.int64), y.astype(np.int64), wide)
    np.copyto(out, wide, casting="unsafe")


def constant(values: Array, dtype: DType, storage: np.dtype[Any]) -> Array:
    """Float32 or int32 values converted once, while planning, to what a tile of `dtype` stores."""
    result = np.empty(values.shape, storage)
    with np.errstate(all="ignore"):
        if dtype.is_integer and values.dtype.kind == "i" and dtype.itemsize == values.itemsize:
            np.copyto(result, values.view(f"u{values.itemsize}"), casting="unsafe")
        else:
            cast_into(result, values)
        if dtype is dtypes.tfloat32:
            round_tf32(result, result)
    return result
