"""Views that address storage directly: `.ap(pattern)` and the reinterpretation of bytes (semantics rules 32-37).

A pattern is a list of [step, count] pairs, slowest first, in elements of the view's dtype. It replaces shape and
strides of the view it is made from; its offset counts from the start of the storage and is inherited if not given.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nki import errors
from nki.dtypes import DType
from nki.ir.program import Access, Shape
from nki.views import as_index


def pattern_access(access: Access, pattern: Any, offset: Any, dtype: DType) -> Access:
    """The window that `pattern` describes on the storage of `access`."""
    pairs = pairs_of(pattern)
    start = _rescaled_offset(access, dtype) if offset is None else as_index(offset, "`offset`")
    shape = tuple(count for _, count in pairs)
    steps = tuple(step for step, _ in pairs)
    if access.memory.on_chip and len(pairs) == 1:
        shape, steps = (*shape, 1), (*steps, 1)
    made = Access(access.buffer, dtype, start, shape, steps)
    if made.memory.on_chip:
        _check_on_chip(made)
    else:
        _check_inside(made, *made.extent())
    return made


def pairs_of(pattern: Any) -> tuple[tuple[int, int], ...]:
    """The pattern as pairs of integers."""
    try:
        pairs = tuple((step, count) for step, count in pattern)
    except (TypeError, ValueError):
        raise errors.ArgumentError(
            "ap: `pattern` must be a list of [step, count] pairs",
            operand="pattern",
            found=f"{pattern!r:.80}",
            allowed="[[step, count], ...], slowest dimension first",
            remedy="put all pairs into one list: t.ap(pattern=[[64, 128], [1, 64]])",
        ) from None
    pairs = tuple((as_index(s, "ap: a step"), as_index(n, "ap: a count")) for s, n in pairs)
    if not pairs or any(count < 1 for _, count in pairs):
        raise errors.ShapeError(
            "ap: every count must be at least 1",
            operand="pattern",
            found=[list(pair) for pair in pairs],
            allowed="at least one pair, with counts of at least 1",
            remedy="skip the access if nothing is to be moved",
        )
    return pairs


def _rescaled_offset(access: Access, dtype: DType) -> int:
    """Offset of `access` counted in elements of `dtype`."""
    at = access.offset * access.dtype.itemsize
    if at % dtype.itemsize:
        raise _misaligned(access, dtype, f"the offset of the view, byte {at},")
    return at // dtype.itemsize


def _check_inside(made: Access, low: int, high: int) -> None:
    total = made.buffer.nbytes // made.dtype.itemsize
    if low < 0 or high >= total:
        first = "first" if low < 0 else "last"
        raise errors.BoundsError(
            f"ap: the {first} element is {low if low < 0 else high}, the storage has {total} elements (0..{total - 1})",
            operand="pattern",
            found=f"elements {low}..{high}",
            allowed=f"0..{total - 1}, in elements of {made.dtype}",
            remedy="reduce a count, a step or the offset",
        )


def _check_on_chip(made: Access) -> None:
    """Rules 33 and 35: partitions are stepped one by one and no partition is left by the free dimensions."""
    row, partitions = made.row, made.buffer.shape[0]
    step, count = made.strides[0], made.shape[0]
    if count > 1 and step != row:
        raise errors.ShapeError(
            f"ap: the partition step is {step}; partitions are read one after the other, so it must be {row}",
            operand="pattern",
            found=f"first pair [{step}, {count}]",
            allowed=f"[{row}, count]: {row} elements of {made.dtype} in a partition of the storage",
            remedy=f"write the pattern as [[{row}, {count}], ...]",
        )
    first = made.offset // row if row else 0
    low = high = made.offset - first * row
    for size, stride in zip(made.shape[1:], made.strides[1:]):
        reach = (size - 1) * stride
        low, high = min(low, low + reach), max(high, high + reach)
    last = first + count - 1
    _check_inside(made, first * row + low, last * row + high)
    if first < 0 or last >= partitions or low < 0 or high >= row:
        raise errors.BoundsError(
            f"ap: elements {low}..{high} of a partition are addressed, it has {row} elements (0..{row - 1})",
            operand="pattern",
            found=f"elements {low}..{high} of partitions {first}..{last}",
            allowed=f"elements 0..{row - 1} of partitions 0..{partitions - 1}",
            remedy="an access does not run over into the next partition: reduce a count, a step or the offset",
        )


def reinterpret(access: Access, dtype: DType) -> Access:
    """The same bytes as elements of another dtype; the last dimension is rescaled."""
    old, new = access.dtype.itemsize, dtype.itemsize
    if old == new:
        return Access(access.buffer, dtype, access.offset, access.shape, access.strides)
    size, step = access.shape[-1], access.strides[-1]
    if size > 1 and step != 1:
        raise errors.ShapeError(
            f"view({dtype}): the last dimension is not contiguous (step {step})",
            operand="dtype",
            found=f"strides {list(access.strides)}",
            allowed="a last dimension with step 1",
            remedy="copy the view into a fresh tile first, or reinterpret before slicing with a step",
        )
    if size * old % new:
        raise errors.ShapeError(
            f"view({dtype}): {size} elements of {old} bytes do not make whole elements of {new} bytes",
            operand="dtype",
            found=f"last dimension of {size}",
            allowed=f"a multiple of {new // old}",
            remedy="slice the last dimension to a multiple first",
        )
    offset = _rescaled_offset(access, dtype)
    outer = zip(access.shape[:-1], access.strides[:-1])
    steps = tuple(_rescaled_step(access, n, stride, dtype) for n, stride in outer)
    if access.memory.on_chip and access.buffer.partition_bytes % new:
        raise _misaligned(access, dtype, f"a partition of {access.buffer.partition_bytes} bytes")
    return Access(access.buffer, dtype, offset, (*access.shape[:-1], size * old // new), (*steps, 1))


def _rescaled_step(access: Access, size: int, stride: int, dtype: DType) -> int:
    nbytes = stride * access.dtype.itemsize
    if size > 1 and nbytes % dtype.itemsize:
        raise _misaligned(access, dtype, f"a step of {nbytes} bytes")
    return nbytes // dtype.itemsize


def _misaligned(access: Access, dtype: DType, what: str) -> errors.NkiError:
    return errors.ShapeError(
        f"{what} is not a whole number of {dtype} elements ({dtype.itemsize} bytes)",
        operand="dtype",
        found=f"{access.dtype} reinterpreted as {dtype}",
        allowed=f"multiples of {dtype.itemsize} bytes",
        remedy="start the view at a multiple of the new element size",
    )


def storage_access(access: Access, shape: Shape) -> Access:
    """A row-major window of `shape` at the start of the storage (the constructor of `NkiTensor`)."""
    buffer = access.buffer
    inner = 1
    steps: list[int] = []
    for size in reversed(shape):
        steps.insert(0, inner)
        inner *= size
    if buffer.memory.on_chip:
        steps[0] = access.row
        fits = shape[0] <= buffer.shape[0] and prod(shape[1:]) <= access.row
    else:
        fits = inner * access.dtype.itemsize <= buffer.nbytes
    if not fits:
        raise errors.BoundsError(
            f"a tensor of shape {list(shape)} does not fit its storage",
            operand="storage",
            found=buffer.describe(),
            allowed="a shape that the storage holds",
            remedy="allocate with nl.ndarray",
        )
    return Access(buffer, access.dtype, 0, shape, tuple(steps))
