"""Windows as rectangles of bytes: what `dependencies` compares instead of sets of addresses.

A rectangle has an *along* range, by which windows are looked up, and an *across* range. On chip, along is the byte in
the partition and across the partition. In HBM, along is the byte in the tensor, or the row if a tensor is written in
blocks of columns. A window with holes carries a lattice, so that two interleaved windows are known to be disjoint.
"""

from __future__ import annotations

from functools import lru_cache
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


class _Form(NamedTuple):
    """A window without its place: what its shape and strides alone decide.

    back: bytes from its first element back to its lowest. width: bytes from there to its end in the row. height: rows.
    """

    back: int
    width: int
    height: int
    step: int
    run: int
    covers: bool


def rectangle(access: Access, pitch: int, base: tuple[int, int] = (0, 0)) -> Rectangle:
    """The window with rows of `pitch` bytes, moved by `base` (rows, bytes in the row): bytes along, rows across."""
    item = access.dtype.itemsize
    form = _form(access.shape, access.strides, item, pitch)
    start = access.offset * item - form.back
    row, low = divmod(start, pitch)
    if low + form.width > pitch:
        dims = _ascending(access.shape, access.strides, item)[1]
        return _crossing(start, dims, item, pitch, base)
    row += base[0]
    low += base[1]
    lattice = (form.step, form.run, low % form.step) if form.step else None
    return Rectangle(low, low + form.width, row, row + form.height, lattice, form.covers)


@lru_cache(maxsize=4096)
def _form(shape: Shape, strides: Shape, item: int, pitch: int) -> _Form:
    back, dims = _ascending(shape, strides, item)
    columns = [dim for dim in dims if dim[0] % pitch]
    rows = [dim for dim in dims if not dim[0] % pitch]
    width = item + sum(step * (count - 1) for step, count in columns)
    run, holes = _run(item, columns)
    step = gcd(*(step for step, _ in holes))
    if run >= step:
        step = 0
    height, gaps = _run(1, [(step // pitch, count) for step, count in rows])
    height += sum(step * (count - 1) for step, count in gaps)
    covers = not gaps and (not holes or (step > 0 and len(holes) == 1))
    return _Form(back, width, height, step, run, covers)


def _ascending(shape: Shape, strides: Shape, item: int) -> tuple[int, list[tuple[int, int]]]:
    """Bytes back to the lowest element, and (step in bytes, count) of the dimensions that move, smallest step first."""
    back = 0
    dims = []
    for count, stride in zip(shape, strides):
        if count > 1 and stride:
            step = stride * item
            if step < 0:
                back -= step * (count - 1)
                step = -step
            dims.append((step, count))
    dims.sort()
    return back, dims


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
    return Rectangle(
        base[1], base[1] + pitch, start // pitch + base[0], -(-end // pitch) + base[0], None, covers
    )
