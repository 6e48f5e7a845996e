"""Views whose place the device decides: what a register or an index tile does to a window (semantics rules 38-43).

A view carries one `Dynamic` at most. "scalar" moves the whole window along one dimension of the tensor it was made
from; "vector" names a row of an HBM tensor for each row of the view; "indirect" (trn3) names elements of the partition.
Other view operations keep it, as long as they leave alone what the index chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki import errors, views
from nki.access_patterns import pairs_of, pattern_access, reinterpret
from nki.dtypes import DType, as_dtype
from nki.indices import INTEGERS, index_tile, is_one_value, refuse_second, row_index, scalar_index
from nki.ir.control import Dynamic
from nki.ir.program import Access
from nki.reshaping import positive_shape, reshape, restride
from nki.views import DynamicSlice, View, as_dim, as_index

_MARK = 1 << 62
"""A stride that no other dimension has: where it ends up tells what a view operation did to a dimension."""


# ---- making dynamic views ------------------------------------------------------------------------------------------


def pattern_view(
    access: Access, pattern: Any, offset: Any, kind: Any, scalar: Any, vector: Any, indirect_dim: Any
) -> Access:
    """`t.ap(pattern, ...)` with `scalar_offset` or `vector_offset`."""
    refuse_second(access, "ap")
    dtype = access.dtype if kind is None else as_dtype(kind)
    if scalar is None and vector is None:
        return pattern_access(access, pattern, offset, dtype)
    if scalar is not None and vector is not None:
        raise errors.ArgumentError(
            "ap: `scalar_offset` and `vector_offset` exclude each other",
            operand="scalar_offset, vector_offset",
            allowed="one of them",
            remedy="add the scalar to the index tile first",
        )
    dim = as_dim(indirect_dim, len(access.shape), "indirect_dim")
    stride = _rescaled(access, access.strides[dim], dtype)
    if vector is not None:
        return _rows_of_pattern(access, (pattern, offset, dtype), vector, dim, stride)
    index = scalar_index(scalar, "ap: `scalar_offset`")
    _movable(access, dim, "ap: `scalar_offset`")
    made = pattern_access(access, pattern, offset, dtype)
    return _with(made, Dynamic("scalar", index, stride, access.shape[dim]))


def _rows_of_pattern(
    access: Access, fixed: tuple[Any, Any, DType], vector: Any, dim: int, stride: int
) -> Access:
    pattern, offset, dtype = fixed
    _gatherable(access, dim, "ap: `vector_offset`", "indirect_dim")
    index = row_index(vector, "ap: `vector_offset`")
    (_, rows), *inner = pairs_of(pattern)
    if index.size < rows:
        raise errors.ShapeError(
            f"ap: `vector_offset` has {index.size} indices for {rows} rows",
            operand="vector_offset",
            found=index.describe(),
            allowed=f"shape ({rows}, 1)",
            remedy="make the count of the first pair the number of indices",
        )
    one = pattern_access(access, [[stride, 1], *inner], offset, dtype)
    made = Access(one.buffer, dtype, one.offset, (rows, *one.shape[1:]), (stride, *one.strides[1:]))
    return _with(made, Dynamic("vector", index, stride, access.shape[dim]))


def _rescaled(access: Access, stride: int, dtype: DType) -> int:
    """A stride of the tensor in elements of `dtype`: the index counts positions of the tensor that is indexed."""
    whole, rest = divmod(stride * access.dtype.itemsize, dtype.itemsize)
    if rest:
        raise errors.ShapeError(
            f"ap: a step of {stride} {access.dtype} is no whole number of {dtype} elements",
            operand="dtype",
            found=f"{access.dtype} reinterpreted as {dtype}",
            allowed=f"dimensions with a stride in multiples of {dtype.itemsize} bytes",
            remedy="index the tensor after view(dtype)",
        )
    return whole


def _movable(access: Access, dim: int, what: str) -> None:
    """Rule 41: on chip the partitions that an instruction works on are fixed."""
    if access.memory.on_chip and dim == 0:
        raise errors.ShapeError(
            f"{what}: dimension 0 of an on-chip tensor counts partitions, which no index moves",
            operand="indirect_dim" if what.startswith("ap") else "dim",
            found="dimension 0",
            allowed="free dimensions (1 and up)",
            remedy="name the free dimension, e.g. indirect_dim=1; to choose partitions move the rows with a DMA",
        )


def _gatherable(access: Access, dim: int, what: str, parameter: str) -> None:
    """Rules 39 and 41: rows are chosen in HBM, along dimension 0."""
    if access.memory.on_chip:
        raise errors.MemoryError_(
            f"{what}: rows are chosen in HBM; {access.describe()} is not there",
            operand=access.describe(),
            found=access.memory.value,
            allowed="a tensor in HBM",
            remedy="within SBUF use nisa.nc_n_gather or nisa.local_gather",
        )
    if dim != 0:
        raise errors.ShapeError(
            f"{what}: an index per row chooses along dimension 0, not {dim}",
            operand=parameter,
            found=dim,
            allowed=0,
            remedy="reshape the tensor so that its first dimension is the one to choose from",
        )


def selected(access: Access, dim: Any, index: Any) -> Access:
    """`t.select(dim, register or tile)`."""
    refuse_second(access, "select")
    d = as_dim(dim, len(access.shape))
    value = scalar_index(index, "select: `index`")
    _movable(access, d, "select")
    view = views.select_dim(_view(access), d, 0, access.memory.on_chip)
    return _with(_made(access, view), Dynamic("scalar", value, access.strides[d], access.shape[d]))


def rows_selected(access: Access, dim: Any, index: Any) -> Access:
    """`t.vector_select(0, tile)`: row p of the view is the row of the tensor that the p-th index names."""
    refuse_second(access, "vector_select")
    _gatherable(access, as_dim(dim, len(access.shape)), "vector_select", "dim")
    tile = row_index(index, "vector_select: `vector_offset`")
    made = Access(access.buffer, access.dtype, access.offset, (tile.size, *access.shape[1:]), access.strides)
    return _with(made, Dynamic("vector", tile, access.strides[0], access.shape[0]))


def has_device_index(key: Any) -> bool:
    """Whether a subscript contains an index or a start that the device must read."""
    items = key if type(key) is tuple else (key,)
    return any(is_one_value(k.start if type(k) is DynamicSlice else k) for k in items)


def subscripted(access: Access, key: Any) -> Access:
    """`t[...]` with one register or one-value tile, as an index or as the start of nl.ds."""
    refuse_second(access, "a subscript of the device")
    items = list(views.spread(key if type(key) is tuple else (key,), len(access.shape)))
    found = [d for d, k in enumerate(items) if has_device_index(k)]
    if len(found) > 1:
        raise errors.KernelError(
            f"a subscript has {len(found)} indices of the device",
            found=f"dimensions {', '.join(map(str, found))}",
            allowed="one dynamic index per view",
            remedy="compute one index on a tile, and apply it to the tensor in another shape",
        )
    d = found[0]
    key_d, size = items[d], access.shape[d]
    last = size
    if type(key_d) is DynamicSlice:
        index = scalar_index(key_d.start, f"`start` of nl.ds in dimension {d}")
        count = as_index(key_d.size, f"`size` of nl.ds in dimension {d}")
        items[d] = DynamicSlice(0, count)
        last = size - count + 1
    else:
        index = scalar_index(key_d, f"the subscript of dimension {d}")
        items[d] = 0
    _movable(access, d, "a subscript of the device")
    view = View(*views.subscript(*_view(access), tuple(items), access.memory.on_chip))
    return _with(_made(access, view), Dynamic("scalar", index, access.strides[d], last))


def column_view(access: Access, index: Any, num_elem: Any) -> Access:
    """`t.indirect(index, num_elem)`: the elements of each partition that its group's list of offsets names."""
    refuse_second(access, "indirect")
    tile = index_tile(index, "indirect: `index`", "a tile of offsets in SBUF", INTEGERS)
    if not access.memory.on_chip:
        raise errors.MemoryError_(
            "indirect: offsets count elements of a partition, in SBUF or PSUM",
            operand=access.describe(),
            found=access.memory.value,
            allowed="sbuf or psum",
            remedy="for rows in HBM use vector_select, or ap(..., vector_offset=...)",
        )
    steps = restride(access.shape[1:], access.strides[1:], (access.free,))
    count = tile.size if num_elem is None else as_index(num_elem, "indirect: `num_elem`")
    if (
        steps is None
        or len(tile.shape) != 2
        or tile.partitions != access.partitions
        or not 0 < count <= tile.size
    ):
        raise errors.ShapeError(
            f"indirect: {count} offsets cannot be read from {tile.describe()} for {access.describe()}",
            operand="index",
            found=f"index {list(tile.shape)}, tensor {list(access.shape)} with strides {list(access.strides)}",
            allowed=f"an index of shape ({access.partitions}, K), 1 to {tile.size} offsets, evenly spaced elements",
            remedy="make index and tensor span the same partitions",
        )
    made = Access(
        access.buffer, access.dtype, access.offset, (access.partitions, count), (access.strides[0], 0)
    )
    return _with(made, Dynamic("indirect", tile, steps[0], access.free))


