"""Tiles that the user placed over each other: which tile wrote each byte last."""

from __future__ import annotations

import numpy as np

from nki.ir.program import Access, Buffer

_NOBODY = -1
_UNDECIDED = -2
"""The run decides whether a tile has written the byte: it may be anyone's, and nothing is reported because of it."""


class Owners:
    """Byte maps of the address ranges in which user-placed tiles overlap.

    Where the device decides the place of a window, its bytes are all that the legal places reach, gaps included.
    """

    def __init__(self, buffers: list[Buffer]) -> None:
        self._buffers = {
            b.name: b for b in _overlapping([b for b in buffers if b.placed and b.memory.on_chip])
        }
        self._ids = {name: number for number, name in enumerate(self._buffers)}
        self._own: dict[str, np.ndarray] = {}
        self._maps: dict[tuple[object, int], np.ndarray] = {}
        ends: dict[tuple[object, int], list[tuple[int, int]]] = {}
        for buffer in self._buffers.values():
            ends.setdefault((buffer.memory, buffer.core), []).append(_end(buffer))
            self._own[buffer.name] = np.zeros((buffer.partitions, buffer.partition_bytes), np.bool_)
        for key, corners in ends.items():
            rows, columns = (max(sizes) for sizes in zip(*corners))
            self._maps[key] = np.full((rows, columns), _NOBODY, np.int32)

    def __contains__(self, name: str) -> bool:
        return name in self._buffers

    def _tile(self, buffer: Buffer) -> np.ndarray:
        assert buffer.address is not None
        row, column = buffer.address
        rows, columns = _end(buffer)
        return self._maps[(buffer.memory, buffer.core)][row:rows, column:columns]

    def _bytes(self, access: Access, grid: np.ndarray) -> np.ndarray:
        """The entries of the bytes of a window; `grid` has the tile's partitions and bytes."""
        if access.dynamic is not None:
            access = access.reachable()
        size = access.dtype.itemsize
        partition, column = divmod(access.offset, access.row)
        first = access.strides[0] // access.row * grid.strides[0]
        rest = tuple(stride * size * grid.itemsize for stride in access.strides[1:])
        corner = grid[partition:, column * size :]
        shape = (*access.shape, size)
        return np.lib.stride_tricks.as_strided(corner, shape, (first, *rest, grid.itemsize))

    def wrote(self, access: Access, in_part: bool) -> None:
        """The window's tile owns its bytes now; `in_part` if only the run tells which of them it has written."""
        buffer = access.buffer
        number = self._ids[buffer.name]
        owner = self._bytes(access, self._tile(buffer))
        if in_part:
            owner[owner != number] = _UNDECIDED
            return
        owner[...] = number
        self._bytes(access, self._own[buffer.name])[...] = True

    def written(self, access: Access) -> bool:
        """Whether some tile may have written every byte of the window, at one of its places."""
        written = self._bytes(access, self._tile(access.buffer)) != _NOBODY
        return bool(written.all() if access.dynamic is None else written.any())

    def overwritten_by(self, access: Access) -> Buffer | None:
        """Another tile that surely overwrote bytes of the window, wherever it is, after their own tile had written
        them."""
        owner = self._bytes(access, self._tile(access.buffer))
        own = self._bytes(access, self._own[access.buffer.name])
        stolen = own & (owner >= 0) & (owner != self._ids[access.buffer.name])
        if not stolen.any() or (access.dynamic is not None and not stolen.all()):
            return None
        return list(self._buffers.values())[int(owner[stolen][0])]


def _end(buffer: Buffer) -> tuple[int, int]:
    assert buffer.address is not None
    return buffer.address[0] + buffer.partitions, buffer.address[1] + buffer.partition_bytes


def _overlapping(placed: list[Buffer]) -> list[Buffer]:
    """The tiles that share bytes with another one."""
    placed.sort(key=lambda b: b.address[1] if b.address else 0)
    reaching: list[Buffer] = []
    found: dict[str, Buffer] = {}
    for buffer in placed:
        start = buffer.address[1] if buffer.address else 0
        reaching = [other for other in reaching if _end(other)[1] > start]
        for other in reaching:
            if _overlap(buffer, other):
                found[other.name], found[buffer.name] = other, buffer
        reaching.append(buffer)
    return list(found.values())


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
