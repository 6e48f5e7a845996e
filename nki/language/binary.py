"""Functions of two operands, element by element: one instruction each.

A number becomes an immediate, a float32 column (P, 1) the per-partition operand of `tensor_scalar`; other tiles meet
in `tensor_tensor`, the smaller one read repeatedly. Each function is at the same time the token of its operator.
"""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.dtypes import DType
from nki.isa.alu import ALU
from nki.language.instructions import nisa
from nki.language.memory import psum
from nki.language.operands import (
    as_kind,
    common_shape,
    fresh,
    in_sbuf,
    is_column,
    named,
    operand_pair,
    promoted,
    stretched,
)
from nki.span import capture
from nki.tensor import NkiTensor


def combine(op: str, x: Any, y: Any, dtype: Any = None, name: str = "") -> NkiTensor:
    """x op y as a new tile in SBUF; `name` labels an intermediate value."""
    x, y = operand_pair(op, x, y)
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        return _tiles(op, x, y, dtype, name)
    tile, number = (x, y) if isinstance(x, NkiTensor) else (y, x)
    out = fresh(tile.shape, as_kind(dtype, _default(op, x, y)), name=name)
    nisa.tensor_scalar(out, _reachable(op, tile), op0=op, operand0=number, reverse0=tile is y)
    return out


def _default(op: str, x: NkiTensor | float, y: NkiTensor | float) -> DType:
    """Rule 21: comparisons give the type of the (first) input tile."""
    if ALU[op].compare:
        tile = x if isinstance(x, NkiTensor) else y
        assert isinstance(tile, NkiTensor)
        return tile.dtype
    return promoted(x, y)


def _reachable(op: str, x: NkiTensor) -> NkiTensor:
    """`x` where the operator's engine can read it: GpSimd has no path to PSUM."""
    return x if nisa.engine.vector in ALU[op].engines else in_sbuf(x)


def _tiles(op: str, x: NkiTensor, y: NkiTensor, dtype: Any, name: str) -> NkiTensor:
    shape = common_shape(op, x, y)
    out = fresh(shape, as_kind(dtype, _default(op, x, y)), name=name)
    x, y = _reachable(op, x), _reachable(op, y)
    if x.shape != y.shape and ALU[op].kind == "arith":
        for tile, column in ((x, y), (y, x)):
            if tile.shape == shape and is_column(column) and column.dtype == dtypes.float32:
                column = stretched(op, column, (shape[0], *column.shape[1:]))
                nisa.tensor_scalar(out, tile, op0=op, operand0=column, reverse0=tile is y)
                return out
    if x.buffer is psum and y.buffer is psum:
        y = in_sbuf(y)
    nisa.tensor_tensor(out, stretched(op, x, shape), stretched(op, y, shape), op=op)
    return out


def _binary(op: str, doc: str) -> Any:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return combine(op, x, y, dtype)

    return named(function, op, f"{doc}, element by element. x and y are tiles, or one of them a number.", op)


add = _binary("add", "x + y")
subtract = _binary("subtract", "x - y")
multiply = _binary("multiply", "x * y")
maximum = _binary("maximum", "The larger of x and y")
minimum = _binary("minimum", "The smaller of x and y")
abs_max = _binary("abs_max", "The one of larger magnitude, with its sign, y on a tie (trn3)")
abs_min = _binary("abs_min", "The one of smaller magnitude, with its sign, y on a tie (trn3)")
power = _binary("power", "x to the power y")
equal = _binary("equal", "1 where x = y, else 0")
not_equal = _binary("not_equal", "1 where x and y differ, else 0")
less = _binary("less", "1 where x < y, else 0")
less_equal = _binary("less_equal", "1 where x <= y, else 0")
greater = _binary("greater", "1 where x > y, else 0")
greater_equal = _binary("greater_equal", "1 where x >= y, else 0")
bitwise_and = _binary("bitwise_and", "The bits set in both integers")
bitwise_or = _binary("bitwise_or", "The bits set in either integer")
bitwise_xor = _binary("bitwise_xor", "The bits set in exactly one of the integers")
left_shift = _binary("left_shift", "The bits of x moved up by y places")
right_shift = _binary("right_shift", "The bits of x moved down by y places, zeros moving in")
logical_and = _binary("logical_and", "1 where x and y are both true, else 0 (operands of 0 and 1)")
logical_or = _binary("logical_or", "1 where x or y is true, else 0 (operands of 0 and 1)")
logical_xor = _binary("logical_xor", "1 where exactly one of x and y is true, else 0 (operands of 0 and 1)")


def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x / y, element by element: the reciprocal of y, then a product (the hardware has no division)."""
    x, y = operand_pair("divide", x, y)
    kind = promoted(x, y)
    kind = as_kind(dtype, kind if kind.is_float else dtypes.float32)
    if isinstance(y, NkiTensor):
        inverse = fresh(y.shape, dtypes.float32, name="reciprocal")
        nisa.reciprocal(inverse, y)
        return combine("multiply", x, inverse, kind)
    if y == 0:
        raise errors.ArgumentError(
            "nl.divide: `y` is the number 0",
            operand="y",
            found=y,
            allowed="a number other than 0, or a tile",
            remedy="check the divisor in Python",
            span=capture(),
        )
    return combine("multiply", x, 1.0 / y, kind)
