"""Reductions over the last free axes: sum, maximum, minimum, product, mean, variance, all (semantics rules 78, 82).

The partition axis cannot be reduced by these; without `keepdims` a result still has its two dimensions.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

from nki import dtypes, errors
from nki.dtypes import DType
from nki.ir.program import Shape
from nki.language.binary import combine
from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, named, require_tile
from nki.span import capture
from nki.tensor import NkiTensor
from nki.views import as_index


def free_axes(what: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The numbers of the axes to reduce: the last ones, never axis 0."""
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(as_index(a, f"nl.{what}: `axis`") for a in given))
    axes = tuple(sorted(a + x.ndim if a < 0 else a for a in axes))
    if 0 in axes:
        raise errors.ShapeError(
            f"nl.{what}: axis 0 is the partition axis and cannot be reduced",
            operand="axis",
            found=axis,
            allowed=f"the last axes of {list(x.shape)}",
            remedy="sum over partitions with a matmul by ones (nl.matmul(ones, x, transpose_x=True)), "
            "or transpose first with nl.transpose",
            span=capture(2),
        )
    if not axes or axes != tuple(range(x.ndim - len(axes), x.ndim)):
        raise errors.ShapeError(
            f"nl.{what}: axes {list(axes)} are not the last axes of {list(x.shape)}",
            operand="axis",
            found=axis,
            allowed=" or ".join(str(list(range(first, x.ndim))) for first in range(x.ndim - 1, 0, -1)),
            remedy="bring them to the end with permute",
            span=capture(2),
        )
    return axes


def reduced_shape(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape that is left."""
    kept = x.shape[: axes[0]]
    if keepdims:
        return (*kept, *[1] * len(axes))
    return kept if len(kept) > 1 else (*kept, 1)


def fold(
    what: str, op: str, x: NkiTensor, axis: Any, dtype: DType, keepdims: bool, name: str = ""
) -> NkiTensor:
    """`x` folded with an operator over its last axes, as a new tile."""
    axes = free_axes(what, x, axis)
    out = fresh(reduced_shape(x, axes, keepdims), dtype, name=name)
    nisa.tensor_reduce(out, op, x, axis=axes)
    return out


def _reduction(what: str, op: str, doc: str, token: str | None = None) -> Any:
    def function(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
        tile = require_tile(what, x)
        return fold(what, op, tile, axis, as_kind(dtype, tile.dtype), keepdims)

    return named(function, what, f"{doc} along the last free axes, e.g. axis=1 or axis=[1, 2].", token)


sum = _reduction("sum", "add", "The sum of the elements")
max = _reduction("max", "maximum", "The largest element", "maximum")
min = _reduction("min", "minimum", "The smallest element", "minimum")
prod = _reduction("prod", "multiply", "The product of the elements")


def mean(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The arithmetic mean along the last free axes, computed in float32."""
    tile = require_tile("mean", x)
    count = product(tile.shape[a] for a in free_axes("mean", tile, axis))
    total = fold("mean", "add", tile, axis, dtypes.float32, keepdims, name="total")
    return combine("multiply", total, 1.0 / count, as_kind(dtype, tile.dtype))


def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """The variance (of the population) along the last free axes, which are always kept with size 1."""
    tile = require_tile("var", x)
    count = product(tile.shape[a] for a in free_axes("var", tile, axis))
    centre = mean(tile, axis, dtypes.float32, keepdims=True)
    deviation = combine("subtract", tile, centre, dtypes.float32, "deviation")
    squares = combine("multiply", deviation, deviation, dtypes.float32, "squares")
    total = fold("var", "add", squares, axis, dtypes.float32, True, name="total")
    return combine("multiply", total, 1.0 / count, as_kind(dtype, tile.dtype))


def all(x: Any, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where every element along the last free axes differs from 0, else 0."""
    tile = require_tile("all", x)
    return fold("all", "logical_and", tile, axis, as_kind(dtype, tile.dtype), False)
