"""softmax and rms_norm. Over all free axes the sums come with the activation, in one instruction."""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.dtypes import DType
from nki.language.binary import combine
from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, require_tile
from nki.language.reductions import fold, free_axes
from nki.language.selection import broadcast_to
from nki.language.unary import activate
from nki.tensor import NkiTensor


def _with_sum(
    what: str, function: str, x: NkiTensor, axes: tuple[int, ...], dtype: DType, bias: NkiTensor | None = None
) -> tuple[NkiTensor, NkiTensor]:
    """function(x + bias) and its sum over the axes (kept), both in `dtype` and float32."""
    shape = (*x.shape[: axes[0]], *[1] * len(axes))
    if axes[0] == 1:
        values, total = fresh(x.shape, dtype, name=function), fresh(shape, dtypes.float32, name="total")
        nisa.activation_reduce(values, op=function, data=x, reduce_op="add", reduce_res=total, bias=bias)
        return values, total
    shifted = x if bias is None else combine("add", x, bias, dtypes.float32, "shifted")
    values = activate(function, shifted, dtype, name=function)
    return values, fold(what, "add", values, axes, dtypes.float32, True, name="total")


def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x) divided by its sum along the last free axes; the largest element is subtracted first."""
    tile = require_tile("softmax", x)
    axes = free_axes("softmax", tile, axis)
    largest = fresh((*tile.shape[: axes[0]], *[1] * len(axes)), dtypes.float32, name="minus_max")
    nisa.tensor_reduce(largest, "maximum", tile, axis=axes, negate=True)
    values, total = _with_sum("softmax", "exp", tile, axes, dtypes.float32, largest)
    inverse = fresh(total.shape, dtypes.float32, name="reciprocal")
    nisa.reciprocal(inverse, total)
    return combine("multiply", values, inverse, as_kind(dtype, tile.dtype))


def rms_norm(
    x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-06, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w along the last free axes.

    `w` has the shape of `x`, or size 1 where it is to be repeated (one row for all partitions too). Intermediate
    values are kept in `compute_dtype`, float32 if not given.
    """
    tile, weight = require_tile("rms_norm", x), require_tile("rms_norm", w, "w")
    kind = as_kind(compute_dtype, dtypes.float32)
    _, total = _with_sum("rms_norm", "square", tile, free_axes("rms_norm", tile, axis), kind)
    mean = fresh(total.shape, dtypes.float32, name="mean_square")
    nisa.tensor_scalar(mean, total, op0="multiply", operand0=1.0 / n, op1="add", operand1=float(epsilon))
    scale = activate("rsqrt", mean, dtypes.float32, name="scale")
    normal = combine("multiply", tile, scale, kind, "normal")
    if weight.shape[0] != tile.shape[0]:
        weight = broadcast_to(weight, (tile.shape[0], *weight.shape[1:]))
    return combine("multiply", normal, weight, as_kind(dtype, tile.dtype))
