"""The affine index patterns of the GpSimd engine, shared by `iota` and `affine_select` (semantics rule 103)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from math import prod
from typing import Any

import numpy as np

from nki import dtypes
from nki.dtypes import DType, caster, round_tf32
from nki.errors import OperandShapeError
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.apply import Array, Step, bits

Pattern = tuple[tuple[int, int], ...]

LEVELS = 4  # of [step, count] that the instruction encodes


def affine_values(partitions: int, pattern: Pattern, offset: int, channel_multiplier: int) -> Array:
    """int32 values[p, i] = offset + p * channel_multiplier + sum of step * index, the last level running fastest.

    Computed in 32-bit integers: what leaves them wraps around.
    """
    values = np.zeros((1,), np.int64)
    for step, count in pattern:
        values = (values[:, None] + _wrapped(step) * np.arange(count)).reshape(-1)
    channels = _wrapped(channel_multiplier) * np.arange(partitions)
    return (_wrapped(offset) + channels[:, None] + values).astype(np.int32)


def _wrapped(number: int) -> int:
    """The number as a 32-bit integer holds it."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def affine_steps(
    a: Any, partitions: int, pattern: Pattern, channel_multiplier: int
) -> Generator[Step, None, Array]:
    """The values for `a.offset`: a constant, or with a register an array that steps fill while running."""
    offset = a.offset
    if not isinstance(offset, np.ndarray):
        return affine_values(partitions, pattern, offset, channel_multiplier)
    base = affine_values(partitions, pattern, 0, channel_multiplier)
    values: Array = a.scratch(base.shape, np.int32)
    yield np.add, (base, offset, values)
    return values


def int32_steps(dst: Array, values: Array, dtype: DType) -> Iterator[Step]:
    """The calls that store int32 values in a tile of `dtype`; a 32-bit integer takes their bits."""
    if dtype.is_integer and dtype.itemsize == values.itemsize:
        yield np.copyto, (bits(dst), bits(values))
        return
    yield from caster(dst, values)
    if dtype is dtypes.tfloat32:
        yield round_tf32, (dst, dst)


def fill_where_not(dst: Array, fill: Array, holds: Array) -> None:
    """dst = fill where `holds` is 0."""
    np.copyto(dst, fill, where=holds == 0)


def pattern_fault(pattern: Pattern, dst: Access) -> Fault | None:
    """The fault if a pattern has too many levels, a level without elements, or another size than `dst`."""
    count = prod(number for _, number in pattern)
    if not 1 <= len(pattern) <= LEVELS or any(number < 1 for _, number in pattern):
        return Fault(
            operand="pattern",
            found=[list(level) for level in pattern],
            allowed=f"one to {LEVELS} pairs [step, count] with counts of at least 1",
            remedy="merge levels whose steps continue each other",
            error=OperandShapeError,
            text=f"`pattern` must have one to {LEVELS} levels of at least one element",
        )
    if count != dst.free:
        return Fault(
            operand=f"dst: {dst.describe()}",
            found=f"a pattern of {count} values, {dst.free} elements per partition",
            allowed=f"a pattern of {dst.free} values",
            remedy="make the product of the counts equal to the elements per partition of `dst`",
            error=OperandShapeError,
            text=f"`pattern` gives {count} values, but `dst` has {dst.free} elements per partition",
        )
    return None
