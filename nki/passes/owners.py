"""Tiles that the user placed over each other: which tile wrote each byte last."""

from __future__ import annotations

import numpy as np

from nki.ir.program import Access, Buffer


class Owners:
    """Byte maps of the address ranges in which user-placed tiles overlap."""

    def __init__(self, buffers: list[Buffer]) -> None:
        placed = [b for b in buffers if b.placed and b.memory.on_chip]
        self._buffers: dict[str, Buffer] = {}
        self._ids: dict[str, int] = {}
        self._own: dict[str, np.ndarray] = {}
        self._maps: dict[tuple[object, int], np.ndarray] = {}
        for i, a in enumerate(placed):
            if any(_overlap(a, b) for j, b in enumerate(placed) if i != j):
                self._ids[a.name] = len(self._buffers)
                self._buffers[a.name] = a
        for buffer in self._buffers.values():
            self._grow(buffer)

    def __contains__(self, name: str) -> bool:
        return name in self._buffers

    def _grow(self, buffer: Buffer) -> None:
        key = (buffer.memory, buffer.core)
        rows, columns = _end(buffer)
        old = self._maps.get(key, np.full((0, 0), -1, np.int32))
        new = np.full((max(rows, old.shape[0]), max(columns, old.shape[1])), -1, np.int32)
        new[: old.shape[0], : old.shape[1]] = old
        self._maps[key] = new
        self._own[buffer.name] = np.zeros((buffer.partitions, buffer.partition_bytes), np.bool_)

    def _tile(self, buffer: Buffer) -> np.ndarray:
        assert buffer.address is not None
        row, column = buffer.address
        rows, columns = _end(buffer)
        return self._maps[(buffer.memory, buffer.core)][row:rows, column:columns]

    def _bytes(self, access: Access, grid: np.ndarray) -> np.ndarray:
        """The entries of the bytes of a window; `grid` has the tile's partitions and bytes."""
        size = access.dtype.itemsize
        partition, column = divmod(access.offset, access.row)
        first = access.strides[0] // access.row * grid.strides[0]
        rest = tuple(stride * size * grid.itemsize for stride in access.strides[1:])
        corner = grid[partition:, column * size :]
        shape = (*access.shape, size)
        return np.lib.stride_tricks.as_strided(corner, shape, (first, *rest, grid.itemsize))

    def wrote(self, access: Access) -> None:
        """The window's tile owns its bytes now."""
        buffer = access.buffer
        self._bytes(access, self._tile(buffer))[...] = self._ids[buffer.name]
        self._bytes(access, self._own[buffer.name])[...] = True

    def written(self, access: Access) -> bool:
        """Whether some tile has written every byte of the window."""
        return bool((self._bytes(access, self._tile(access.buffer)) >= 0).all())

    def overwritten_by(self, access: Access) -> Buffer | None:
        """Another tile that overwrote bytes of the window after their own tile had written them."""
        owner = self._bytes(access, self._tile(access.buffer))
        own = self._bytes(access, self._own[access.buffer.name])
        stolen = owner[own & (owner != self._ids[access.buffer.name])]
        if not stolen.size:
            return None
        return list(self._buffers.values())[int(stolen[0])]


def _end(buffer: Buffer) -> tuple[int, int]:
    assert buffer.address is not None
    return buffer.address[0] + buffer.partitions, buffer.address[1] + buffer.partition_bytes


def _overlap(a: Buffer, b: Buffer) -> bool:
    if a.memory is not b.memory or a.core != b.core or a.address is None or b.address is None:
        return False
    (a_rows, a_columns), (b_rows, b_columns) = _end(a), _end(b)
    return (
        a.address[0] < b_rows
        and b.address[0] < a_rows
        and a.address[1] < b_columns
        and b.address[1] < a_columns
    )
