"""Storage and windows on it: a `Buffer` lives in one memory, an `Access` is a strided window on one."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.span import UNKNOWN, Span

if TYPE_CHECKING:
    from nki.ir.control import Dynamic, Loop

Shape = tuple[int, ...]


def row_major(shape: Shape) -> Shape:
    """Element strides of a contiguous tensor of this shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Buffer:
    """Storage for one tensor.

    shape, dtype: as allocated; on chip, dimension 0 counts partitions.
    memory: the region it lives in.
    role: "argument", "internal" or "constant" (then `data` holds the values).
    address: (partition, byte offset in the partition) on chip, `None` until the allocator has placed it and in HBM.
    placed: True if the user gave the address.
    loop: the innermost loop on the device it is allocated in; one address serves all its iterations.
    name: unique in its program; label: the user's name for it, if any.
    """

    __slots__ = (
        "address",
        "core",
        "data",
        "dtype",
        "label",
        "loop",
        "memory",
        "name",
        "nbytes",
        "placed",
        "role",
        "row",
        "shape",
        "span",
    )

    def __init__(
        self,
        name: str,
        shape: Shape,
        dtype: DType,
        memory: MemoryRegion,
        *,
        role: str = "internal",
        address: tuple[int, int] | None = None,
        label: str = "",
        span: Span = UNKNOWN,
        core: int = 0,
        data: np.ndarray | None = None,
        loop: Loop | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.memory = memory
        self.role = role
        self.address = address
        self.placed = address is not None
        self.label = label
        self.span = span
        self.core = core
        self.data = data
        self.loop = loop
        self.row = prod(shape[1:])
        self.nbytes = prod(shape) * dtype.itemsize

    @property
    def partitions(self) -> int:
        """Number of partitions (on chip), else the size of dimension 0."""
        return self.shape[0]

    @property
    def partition_bytes(self) -> int:
        """Bytes one partition of the tensor takes."""
        return self.row * self.dtype.itemsize

    def describe(self) -> str:
        """`acc` [128, 8] float32 in sbuf."""
        return f"`{self.label or self.name}` {list(self.shape)} {self.dtype} in {self.memory}"

    def __repr__(self) -> str:
        return f"<Buffer %{self.name} {self.describe()}>"


class Access:
    """A strided window on a buffer: element (i, j, ...) is storage element offset + i*strides[0] + j*strides[1] + ...

    Offset and strides count elements of `dtype`, which may differ from the buffer's (a reinterpreting view). With
    `dynamic`, that is the place for index 0, and the device moves it (see `nki/ir/control.py`).
    """

    __slots__ = ("_sig", "buffer", "dtype", "dynamic", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        dtype: DType,
        offset: int,
        shape: Shape,
        strides: Shape,
        dynamic: Dynamic | None = None,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dynamic = dynamic
        self._sig: tuple[object, ...] | None = None

    @staticmethod
    def whole(buffer: Buffer) -> Access:
        """The access that covers all of a buffer."""
        return Access(buffer, buffer.dtype, 0, buffer.shape, row_major(buffer.shape))

    def fixed(self) -> Access:
        """The window at index 0."""
        return Access(self.buffer, self.dtype, self.offset, self.shape, self.strides)

    @property
    def memory(self) -> MemoryRegion:
        """The region the buffer lives in."""
        return self.buffer.memory

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def partitions(self) -> int:
        """Size of dimension 0."""
        return self.shape[0]

    @property
    def free(self) -> int:
        """Elements per partition."""
        return prod(self.shape[1:])

    @property
    def row(self) -> int:
        """Elements of `dtype` in one partition (row) of the storage."""
        return self.buffer.partition_bytes // self.dtype.itemsize

    @property
    def start_partition(self) -> int:
        """Physical partition the access starts at (the tile's own rows, if it has no address yet)."""
        base = self.buffer.address[0] if self.buffer.address else 0
        return base + (self.offset // self.row if self.row else 0)

    @property
    def signature(self) -> tuple[object, ...]:
        """All of the access that legality and cost may depend on, hashable."""
        sig = self._sig
        if sig is None:
            row = self.row
            on_chip = self.buffer.memory.on_chip
            start = (self.start_partition, self.offset % row if row else 0) if on_chip else (0, 0)
            sig = (self.buffer.memory.value, self.dtype, self.shape, self.strides, start, self.buffer.shape)
            if self.dynamic is not None:
                sig = (*sig, *self.dynamic.signature)
            self._sig = sig
        return sig

    def extent(self) -> tuple[int, int]:
        """First and last storage element touched, counted in `dtype`; with a dynamic place, of all legal places."""
        low, high = self._reach()
        if self.dynamic is not None:
            moved = (max(self.places(), 1) - 1) * self.dynamic.stride
            low, high = low + min(moved, 0), high + max(moved, 0)
        return low, high

    def _reach(self) -> tuple[int, int]:
        """First and last storage element at index 0; rows that an index names are at row 0 then."""
        low = high = self.offset
        first = 1 if self.dynamic is not None and self.dynamic.kind == "vector" else 0
        for size, stride in zip(self.shape[first:], self.strides[first:]):
            reach = (size - 1) * stride
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high

    def places(self) -> int:
        """With a dynamic place: the number of legal index values, 0 ... places - 1. They stay within the size of the
        indexed dimension, and the window within the storage, on chip within each partition."""
        dynamic = self.dynamic
        assert dynamic is not None
        low, high = self._reach()
        last = self.buffer.nbytes // self.dtype.itemsize - 1
        if self.memory.on_chip:
            spread = (self.partitions - 1) * self.strides[0]
            row = self.offset // self.row * self.row
            low, high, last = low - row, high - row - spread, self.row - 1
        if low < 0 or high > last:
            return 0
        if dynamic.stride == 0:
            return dynamic.count
        room = last - high if dynamic.stride > 0 else low
        return min(dynamic.count, room // abs(dynamic.stride) + 1)

    def reachable(self) -> Access:
        """A window with a fixed place over all that the legal places touch, gaps included."""
        low, high = self.extent()
        if not self.memory.on_chip:
            return Access(self.buffer, self.dtype, low, (high - low + 1,), (1,))
        step = self.strides[0] or self.row
        width = high - low - (self.partitions - 1) * step + 1
        return Access(self.buffer, self.dtype, low, (self.partitions, width), (step, 1))

    def is_contiguous(self) -> bool:
        """Row-major without gaps; on chip the partition dimension is not looked at."""
        first = 1 if self.buffer.memory.on_chip else 0
        step = 1
        for size, stride in zip(reversed(self.shape[first:]), reversed(self.strides[first:])):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def dense(self) -> bool:
        """Row-major without gaps over all dimensions, the partition dimension included."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def describe(self) -> str:
        """`a` [128, 640] bfloat16 in sbuf, or with the window where it is not the whole tensor."""
        buffer = self.buffer
        text = f"`{buffer.label or buffer.name}` {list(self.shape)} {self.dtype} in {buffer.memory}"
        if self.shape != buffer.shape or self.offset:
            text += f" (a view of {list(buffer.shape)})"
        return text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Access):
            return NotImplemented
        return (
            self.buffer.name == other.buffer.name
            and self.dtype == other.dtype
            and self.offset == other.offset
            and self.shape == other.shape
            and self.strides == other.strides
            and self.dynamic == other.dynamic
        )

    def __hash__(self) -> int:
        return hash((self.buffer.name, self.dtype, self.offset, self.shape, self.strides))

    def __repr__(self) -> str:
        return f"<Access %{self.buffer.name}+{self.offset} {self.shape} {self.strides} {self.dtype}>"
