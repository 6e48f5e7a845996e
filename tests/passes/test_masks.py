"""The maps that prove a program initialised agree with sets of bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki import dtypes
from nki.enums import MemoryRegion
from nki.ir.control import Dynamic, Register
from nki.ir.program import Access, Buffer
from nki.passes.masks import WrittenMask
from nki.passes.owners import Owners


def placed(name: str, shape: tuple[int, ...], dtype: Any, address: tuple[int, int]) -> Buffer:
    return Buffer(name, shape, dtype, MemoryRegion.sbuf, address=address)


@given(st.integers(0, 1 << 32))
def test_owners_agree_with_a_map_of_bytes(seed: int) -> None:
    """The map says which tiles may be the last to have written a byte; "" is none. Only what is sure is reported."""
    rng = random.Random(seed)
    kinds = (dtypes.float32, dtypes.bfloat16, dtypes.uint8)
    buffers = [
        placed(
            f"t{i}",
            (rng.randint(1, 3), rng.randint(1, 6)),
            rng.choice(kinds),
            (rng.randrange(4), rng.randrange(9)),
        )
        for i in range(rng.randint(2, 5))
    ]
    owners = Owners(list(buffers))
    cells: dict[tuple[int, int], set[str]] = {}
    own: set[tuple[str, tuple[int, int]]] = set()
    bytes_of = {buffer.name: _cells(Access.whole(buffer)) for buffer in buffers}
    for buffer in buffers:
        touching = any(bytes_of[buffer.name] & bytes_of[o.name] for o in buffers if o is not buffer)
        assert (buffer.name in owners) == touching
    for _ in range(30):
        access = _window(rng, rng.choice([b for b in buffers if b.name in owners] or buffers))
        name = access.buffer.name
        if name not in owners:
            return
        here = _reach(access)
        every = all if access.dynamic is None else any
        if rng.random() < 0.5:
            in_part = access.dynamic is not None or rng.random() < 0.2
            owners.wrote(access, in_part)
            for cell in here:
                cells[cell] = {name} | (cells.get(cell, {""}) if in_part else set())
            own.update((name, cell) for cell in here if not in_part)
            continue
        assert owners.written(access) == every(cells.get(cell, {""}) != {""} for cell in here)
        sure = {cell: next(iter(cells[cell])) for cell in here if len(cells.get(cell, ())) == 1}
        stolen = {cell: tile for cell, tile in sure.items() if (name, cell) in own and tile != name}
        other = owners.overwritten_by(access)
        assert (other is not None) == (bool(stolen) if access.dynamic is None else stolen.keys() == here)
        assert other is None or other.name in stolen.values()


def _window(rng: random.Random, buffer: Buffer) -> Access:
    rows, columns = buffer.shape
    row, column = rng.randrange(rows), rng.randrange(columns)
    shape = (rng.randint(1, rows - row), rng.randint(1, columns - column))
    dynamic = Dynamic("scalar", Register("r"), 1, columns) if rng.random() < 0.4 else None
    return Access(buffer, buffer.dtype, row * columns + column, shape, (columns, 1), dynamic)


def _reach(access: Access) -> set[tuple[int, int]]:
    """The bytes of a window at all of its places."""
    places = 1 if access.dynamic is None else access.places()
    windows = [
        Access(access.buffer, access.dtype, access.offset + place, access.shape, access.strides)
        for place in range(places)
    ]
    return set().union(*map(_cells, windows))


def _cells(access: Access) -> set[tuple[int, int]]:
    buffer = access.buffer
    assert buffer.address is not None
    size = access.dtype.itemsize
    found = set()
    for index in np.ndindex(*access.shape):
        element = access.offset + sum(i * stride for i, stride in zip(index, access.strides))
        for byte in range(element * size, (element + 1) * size):
            row, column = divmod(byte, buffer.partition_bytes)
            found.add((buffer.address[0] + row, buffer.address[1] + column))
    return found


@given(st.integers(0, 1 << 32))
def test_masks_agree_with_sets_of_bytes(seed: int) -> None:
    rng = random.Random(seed)
    buffer = Buffer("t", (3, 8), dtypes.bfloat16, MemoryRegion.sbuf)
    mask, written = WrittenMask(buffer), set[int]()
    for _ in range(12):
        dtype = rng.choice((dtypes.bfloat16, dtypes.float32, dtypes.uint8))
        columns = 16 // dtype.itemsize
        step = rng.choice((1, 2))
        count = rng.randint(1, columns // step)
        start = rng.randrange(columns - (count - 1) * step)
        row = rng.randrange(3)
        access = Access(
            buffer, dtype, row * columns + start, (rng.randint(1, 3 - row), count), (columns, step)
        )
        here = {
            (access.offset + i * columns + j * step) * dtype.itemsize + k
            for i in range(access.shape[0])
            for j in range(count)
            for k in range(dtype.itemsize)
        }
        if rng.random() < 0.6:
            mask.view(access)[...] = True
            written |= here
        assert bool(mask.view(access).all()) == (here <= written)
        missing = sorted({byte // 2 for byte in here - written})
        text = mask.missing_region(access)
        assert text == _box(missing)
    assert mask.all() == (len(written) == 48)


def _box(elements: list[int]) -> str:
    if not elements:
        return "nothing"
    parts = []
    for values in ([e // 8 for e in elements], [e % 8 for e in elements]):
        low, high = min(values), max(values)
        parts.append(str(low) if low == high else f"{low}:{high + 1}")
    return f"[{', '.join(parts)}]"
