"""View arithmetic: what slicing, reshaping and permuting do to a shape, strides and an offset. Nothing is copied.

Pure functions on tuples, in elements: element (i, j, ...) of a view is storage element offset + sum(stride * index).
On chip, dimension 0 counts partitions: it stays at position 0, is never merged or split, and a view has at least two
dimensions (semantics rules 26-32, 180). Errors do not name the tensor; `nki/tensor.py` adds name and place.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from nki import errors
from nki.ir.program import Shape


class View(NamedTuple):
    """A strided window on storage."""

    shape: Shape
    strides: Shape
    offset: int


class DynamicSlice:
    """`nl.ds(start, size)`: the range start .. start+size-1 of one dimension."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: Any) -> None:
        self.start = start
        self.size = size

    def __repr__(self) -> str:
        return f"nl.ds({self.start!r}, {self.size!r})"


def subscript(shape: Shape, strides: Shape, offset: int, key: Any, on_chip: bool) -> tuple[Shape, Shape, int]:
    """`t[key]` (rules 27, 28). An over-long range is an error, never clamped. Plain tuples: this is called most."""
    if key is ...:
        return shape, strides, offset
    if type(key) is not tuple:
        key = (key,)
    if len(key) > len(shape):
        key = spread(key, len(shape))
    new_shape: list[int] = []
    new_strides: list[int] = []
    dim = 0
    for k in key:
        size = shape[dim]
        stride = strides[dim]
        if type(k) is slice or type(k) is DynamicSlice:
            start, size, step = _range(k, size, dim)
            offset += start * stride
            stride *= step
        elif k is ...:
            return subscript(shape, strides, offset, spread(key, len(shape)), on_chip)
        else:
            index = k if type(k) is int else as_index(k, f"the subscript of dimension {dim}")
            if not -size <= index < size:
                raise _outside(f"index {index}", dim, size)
            offset += (index + size if index < 0 else index) * stride
            if dim or not on_chip:
                dim += 1
                continue
            size = 1
        new_shape.append(size)
        new_strides.append(stride)
        dim += 1
    if dim < len(shape):
        new_shape += shape[dim:]
        new_strides += strides[dim:]
    if len(new_shape) < 2 and (on_chip or not new_shape):
        new_shape.append(1)
        new_strides.append(strides[-1])
    return tuple(new_shape), tuple(new_strides), offset


