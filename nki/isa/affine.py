"""The affine index patterns of the GpSimd engine, shared by `iota` and `affine_select` (semantics rule 103)."""

from __future__ import annotations

from math import prod

import numpy as np

from nki.errors import OperandShapeError
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.apply import Array

Pattern = tuple[tuple[int, int], ...]

LEVELS = 4  # of [step, count] that the instruction encodes


def affine_values(partitions: int, pattern: Pattern, offset: int, channel_multiplier: int) -> Array:
    """int32 values[p, i] = offset + p * channel_multiplier + sum of step * index, the last level running fastest.

    Computed in 32-bit integers: what leaves them wraps around.
    """
    values = np.zeros((1,), np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count)).reshape(-1)
    channels = channel_multiplier * np.arange(partitions)
    return (offset + channels[:, None] + values).astype(np.int32)


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
