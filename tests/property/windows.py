"""Random windows on shared tensors, made with the views that kernels use, some placed by the device. Tests nothing."""

from __future__ import annotations

import math
import random
from typing import Any

from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.control import Dynamic, Register
from nki.ir.operands import REQUIRED, Operand
from nki.ir.program import Access, Buffer, Shape
from nki.tensor import NkiTensor
from tests.property.playing import LARGEST_INDEX


class NoRoom(Exception):
    """A tensor is too small for a window."""


class Windows:
    """pool: the tensors that instructions share. fixed: tiles of small numbers, which nothing writes: int32, uint32,
    int8. places: registers that hold small numbers. seen: windows made before, which are often taken again."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pick = chance.choice
        self.pool: list[Buffer] = []
        self.fixed: list[Buffer] = []
        self.places: list[Register] = []
        self.seen: dict[Any, list[Access]] = {}

    def often(self, probability: float = 0.5) -> bool:
        return self.chance.random() < probability

    def shape_of(self, sizes: list[int]) -> Shape:
        """A shape of two or three dimensions with so many partitions and elements."""
        if len(sizes) == 1:
            sizes = [1, *sizes] if self.often() else [*sizes, 1]
        rows, free = sizes
        first = self.pick([n for n in range(1, free + 1) if free % n == 0])
        return (rows, free) if self.often(0.7) else (rows, first, free // first)

    def window(self, shape: Shape, dtype: DType, memory: MemoryRegion, pool: list[Buffer]) -> Any:
        """A window of this shape on one of the tensors; `REQUIRED` if none has room."""
        tiles = [b for b in pool if b.memory is memory]
        alike = [b for b in tiles if b.dtype == dtype]
        tiles = alike if alike and self.often(0.8) else tiles
        key = (shape, dtype, memory)
        known = [a for a in self.seen.get(key, ()) if a.buffer in pool]
        if known and self.often(0.75):
            return self.pick(known)
        for _ in range(4 if tiles else 0):
            tensor = NkiTensor._of(Access.whole(self.pick(tiles)))
            try:
                seen = tensor if tensor.dtype == dtype else tensor.view(dtype)
                made = self.shaped(seen, shape, self.fixed[0] not in pool).access
                if 0 not in made.strides:
                    self.seen.setdefault(key, []).append(made)
                return made
            except (NkiError, NoRoom):
                continue
        return REQUIRED

    def shaped(self, seen: NkiTensor, shape: Shape, writes: bool) -> NkiTensor:
        """A view of `seen` of this shape: a slice with a step, turned axes, one element repeated, or a pattern."""
        rows, free = shape[0], math.prod(shape[1:])
        width = math.prod(seen.shape[1:])
        if not seen.buffer.on_chip and self.often(0.7):
            seen, width = self._any_rows(seen, rows), math.prod(seen.shape) // rows
        first = self.start(seen.shape[0] - rows, (0, 0, 0, 32, 64))
        flat = seen[first : first + rows].reshape((rows, width))
        style = self.chance.randrange(5)
        if style == 0 and not writes:
            column = self.start(width - 1)
            return flat[:, column : column + 1].broadcast(1, free).reshape_dim(1, shape[1:])
        step = self.pick([1, 1, 2, 3]) if style == 1 else 1
        column = self.start(width - (free - 1) * step - 1)
        part = flat[:, column : column + (free - 1) * step + 1 : step]
        if style == 2 and len(shape) == 3:
            return part.reshape_dim(1, (shape[2], shape[1])).permute((0, 2, 1))
        if style == 3 and free > 1:
            backwards = self.often()
            pattern = [[flat.strides[0], rows], [-1 if backwards else 1, free]]
            turned = part.ap(pattern, offset=part.offset + (free - 1) * backwards)
            return turned.reshape_dim(1, shape[1:])
        return part.reshape_dim(1, shape[1:]) if len(shape) == 3 else part

    def _any_rows(self, seen: NkiTensor, rows: int) -> NkiTensor:
        total = math.prod(seen.shape)
        flat = seen.reshape((1, total))
        return flat[:, : total // rows * rows].reshape((rows, total // rows))

    def start(self, room: int, choices: tuple[int, ...] = ()) -> int:
        """A first index that leaves room."""
        if room < 0:
            raise NoRoom
        return self.pick([c for c in choices if c <= room] or [self.chance.randint(0, room)])

    def placed(self, spec: Operand, access: Access) -> Access:
        """The same window moved by a register, by a tile with one value, or row by row, if the moves have room."""
        shape, strides, stride = access.shape, access.strides, self.pick([0, 1, 2, 4])
        kind, index = "scalar", self.pick(self.places)
        if spec.rows and access.memory.is_hbm and self.often():
            kind, index, strides = "vector", self._index(0, shape[0], 1), (0, *strides[1:])
        elif spec.indirect and access.memory.on_chip and len(shape) == 2 and self.often():
            kind, strides, stride = "indirect", (strides[0], 0), 1
            index = self._index(self.pick([0, 2]), shape[0], min(shape[1], 8))
        elif self.often(0.3):
            index = self._index(self.pick([0, 1]), 1, 1)
        dynamic = Dynamic(kind, index, stride, 9)
        moved = Access(access.buffer, access.dtype, access.offset, shape, strides, dynamic)
        return moved if moved.places() > LARGEST_INDEX else access

    def _index(self, which: int, rows: int, columns: int) -> Access:
        tile = self.fixed[which]
        return Access(tile, tile.dtype, self.pick([0, 3 % (9 - columns)]), (min(rows, 128), columns), (8, 1))