def spread(key: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """The subscript with one entry per dimension: `...` and missing trailing entries become `:`."""
    dots = [i for i, k in enumerate(key) if k is ...]
    if len(dots) > 1:
        raise errors.ShapeError(
            "a subscript can contain `...` only once",
            found=f"{len(dots)} times `...`",
            remedy="keep one `...`",
        )
    given = len(key) - len(dots)
    if given > ndim:
        raise errors.BoundsError(
            f"{given} subscripts for a tensor of {ndim} dimensions",
            found=f"{given} subscripts",
            allowed=f"at most {ndim}",
            remedy="drop the surplus subscripts",
        )
    at = dots[0] if dots else given
    return (*key[:at], *[slice(None)] * (ndim - given), *key[at + len(dots) :])


def as_index(value: Any, what: str) -> int:
    """A compile-time integer; a clear error for what users write instead."""
    if type(value) is int:
        return value
    if value is None:
        raise errors.ShapeError(
            f"{what} is None: a subscript cannot add a dimension",
            found="None",
            allowed="an integer, a slice, `...` or nl.ds(start, size)",
            remedy="use tensor.expand_dim(dim)",
        )
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        _reject_index(value, what)
    try:
        return operator.index(value)
    except TypeError:
        _reject_index(value, what)


def is_dynamic(value: Any) -> bool:
    """Whether a value exists only on the device (a tensor or a register)."""
    return hasattr(value, "access") or type(value).__name__ == "VirtualRegister"


def dynamic_error(what: str) -> errors.NkiError:
    """The error for a value of the device at a place where only integers known while staging can stand."""
    return errors.KernelError(
        f"{what} is a value of the device",
        allowed="an integer known while the kernel is staged",
        remedy="a register or a tile with one value can be an index (t[register, :], t.select(dim, register)), the "
        "start of nl.ds(register, size), or scalar_offset= of t.ap; sizes, steps and ends are fixed",
    )


def _reject_index(value: Any, what: str) -> NoReturn:
    if is_dynamic(value):
        raise dynamic_error(what)
    raise errors.ArgumentError(
        f"{what} must be an integer, got {type(value).__name__}",
        found=f"{value!r:.80}",
        allowed="an integer, a slice, `...` or nl.ds(start, size)",
        remedy="address one regular range at a time; index arrays are not part of the language",
    )


def _outside(what: str, dim: int, size: int) -> errors.NkiError:
    return errors.BoundsError(
        f"{what} is outside dimension {dim} of size {size}",
        found=f"{what} in dimension {dim}",
        allowed=f"0..{size - 1}",
        remedy="clip the last range yourself, e.g. t[start : min(start + step, t.shape[0])]",
    )


def _range(key: Any, size: int, dim: int) -> tuple[int, int, int]:
    """First index, count and step of a slice or nl.ds."""
    if type(key) is not slice:
        return _dynamic(key, size, dim)
    start, stop = key.start, key.stop
    if key.step is None:
        if start is None and stop is None:
            return 0, size, 1
        if type(start) is int and type(stop) is int and 0 <= start < stop <= size:
            return start, stop - start, 1
    what = f"a bound of the slice in dimension {dim}"
    first = 0 if start is None else as_index(start, what)
    last = size if stop is None else as_index(stop, what)
    step = 1 if key.step is None else as_index(key.step, f"the step of the slice in dimension {dim}")
    first += size if first < 0 else 0
    last += size if last < 0 else 0
    text = f"slice {'' if start is None else start}:{'' if stop is None else stop}"
    return checked_range(first, last, step, dim, size, text)


def _dynamic(key: DynamicSlice, size: int, dim: int) -> tuple[int, int, int]:
    what = f"of nl.ds in dimension {dim}"
    start = as_index(key.start, f"`start` {what}")
    count = as_index(key.size, f"`size` {what}")
    return checked_range(start, start + count, 1, dim, size, f"nl.ds({start}, {count})")


def checked_range(start: int, stop: int, step: int, dim: int, size: int, text: str) -> tuple[int, int, int]:
    """First index, count and step, if 0 <= start < stop <= size and step >= 1 (rule 180)."""
    if step < 1:
        raise errors.ShapeError(
            f"{text} in dimension {dim} has step {step}",
            found=f"step {step}",
            allowed="steps of at least 1",
            remedy="a view cannot run backwards; reverse the order of your loop instead",
        )
    if start < 0 or stop > size:
        raise _outside(text, dim, size)
    if start >= stop:
        raise errors.BoundsError(
            f"{text} in dimension {dim} of size {size} is empty",
            found=f"{text} (no element)",
            allowed="at least one element",
            remedy="skip the iteration in which the range is empty",
        )
    return start, (stop - start + step - 1) // step, step


def as_dim(dim: Any, ndim: int, what: str = "dim") -> int:
    """A dimension number; negative ones count from the end."""
    number = as_index(dim, f"`{what}`")
    if not -ndim <= number < ndim:
        raise errors.BoundsError(
            f"`{what}` is {number}, but the tensor has {ndim} dimensions",
            operand=what,
            found=number,
            allowed=f"0..{ndim - 1}",
            remedy="pass the number of an existing dimension",
        )
    return number % ndim


def keep_partitions(ok: bool, what: str) -> None:
    """Refuse an operation on the partition dimension."""
    if not ok:
        raise errors.ShapeError(
            f"{what}: dimension 0 is the partition dimension of an on-chip tensor and stays as it is",
            allowed="free dimensions (1 and up)",
            remedy="moving data between partitions takes an instruction: nisa.nc_transpose, nisa.dma_copy or a matmul",
        )


def slice_dim(view: View, dim: Any, start: Any, end: Any, step: Any) -> View:
    """One dimension restricted to start <= i < end."""
    d = as_dim(dim, len(view.shape))
    first, last, by = as_index(start, "`start`"), as_index(end, "`end`"), as_index(step, "`step`")
    first, count, by = checked_range(first, last, by, d, view.shape[d], f"slice {first}:{last}")
    return View(
        _with(view.shape, d, (count,)),
        _with(view.strides, d, (view.strides[d] * by,)),
        view.offset + first * view.strides[d],
    )


def _with(items: Shape, at: int, new: Shape) -> Shape:
    """A tuple with the item at one place replaced by others."""
    return (*items[:at], *new, *items[at + 1 :])


def permute(view: View, dims: Any, on_chip: bool) -> View:
    """Dimensions in another order."""
    ndim = len(view.shape)
    if not isinstance(dims, (tuple, list)):
        raise errors.ArgumentError(
            f"`dims` must be a tuple of integers, got {type(dims).__name__}",
            operand="dims",
            found=f"{dims!r:.80}",
            allowed=f"every number of 0..{ndim - 1} once",
            remedy=f"name all {ndim} dimensions, e.g. {tuple(range(ndim))}",
        )
    order = tuple(as_dim(d, ndim, "dims") for d in dims)
    if sorted(order) != list(range(ndim)):
        raise errors.ShapeError(
            f"permute: {list(order)} is not a permutation of the {ndim} dimensions",
            operand="dims",
            found=list(order),
            allowed=f"every number of 0..{ndim - 1} once",
            remedy=f"name all {ndim} dimensions, e.g. {tuple(range(ndim))}",
        )
    keep_partitions(not on_chip or order[0] == 0, f"permute({order})")
    return View(tuple(view.shape[d] for d in order), tuple(view.strides[d] for d in order), view.offset)


def broadcast(view: View, dim: Any, size: Any, on_chip: bool) -> View:
    """A dimension of size 1 repeated: its stride becomes 0."""
    d = as_dim(dim, len(view.shape))
    count = as_index(size, "`size`")
    keep_partitions(not on_chip or d > 0, f"broadcast(dim={d})")
    if view.shape[d] != 1 or count < 1:
        raise errors.ShapeError(
            f"broadcast: dimension {d} has size {view.shape[d]} and cannot become {count}",
            operand="dim",
            found=f"size {view.shape[d]}",
            allowed="a dimension of size 1 and a new size of at least 1",
            remedy=f"insert a dimension first: t.expand_dim({d}).broadcast({d}, {max(count, 1)})",
        )
    return View(_with(view.shape, d, (count,)), _with(view.strides, d, (0,)), view.offset)


def select_dim(view: View, dim: Any, index: Any, on_chip: bool) -> View:
    """One element of a dimension: the subscript with a single integer, 0 <= index < size."""
    d = as_dim(dim, len(view.shape))
    number = as_index(index, "`index`")
    if not 0 <= number < view.shape[d]:
        raise _outside(f"index {number}", d, view.shape[d])
    return View(*subscript(*view, (*[slice(None)] * d, number), on_chip))