# ---- views of dynamic views ----------------------------------------------------------------------------------------


def viewed(access: Access, function: Callable[..., View], *args: Any) -> Access:
    """The view that `function` makes of shape, strides and offset; a dynamic index stays."""
    dynamic = access.dynamic
    if dynamic is None or dynamic.kind == "scalar":
        return _with(_made(access, function(_view(access), *args)), dynamic)
    if dynamic.kind == "indirect":
        raise errors.ShapeError(
            "a view made by .indirect() is used as it is: its elements have no regular places",
            found=access.describe(),
            allowed="an operand of an instruction",
            remedy="slice or reshape the tensor before calling .indirect()",
        )
    if function is reshape:
        made = _reshaped_rows(access, *args)
    else:
        marked = View(access.shape, (_MARK, *access.strides[1:]), access.offset)
        made = function(marked, *args)
    moved = any(number >= _MARK >> 1 for number in (made.offset, *made.strides[1:]))
    if made.shape[:1] != access.shape[:1] or made.strides[:1] != (_MARK,) or moved:
        raise _rows_stay(access)
    return _with(
        _made(access, View(made.shape, (access.strides[0], *made.strides[1:]), made.offset)), dynamic
    )


def _reshaped_rows(access: Access, shape: Any, _on_chip: bool) -> View:
    sizes = positive_shape(shape)
    if sizes[0] != access.shape[0]:
        raise _rows_stay(access)
    inner = reshape(View(access.shape[1:], access.strides[1:], 0), sizes[1:], False)
    return View(sizes, (_MARK, *inner.strides), access.offset)


def _rows_stay(access: Access) -> errors.NkiError:
    return errors.ShapeError(
        "the rows of a view with an index per row stay as they are: dimension 0 cannot be sliced, selected, moved or "
        "merged",
        found=access.describe(),
        allowed="operations on dimensions 1 and up",
        remedy="slice the index tile, and make the view from the slice",
    )


def reinterpreted(access: Access, kind: Any) -> Access:
    """`t.view(dtype)`."""
    dtype = as_dtype(kind)
    if access.dynamic is not None:
        raise errors.ShapeError(
            f"view({dtype}): a view with a dynamic index keeps its dtype",
            operand="dtype",
            found=access.describe(),
            allowed="view(dtype) before the dynamic index",
            remedy="write t.view(dtype).select(...), or ap(..., dtype=...)",
        )
    return reinterpret(access, dtype)


def _view(access: Access) -> View:
    return View(access.shape, access.strides, access.offset)


def _made(access: Access, view: View) -> Access:
    return Access(access.buffer, access.dtype, view.offset, view.shape, view.strides)


def _with(access: Access, dynamic: Dynamic | None) -> Access:
    access.dynamic = dynamic
    return access
