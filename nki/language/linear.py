"""matmul and transpose, on the Tensor engine. Both return tiles in PSUM (semantics rule 159)."""

from __future__ import annotations

from typing import Any

from nki import dtypes
from nki.language.instructions import nisa
from nki.language.memory import psum
from nki.language.operands import as_kind, fresh, in_sbuf, require_tile
from nki.tensor import NkiTensor


def transpose(x: Any, dtype: Any = None) -> NkiTensor:
    """The tile with partitions and free elements exchanged, up to 128 by 128, in PSUM."""
    tile = require_tile("transpose", x)
    out = fresh((tile.size // tile.shape[0], tile.shape[0]), tile.dtype, psum)
    nisa.nc_transpose(out, in_sbuf(tile))
    kind = as_kind(dtype, tile.dtype)
    if kind == tile.dtype:
        return out
    cast = fresh(out.shape, kind, psum)
    nisa.tensor_copy(cast, out)
    return cast


def matmul(x: Any, y: Any, transpose_x: bool = False) -> NkiTensor:
    """x @ y in float32, in PSUM. With `transpose_x`, x is stored as (K, M) and the result is x.T @ y.

    The contraction runs over partitions: x of (M, K) is transposed first, which costs a pass of the Tensor engine.
    """
    left, right = require_tile("matmul", x), require_tile("matmul", y, "y")
    stationary = in_sbuf(left) if transpose_x else in_sbuf(transpose(left))
    columns = stationary.size // stationary.shape[0]
    out = fresh((columns, *right.shape[1:]), dtypes.float32, psum)
    nisa.nc_matmul(out, stationary=stationary, moving=in_sbuf(right))
    return out
