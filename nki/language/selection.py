"""Choosing and repeating elements: where, broadcast_to, expand_dims."""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.dtypes import DType, as_dtype
from nki.ir.program import Shape
from nki.language.creation import checked_shape
from nki.language.instructions import nisa
from nki.language.memory import hbm, psum, sbuf, target
from nki.language.operands import as_kind, as_number, common_shape, fresh, promoted, require_tile, stretched
from nki.span import capture
from nki.tensor import NkiTensor


def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where `condition` differs from 0, y elsewhere. x and y are tiles or numbers.

    Elements are chosen, not added up: infinities and NaN on the side not taken do no harm.
    """
    choice = require_tile("where", condition, "condition")
    shape = common_shape("where", *(t for t in (choice, x, y) if isinstance(t, NkiTensor)))
    kind = as_kind(dtype, _default(choice, x, y))
    out, mask = fresh(shape, kind), fresh(shape, dtypes.uint8, name="mask")
    nisa.tensor_scalar(mask, stretched("where", choice, shape), op0="not_equal", operand0=0.0)
    if isinstance(y, NkiTensor):
        nisa.tensor_copy(out, stretched("where", y, shape))
    else:
        nisa.memset(out, _number("y", y))
    nisa.tensor_copy_predicated(out, _chosen(x, shape, kind), mask)
    return out


def _chosen(x: Any, shape: Shape, dtype: DType) -> Any:
    """What is copied where the condition holds: a number, or a tile of this dtype."""
    if not isinstance(x, NkiTensor):
        return _number("x", x)
    if x.dtype == dtype:
        return stretched("where", x, shape)
    cast = fresh(x.shape, dtype, name="cast")
    nisa.tensor_copy(cast, x)
    return stretched("where", cast, shape)


def _number(name: str, x: Any) -> float | int | bool:
    number = as_number(x)
    if number is None:
        require_tile("where", x, name)
    assert number is not None
    return number


def _default(choice: NkiTensor, x: Any, y: Any) -> DType:
    if isinstance(x, NkiTensor) or isinstance(y, NkiTensor):
        return promoted(x, y)
    return choice.dtype if choice.dtype.is_float else dtypes.float32


def expand_dims(x: Any, axis: Any) -> NkiTensor:
    """A view with a new dimension of size 1 at position `axis`."""
    return require_tile("expand_dims", x).expand_dim(axis)


def broadcast_to(x: Any, shape: Any, dtype: Any = None) -> NkiTensor:
    """`x` repeated along its dimensions of size 1, as a new tile in SBUF; `x` itself if nothing changes.

    A single partition is carried to the others by a matmul with a row of ones, which is exact, or, for 32-bit
    integers, through HBM.
    """
    tile = require_tile("broadcast_to", x)
    sizes = checked_shape(shape, sbuf)
    kind = tile.dtype if dtype is None else as_dtype(dtype)
    if tile.shape == sizes and tile.dtype == kind:
        return tile
    if tile.ndim != len(sizes) or any(n not in (1, size) for n, size in zip(tile.shape, sizes)):
        raise errors.ShapeError(
            f"nl.broadcast_to: {list(tile.shape)} cannot be repeated to {list(sizes)}",
            operand="shape",
            found=list(tile.shape),
            allowed="the same number of dimensions, each equal or 1",
            remedy="insert dimensions first with nl.expand_dims",
            span=capture(),
        )
    row = tile
    if tile.shape[0] == sizes[0] or tile.shape[1:] != sizes[1:] or tile.buffer is psum:
        row = fresh((tile.shape[0], *sizes[1:]), kind, name="" if tile.shape[0] == sizes[0] else "row")
        nisa.tensor_copy(row, stretched("broadcast_to", tile, row.shape))
    return row if row.shape == sizes else _to_partitions(row, sizes, kind)


def _to_partitions(row: NkiTensor, shape: Shape, dtype: DType) -> NkiTensor:
    """A row of one partition copied to all partitions of a new tile."""
    out = fresh(shape, dtype)
    flat, result = row.reshape((1, row.size)), out.reshape((shape[0], row.size))
    if row.dtype in (dtypes.int32, dtypes.uint32) or row.dtype.kind == "packed":
        through = fresh(flat.shape, row.dtype, hbm, "row")
        nisa.dma_copy(dst=through, src=flat)
        nisa.dma_copy(dst=result, src=through.broadcast(0, shape[0]))
        return out
    if not row.dtype.is_float or row.dtype == dtypes.float8_e8m0fnu:
        wide = fresh(flat.shape, dtypes.float32, name="wide")
        nisa.tensor_copy(wide, flat)
        flat = wide
    ones = fresh((1, shape[0]), flat.dtype, name="ones")
    nisa.memset(ones, 1.0)
    width = target().gemm_moving_fmax
    for start in range(0, row.size, width):
        part = flat[:, start : min(start + width, row.size)]
        bank = fresh((shape[0], part.size), dtypes.float32, psum, "repeated")
        nisa.nc_matmul(bank, stationary=ones, moving=part)
        nisa.tensor_copy(result[:, start : start + part.size], bank)
    return out
