"""Windows as rectangles of bytes: what `dependencies` compares instead of sets of addresses.

A rectangle has an *along* range, by which windows are looked up, and an *across* range. On chip, along is the byte in
the partition and across the partition. In HBM, along is the byte in the tensor, or the row if a tensor is written in
blocks of columns. A window with holes carries a lattice, so that two interleaved windows are known to be disjoint.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple, Optional

from nki.ir.program import Access, Shape

Lattice = tuple[int, int, int]
"""Bytes `start + k * step .. + run` for any whole `k`, as (step, run, start modulo step)."""


class Rectangle(NamedTuple):
    """Bytes `low..high` along, `first..last` across (ends excluded).

    covers: every byte of it is meant (every byte of its lattice, if it has one), so a write hides what was there.
    """

    low: int
    high: int
    first: int
    last: int
    lattice: Optional[Lattice]  # noqa: UP045 (evaluated at run time on Python 3.10)
    covers: bool


def apart(one: Lattice | None, other: Lattice | None) -> bool:
    """Whether two lattices cannot share a byte."""
    if one is None or other is None:
        return False
    step = gcd(one[0], other[0])
    distance = (other[2] - one[2]) % step
    return distance >= one[1] and step - distance >= other[1]


def rectangle(access: Access, pitch: int, base: tuple[int, int] = (0, 0)) -> Rectangle:
    """The window with rows of `pitch` bytes, moved by `base` (rows, bytes in the row): bytes along, rows across."""
    item = access.dtype.itemsize
    start, dims = _ascending(access.offset * item, access.shape, access.strides, item)
    columns = [dim for dim in dims if dim[0] % pitch]
    rows = [dim for dim in dims if not dim[0] % pitch]
    row, low = divmod(start, pitch)
    high = low + item + sum(step * (count - 1) for step, count in columns)
    if high > pitch:
        return _crossing(start, dims, item, pitch, base)
    run, holes = _run(item, columns)
    lattice = None
    if holes:
        step = gcd(*(step for step, _ in holes))
        lattice = (step, run, (low + base[1]) % step) if run < step else None
    height, gaps = _run(1, [(step // pitch, count) for step, count in rows])
    last = row + height + sum(step * (count - 1) for step, count in gaps)
    covers = not gaps and (not holes or (lattice is not None and len(holes) == 1))
    return Rectangle(low + base[1], high + base[1], row + base[0], last + base[0], lattice, covers)


def _ascending(start: int, shape: Shape, strides: Shape, item: int) -> tuple[int, list[tuple[int, int]]]:
    """First byte, and (step in bytes, count) of the dimensions that move, smallest step first."""
    dims = []
    for count, stride in zip(shape, strides):
        if count > 1 and stride:
            step = stride * item
            if step < 0:
                start += step * (count - 1)
                step = -step
            dims.append((step, count))
    dims.sort()
    return start, dims


def _run(run: int, dims: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """Length of the run without gaps that `dims`, smallest step first, begin with; and the dimensions left."""
    for position, (step, count) in enumerate(dims):
        if step > run:
            return run, dims[position:]
        run += step * (count - 1)
    return run, []


def _crossing(
    start: int, dims: list[tuple[int, int]], item: int, pitch: int, base: tuple[int, int]
) -> Rectangle:
    """A window that leaves its row: whole rows are taken, exactly where it fills them, else as an upper bound."""
    run, holes = _run(item, dims)
    end = start + run + sum(step * (count - 1) for step, count in holes)
    covers = not holes and not start % pitch and not end % pitch
    return Rectangle(base[1], base[1] + pitch, start // pitch + base[0], -(-end // pitch) + base[0], None, covers)
