"""Searching a row for eight values, shared by `nc_find_index8` and `nc_match_replace8` (semantics rules 110, 111)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nki import dtypes
from nki.errors import LimitError, OperandShapeError
from nki.ir.program import Access
from nki.ir.verify import Fault
from nki.isa.apply import Array
from nki.target import Target

SLOTS = 8
INDEX_DTYPES = frozenset({dtypes.uint16, dtypes.uint32})
DIMENSIONS = 3  # of the tiles searched


def match(rows: Array, values: Array, order: Iterable[int], places: Array) -> None:
    """places[p, slot] = index of the first element of rows[p] equal to values[p, slot] that no slot took before.

    The slots are served in `order`; -1 stands for no match. `rows` is overwritten: what is taken becomes NaN, which
    equals nothing. Compared are float32 numbers, so 0 and -0 are equal.
    """
    lanes = np.arange(len(rows))
    for slot in order:
        equal = rows == values[:, slot : slot + 1]
        place = equal.argmax(axis=1)
        found = equal[lanes, place]
        places[:, slot] = np.where(found, place, -1)
        rows[lanes[found], place[found]] = np.nan


def size_fault(name: str, access: Access, target: Target) -> Fault | None:
    """The fault if a tile has too few elements for a search (the upper limit is declared)."""
    if access.free >= target.max8_fmin:
        return None
    return Fault(
        operand=f"{name}: {access.describe()}",
        found=f"{access.free} elements per partition",
        allowed=f"at least {target.max8_fmin} on {target.name} (max8_fmin)",
        remedy="pad the tile with the least value of its dtype",
        error=LimitError,
        text=f"`{name}` has {access.free} elements per partition, at least {target.max8_fmin} are needed",
    )


def dimensions_fault(name: str, access: Access) -> Fault | None:
    """The fault if a tile has too many dimensions."""
    if len(access.shape) <= DIMENSIONS:
        return None
    return Fault(
        operand=f"{name}: {access.describe()}",
        found=f"{len(access.shape)} dimensions",
        allowed=f"at most {DIMENSIONS}",
        remedy="merge free dimensions with flatten_dims or reshape",
        error=OperandShapeError,
        text=f"`{name}` has {len(access.shape)} dimensions, at most {DIMENSIONS} are possible",
    )
