"""Where the bytes of a program live while it runs on the host.

HBM tensors are contiguous arrays. On-chip tiles live in blocks: tiles whose addresses the user made overlap share one
block, laid out by address, so that aliasing behaves as on the chip; every other tile has a contiguous block of its own,
because NumPy is several times faster on contiguous tiles than on windows of one big memory image. Blocks of tiles that
are not live together reuse the same host memory, most recently used first, which keeps it in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nki.ir.program import Access, Buffer

_ALIGNMENT = 64


@dataclass
class Storage:
    """The bytes of one buffer: element 0 is at `offset` in `base`, consecutive partitions are `pitch` bytes apart.

    Buffers that may overlap have the same object as `base`: that is how the binder tells.
    """

    base: np.ndarray
    offset: int
    pitch: int
    external: bool = False


def aligned_bytes(nbytes: int) -> np.ndarray:
    """Uninitialised host memory that starts at a cache line."""
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + nbytes]


def byte_layout(access: Access, pitch: int) -> tuple[int, tuple[int, ...]]:
    """Byte offset and byte strides of a window, relative to its buffer's element 0, with rows `pitch` bytes apart."""
    size = access.dtype.itemsize
    row_bytes = access.buffer.partition_bytes
    if pitch == row_bytes or not access.memory.on_chip:
        return access.offset * size, tuple(stride * size for stride in access.strides)
    row = access.row
    partition, column = divmod(access.offset, row)
    strides = [stride * size for stride in access.strides]
    strides[0] = access.strides[0] // row * pitch
    return partition * pitch + column * size, tuple(strides)


def view(storage: Storage, access: Access) -> np.ndarray:
    """The window as an array of its own dtype; no copy."""
    offset, strides = byte_layout(access, storage.pitch)
    return np.ndarray(access.shape, access.dtype.numpy, storage.base, storage.offset + offset, strides)


def poison(array: np.ndarray) -> None:
    """Fill with what the documented simulator puts into uninitialised memory: NaN for floats, 4 for integers."""
    kind = array.dtype.kind
    if kind == "b":
        array[...] = True
    elif kind in "iu":
        array[...] = 4
    elif kind == "V" and array.dtype.names is None and array.dtype.isbuiltin != 2:
        array.view(np.uint8)[...] = 4
    else:
        array[...] = np.nan


class Image:
    """All bytes of an on-chip memory, partitions `pitch` bytes apart, for tiles whose addresses the user chose."""

    def __init__(self, partitions: int, pitch: int) -> None:
        self.pitch = pitch
        self.flat = aligned_bytes(partitions * pitch)
        self._claimed = np.zeros((partitions, pitch), np.bool_)

    def claim(self, buffer: Buffer) -> None:
        """Poison the bytes of a new tile that belong to no earlier one."""
        assert buffer.address is not None
        row, column = buffer.address
        fresh = np.empty(buffer.shape, buffer.dtype.numpy)
        poison(fresh)
        values = fresh.reshape(-1).view(np.uint8).reshape(buffer.partitions, buffer.partition_bytes)
        place = (slice(row, row + buffer.partitions), slice(column, column + buffer.partition_bytes))
        claimed = self._claimed[place]
        np.copyto(self.flat.reshape(self._claimed.shape)[place], values, where=~claimed)
        claimed[...] = True


class Blocks:
    """Storage of all on-chip buffers and of the internal HBM tensors of one program and one core."""

    def __init__(self) -> None:
        self._storage: dict[str, Storage] = {}
        self._free: dict[int, list[np.ndarray]] = {}

    def __getitem__(self, buffer: Buffer) -> Storage:
        return self._storage[buffer.name]

    def __contains__(self, buffer: Buffer) -> bool:
        return buffer.name in self._storage

    def names(self) -> set[str]:
        """Names of the buffers that have storage here."""
        return set(self._storage)

    def share(self, buffer: Buffer, storage: Storage) -> None:
        """Use storage that another core has made."""
        self._storage[buffer.name] = storage

    def own(self, buffer: Buffer) -> Storage:
        """Give a buffer a contiguous block of its own, recycled if one of its size is free."""
        pool = self._free.get(buffer.nbytes)
        base = pool.pop() if pool else aligned_bytes(buffer.nbytes)
        storage = Storage(base, 0, buffer.partition_bytes)
        self._storage[buffer.name] = storage
        return storage

    def release(self, buffer: Buffer) -> None:
        """The buffer is dead: the next block of its size may take its memory."""
        self._free.setdefault(buffer.nbytes, []).append(self._storage[buffer.name].base)

    def external(self, buffer: Buffer, base: np.ndarray) -> Storage:
        """Bind an HBM buffer to an array given from outside (flat bytes)."""
        storage = Storage(base, 0, buffer.partition_bytes, external=True)
        self._storage[buffer.name] = storage
        return storage

    def place(self, buffer: Buffer, image: Image) -> None:
        """Put a user-placed buffer at its address in an image of its memory."""
        assert buffer.address is not None
        offset = buffer.address[0] * image.pitch + buffer.address[1]
        self._storage[buffer.name] = Storage(image.flat, offset, image.pitch)

    def shared(self, buffers: list[Buffer]) -> None:
        """One block, laid out by address, for buffers whose addresses overlap."""
        first = min(b.address[0] for b in buffers if b.address)
        low = min(b.address[1] for b in buffers if b.address)
        last = max(b.address[0] + b.partitions for b in buffers if b.address)
        high = max(b.address[1] + b.partition_bytes for b in buffers if b.address)
        pitch = high - low
        base = aligned_bytes((last - first) * pitch)
        for buffer in buffers:
            assert buffer.address is not None
            partition, offset = buffer.address
            self._storage[buffer.name] = Storage(base, (partition - first) * pitch + offset - low, pitch)


def overlapping_groups(buffers: list[Buffer]) -> list[list[Buffer]]:
    """Sets of two or more buffers of one memory that are connected by overlapping address ranges."""
    placed = [b for b in buffers if b.address is not None]
    placed.sort(key=lambda b: (b.memory.value, b.core, b.address[1] if b.address else 0))
    group_of: dict[str, list[Buffer]] = {}
    reaching: list[Buffer] = []
    for buffer in placed:
        reaching = [other for other in reaching if _reaches(other, buffer)]
        group = group_of[buffer.name] = [buffer]
        for other in reaching:
            if _overlap(buffer, other) and group_of[other.name] is not group:
                group += group_of[other.name]
                group_of.update((member.name, group) for member in group)
        reaching.append(buffer)
    return list({id(group): group for group in group_of.values() if len(group) > 1}.values())


def _reaches(a: Buffer, b: Buffer) -> bool:
    """Whether `a`, which starts at a lower byte, reaches the bytes of `b`."""
    if a.memory is not b.memory or a.core != b.core or a.address is None or b.address is None:
        return False
    return a.address[1] + a.partition_bytes > b.address[1]


def _overlap(a: Buffer, b: Buffer) -> bool:
    if a.memory is not b.memory or a.core != b.core or a.address is None or b.address is None:
        return False
    rows = a.address[0] < b.address[0] + b.partitions and b.address[0] < a.address[0] + a.partitions
    columns = (
        a.address[1] < b.address[1] + b.partition_bytes and b.address[1] < a.address[1] + a.partition_bytes
    )
    return rows and columns
